"""Rows as JSON objects, a column at a time: first how long each row gets, then its bytes."""

import numpy as np
from numba import njit

_MINUS, _ZERO, _CLOSE = 45, 48, 125
_NULL = (110, 117, 108, 108)


@njit(cache=True, nogil=True, forceinline=True)
def _is_null(nulls, k):  # type: ignore[no-untyped-def]
    return nulls.size > 0 and nulls[k]


@njit(cache=True, nogil=True, forceinline=True)
def _begin(label, nulls, k, at, out):  # type: ignore[no-untyped-def]
    """Write the label, and null if the value is; return where to go on."""
    for c in range(label.size):
        out[at + c] = label[c]
    at += label.size
    if _is_null(nulls, k):
        for c in _NULL:
            out[at] = c
            at += 1
    return at


@njit(cache=True, nogil=True, forceinline=True)
def _magnitude(word):  # type: ignore[no-untyped-def]
    return np.uint64(word) if word >= 0 else np.uint64(0) - np.uint64(word)


@njit(cache=True, nogil=True, forceinline=True)
def _digits(magnitude):  # type: ignore[no-untyped-def]
    """Return how many digits a number has that is at most 2^63."""
    n = 1
    if magnitude >= np.uint64(10**16):
        magnitude //= np.uint64(10**16)
        n += 16
    if magnitude >= np.uint64(10**8):
        magnitude //= np.uint64(10**8)
        n += 8
    if magnitude >= np.uint64(10**4):
        magnitude //= np.uint64(10**4)
        n += 4
    if magnitude >= np.uint64(100):
        magnitude //= np.uint64(100)
        n += 2
    return n + (magnitude >= np.uint64(10))


@njit(cache=True, nogil=True, forceinline=True)
def _length(word):  # type: ignore[no-untyped-def]
    return _digits(_magnitude(word)) + (word < 0)


@njit(cache=True, nogil=True, forceinline=True)
def _write(word, to, out):  # type: ignore[no-untyped-def]
    """Write a number; return where to go on."""
    rest = _magnitude(word)
    if word < 0:
        out[to] = _MINUS
        to += 1
    end = to + _digits(rest)
    at = end
    while rest >= np.uint64(100):
        pair = np.uint32(rest % np.uint64(100))
        rest //= np.uint64(100)
        at -= 2
        out[at] = _ZERO + pair // np.uint32(10)
        out[at + 1] = _ZERO + pair % np.uint32(10)
    if rest >= np.uint64(10):
        out[to] = _ZERO + rest // np.uint64(10)
    out[at - 1] = _ZERO + rest % np.uint64(10)
    return end


@njit(cache=True, nogil=True)
def measure_rows(words, labels, ends):  # type: ignore[no-untyped-def]
    """Write where each row of whole numbers ends, ``labels`` bytes and a bracket included; return the last."""
    end = 0
    for k in range(words.shape[0]):
        end += labels + 1
        for c in range(words.shape[1]):
            end += _length(words[k, c])
        ends[k] = end
    return end


@njit(cache=True, nogil=True)
def write_rows(words, labels, starts, out):  # type: ignore[no-untyped-def]
    """Write rows of whole numbers one after the other; the label of column ``c`` is from ``starts[c]`` on."""
    to = 0
    for k in range(words.shape[0]):
        for c in range(words.shape[1]):
            for b in range(starts[c], starts[c + 1]):
                out[to] = labels[b]
                to += 1
            to = _write(words[k, c], to, out)
        out[to] = _CLOSE
        to += 1


@njit(cache=True, nogil=True)
def measure_integers(words, nulls, lengths):  # type: ignore[no-untyped-def]
    """Add the length of each value to that of its row; ``nulls`` is empty where there are none."""
    for k in range(words.size):
        if _is_null(nulls, k):
            lengths[k] += len(_NULL)
        else:
            lengths[k] += _length(words[k])


@njit(cache=True, nogil=True)
def write_integers(label, words, nulls, at, out):  # type: ignore[no-untyped-def]
    """Write label and value of each row at its place, and move the place on."""
    for k in range(words.size):
        to = _begin(label, nulls, k, at[k], out)
        if not _is_null(nulls, k):
            to = _write(words[k], to, out)
        at[k] = to


@njit(cache=True, nogil=True)
def measure_texts(offsets, nulls, lengths):  # type: ignore[no-untyped-def]
    """As ``measure_integers``, for texts that are JSON already."""
    for k in range(offsets.size - 1):
        lengths[k] += len(_NULL) if _is_null(nulls, k) else offsets[k + 1] - offsets[k]


@njit(cache=True, nogil=True)
def write_texts(label, offsets, data, nulls, at, out):  # type: ignore[no-untyped-def]
    """As ``write_integers``."""
    for k in range(offsets.size - 1):
        to = _begin(label, nulls, k, at[k], out)
        if not _is_null(nulls, k):
            for c in range(offsets[k], offsets[k + 1]):
                out[to] = data[c]
                to += 1
        at[k] = to
