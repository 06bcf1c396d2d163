"""Binary min-heaps of slots by score, in which every slot knows its place, so that any can be removed.

Entries are ordered by score, then event time, then code: of equal scores the older goes first (SAJ 4.2), and the
order does not depend on how the heap came about.
"""

from typing import Any, NamedTuple

from numba import njit


class ScoreHeaps(NamedTuple):
    """One heap per row: of each input where memory is split, else one of all."""

    score: Any
    ts: Any
    code: Any
    """``seq * 8 + input`` of the tuple."""
    slot: Any
    place: Any
    """Of each slot, where it stands in its heap."""
    size: Any


@njit(cache=True, nogil=True, inline="always")
def before(score, ts, code, other_score, other_ts, other_code):  # type: ignore[no-untyped-def]
    """Return whether an entry is to leave before another."""
    if score != other_score:
        return score < other_score
    if ts != other_ts:
        return ts < other_ts
    return code < other_code


@njit(cache=True, nogil=True, inline="always")
def _move(heaps, h, source, target):  # type: ignore[no-untyped-def]
    heaps.score[h, target] = heaps.score[h, source]
    heaps.ts[h, target] = heaps.ts[h, source]
    heaps.code[h, target] = heaps.code[h, source]
    heaps.slot[h, target] = heaps.slot[h, source]
    heaps.place[heaps.slot[h, target]] = target


@njit(cache=True, nogil=True, inline="always")
def _put(heaps, h, at, score, ts, code, slot):  # type: ignore[no-untyped-def]
    heaps.score[h, at] = score
    heaps.ts[h, at] = ts
    heaps.code[h, at] = code
    heaps.slot[h, at] = slot
    heaps.place[slot] = at


@njit(cache=True, nogil=True)
def _rise(heaps, h, at, score, ts, code, slot):  # type: ignore[no-untyped-def]
    """Put an entry at ``at`` or above it."""
    while at > 0:
        parent = (at - 1) >> 1
        if not before(score, ts, code, heaps.score[h, parent], heaps.ts[h, parent], heaps.code[h, parent]):
            break
        _move(heaps, h, parent, at)
        at = parent
    _put(heaps, h, at, score, ts, code, slot)


@njit(cache=True, nogil=True)
def _sink(heaps, h, at, score, ts, code, slot):  # type: ignore[no-untyped-def]
    """Put an entry at ``at`` or below it."""
    n = heaps.size[h]
    child = 2 * at + 1
    while child < n:
        right = child + 1
        if right < n and before(
            heaps.score[h, right], heaps.ts[h, right], heaps.code[h, right],
            heaps.score[h, child], heaps.ts[h, child], heaps.code[h, child],
        ):  # fmt: skip
            child = right
        if before(score, ts, code, heaps.score[h, child], heaps.ts[h, child], heaps.code[h, child]):
            break
        _move(heaps, h, child, at)
        at = child
        child = 2 * at + 1
    _put(heaps, h, at, score, ts, code, slot)


@njit(cache=True, nogil=True)
def add(heaps, h, score, ts, code, slot):  # type: ignore[no-untyped-def]
    """Add an entry."""
    at = heaps.size[h]
    heaps.size[h] += 1
    _rise(heaps, h, at, score, ts, code, slot)


@njit(cache=True, nogil=True)
def remove(heaps, h, at):  # type: ignore[no-untyped-def]
    """Take out the entry at ``at``."""
    heaps.size[h] -= 1
    last = heaps.size[h]
    if at == last:
        return
    score, ts, code, slot = heaps.score[h, last], heaps.ts[h, last], heaps.code[h, last], heaps.slot[h, last]
    parent = (at - 1) >> 1
    if at > 0 and before(score, ts, code, heaps.score[h, parent], heaps.ts[h, parent], heaps.code[h, parent]):
        _rise(heaps, h, at, score, ts, code, slot)
    else:
        _sink(heaps, h, at, score, ts, code, slot)


@njit(cache=True, nogil=True)
def fill(heaps, scores, held, slots, ts_column, seq_column, owner_column):  # type: ignore[no-untyped-def]
    """Make heaps of the slots ``held`` with these scores; they were empty."""
    shared = heaps.size.size == 1
    for k in range(held.size):
        slot = held[k]
        owner = slots[slot, owner_column]
        h = 0 if shared else owner
        code = slots[slot, seq_column] * 8 + owner
        _put(heaps, h, heaps.size[h], scores[k], slots[slot, ts_column], code, slot)
        heaps.size[h] += 1
    for h in range(heaps.size.size):
        for at in range((heaps.size[h] >> 1) - 1, -1, -1):
            _sink(
                heaps, h, at, heaps.score[h, at], heaps.ts[h, at], heaps.code[h, at], heaps.slot[h, at]
            )  # fmt: skip
