"""Entries by key value, and the tuples of a one-to-many join that they hold.

Every key value of which anything is known has an *entry*: the tuple of the *one* side, the chain of tuples of the
*many* side that wait for it, and what is over. Both tables are dense and only ever appended to: what is useless
is marked, and a *sweep* is one pass over all of it that closes the gaps and fills the hash table anew. So
inserting needs no search for a free place, a probe meets nothing dead, and a sweep costs the state, however
little it frees.
"""

from typing import Any, NamedTuple

import numpy as np

from slackwater.transforms.kernels.compiler import kernel
from slackwater.transforms.kernels.rows.dictionary import mix

NONE = -1
ONE, MANY = range(2)

# Columns of a slot, then the cells; NULLS is where ``predicate`` wants it. A useless slot has no side.
NULLS, TS, SEQ, SIDE, LATE, ORDER, NEXT, ENTRY, CELLS = range(9)
# Columns of an entry, then the key.
HASH, FLAGS, TIME, MEMBER, HEAD, COUNT, KEY = range(7)
# Flags of an entry: the tuple of the one side came; a side is over; the value was passed on; the entry is dead.
CAME, ONE_OVER, MANY_OVER, TOLD, GONE = 1, 2, 4, 8, 16
# The control record: slots and entries in use, the most slots ever, live tuples of the one side and of the many
# side, punctuated values that wait for their partner, punctuations and whether ranges since the last purge, the
# latest punctuation's time, number of the step's first tuple, random numbers drawn, whether tuples of the many
# side were evicted.
SLOTS, ENTRIES, MOST, LIVE, _LIVE_MANY, OPEN, UNPURGED, DUE, PASSED, BASE, DRAWN, EVICTED = range(12)


class State(NamedTuple):
    """What is held and known."""

    slots: Any
    entries: Any
    table: Any
    """Open addressing: positions of entries by their hash."""
    ranges: Any
    """``[sides * keys, capacity, 2]``: ranges that are over, as ``promises.add_range`` keeps them."""
    n_ranges: Any
    control: Any


@kernel(inline=True)
def find(entries, table, key):  # type: ignore[no-untyped-def]
    """Return the hash of the key, and its entry or NONE."""
    mixed = np.uint64(0x9E3779B97F4A7C15)
    for c in range(key.size):
        mixed = mix(mixed ^ np.uint64(key[c]))
    h = np.int64(mixed >> np.uint64(1))
    mask = table.size - 1
    at = h & mask
    while True:
        e = table[at]
        if e < 0:
            return h, NONE
        if entries[e, HASH] == h and entries[e, FLAGS] & GONE == 0:
            same = True
            for c in range(key.size):
                if entries[e, KEY + c] != key[c]:
                    same = False
                    break
            if same:
                return h, e
        at = (at + 1) & mask


@kernel(inline=True)
def add_entry(state, h, key):  # type: ignore[no-untyped-def]
    """Return a new entry of which nothing is known yet."""
    e = state.control[ENTRIES]
    state.control[ENTRIES] = e + 1
    entry = state.entries[e]
    entry[HASH] = h
    entry[FLAGS] = 0
    entry[TIME] = np.iinfo(np.int64).min
    entry[MEMBER] = entry[HEAD] = NONE
    entry[COUNT] = 0
    for c in range(key.size):
        entry[KEY + c] = key[c]
    mask = state.table.size - 1
    at = h & mask
    while state.table[at] >= 0:
        at = (at + 1) & mask
    state.table[at] = e
    return e


@kernel
def sweep(state, flag_limit):  # type: ignore[no-untyped-def]
    """Forget what is marked useless, and of the entries without tuples the oldest above ``flag_limit``."""
    slots, entries, table, control = state.slots, state.entries, state.table, state.control
    for e in range(control[ENTRIES]):
        entries[e, MEMBER] = NONE
        entries[e, HEAD] = NONE
        entries[e, COUNT] = 0
    kept = 0
    for s in range(control[SLOTS]):
        if slots[s, SIDE] == NONE:
            continue
        if kept < s:
            slots[kept] = slots[s]
        e = slots[kept, ENTRY]
        if slots[kept, SIDE] == ONE:
            entries[e, MEMBER] = kept
        else:
            slots[kept, NEXT] = entries[e, HEAD]
            entries[e, HEAD] = kept
            entries[e, COUNT] += 1
        kept += 1
    control[SLOTS] = kept
    excess = -flag_limit
    for e in range(control[ENTRIES]):
        excess += entries[e, MEMBER] == NONE and entries[e, HEAD] == NONE and entries[e, FLAGS] not in (0, GONE)
    table[:] = NONE
    mask = table.size - 1
    control[OPEN] = 0
    kept = 0
    for e in range(control[ENTRIES]):
        if entries[e, MEMBER] == NONE and entries[e, HEAD] == NONE:
            if entries[e, FLAGS] == 0 or entries[e, FLAGS] == GONE:
                continue
            excess -= 1
            if excess >= 0:
                continue
        if kept < e:
            entries[kept] = entries[e]
            _repoint(slots, entries[kept], kept)
        control[OPEN] += entries[kept, COUNT] > 0 and entries[kept, FLAGS] & MANY_OVER != 0
        at = entries[kept, HASH] & mask
        while table[at] >= 0:
            at = (at + 1) & mask
        table[at] = kept
        kept += 1
    control[ENTRIES] = kept


@kernel(inline=True)
def _repoint(slots, entry, e):  # type: ignore[no-untyped-def]
    """Tell the tuples of an entry that it has moved to ``e``."""
    if entry[MEMBER] != NONE:
        slots[entry[MEMBER], ENTRY] = e
    s = entry[HEAD]
    while s != NONE:
        slots[s, ENTRY] = e
        s = slots[s, NEXT]


@kernel
def forget_slots(state, which):  # type: ignore[no-untyped-def]
    """Evict tuples; a sweep must follow. One of the one side has come all the same."""
    for s in which:
        if state.slots[s, SIDE] == MANY:
            state.control[EVICTED] = 1
        state.control[LIVE + state.slots[s, SIDE]] -= 1
        state.slots[s, SIDE] = NONE


@kernel(inline=True)
def read_key(keys, side, cells, nulls, k, key):  # type: ignore[no-untyped-def]
    """Copy the key of tuple ``k``; return False if part of it is null, so that it equals nothing."""
    for c in range(keys.shape[1]):
        cell = keys[side, c]
        if (nulls[k] >> np.uint64(cell)) & np.uint64(1) != 0:
            return False
        key[c] = cells[k, cell]
    return True
