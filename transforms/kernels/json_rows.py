"""Rows as JSON objects, a column at a time: first how long each row gets, then its bytes."""

import numpy as np
from numba import njit

_MINUS, _ZERO = 45, 48
_NULL = (110, 117, 108, 108)


@njit(cache=True, nogil=True, inline="always")
def _is_null(nulls, k):  # type: ignore[no-untyped-def]
    return nulls.size > 0 and nulls[k]


@njit(cache=True, nogil=True, inline="always")
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


@njit(cache=True, nogil=True, inline="always")
def _magnitude(word):  # type: ignore[no-untyped-def]
    return np.uint64(word) if word >= 0 else np.uint64(0) - np.uint64(word)


@njit(cache=True, nogil=True, inline="always")
def _digits(magnitude):  # type: ignore[no-untyped-def]
    """Return how many digits a number has that is at most 2^63."""
    n = 1
    limit = np.uint64(10)
    while magnitude >= limit:
        limit *= np.uint64(10)
        n += 1
    return n


@njit(cache=True, nogil=True)
def measure_integers(words, nulls, lengths):  # type: ignore[no-untyped-def]
    """Add the length of each value to that of its row; ``nulls`` is empty where there are none."""
    for k in range(words.size):
        if _is_null(nulls, k):
            lengths[k] += len(_NULL)
        else:
            lengths[k] += _digits(_magnitude(words[k])) + (words[k] < 0)


@njit(cache=True, nogil=True)
def write_integers(label, words, nulls, at, out):  # type: ignore[no-untyped-def]
    """Write label and value of each row at its place, and move the place on."""
    for k in range(words.size):
        to = _begin(label, nulls, k, at[k], out)
        if not _is_null(nulls, k):
            rest = _magnitude(words[k])
            if words[k] < 0:
                out[to] = _MINUS
                to += 1
            n = _digits(rest)
            for c in range(to + n - 1, to - 1, -1):
                out[c] = _ZERO + np.int64(rest % np.uint64(10))
                rest //= np.uint64(10)
            to += n
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
