"""Rows as JSON objects, a column at a time: first how long each row gets, then its bytes; or row by row."""

import numpy as np

from slackwater.transforms.kernels.borrow import borrowed
from slackwater.transforms.kernels.compiler import kernel

LONGEST = 20
"""Characters of a whole number at most."""
_MINUS, _ZERO, _CLOSE = 45, 48, 125
_NULL = (110, 117, 108, 108)


@kernel(inline=True)
def _is_null(nulls, k):  # type: ignore[no-untyped-def]
    return nulls.size > 0 and nulls[k]


@kernel(inline=True)
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


@kernel(inline=True)
def _magnitude(word):  # type: ignore[no-untyped-def]
    return np.uint64(word) if word >= 0 else np.uint64(0) - np.uint64(word)


@kernel(inline=True)
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


@kernel(inline=True)
def _length(word):  # type: ignore[no-untyped-def]
    return _digits(_magnitude(word)) + (word < 0)


@kernel(inline=True)
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


@kernel(inline=True)
def _store(word, at, out):  # type: ignore[no-untyped-def]
    """Write the eight bytes of a word, the lowest first: one instruction, as an unsigned place needs no check."""
    place = np.uint64(at)
    for b in range(8):
        out[place + np.uint64(b)] = np.uint8((word >> np.uint64(8 * b)) & np.uint64(255))


@kernel(inline=True)
def _eight_digits(n):  # type: ignore[no-untyped-def]
    """Return a number below 10^8 as eight characters in a word: halved to four, two and one digit at once."""
    fours = n // np.uint64(10**4) | (n % np.uint64(10**4)) << np.uint64(32)
    hundreds = fours * np.uint64(10486) >> np.uint64(20) & np.uint64(0x7F0000007F)
    twos = hundreds | (fours - np.uint64(100) * hundreds) << np.uint64(16)
    tens = twos * np.uint64(103) >> np.uint64(10) & np.uint64(0xF000F000F000F)
    return (tens | (twos - np.uint64(10) * tens) << np.uint64(8)) + np.uint64(0x3030303030303030)


@kernel(inline=True)
def _few_digits(n):  # type: ignore[no-untyped-def]
    """As ``_digits``, for numbers below 10^8, without a branch."""
    return (
        1 + (n >= np.uint64(10)) + (n >= np.uint64(10**2)) + (n >= np.uint64(10**3)) + (n >= np.uint64(10**4))
        + (n >= np.uint64(10**5)) + (n >= np.uint64(10**6)) + (n >= np.uint64(10**7))
    )  # fmt: skip


@kernel
def write_rows(words, labels, lengths, offsets, out):  # type: ignore[no-untyped-def]
    """Write rows of whole numbers so that they end with ``out``, which has room for the longest and a word more.

    ``labels[c]`` is what stands before column ``c``, of ``lengths[c]`` bytes, in words that end with it. Rows are
    written from the last to the first and so is each, whole words at a time: what they have too much on the left
    is written over. Returns where the first row begins; ``offsets`` is where each does from there on, and ends.
    """
    words, labels, lengths, out = borrowed(words), borrowed(labels), borrowed(lengths), borrowed(out)
    at = out.size
    offsets[words.shape[0]] = at
    for k in range(words.shape[0] - 1, -1, -1):
        at -= 1
        out[at] = _CLOSE
        for c in range(words.shape[1] - 1, -1, -1):
            rest = _magnitude(words[k, c])
            while rest >= np.uint64(10**8):
                at -= 8
                _store(_eight_digits(rest % np.uint64(10**8)), at, out)
                rest //= np.uint64(10**8)
            _store(_eight_digits(rest), at - 8, out)
            at -= _few_digits(rest)
            if words[k, c] < 0:
                at -= 1
                out[at] = _MINUS
            for b in range(1, labels.shape[1] + 1):
                if 8 * b - 8 < lengths[c]:
                    _store(labels[c, labels.shape[1] - b], at - 8 * b, out)
            at -= lengths[c]
        offsets[k] = at
    for k in range(offsets.size):
        offsets[k] -= at
    return at


@kernel
def measure_integers(words, nulls, lengths):  # type: ignore[no-untyped-def]
    """Add the length of each value to that of its row; ``nulls`` is empty where there are none."""
    for k in range(words.size):
        if _is_null(nulls, k):
            lengths[k] += len(_NULL)
        else:
            lengths[k] += _length(words[k])


@kernel
def write_integers(label, words, nulls, at, out):  # type: ignore[no-untyped-def]
    """Write label and value of each row at its place, and move the place on."""
    for k in range(words.size):
        to = _begin(label, nulls, k, at[k], out)
        if not _is_null(nulls, k):
            to = _write(words[k], to, out)
        at[k] = to


@kernel
def measure_texts(offsets, nulls, lengths):  # type: ignore[no-untyped-def]
    """As ``measure_integers``, for texts that are JSON already."""
    for k in range(offsets.size - 1):
        lengths[k] += len(_NULL) if _is_null(nulls, k) else offsets[k + 1] - offsets[k]


@kernel
def write_texts(label, offsets, data, nulls, at, out):  # type: ignore[no-untyped-def]
    """As ``write_integers``."""
    for k in range(offsets.size - 1):
        to = _begin(label, nulls, k, at[k], out)
        if not _is_null(nulls, k):
            for c in range(offsets[k], offsets[k + 1]):
                out[to] = data[c]
                to += 1
        at[k] = to
