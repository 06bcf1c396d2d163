"""How often values arrive: exact or decaying counts by hash, or a count-min sketch of fixed size.

Values are known by a 64-bit hash of their key columns and of the input and key that they belong to; two that
share a hash share a count. Observations weigh more and more instead of the past less and less, which comes to
the same for shares and touches one count per arrival.

Values that have not arrived yet may still do so, and ids that come once do not come again. So every key has a
*repeat rate* r, the share of its arrivals whose value had been seen before. A value that was seen has r times its
share of the past; 1 - r is for new values, each of which gets as much of it as those that were new before,
in all the share of one arrival. With few values, r is close to 1 and nothing but the past counts.
"""

from typing import Any, NamedTuple

import numpy as np

from slackwater.transforms.kernels.compiler import kernel
from slackwater.transforms.kernels.rows.dictionary import mix

ROWS = 4
"""Counters of a value in a sketch; the smallest is its count."""
# Columns of a key: whose it is, number of columns, which key classes, which inputs beyond, its place among
# the own keys of the input, where its hashes start from, then the cells.
INPUT, KEYS, CLASSES, BEYOND, OWN, SEED, CELLS = range(7)
# Of the weights: that of the next observation, the factor from one to the next, whether values are counted, and
# whether others than those seen are to be expected.
GAIN, GROWTH, COUNTS, FORESEES = range(4)
# Of the arrivals of a key: how many there were, how many brought a new value, and what all of them count.
ALL, NEW, MASS = range(3)


class Frequencies(NamedTuple):
    """Counts, and which columns of a tuple are counted and looked up."""

    hashes: Any
    """``[room, 2]``: open addressing, a hash, 0 for none, and the bits of its count; empty for a sketch."""
    counts: Any
    """The same bytes as numbers; or ``[counters, 1]``: the ``ROWS`` rows of a sketch one after the other."""
    used: Any
    """``[1]``: hashes in the table."""
    totals: Any
    """Of each input, all that was observed."""
    arrivals: Any
    """``[input, own key, 3]``, by the weights of their time."""
    weights: Any
    own: Any
    """``[input, key, columns]``: the keys of its tuples that others may match; KEYS is 0 where there is none."""
    partners: Any
    """``[input, key, columns]``: whose keys its tuples match, and by which of their own cells."""


def table_of(size: int) -> tuple[Any, Any]:
    """Return an empty table for ``Frequencies.hashes`` and ``counts``: a hash is found with its count."""
    hashes = np.zeros((size, 2), np.uint64)
    return hashes, hashes.view(np.float64)


@kernel
def seed_of(which, classes, beyond):  # type: ignore[no-untyped-def]
    """Return where the hashes of a key start from."""
    h = mix(np.uint64(8 * classes + which) + np.uint64(0x9E3779B97F4A7C15))
    return np.int64(mix(h ^ np.uint64(beyond)))


@kernel(inline=True)
def _hash(key, cells, nulls, k):  # type: ignore[no-untyped-def]
    """Return the hash of a tuple's key, or 0 if a column is null."""
    h = np.uint64(key[SEED])
    for c in range(key[KEYS]):
        cell = key[CELLS + c]
        if (nulls[k] >> np.uint64(cell)) & np.uint64(1) != 0:
            return np.uint64(0)
        h = mix(h ^ np.uint64(cells[k, cell]))
    return h | np.uint64(1)


@kernel(inline=True)
def _place(hashes, h):  # type: ignore[no-untyped-def]
    mask = np.uint64(hashes.shape[0] - 1)
    at = (h >> np.uint64(1)) & mask
    # Every third value or so is one place further: to go there without a branch is faster than to guess.
    first = hashes[at, 0]
    at = (at + np.uint64((first != 0) & (first != h))) & mask
    while hashes[at, 0] != 0 and hashes[at, 0] != h:
        at = (at + np.uint64(1)) & mask
    return at


@kernel(inline=True)
def _count(f, h):  # type: ignore[no-untyped-def]
    """Return the count of a value; -1 if it was never seen."""
    if f.hashes.size:
        at = _place(f.hashes, h)
        return f.counts[at, -1] if f.hashes[at, 0] == h else -1.0
    width = f.counts.size // ROWS
    least = np.inf
    for row in range(ROWS):
        h = mix(h)
        least = min(least, f.counts[row * width + np.int64(h & np.uint64(width - 1)), -1])
    return least if least > 0.0 else -1.0


@kernel(inline=True)
def _observe(f, h, weight):  # type: ignore[no-untyped-def]
    """Add to the count of a value; return whether it is new. For a sketch it is if a counter of it was 0."""
    new = False
    if f.hashes.size:
        at = _place(f.hashes, h)
        if f.hashes[at, 0] == 0:
            f.hashes[at, 0] = h
            f.counts[at, -1] = 0.0
            f.used[0] += 1
            new = True
        f.counts[at, -1] += weight
        return new
    width = f.counts.size // ROWS
    for row in range(ROWS):
        h = mix(h)
        at = np.uint64(row * width) + (h & np.uint64(width - 1))
        new = new or f.counts[at, -1] == 0.0
        f.counts[at, -1] += weight
    return new


@kernel(inline=True)
def share(f, gain, key, cells, nulls, k):  # type: ignore[no-untyped-def]
    """Return the share of what the other input will bring that has the value of a tuple's key; ``gain`` is the
    weight of the next observation."""
    h = _hash(key, cells, nulls, k)
    total = f.totals[key[INPUT]]
    if h == 0 or total == 0.0:
        return 0.0
    counted = _count(f, h)
    if f.weights[FORESEES] == 0.0:
        return max(0.0, counted) / total
    arrivals = f.arrivals[key[INPUT], key[OWN]]
    if arrivals[ALL] == 0.0:
        return 0.0
    if counted < 0.0:
        return gain / arrivals[ALL] * arrivals[MASS] / total
    return (1.0 - arrivals[NEW] / arrivals[ALL]) * counted / total


@kernel(inline=True)
def count(f, gain, key, cells, nulls, k, weight):  # type: ignore[no-untyped-def]
    """Count the value of a tuple's key. The caller has made room for it."""
    h = _hash(key, cells, nulls, k)
    if h != 0:
        arrivals = f.arrivals[key[INPUT], key[OWN]]
        if _observe(f, h, weight):
            arrivals[NEW] += gain
        arrivals[ALL] += gain
        arrivals[MASS] += weight


@kernel
def hashes_of(key, words, out):  # type: ignore[no-untyped-def]
    """Write the hashes under which values of a key are looked up; its cells are the columns of ``words``."""
    nulls = np.zeros(out.size, np.uint64)
    for k in range(out.size):
        out[k] = _hash(key, words, nulls, k)


@kernel(inline=True)
def rescale(f):  # type: ignore[no-untyped-def]
    """Divide all counts by the weight of the next observation, unless they are given."""
    if f.weights[COUNTS] == 0.0:
        return
    for at in range(f.counts.shape[0]):
        f.counts[at, -1] /= f.weights[GAIN]
    for j in range(f.totals.size):
        f.totals[j] /= f.weights[GAIN]
    f.arrivals[:] /= f.weights[GAIN]


@kernel
def refill(hashes, counts, least, new_hashes, new_counts):  # type: ignore[no-untyped-def]
    """Move the counts that are at least ``least`` to an empty table; return how many there are."""
    n = 0
    for at in range(hashes.size):
        if hashes[at] != 0 and counts[at] >= least:
            place = _place(new_hashes, hashes[at])
            new_hashes[place, 0] = hashes[at]
            new_counts[place, -1] = counts[at]
            n += 1
    return n
