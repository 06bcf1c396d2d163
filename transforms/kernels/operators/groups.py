"""Groups of rows with equal keys: numbers for them, handed out in the order in which keys are first seen."""

import numpy as np

from slackwater.transforms.kernels.compiler import kernel
from slackwater.transforms.kernels.rows.dictionary import mix


@kernel(inline=True)
def _hash(cells, nulls, k):  # type: ignore[no-untyped-def]
    h = np.uint64(nulls[k]) ^ np.uint64(0x9E3779B97F4A7C15)
    for c in range(cells.shape[1]):
        h = mix(h ^ np.uint64(cells[k, c])) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64(h >> np.uint64(1))


@kernel
def assign(cells, nulls, table, stored, stored_nulls, n, out, first_row):  # type: ignore[no-untyped-def]
    """Write the group of each row to ``out``; return how many groups there are now.

    A key is the row's cells with its null mask; the cell of a null is 0. ``table`` is at least twice as large as
    all groups there may be, ``stored`` and ``stored_nulls`` have room for them, and ``n`` of them are known.
    ``first_row`` gets the row that each new group was first seen in.
    """
    mask = table.size - 1
    known = n
    for k in range(out.size):
        at = _hash(cells, nulls, k) & mask
        while True:
            group = table[at]
            if group < 0:
                table[at] = n
                for c in range(cells.shape[1]):
                    stored[n, c] = cells[k, c]
                stored_nulls[n] = nulls[k]
                first_row[n - known] = k
                out[k] = n
                n += 1
                break
            same = stored_nulls[group] == nulls[k]
            for c in range(cells.shape[1]):
                same = same and stored[group, c] == cells[k, c]
            if same:
                out[k] = group
                break
            at = (at + 1) & mask
    return n


@kernel
def rehash(table, stored, stored_nulls, n):  # type: ignore[no-untyped-def]
    """Fill the emptied ``table`` with the ``n`` groups that are known."""
    mask = table.size - 1
    for group in range(n):
        at = _hash(stored, stored_nulls, group) & mask
        while table[at] >= 0:
            at = (at + 1) & mask
        table[at] = group
