"""Finding rows by their number in a store that is sorted by it, and what is kept beside them."""

import numpy as np

from slackwater.transforms.kernels.compiler import kernel


@kernel(inline=True)
def _place(stored, seq):  # type: ignore[no-untyped-def]
    """Return the position of ``seq`` in the ascending array ``stored``, which holds it.

    Rows are appended in order and mostly asked for soon after, so the end of the store is a run of
    consecutive numbers and the position follows by subtraction; only older rows need a binary search.
    """
    end = stored.size - 1
    guess = end - (stored[end] - seq)
    if guess >= 0 and stored[guess] == seq:
        return guess
    low = np.int64(0)
    high = end
    while low < high:
        middle = (low + high) >> 1
        if stored[middle] < seq:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def locate(stored, seqs, out):  # type: ignore[no-untyped-def]
    """Write the position of each of ``seqs`` in the ascending array ``stored``, which holds them all."""
    for k in range(seqs.size):
        out[k] = _place(stored, seqs[k])


@kernel
def report(stored, reported, copy, inputs, which, seqs, out):  # type: ignore[no-untyped-def]
    """Mark those of ``seqs`` that are of input ``which`` as reported; write where those stand that were neither
    reported nor copies, and return how many they are."""
    n = 0
    for k in range(seqs.size):
        if inputs[k] != which:
            continue
        at = _place(stored, seqs[k])
        if not (reported[at] or copy[at]):
            out[n] = at
            n += 1
        reported[at] = True
    return n


@kernel
def scatter(codes, which, stored, cells, nulls, delay, out_cells, out_nulls, out_delay):  # type: ignore[no-untyped-def]
    """For the released rows of input ``which``, copy what the store keeps beside them to their places."""
    end = stored.size - 1
    newest = stored[end] if end >= 0 else 0
    for k in range(codes.size):
        if codes[k] & 7 != which:
            continue
        seq = codes[k] >> 3
        at = end - (newest - seq)
        if at < 0 or stored[at] != seq:
            at = np.searchsorted(stored, seq)
        for c in range(cells.shape[1]):
            out_cells[k, c] = cells[at, c]
        out_nulls[k] = nulls[at]
        out_delay[k] = delay[at]


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
