"""Min-heaps of slots by score, in which every slot knows its place, so that any can be removed.

Entries are ordered by score, then event time, then code: of equal scores the older goes first (SAJ 4.2), and the
order does not depend on how the heap came about. An entry is one record and has four children, so that a way
through a heap that is larger than the cache touches few lines of memory.
"""

from typing import Any, NamedTuple

import numpy as np

from slackwater.transforms.kernels.compiler import kernel

CHILDREN = 4
# Columns of an entry.
RANK, TS, CODE, SLOT = range(4)
COLUMNS = 4
LOWEST = int(np.float64(-np.inf).view(np.int64)) ^ (2**63 - 1)
"""Rank of the lowest score."""


class ScoreHeaps(NamedTuple):
    """One heap per row: of each input where memory is split, else one of all."""

    entries: Any
    """``[heaps, room, COLUMNS]``: rank, event time, code (``seq * 8 + input``) and slot of the tuples."""
    place: Any
    """Of each slot, where it stands in its heap."""
    size: Any


def ranks(scores: Any) -> Any:
    """Return whole numbers in the same order as the scores, which are no NaN."""
    return _ranks(np.ascontiguousarray(scores, np.float64))


@kernel
def _ranks(scores):  # type: ignore[no-untyped-def]
    out = (scores + 0.0).view(np.int64)
    for k in range(out.size):
        out[k] ^= (out[k] >> 63) & (2**63 - 1)
    return out


def scores(ranks: Any) -> Any:
    """Return the scores that have these ranks."""
    return (ranks ^ ((ranks >> 63) & np.iinfo(np.int64).max)).view(np.float64)


@kernel(inline=True)
def before(rank, ts, code, other):  # type: ignore[no-untyped-def]
    """Return whether an entry is to leave before another, a record."""
    if rank != other[RANK]:
        return rank < other[RANK]
    if ts != other[TS]:
        return ts < other[TS]
    return code < other[CODE]


@kernel(inline=True)
def _move(heaps, h, source, target):  # type: ignore[no-untyped-def]
    for c in range(COLUMNS):
        heaps.entries[h, target, c] = heaps.entries[h, source, c]
    heaps.place[heaps.entries[h, target, SLOT]] = target


@kernel(inline=True)
def _put(heaps, h, at, rank, ts, code, slot):  # type: ignore[no-untyped-def]
    entry = heaps.entries[h, at]
    entry[RANK] = rank
    entry[TS] = ts
    entry[CODE] = code
    entry[SLOT] = slot
    heaps.place[slot] = at


@kernel(inline=True)
def _rise(heaps, h, at, rank, ts, code, slot):  # type: ignore[no-untyped-def]
    """Put an entry at ``at`` or above it."""
    while at > 0:
        parent = (at - 1) // CHILDREN
        if not before(rank, ts, code, heaps.entries[h, parent]):
            break
        _move(heaps, h, parent, at)
        at = parent
    _put(heaps, h, at, rank, ts, code, slot)


@kernel(inline=True)
def _sink(heaps, h, at, rank, ts, code, slot):  # type: ignore[no-untyped-def]
    """Put an entry at ``at`` or below it."""
    n = heaps.size[h]
    entries = heaps.entries[h]
    while True:
        child = CHILDREN * at + 1
        if child >= n:
            break
        lowest = entries[child, RANK]
        for other in range(child + 1, min(child + CHILDREN, n)):
            found = entries[other, RANK]
            if found == lowest:
                if before(found, entries[other, TS], entries[other, CODE], entries[child]):
                    child = other
            else:
                # Either is as likely: to choose without a branch is faster than to guess.
                child = other if found < lowest else child
                lowest = min(found, lowest)
        if before(rank, ts, code, entries[child]):
            break
        _move(heaps, h, child, at)
        at = child
    _put(heaps, h, at, rank, ts, code, slot)


@kernel(inline=True)
def add(heaps, h, rank, ts, code, slot):  # type: ignore[no-untyped-def]
    """Add an entry."""
    at = heaps.size[h]
    heaps.size[h] += 1
    _rise(heaps, h, at, rank, ts, code, slot)


@kernel(inline=True)
def replace(heaps, h, rank, ts, code, slot):  # type: ignore[no-untyped-def]
    """Put an entry in place of the first."""
    _sink(heaps, h, 0, rank, ts, code, slot)


@kernel(inline=True)
def remove(heaps, h, at):  # type: ignore[no-untyped-def]
    """Take out the entry at ``at``."""
    heaps.size[h] -= 1
    last = heaps.size[h]
    if at == last:
        return
    entry = heaps.entries[h, last]
    rank, ts, code, slot = entry[RANK], entry[TS], entry[CODE], entry[SLOT]
    if at > 0 and before(rank, ts, code, heaps.entries[h, (at - 1) // CHILDREN]):
        _rise(heaps, h, at, rank, ts, code, slot)
    else:
        _sink(heaps, h, at, rank, ts, code, slot)


@kernel
def fill(heaps, rank, held, slots, ts_column, seq_column, owner_column):  # type: ignore[no-untyped-def]
    """Make heaps of the slots ``held`` with these ranks; they were empty."""
    shared = heaps.size.size == 1
    for k in range(held.size):
        slot = held[k]
        owner = slots[slot, owner_column]
        h = 0 if shared else owner
        code = slots[slot, seq_column] * 8 + owner
        _put(heaps, h, heaps.size[h], rank[k], slots[slot, ts_column], code, slot)
        heaps.size[h] += 1
    for h in range(heaps.size.size):
        for at in range((heaps.size[h] - 2) // CHILDREN, -1, -1):
            entry = heaps.entries[h, at]
            _sink(heaps, h, at, entry[RANK], entry[TS], entry[CODE], entry[SLOT])
