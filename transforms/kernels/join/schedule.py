"""In which order the tuples and punctuations of a step are processed (MJoin sec. 4.1, 4.2, 5.3).

A step's items stand in two queues, one per side, in the order in which they were released: tuples by their
number, punctuations by the complement of theirs. *Stream scheduling* decides which queue to take from, *tuple
scheduling* whether the item is processed or waits in the pool. Items of the many side never wait, so a
punctuation of it finds all tuples it speaks of processed.
"""

from typing import Any, NamedTuple

import numpy as np

from slackwater.transforms.kernels.borrow import borrowed
from slackwater.transforms.kernels.compiler import kernel
from slackwater.transforms.kernels.join.entries import (
    COUNT,
    DRAWN,
    ENTRIES,
    FLAGS,
    LIVE,
    MANY,
    MANY_OVER,
    NONE,
    ONE,
    OPEN,
    SLOTS,
    UNPURGED,
    State,
    find,
    read_key,
    sweep,
)
from slackwater.transforms.kernels.join.one_to_many import (
    BATCH,
    BY_VALUE,
    CLUSTERED,
    FLAG_LIMIT,
    FULL,
    IMMEDIATE,
    QUOTA,
    RANDOM,
    SLOT_LIMIT,
    Out,
    Plan,
    apply_ranges,
    purge,
    take_punctuation,
    take_tuple,
)
from slackwater.transforms.kernels.rows.dictionary import mix

EMPTY = -2
DONE, OUT_FULL, STATE_FULL = range(3)
"""Why ``run`` returns."""

# The turn: heads of the queues, whose turn it is, how many tuples it has taken, what was picked and is not yet
# processed, the part of the pool that waits, whether it is being emptied, the last tuple of the many side if it
# met its partner, and the number of items processed.
HEADS, _HEAD_MANY, SIDE, TAKEN, PICKED, POOL, POOL_END, DRAINING, LAST, PROCESSED = range(10)


class Queues(NamedTuple):
    """The items of a step."""

    one: Any
    many: Any
    pool: Any
    """Items of the one side that wait."""
    turn: Any


@kernel
def fill_queues(inputs, one_input, at, sides, one, many):  # type: ignore[no-untyped-def]
    """Put a step's items into their queues; return how many are in each. Punctuations of no side are left out."""
    n_one, n_many, p = 0, 0, 0
    for k in range(inputs.size + 1):
        while p < at.size and (at[p] <= k or k == inputs.size):
            if sides[p] == ONE:
                one[n_one] = ~p
                n_one += 1
            elif sides[p] == MANY:
                many[n_many] = ~p
                n_many += 1
            p += 1
        if k < inputs.size:
            if inputs[k] == one_input:
                one[n_one] = k
                n_one += 1
            else:
                many[n_many] = k
                n_many += 1
    return n_one, n_many


@kernel(inline=True)
def _goes_on(queues, plan, cells, nulls):  # type: ignore[no-untyped-def]
    """Return whether the next tuple of the many side has the key of the last one, which met its partner."""
    turn = queues.turn
    if turn[LAST] == NONE or turn[HEADS + MANY] == queues.many.size:
        return False
    item = queues.many[turn[HEADS + MANY]]
    if item < 0:
        return False
    for c in range(plan.keys.shape[1]):
        cell = plan.keys[MANY, c]
        is_null = (nulls[item] >> np.uint64(cell)) & np.uint64(1) != 0
        if is_null or cells[item, cell] != cells[turn[LAST], cell]:
            return False
    return True


@kernel(inline=True)
def _choose(queues, plan, control, cells, nulls):  # type: ignore[no-untyped-def]
    """Stream scheduling: return the side to take from, or EMPTY."""
    turn = queues.turn
    if plan.options[CLUSTERED] != 0 and _goes_on(queues, plan, cells, nulls):
        return MANY
    if turn[HEADS + ONE] == queues.one.size:
        return EMPTY if turn[HEADS + MANY] == queues.many.size else MANY
    if turn[HEADS + MANY] == queues.many.size:
        return ONE
    if plan.options[RANDOM] != 0:
        control[DRAWN] += 1
        return np.int64(mix(np.uint64(control[DRAWN])) & np.uint64(1))
    if turn[TAKEN] < plan.options[QUOTA + turn[SIDE]]:
        return turn[SIDE]
    return 1 - turn[SIDE]


@kernel
def _urgent(state, plan, released, item, key):  # type: ignore[no-untyped-def]
    """Tuple scheduling: return whether the item completes a value that the many side has punctuated."""
    if item < 0 or not read_key(plan.keys, ONE, released[4], released[5], item, key):
        return False
    _, e = find(state.entries, state.table, key)
    return e != NONE and state.entries[e, FLAGS] & MANY_OVER != 0 and state.entries[e, COUNT] > 0


@kernel
def run(state, plan, released, punctuations, queues, key, scratch, out):  # type: ignore[no-untyped-def]
    """Process a step until it is done, or a table is full; then it can be called again to go on."""
    inputs, seq, ts, late, cells, nulls = released
    cells, nulls, seq, ts, late = borrowed(cells), borrowed(nulls), borrowed(seq), borrowed(ts), borrowed(late)
    released = (inputs, seq, ts, late, cells, nulls)
    state = State(
        borrowed(state.slots), borrowed(state.entries), borrowed(state.table), borrowed(state.ranges),
        borrowed(state.n_ranges), borrowed(state.control),
    )  # fmt: skip
    plan = Plan(
        borrowed(plan.keys), borrowed(plan.rest), borrowed(plan.is_float), borrowed(plan.program),
        borrowed(plan.options),
    )  # fmt: skip
    out = Out(
        borrowed(out.size), borrowed(out.rows), borrowed(out.probe), borrowed(out.join_size), borrowed(out.ts),
        borrowed(out.values),
    )  # fmt: skip
    key, scratch = borrowed(key), borrowed(scratch)
    queues = Queues(borrowed(queues.one), borrowed(queues.many), borrowed(queues.pool), borrowed(queues.turn))
    turn, options, control = queues.turn, plan.options, state.control
    immediate = options[IMMEDIATE] != 0
    hint = NONE
    while True:
        if out.ts.size - out.size[1] < control[ENTRIES] + 2:
            return OUT_FULL
        if control[SLOTS] >= options[SLOT_LIMIT]:
            apply_ranges(state, plan, out)
            useless = control[SLOTS] - control[LIVE + ONE] - control[LIVE + MANY]
            if useless * 16 >= options[SLOT_LIMIT]:
                sweep(state, options[FLAG_LIMIT])
                hint = NONE
        if control[SLOTS] == state.slots.shape[0] or control[ENTRIES] == state.entries.shape[0]:
            return STATE_FULL
        if turn[DRAINING] != 0:
            side, item = ONE, queues.pool[turn[POOL]]
        else:
            if turn[PICKED] == NONE:
                turn[PICKED] = _choose(queues, plan, control, cells, nulls)
            side = turn[PICKED]
            if side != turn[SIDE]:
                # Stream scheduling overrides tuple scheduling: what waits comes before another side's turn.
                if turn[POOL_END] > 0:
                    turn[DRAINING] = 1
                    continue
                if side == EMPTY:
                    break
                turn[SIDE] = side
                turn[TAKEN] = 0
            item = queues.one[turn[HEADS]] if side == ONE else queues.many[turn[HEADS + MANY]]
            by_value = options[BY_VALUE] != 0 and side == ONE and control[OPEN] > 0
            if by_value and not _urgent(state, plan, released, item, key):
                queues.pool[turn[POOL_END]] = item
                turn[POOL_END] += 1
                turn[HEADS + ONE] += 1
                turn[TAKEN] += item >= 0
                turn[PICKED] = NONE
                continue
        if item >= 0:
            if side == MANY and hint != NONE and not _goes_on(queues, plan, cells, nulls):
                hint = NONE
            met = take_tuple(state, plan, released, item, side, key, hint if side == MANY else NONE, scratch, out)
            if met == FULL:
                return OUT_FULL
            turn[LAST] = item if side == MANY and met != NONE else NONE
            hint = met if options[CLUSTERED] != 0 else NONE
        else:
            take_punctuation(state, plan, punctuations, ~item, key, out)
            if (immediate or control[UNPURGED] >= options[BATCH]) and purge(state, plan, out):
                hint = NONE
            turn[LAST] = NONE
        turn[PROCESSED] += 1
        if turn[DRAINING] != 0:
            turn[POOL] += 1
            if turn[POOL] == turn[POOL_END]:
                turn[POOL] = turn[POOL_END] = turn[DRAINING] = 0
            continue
        turn[HEADS + side] += 1
        turn[TAKEN] += item >= 0
        turn[PICKED] = NONE
        if turn[POOL_END] > 0 and control[OPEN] == 0:
            # The punctuation has expired: all tuples that it waited for are joined.
            turn[DRAINING] = 1
    purge(state, plan, out)
    return DONE
