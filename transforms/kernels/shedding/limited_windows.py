"""The window join within a memory limit, one tuple at a time (SAJ, fast CPU).

As ``kernels.join.windows``, with a score for every tuple: a newcomer probes first, then the tuple with the lowest
score leaves if there are more than may be kept, which may be the newcomer. So at no instant do the windows hold
more. Time lists are linked both ways here; a late tuple that is evicted stays in the heap of late ones, marked,
until it is due or these are swept.
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
    OWNER,
    TS,
    drop_slot,
    free_slot,
    index_slot,
    unlink_slot,
)
from slackwater.transforms.kernels.join.windows import Windows, place_slot
from slackwater.transforms.kernels.shedding.score_heap import (
    CODE,
    LOWEST,
    SLOT,
    ScoreHeaps,
    add,
    before,
    remove,
    replace,
)

LATE_ONE = -2
"""In place of the slot before: the tuple is in the heap of late ones."""


class Gone(NamedTuple):
    """Tuples that were evicted."""

    input: Any
    seq: Any
    at: Any
    """Index into released of the last tuple that could have met it."""
    size: Any
    """``[1]``: how many they are; the arrays have room for all."""


class Shed(NamedTuple):
    """What the join must know to keep to its memory."""

    heaps: Any
    previous: Any
    """Of each slot, the one before it in its time list, NONE, or LATE_ONE."""
    ordinal: Any
    """Of each slot in a window of rows, how many tuples of its input had come before it."""
    arrived: Any
    """Of each input with such a window, how many tuples have come, evicted ones included."""
    dead: Any
    """``[1]``: evicted tuples that are still in the heap of late ones."""
    rank: Any
    """Of the score of each released tuple."""
    limit: Any
    """``[released, heaps]``: how many may be kept once the tuple has been processed."""
    live: Any
    """Of each released tuple, how many tuples the windows held once it had been processed."""
    gone: Any
    """What was evicted, a ``Gone``."""


@kernel(inline=True)
def _unlist(slots, control, previous, slot):  # type: ignore[no-untyped-def]
    """Take a slot out of its time list."""
    owner = slots[slot, OWNER]
    ahead, behind = previous[slot], slots[slot, AFTER]
    if ahead == NONE:
        control[owner, FIRST] = behind
    else:
        slots[ahead, AFTER] = behind
    if behind == NONE:
        control[owner, LAST] = ahead
    else:
        previous[behind] = ahead


@kernel(inline=True)
def _drop(slots, groups, table, control, inputs, previous, dead, slot):  # type: ignore[no-untyped-def]
    """Drop a tuple that is in no heap any more from the windows."""
    owner = slots[slot, OWNER]
    if previous[slot] == LATE_ONE:
        unlink_slot(slots, groups, table, control, inputs[owner, INDEXES], slot)
        slots[slot, OWNER] = NONE
        dead[0] += 1
    else:
        _unlist(slots, control, previous, slot)
        drop_slot(slots, groups, table, control, inputs[owner, INDEXES], slot)


@kernel(inline=True)
def _note(gone, code, k):  # type: ignore[no-untyped-def]
    n = gone.size[0]
    gone.input[n] = code & 7
    gone.seq[n] = code >> 3
    gone.at[n] = k
    gone.size[0] = n + 1


@kernel
def shrink(w, inputs, shed, k, at):  # type: ignore[no-untyped-def]
    """Evict the tuples with the lowest scores until no heap has more than ``limit[k]``, and say that ``at`` was
    the last tuple to see them."""
    for h in range(shed.heaps.size.size):
        while shed.heaps.size[h] > shed.limit[k, h]:
            slot = shed.heaps.entries[h, 0, SLOT]
            _note(shed.gone, shed.heaps.entries[h, 0, CODE], at)
            remove(shed.heaps, h, 0)
            _drop(w.slots, w.groups, w.table, w.control, inputs, shed.previous, shed.dead, slot)


@kernel
def _sweep(w, shed):  # type: ignore[no-untyped-def]
    """Free the evicted ones in the heap of late tuples, by building it anew."""
    n = w.control[-1, LATE]
    kept = 0
    for k in range(n):
        slot = w.late_slot[k]
        if w.slots[slot, OWNER] == NONE:
            free_slot(w.slots, w.control, slot)
        else:
            due = w.late_due[k]
            push(w.late_due, w.late_slot, kept, due, slot)
            kept += 1
    w.control[-1, LATE] = kept
    shed.dead[0] = 0


@kernel
def _expire_late(w, inputs, shed, now):  # type: ignore[no-untyped-def]
    """Drop every late tuple with ``ts < now - W``, and the dead ones once they are many."""
    shared = shed.heaps.size.size == 1
    while w.control[-1, LATE] > 0 and w.late_due[0] < now:
        slot = w.late_slot[0]
        pop(w.late_due, w.late_slot, w.control[-1, LATE])
        w.control[-1, LATE] -= 1
        owner = w.slots[slot, OWNER]
        if owner == NONE:
            shed.dead[0] -= 1
            free_slot(w.slots, w.control, slot)
        else:
            remove(shed.heaps, 0 if shared else owner, shed.heaps.place[slot])
            drop_slot(w.slots, w.groups, w.table, w.control, inputs[owner, INDEXES], slot)
    if shed.dead[0] > 64 and 2 * shed.dead[0] > w.control[-1, LATE]:
        _sweep(w, shed)


@kernel
def _age(w, inputs, shed, h, i):  # type: ignore[no-untyped-def]
    """Count a tuple into an input's window of rows, and drop those that it pushes out: evicted ones age too."""
    oldest = shed.arrived[i] - inputs[i, ROWS]
    shed.arrived[i] += 1
    slot = w.control[i, FIRST]
    while slot != NONE and shed.ordinal[slot] <= oldest:
        remove(shed.heaps, h, shed.heaps.place[slot])
        _drop(w.slots, w.groups, w.table, w.control, inputs, shed.previous, shed.dead, slot)
        slot = w.control[i, FIRST]


@kernel(inline=True)
def _held(control):  # type: ignore[no-untyped-def]
    n = 0
    for j in range(control.shape[0] - 1):
        n += control[j, LIVE]
    return n


@kernel
def link_back(slots, late_slot, control, previous):  # type: ignore[no-untyped-def]
    """Write the way back of every time list."""
    for j in range(control.shape[0] - 1):
        ahead = NONE
        slot = control[j, FIRST]
        while slot != NONE:
            previous[slot] = ahead
            ahead = slot
            slot = slots[slot, AFTER]
    for k in range(control[-1, LATE]):
        previous[late_slot[k]] = LATE_ONE


# fmt: off
@kernel
def step(  # type: ignore[no-untyped-def]
    w, plan, shed, released, start, end, now, search, scratch, out_rows, out_probe, join_size, cross_size,
):
    # fmt: on
    """Process released tuples ``start`` to ``end`` as ``windows.step`` does; return the same."""
    tuple_input, tuple_seq, tuple_ts, tuple_late, cells, nulls = released
    cells, nulls = borrowed(cells), borrowed(nulls)
    slots, groups, table = borrowed(w.slots), borrowed(w.groups), borrowed(w.table)
    late_due, late_slot, control = borrowed(w.late_due), borrowed(w.late_slot), borrowed(w.control)
    inputs, steps, indexes = borrowed(plan.inputs), borrowed(plan.steps), borrowed(plan.indexes)
    program, first_cell = borrowed(plan.program), plan.first_cell
    search, scratch = borrowed(search), borrowed(scratch)
    out_rows, out_probe = borrowed(out_rows), borrowed(out_probe)
    heaps = ScoreHeaps(
        borrowed(shed.heaps.entries), borrowed(shed.heaps.place), borrowed(shed.heaps.size)
    )
    previous, dead, ranks = borrowed(shed.previous), borrowed(shed.dead), borrowed(shed.rank)
    limit, live = borrowed(shed.limit), borrowed(shed.live)
    gone = Gone(
        borrowed(shed.gone.input), borrowed(shed.gone.seq), borrowed(shed.gone.at), borrowed(shed.gone.size)
    )
    w = Windows(slots, groups, table, late_due, late_slot, control)
    ordinal, arrived = borrowed(shed.ordinal), borrowed(shed.arrived)
    shed = Shed(heaps, previous, ordinal, arrived, dead, ranks, limit, live, gone)
    m = inputs.shape[0]
    shared = heaps.size.size == 1
    n_out = np.int64(0)
    for k in range(start, end):
        i = tuple_input[k]
        ts = tuple_ts[k]
        late = tuple_late[k]
        if not late:
            now = ts
            for j in range(m):
                due = control[j, FIRST]
                while due != NONE and slots[due, TS] < now - inputs[j, WINDOW]:
                    remove(heaps, 0 if shared else j, heaps.place[due])
                    control[j, FIRST] = slots[due, AFTER]
                    drop_slot(slots, groups, table, control, inputs[j, INDEXES], due)
                    due = control[j, FIRST]
                if due == NONE:
                    control[j, LAST] = NONE
                else:
                    previous[due] = NONE
            if control[-1, LATE] > 0:
                _expire_late(w, inputs, shed, now)
        elif ts < now - inputs[i, WINDOW] or inputs[i, ROWS] < NO_ROWS:
            shrink(w, inputs, shed, k, k)
            live[k] = _held(control)
            continue
        if control[-1, FREE_SLOT] == NONE:
            _sweep(w, shed)
        slot = place_slot(slots, control, first_cell, i, tuple_seq[k], ts, cells, nulls, k)
        qualifies = True
        if inputs[i, OWN_TO] > inputs[i, OWN_FROM]:
            qualifies = qualify(
                slots, program, first_cell, inputs[i, OWN_FROM], inputs[i, OWN_TO], i, slot, search, scratch
            )
        if not late:
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
        mine = 0 if shared else i
        code = tuple_seq[k] * 8 + i
        rank = ranks[k] if qualifies else LOWEST
        if inputs[i, ROWS] < NO_ROWS:
            _age(w, inputs, shed, mine, i)
            ordinal[slot] = arrived[i] - 1
        crowded = False
        for h in range(heaps.size.size):
            crowded = crowded or heaps.size[h] > limit[k, h]
        if crowded:
            shrink(w, inputs, shed, k, k)
        replaces = heaps.size[mine] == limit[k, mine]
        if replaces:
            if heaps.size[mine] == 0 or before(rank, ts, code, heaps.entries[mine, 0]):
                _note(gone, code, k)
                free_slot(slots, control, slot)
                live[k] = _held(control)
                continue
            _note(gone, heaps.entries[mine, 0, CODE], k)
            _drop(slots, groups, table, control, inputs, previous, dead, heaps.entries[mine, 0, SLOT])
            replace(heaps, mine, rank, ts, code, slot)
        else:
            add(heaps, mine, rank, ts, code, slot)
        control[i, LIVE] += 1
        if late:
            push(late_due, late_slot, control[-1, LATE], ts + inputs[i, WINDOW], slot)
            control[-1, LATE] += 1
            previous[slot] = LATE_ONE
        else:
            slots[slot, AFTER] = NONE
            previous[slot] = control[i, LAST]
            if control[i, LAST] == NONE:
                control[i, FIRST] = slot
            else:
                slots[control[i, LAST], AFTER] = slot
            control[i, LAST] = slot
        n_indexes = inputs[i, INDEXES]
        if qualifies:
            index_slot(slots, groups, table, control, indexes, n_indexes, first_cell, slot, search)
        else:
            for x in range(n_indexes):
                slots[slot, LINKS + 3 * x + GROUP] = NONE
        live[k] = _held(control)
    return end, n_out, now
