"""The m-way sliding window join over indexed windows, one tuple at a time (QDDH Alg. 2).

All inputs share one table of *slots*, a record per tuple. A slot is in the time list of its input (tuples
that came in order) or in the heap of late ones, and in every *index* of its input (``kernels.slots``): a hash
from the values of some key columns to a *group*, a list of the slots with those values and their number. An
index over no columns is one group of everything: cross and theta joins need no code of their own.

Probing follows a *plan* per input: an order of the other inputs, the index to look each one up in, and the
predicates that can be tested once it is bound. Enumeration is an iterative backtracking over blocks of
candidates; when only counts are wanted, the steps that nothing depends on are multiplied, not enumerated.

State and plan are a few int64 tables with named columns: records keep what is used together in one cache
line, and a kernel that passes a handful of arrays does not pay for counting references to dozens.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from slackwater.transforms.kernels import predicate
from slackwater.transforms.kernels.borrow import borrowed
from slackwater.transforms.kernels.heap import pop, push
from slackwater.transforms.kernels.predicate import BLOCK
from slackwater.transforms.kernels.slots import (
    AFTER,
    COUNT,
    FIRST,
    FREE_SLOT,
    GROUP,
    HEAD,
    LAST,
    LATE,
    LINKS,
    LIVE,
    NEXT,
    NONE,
    NULLS,
    OWNER,
    SEQ,
    TS,
    drop_slot,
    find_group,
    free_slot,
    hash_key,
    index_slot,
)


class Windows(NamedTuple):
    """State of the join. Free slots are chained through AFTER, free groups through HEAD."""

    slots: Any
    groups: Any
    table: Any
    """Open addressing: positions of groups by their hash."""
    late_due: Any
    late_slot: Any
    """Heap of late slots by the last instant at which they are inside their window."""
    control: Any
    """A record per input, then one with the heads of the free chains and the number of late slots."""


# Columns of the search, a record per input or step; the last record holds the key that is looked up.
BOUND, SIZE, AT, CURSOR, CANDIDATES = range(5)
# Columns of the plan's tables.
WINDOW, INDEXES, OWN_FROM, OWN_TO, MULTIPLY_FROM, ROWS = range(6)
NO_ROWS = 1 << 62
"""ROWS of a window of time: more than there are."""
STEP_INPUT, STEP_INDEX, STEP_KEYS, TEST_FROM, TEST_TO, SOURCES = range(6)


class ProbePlan(NamedTuple):
    """How tuples are probed and indexed."""

    inputs: Any
    """Per input: window, number of indexes, instructions for predicates on it alone, step to multiply from, and
    how many rows the window has at most: a window of rows is endless in time, and late tuples do not enter it."""
    steps: Any
    """``[probing input, step]``: input bound, index used, keys, instructions; then (input, cell) per key."""
    indexes: Any
    """``[input, index]``: number of keys, then their cells."""
    program: Any
    first_cell: int
    """Column of a slot at which its cells start."""


@njit(cache=True, nogil=True, forceinline=True)
def borrowed_windows(w):  # type: ignore[no-untyped-def]
    return Windows(
        borrowed(w.slots), borrowed(w.groups), borrowed(w.table), borrowed(w.late_due), borrowed(w.late_slot),
        borrowed(w.control),
    )  # fmt: skip


@njit(cache=True, nogil=True, forceinline=True)
def borrowed_plan(plan):  # type: ignore[no-untyped-def]
    inputs, steps, indexes, program, first_cell = plan
    return ProbePlan(borrowed(inputs), borrowed(steps), borrowed(indexes), borrowed(program), first_cell)


@njit(cache=True, nogil=True, forceinline=True)
def expire(slots, groups, table, late_due, late_slot, control, inputs, now):  # type: ignore[no-untyped-def]
    """Drop every tuple with ``ts < now - W``."""
    for j in range(inputs.shape[0]):
        slot = control[j, FIRST]
        while slot != NONE and slots[slot, TS] < now - inputs[j, WINDOW]:
            control[j, FIRST] = slots[slot, AFTER]
            drop_slot(slots, groups, table, control, inputs[j, INDEXES], slot)
            slot = control[j, FIRST]
        if slot == NONE:
            control[j, LAST] = NONE
    while control[-1, LATE] > 0 and late_due[0] < now:
        slot = late_slot[0]
        pop(late_due, late_slot, control[-1, LATE])
        control[-1, LATE] -= 1
        drop_slot(slots, groups, table, control, inputs[slots[slot, OWNER], INDEXES], slot)


@njit(cache=True, nogil=True)
def passing(slots, program, first_cell, first, last, which, d, n, search, scratch):  # type: ignore[no-untyped-def]
    """Move those of the ``n`` candidates of step ``d`` that pass the instructions to the front; count them."""
    rows = scratch[0]
    for i in range(search.shape[0] - 1):
        if i != which:
            for k in range(n):
                rows[i, k] = search[i, BOUND]
    for k in range(n):
        rows[which, k] = search[d, CANDIDATES + k]
    predicate.run(program, first, last, slots, first_cell, rows, n, scratch[1], scratch[2])
    kept = 0
    for k in range(n):
        if scratch[1, 0, k] != 0 and scratch[2, 0, k] == 0:
            search[d, CANDIDATES + kept] = search[d, CANDIDATES + k]
            kept += 1
    return kept


@njit(cache=True, nogil=True, forceinline=True)
def lookup_group(slots, groups, table, steps, indexes, first_cell, i, d, search):  # type: ignore[no-untyped-def]
    """Return the group to join at step ``d`` given the slots already bound, or NONE."""
    j = steps[i, d, STEP_INPUT]
    x = steps[i, d, STEP_INDEX]
    n_keys = steps[i, d, STEP_KEYS]
    for c in range(n_keys):
        slot = search[steps[i, d, SOURCES + 2 * c], BOUND]
        column = steps[i, d, SOURCES + 2 * c + 1]
        if (slots[slot, NULLS] >> column) & 1 != 0:
            return NONE
        search[-1, c] = slots[slot, first_cell + column]
    h = hash_key(j * indexes.shape[1] + x, search, n_keys)
    return find_group(slots, groups, table, indexes, first_cell, j, x, h, search, n_keys)


@njit(cache=True, nogil=True, forceinline=True)
def _product(slots, groups, table, steps, indexes, first_cell, i, d, search):  # type: ignore[no-untyped-def]
    """Return how many ways the steps from ``d`` on can be bound, by the sizes of their groups alone."""
    ways = 1
    for step in range(d, steps.shape[1]):
        g = lookup_group(slots, groups, table, steps, indexes, first_cell, i, step, search)
        if g == NONE:
            return 0
        ways *= groups[g, COUNT]
    return ways


# fmt: off
@njit(cache=True, nogil=True, forceinline=True)
def _enumerate(  # type: ignore[no-untyped-def]
    slots, groups, table, steps, indexes, program, first_cell, i, multiply_from, k, search, scratch,
    out_rows, out_probe, n_out,
):
    # fmt: on
    """Go through the candidates of every step; the first one's cursor is set, the probing slot is bound.

    Returns the number of results, or -1 when ``out_rows`` is too small.
    """
    m = search.shape[0] - 1
    last = steps.shape[1] - 1
    found = 0
    d = np.int64(0)
    search[0, SIZE] = 0
    search[0, AT] = 0
    while d >= 0:
        j = steps[i, d, STEP_INPUT]
        if search[d, AT] == search[d, SIZE]:
            s = search[d, CURSOR]
            if s == NONE:
                d -= 1
                continue
            link = LINKS + 3 * steps[i, d, STEP_INDEX] + NEXT
            n = 0
            while s != NONE and n < BLOCK:
                search[d, CANDIDATES + n] = s
                n += 1
                s = slots[s, link]
            search[d, CURSOR] = s
            first = steps[i, d, TEST_FROM]
            stop = steps[i, d, TEST_TO]
            if stop > first:
                n = passing(slots, program, first_cell, first, stop, j, d, n, search, scratch)
            search[d, SIZE] = n
            search[d, AT] = 0
            if d == last:
                if out_rows.shape[0] > 0:
                    if n_out + found + n > out_rows.shape[0]:
                        return -1
                    for r in range(n):
                        row = n_out + found + r
                        for c in range(m):
                            out_rows[row, c] = slots[search[c, BOUND], SEQ]
                        out_rows[row, j] = slots[search[d, CANDIDATES + r], SEQ]
                        out_probe[row] = k
                found += n
                search[d, AT] = n
            continue
        search[j, BOUND] = search[d, CANDIDATES + search[d, AT]]
        search[d, AT] += 1
        if d + 1 == multiply_from:
            found += _product(slots, groups, table, steps, indexes, first_cell, i, d + 1, search)
            continue
        d += 1
        g = lookup_group(slots, groups, table, steps, indexes, first_cell, i, d, search)
        search[d, CURSOR] = NONE if g == NONE else groups[g, HEAD]
        search[d, SIZE] = 0
        search[d, AT] = 0
    return found


# fmt: off
@njit(cache=True, nogil=True, forceinline=True)
def probe(  # type: ignore[no-untyped-def]
    slots, groups, table, inputs, steps, indexes, program, first_cell, i, slot, k, search, scratch,
    out_rows, out_probe, n_out,
):
    # fmt: on
    """Join a placed tuple of input ``i`` with the windows of the others; return the number of results.

    It is -1 when ``out_rows`` is too small.
    """
    g = first_group(slots, groups, table, inputs, steps, indexes, first_cell, i, slot, search)
    if g == NONE:
        return 0
    return probe_group(
        slots, groups, table, inputs, steps, indexes, program, first_cell, i, g, k, search, scratch, out_rows,
        out_probe, n_out,
    )  # fmt: skip


@njit(cache=True, nogil=True, forceinline=True)
def first_group(slots, groups, table, inputs, steps, indexes, first_cell, i, slot, search):  # type: ignore[no-untyped-def]
    """Bind a placed tuple; return the group that its first step joins it with, or NONE."""
    for j in range(inputs.shape[0]):
        search[j, BOUND] = slot
    return lookup_group(slots, groups, table, steps, indexes, first_cell, i, np.int64(0), search)


# fmt: off
@njit(cache=True, nogil=True, forceinline=True)
def probe_group(  # type: ignore[no-untyped-def]
    slots, groups, table, inputs, steps, indexes, program, first_cell, i, g, k, search, scratch, out_rows,
    out_probe, n_out,
):
    # fmt: on
    """Join the bound tuple of input ``i`` with group ``g`` and with what follows; as ``probe``."""
    if inputs[i, MULTIPLY_FROM] == 0:
        found = groups[g, COUNT]
        if inputs.shape[0] > 2:
            found *= _product(slots, groups, table, steps, indexes, first_cell, i, np.int64(1), search)
        return found
    search[0, CURSOR] = groups[g, HEAD]
    return _enumerate(
        slots, groups, table, steps, indexes, program, first_cell, i,
        inputs[i, MULTIPLY_FROM], k, search, scratch, out_rows, out_probe, n_out,
    )  # fmt: skip


@njit(cache=True, nogil=True, forceinline=True)
def place_slot(slots, control, first_cell, i, seq, ts, cells, nulls, k):  # type: ignore[no-untyped-def]
    """Write tuple ``k`` to a free slot; it is in no list and no index yet."""
    slot = control[-1, FREE_SLOT]
    control[-1, FREE_SLOT] = slots[slot, AFTER]
    slots[slot, NULLS] = nulls[k]
    slots[slot, TS] = ts
    slots[slot, SEQ] = seq
    slots[slot, OWNER] = i
    for c in range(cells.shape[1]):
        slots[slot, first_cell + c] = cells[k, c]
    return slot


@njit(cache=True, nogil=True)
def qualify(slots, program, first_cell, first, stop, i, slot, search, scratch):  # type: ignore[no-untyped-def]
    """Return whether the tuple passes the predicates that speak of its input alone."""
    search[0, CANDIDATES] = slot
    for j in range(search.shape[0] - 1):
        search[j, BOUND] = slot
    one = np.int64(1)
    return passing(slots, program, first_cell, first, stop, np.int64(i), one - 1, one, search, scratch) == 1


@njit(cache=True, nogil=True, forceinline=True)
def keep_slot(slots, late_due, late_slot, control, inputs, slot, late):  # type: ignore[no-untyped-def]
    """Put a placed tuple into its window."""
    i = slots[slot, OWNER]
    control[i, LIVE] += 1
    if late:
        push(late_due, late_slot, control[-1, LATE], slots[slot, TS] + inputs[i, WINDOW], slot)
        control[-1, LATE] += 1
        return
    slots[slot, AFTER] = NONE
    if control[i, LAST] == NONE:
        control[i, FIRST] = slot
    else:
        slots[control[i, LAST], AFTER] = slot
    control[i, LAST] = slot


@njit(cache=True, nogil=True)
def _drop_first(slots, groups, table, control, n_indexes, i):  # type: ignore[no-untyped-def]
    """Drop the oldest tuple of an input's time list."""
    slot = control[i, FIRST]
    control[i, FIRST] = slots[slot, AFTER]
    if control[i, FIRST] == NONE:
        control[i, LAST] = NONE
    drop_slot(slots, groups, table, control, n_indexes, slot)


# fmt: off
@njit(cache=True, nogil=True)
def step(  # type: ignore[no-untyped-def]
    w, plan, released, start, end, now, search, scratch, out_rows, out_probe, join_size, cross_size, visiting,
):
    # fmt: on
    """Process released tuples ``start`` to ``end``; return (next tuple, results written, onT).

    Stops early only when no slot is free or ``out_rows`` is full, with the unfinished tuple's results taken back:
    the caller goes on from there with more room. With ``out_rows`` of no rows, results are counted only. With
    ``out_probe`` of none nothing is probed: how a snapshot becomes windows again. With ``visiting``, tuples in
    order look at the windows and leave no trace; late ones are kept.
    """
    tuple_input, tuple_seq, tuple_ts, tuple_late, cells, nulls = released
    cells, nulls = borrowed(cells), borrowed(nulls)
    slots, groups, table, late_due, late_slot, control = borrowed_windows(w)
    inputs, steps, indexes, program, first_cell = borrowed_plan(plan)
    search, scratch = borrowed(search), borrowed(scratch)
    out_rows, out_probe = borrowed(out_rows), borrowed(out_probe)
    m = inputs.shape[0]
    probing = out_probe.size > 0
    # A constant has a type of its own, for which Numba would compile all that it is passed to once more.
    n_out = np.int64(0)
    for k in range(start, end):
        i = tuple_input[k]
        ts = tuple_ts[k]
        late = tuple_late[k]
        if probing:
            if not late:
                now = ts
                expire(slots, groups, table, late_due, late_slot, control, inputs, now)
            elif ts < now - inputs[i, WINDOW] or inputs[i, ROWS] < NO_ROWS:
                continue
        if control[-1, FREE_SLOT] == NONE:
            return k, n_out, now
        slot = place_slot(slots, control, first_cell, i, tuple_seq[k], ts, cells, nulls, k)
        qualifies = True
        if inputs[i, OWN_TO] > inputs[i, OWN_FROM]:
            qualifies = qualify(
                slots, program, first_cell, inputs[i, OWN_FROM], inputs[i, OWN_TO], i, slot, search, scratch
            )
        if probing and not late:
            ways = 1.0
            for j in range(m):
                if j != i:
                    ways *= control[j, LIVE]
            cross_size[k - start] = ways
            if qualifies and ways > 0.0:
                found = probe(
                    slots, groups, table, inputs, steps, indexes, program, first_cell, i, slot, k, search,
                    scratch, out_rows, out_probe, n_out,
                )  # fmt: skip
                if found < 0:
                    free_slot(slots, control, slot)
                    return k, n_out, now
                join_size[k - start] = found
                if out_rows.shape[0] > 0:
                    n_out += found
        if visiting and not late:
            free_slot(slots, control, slot)
            continue
        n_indexes = inputs[i, INDEXES]
        if control[i, LIVE] >= inputs[i, ROWS]:
            _drop_first(slots, groups, table, control, n_indexes, i)
        keep_slot(slots, late_due, late_slot, control, inputs, slot, late)
        if qualifies:
            index_slot(slots, groups, table, control, indexes, n_indexes, first_cell, slot, search)
        else:
            for x in range(n_indexes):
                slots[slot, LINKS + 3 * x + GROUP] = NONE
    return end, n_out, now
