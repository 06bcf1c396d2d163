"""The pairs that a join owes because one member was on disk when the other came."""

import numpy as np

from slackwater.transforms.kernels.compiler import kernel
from slackwater.transforms.kernels.rows.dictionary import mix

NONE = -1


@kernel(inline=True)
def _hash(keys, k):  # type: ignore[no-untyped-def]
    h = np.uint64(0x9E3779B97F4A7C15)
    for c in range(keys.shape[1]):
        h = mix(h ^ np.uint64(keys[k, c]))
    return h


@kernel(inline=True)
def _same(keys, k, others, j):  # type: ignore[no-untyped-def]
    same = True
    for c in range(keys.shape[1]):
        same &= keys[k, c] == others[j, c]
    return same


@kernel
def partition(keys, partitions, out):  # type: ignore[no-untyped-def]
    """Write the partition of each key to ``out``."""
    for k in range(out.size):
        out[k] = np.int64((_hash(keys, k) >> np.uint64(20)) % np.uint64(partitions))


@kernel
def chain(keys, usable, table, following):  # type: ignore[no-untyped-def]
    """Link the usable rows of each key in their order; ``table``, emptied, gets the first row of each."""
    last = np.empty(following.size, np.int64)
    mask = table.size - 1
    for k in range(following.size):
        following[k] = NONE
        if not usable[k]:
            continue
        at = np.int64(_hash(keys, k) & np.uint64(mask))
        while table[at] != NONE and not _same(keys, table[at], keys, k):
            at = (at + 1) & mask
        first = table[at]
        if first == NONE:
            table[at] = k
            last[k] = k
        else:
            following[last[first]] = k
            last[first] = k


@kernel
def pairs(keys, left, table, following, debtor_keys, epoch, owing, position, out):  # type: ignore[no-untyped-def]
    """Write (row, debtor) for every row with the key of a debtor that had left memory before it came.

    Rows stand in the order in which they left, so the walk along a chain ends at the first that is too young:
    every step gives a pair. ``position`` is the debtor and the row to go on with, the row NONE for the first of
    its chain; it is moved on. Returns how many pairs were written; stops when ``out`` is full.
    """
    mask = table.size - 1
    n = 0
    debtor, row = position
    while debtor < epoch.size:
        if row == NONE and owing[debtor]:
            at = np.int64(_hash(debtor_keys, debtor) & np.uint64(mask))
            while table[at] != NONE and not _same(keys, table[at], debtor_keys, debtor):
                at = (at + 1) & mask
            row = table[at]
        while row != NONE and left[row] <= epoch[debtor]:
            if n == out.shape[0]:
                position[0], position[1] = debtor, row
                return n
            out[n, 0] = row
            out[n, 1] = debtor
            n += 1
            row = following[row]
        debtor += 1
        row = NONE
    position[0], position[1] = debtor, row
    return n
