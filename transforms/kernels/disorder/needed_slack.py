"""The slack that each result needs, learnt in arrival order.

A result could have been produced iff its last member arrived while the join's progress, ``frontier - K``, had
not passed the result's timestamp: it needs ``max(0, frontier at that arrival - timestamp)``. So every arrival is
looked up once against the tuples that arrived before it, kept for a horizon past their windows, and every
combination found adds its weight to a histogram: a row per interval of result time, a column per slack.

Only a sample of the arrivals is kept, only a sample is looked up, and of groups larger than ``limit`` only some
are taken. All of it goes into the weights, so the histogram estimates all results at a bounded cost per interval.
Samples are drawn by a hash of the arrival's number: the same on every run, and independent of who takes turns
with whom. SEQ of a slot holds the progress of its input when it arrived.
"""

import numpy as np

from slackwater.transforms.kernels.borrow import borrowed
from slackwater.transforms.kernels.compiler import kernel
from slackwater.transforms.kernels.expressions.predicate import BLOCK
from slackwater.transforms.kernels.join.probe import (
    AT,
    BOUND,
    CANDIDATES,
    CURSOR,
    INDEXES,
    OWN_FROM,
    OWN_TO,
    SIZE,
    SOURCES,
    STEP_INDEX,
    STEP_INPUT,
    STEP_KEYS,
    TEST_FROM,
    TEST_TO,
    WINDOW,
    lookup_group,
    passing,
    qualify,
)
from slackwater.transforms.kernels.join.slots import (
    AFTER,
    FIRST,
    FREE_SLOT,
    GROUP,
    LAST,
    LINKS,
    LIVE,
    NONE,
    OWNER,
    PREVIOUS,
    SEQ,
    TAIL,
    TS,
    drop_slot,
    index_slot,
)
from slackwater.transforms.kernels.join.windows import place_slot
from slackwater.transforms.kernels.rows.dictionary import mix

NEVER = np.iinfo(np.int64).min


@kernel
def _gather(slots, tail, link, oldest, newest, limit, turn, d, search):  # type: ignore[no-untyped-def]
    """Put slots of a group within the time bounds into the candidates of step ``d``, newest arrivals first.

    Every stride-th one is taken, with a stride that leaves at most ``limit``; returns how many there are and
    the stride. Tuples that arrived while their input had not reached ``oldest`` are older still: there it ends.
    """
    stride = 1
    skip = 0
    n = 0
    slot = tail
    while slot != NONE and slots[slot, SEQ] >= oldest:
        if oldest <= slots[slot, TS] <= newest:
            if skip == 0:
                if n == BLOCK:
                    for k in range(BLOCK // 2):
                        search[d, CANDIDATES + k] = search[d, CANDIDATES + 2 * k + (turn & 1)]
                    n = BLOCK // 2
                    stride *= 2
                search[d, CANDIDATES + n] = slot
                n += 1
                skip = stride
            skip -= 1
        slot = slots[slot, link]
    if n > limit:
        thin = (n + limit - 1) // limit
        kept = 0
        for k in range(turn % thin, n, thin):
            search[d, CANDIDATES + kept] = search[d, CANDIDATES + k]
            kept += 1
        n = kept
        stride *= thin
    return n, stride


@kernel
def _independent(steps, i, d):  # type: ignore[no-untyped-def]
    """Whether the candidates of a step depend on the arriving tuple alone."""
    if steps[i, d, TEST_TO] > steps[i, d, TEST_FROM]:
        return False
    alone = True
    for c in range(steps[i, d, STEP_KEYS]):
        alone = alone and steps[i, d, SOURCES + 2 * c] == i
    return alone


@kernel
def _record(  # type: ignore[no-untyped-def]
    slots, inputs, search, slot, frontier, interval, first_row, slacks, slack, weight, weights, histogram, met
):
    """Add a combination, complete with ``slot``, to the histogram if its members are within their windows."""
    newest = slots[slot, TS]
    for c in range(inputs.shape[0]):
        newest = max(newest, slots[search[c, BOUND], TS])
    for c in range(inputs.shape[0]):
        member = search[c, BOUND]
        if slots[member, TS] < newest - inputs[c, WINDOW]:
            return
        if member != slot:
            weight *= weights[member]
    row = newest // interval
    if row < first_row:
        return
    needed = max(0, frontier - newest)
    column = min(np.searchsorted(slacks, needed), slacks.size - 1)
    histogram[row % histogram.shape[0], column] += weight
    if needed <= slack:
        met[row % histogram.shape[0]] += weight


@kernel
def learn(  # type: ignore[no-untyped-def]
    w, plan, weights, arrivals, start, end, limits, samples, turn, first_row, interval, slacks, slack,
    search, scratch, histogram, met,
):  # fmt: skip
    """Take arrivals ``start`` to ``end``; return the turn, which counts all arrivals ever taken.

    ``limits`` are how long tuples are kept past their windows, how many of each input at most, and how many
    candidates a lookup takes of each group. ``slacks`` are the columns of the histogram: the first one that is
    not below the need of a result is its column. One of ``samples[0]`` arrivals behind the frontier is looked up,
    and one of ``samples[1]`` others: these need no slack, whatever they join. One of ``samples[2]`` is kept, and
    stands for as many in ``weights``. What the slack in force allows for is added to ``met`` as well.
    """
    horizon, memory, limit = limits
    arrival_input, arrival_ts, progress, frontiers, cells, nulls = arrivals
    cells, nulls = borrowed(cells), borrowed(nulls)
    slots, groups, table, control = borrowed(w.slots), borrowed(w.groups), borrowed(w.table), borrowed(w.control)
    inputs, steps, indexes = borrowed(plan.inputs), borrowed(plan.steps), borrowed(plan.indexes)
    program, first_cell = borrowed(plan.program), plan.first_cell
    search, scratch = borrowed(search), borrowed(scratch)
    histogram, slacks, met, weights = borrowed(histogram), borrowed(slacks), borrowed(met), borrowed(weights)
    m = inputs.shape[0]
    last = steps.shape[1] - 1
    gathered = np.zeros(m, np.bool_)
    for k in range(start, end):
        i = arrival_input[k]
        ts = arrival_ts[k]
        frontier = frontiers[k]
        turn += 1
        chance = mix(np.uint64(turn))
        every = samples[0] if ts < frontier else samples[1]
        looks = frontier != NEVER and (chance >> np.uint64(40)) % np.uint64(every) == 0
        keeps = (chance & np.uint64(0xFFFFFF)) % np.uint64(samples[2]) == 0
        if not (looks or keeps):
            continue
        if frontier != NEVER:
            for j in range(m):
                old = control[j, FIRST]
                while old != NONE and slots[old, TS] < frontier - inputs[j, WINDOW] - horizon:
                    control[j, FIRST] = slots[old, AFTER]
                    drop_slot(slots, groups, table, control, inputs[j, INDEXES], old)
                    old = control[j, FIRST]
                if old == NONE:
                    control[j, LAST] = NONE
        if keeps and control[i, LIVE] >= memory:
            old = control[i, FIRST]
            control[i, FIRST] = slots[old, AFTER]
            drop_slot(slots, groups, table, control, inputs[i, INDEXES], old)
            if control[i, FIRST] == NONE:
                control[i, LAST] = NONE
        slot = place_slot(slots, control, first_cell, i, progress[k], ts, cells, nulls, k)
        fits = True
        if inputs[i, OWN_TO] > inputs[i, OWN_FROM]:
            fits = qualify(
                slots, program, first_cell, inputs[i, OWN_FROM], inputs[i, OWN_TO], i, slot, search, scratch
            )
        if fits and looks:
            for j in range(m):
                search[j, BOUND] = slot
            weight = float(every)
            gathered[:] = False
            d = 0
            entering = True
            while d >= 0:
                j = steps[i, d, STEP_INPUT]
                if entering and not gathered[d]:
                    search[d, SIZE] = 0
                    g = lookup_group(slots, groups, table, steps, indexes, first_cell, i, d, search)
                    if g != NONE:
                        link = LINKS + 3 * steps[i, d, STEP_INDEX] + PREVIOUS
                        n, stride = _gather(
                            slots, groups[g, TAIL], link, ts - inputs[j, WINDOW], ts + inputs[i, WINDOW],
                            limit, np.int64(chance & np.uint64(0xFFFF)) + 7 * d, d, search,
                        )  # fmt: skip
                        if n > 0 and steps[i, d, TEST_TO] > steps[i, d, TEST_FROM]:
                            n = passing(
                                slots, program, first_cell, steps[i, d, TEST_FROM], steps[i, d, TEST_TO],
                                j, d, n, search, scratch,
                            )  # fmt: skip
                        search[d, SIZE] = n
                        search[d, CURSOR] = stride
                    gathered[d] = _independent(steps, i, d)
                if entering:
                    search[d, AT] = 0
                    entering = False
                if search[d, AT] == search[d, SIZE]:
                    d -= 1
                    continue
                search[j, BOUND] = search[d, CANDIDATES + search[d, AT]]
                search[d, AT] += 1
                if d < last:
                    d += 1
                    entering = True
                    continue
                scaled = weight
                for e in range(d + 1):
                    scaled *= search[e, CURSOR]
                _record(
                    slots, inputs, search, slot, frontier, interval, first_row, slacks, slack, scaled,
                    weights, histogram, met,
                )  # fmt: skip
        if not keeps:
            slots[slot, AFTER] = control[-1, FREE_SLOT]
            control[-1, FREE_SLOT] = slot
            continue
        weights[slot] = samples[2]
        control[i, LIVE] += 1
        slots[slot, AFTER] = NONE
        if control[i, LAST] == NONE:
            control[i, FIRST] = slot
        else:
            slots[control[i, LAST], AFTER] = slot
        control[i, LAST] = slot
        n_indexes = inputs[slots[slot, OWNER], INDEXES]
        if fits:
            index_slot(slots, groups, table, control, indexes, n_indexes, first_cell, slot, search)
        else:
            for x in range(n_indexes):
                slots[slot, LINKS + 3 * x + GROUP] = NONE
    return turn


@kernel
def summed(histogram, last, n):  # type: ignore[no-untyped-def]
    """Return the weight at each column or before it in the rows of the ``n`` intervals that end with ``last``."""
    total = np.zeros(histogram.shape[1])
    for row in range(last - n + 1, last + 1):
        of_row = histogram[row % histogram.shape[0]]
        for column in range(total.size):
            total[column] += of_row[column]
    for column in range(1, total.size):
        total[column] += total[column - 1]
    return total
