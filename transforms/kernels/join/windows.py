"""The m-way sliding window join over indexed windows, one tuple at a time (QDDH Alg. 2).

All inputs share one table of *slots*, a record per tuple. A slot is in the time list of its input (tuples
that came in order) or in the heap of late ones, and in every *index* of its input (``join.slots``): a hash
from the values of some key columns to a *group*, a list of the slots with those values and their number. An
index over no columns is one group of everything: cross and theta joins need no code of their own.

How tuples are probed is in ``kernels.join.probe``.

State and plan are a few int64 tables with named columns: records keep what is used together in one cache
line, and a kernel that passes a handful of arrays does not pay for counting references to dozens.
"""

from typing import Any, NamedTuple

import numpy as np

from slackwater.transforms.kernels.borrow import borrowed
from slackwater.transforms.kernels.compiler import kernel
from slackwater.transforms.kernels.heap import pop, push
from slackwater.transforms.kernels.join.probe import (
    INDEXES,
    NO_ROWS,
    OWN_FROM,
    OWN_TO,
    ROWS,
    WINDOW,
    borrowed_plan,
    probe,
    qualify,
)
from slackwater.transforms.kernels.join.slots import (
    AFTER,
    FIRST,
    FREE_SLOT,
    GROUP,
    LAST,
    LATE,
    LINKS,
    LIVE,
    NONE,
    NULLS,
    OWNER,
    SEQ,
    TS,
    drop_slot,
    free_slot,
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


@kernel(inline=True)
def borrowed_windows(w):  # type: ignore[no-untyped-def]
    return Windows(
        borrowed(w.slots), borrowed(w.groups), borrowed(w.table), borrowed(w.late_due), borrowed(w.late_slot),
        borrowed(w.control),
    )  # fmt: skip


@kernel(inline=True)
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


@kernel(inline=True)
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


@kernel(inline=True)
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


@kernel
def _drop_first(slots, groups, table, control, n_indexes, i):  # type: ignore[no-untyped-def]
    """Drop the oldest tuple of an input's time list."""
    slot = control[i, FIRST]
    control[i, FIRST] = slots[slot, AFTER]
    if control[i, FIRST] == NONE:
        control[i, LAST] = NONE
    drop_slot(slots, groups, table, control, n_indexes, slot)


# fmt: off
@kernel
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
