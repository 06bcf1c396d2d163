"""Finding rows by their number in a store that is sorted by it, and what is kept beside them."""

import numpy as np

from slackwater.transforms.kernels.compiler import kernel


@kernel(inline=True)
def _place(stored, seq):  # type: ignore[no-untyped-def]
    """Return the position of ``seq`` in the ascending array ``stored``, or -1 if it is not there.

    Rows are appended in order and mostly asked for soon after, so the end of the store is a run of
    consecutive numbers and the position follows by subtraction; only older rows need a binary search.
    """
    end = stored.size - 1
    if end < 0:
        return np.int64(-1)
    back = stored[end] - seq
    if 0 <= back <= end and stored[end - back] == seq:
        return end - back
    low = np.int64(0)
    high = end
    while low < high:
        middle = (low + high) >> 1
        if stored[middle] < seq:
            low = middle + 1
        else:
            high = middle
    return low if stored[low] == seq else np.int64(-1)


@kernel
def locate(stored, seqs, out):  # type: ignore[no-untyped-def]
    """Write the position of each of ``seqs`` in the ascending array ``stored``; return the place of one that is
    not there, or -1."""
    unknown = -1
    for k in range(seqs.size):
        at = _place(stored, seqs[k])
        out[k] = at
        if at < 0:
            unknown = k
    return unknown


@kernel
def report(stored, reported, inputs, which, seqs, out):  # type: ignore[no-untyped-def]
    """Mark those of ``seqs`` that are of input ``which`` as reported; write where those stand that had not
    been, and return how many they are, or ``-1 - k`` if number k is not there."""
    n = 0
    for k in range(seqs.size):
        if inputs[k] != which:
            continue
        at = _place(stored, seqs[k])
        if at < 0:
            return -1 - k
        if not reported[at]:
            out[n] = at
            n += 1
        reported[at] = True
    return n


@kernel
def scatter(codes, which, stored, cells, nulls, delay, out_cells, out_nulls, out_delay):  # type: ignore[no-untyped-def]
    """For the rows of input ``which``, copy what the store keeps beside them to their places; return the place of
    one that is not there, or -1."""
    for k in range(codes.size):
        if codes[k] & 7 != which:
            continue
        at = _place(stored, codes[k] >> 3)
        if at < 0:
            return k
        for c in range(cells.shape[1]):
            out_cells[k, c] = cells[at, c]
        out_nulls[k] = nulls[at]
        out_delay[k] = delay[at]
    return -1


@kernel
def spread(at, cells, nulls, out_cells, out_nulls):  # type: ignore[no-untyped-def]
    """Write the cells and null masks of some rows to their places among all."""
    for k in range(at.size):
        out_nulls[at[k]] = nulls[k]
        for c in range(cells.shape[1]):
            out_cells[at[k], c] = cells[k, c]


@kernel
def remaining(ts, inputs, windows, now, out):  # type: ignore[no-untyped-def]
    """Write how long the windows of their inputs still hold rows: less than 0 where they do not."""
    for k in range(ts.size):
        out[k] = ts[k] + windows[inputs[k]] - now
