"""What a tuple or a punctuation does to the state of a one-to-many join, in whatever order they come (MJoin).

The rules, with proofs, are in ``plugins.join.one_to_many.logic``; the state is that of ``kernels.join.entries``.
"""

from typing import Any, NamedTuple

import numpy as np

from slackwater.transforms.kernels.compiler import kernel
from slackwater.transforms.kernels.expressions import predicate
from slackwater.transforms.kernels.expressions.predicate import BLOCK
from slackwater.transforms.kernels.join.entries import (
    BASE,
    CAME,
    CELLS,
    COUNT,
    DUE,
    ENTRIES,
    ENTRY,
    EVICTED,
    FLAGS,
    GONE,
    HEAD,
    KEY,
    LATE,
    LIVE,
    MANY,
    MANY_OVER,
    MEMBER,
    MOST,
    NEXT,
    NONE,
    NULLS,
    ONE,
    ONE_OVER,
    OPEN,
    ORDER,
    PASSED,
    SEQ,
    SIDE,
    SLOTS,
    TIME,
    TOLD,
    TS,
    UNPURGED,
    add_entry,
    find,
    read_key,
    sweep,
)
from slackwater.transforms.kernels.punctuation.promises import add_range, in_range, ordered

FULL = -2
# Options of the plan.
ONE_INPUT, TESTS, AWAITS_ONE, IMMEDIATE, BATCH, FLAG_LIMIT = range(6)
SLOT_LIMIT, RANDOM, BY_VALUE, CLUSTERED, QUOTA = range(6, 11)


class Plan(NamedTuple):
    """What the join is."""

    keys: Any
    """``[sides, keys]``: the cells of the key."""
    rest: Any
    """``[equalities, sides]``: cells that have to be equal besides the key."""
    is_float: Any
    program: Any
    options: Any


class Out(NamedTuple):
    """Results and finished values, as they are found; ``size`` holds their numbers."""

    size: Any
    rows: Any
    probe: Any
    join_size: Any
    ts: Any
    values: Any


@kernel(inline=True)
def _in_ranges(state, is_float, side, key):  # type: ignore[no-untyped-def]
    """Return whether a range says that the value is over on this side."""
    for c in range(key.size):
        r = side * key.size + c
        n = state.n_ranges[r]
        if n > 0 and in_range(state.ranges[r], n, ordered(key[c], is_float[c] != 0)):
            return True
    return False


@kernel(inline=True)
def _write(state, released, k, side):  # type: ignore[no-untyped-def]
    """Write tuple ``k`` to the next slot without taking the slot; return it."""
    _, seq, ts, late, cells, nulls = released
    s = state.control[SLOTS]
    slot = state.slots[s]
    slot[NULLS] = nulls[k]
    slot[TS] = ts[k]
    slot[SEQ] = seq[k]
    slot[SIDE] = side
    slot[LATE] = late[k]
    slot[ORDER] = state.control[BASE] + k
    for c in range(cells.shape[1]):
        slot[CELLS + c] = cells[k, c]
    return s


@kernel(inline=True)
def _put(state, released, k, side, e, h, key):  # type: ignore[no-untyped-def]
    """Keep tuple ``k`` in its entry, a new one where ``e`` is NONE."""
    if e == NONE:
        e = add_entry(state, h, key)
    s = _write(state, released, k, side)
    state.control[SLOTS] += 1
    state.control[MOST] = max(state.control[MOST], state.control[SLOTS])
    state.control[LIVE + side] += 1
    state.slots[s, ENTRY] = e
    if side == ONE:
        state.entries[e, FLAGS] |= CAME
        state.entries[e, MEMBER] = s
    else:
        state.slots[s, NEXT] = state.entries[e, HEAD]
        state.entries[e, HEAD] = s
        state.entries[e, COUNT] += 1


@kernel(inline=True)
def _emit(state, plan, released, e, one_seq, many_seq, probe, out):  # type: ignore[no-untyped-def]
    """Write a result; ``probe`` is the one of its members that was released last."""
    out.join_size[probe] += 1
    if out.rows.shape[0] > 0:
        n = out.size[0]
        one = plan.options[ONE_INPUT]
        out.rows[n, one] = one_seq
        out.rows[n, 1 - one] = many_seq
        out.probe[n] = probe
        out.size[0] = n + 1
    state.entries[e, TIME] = max(state.entries[e, TIME], released[2][probe])


@kernel
def _passing(state, plan, one, candidates, scratch):  # type: ignore[no-untyped-def]
    """Move those of the first ``candidates`` slots of the many side that join slot ``one`` to the front."""
    slots, rows = state.slots, scratch[0]
    mine = plan.options[ONE_INPUT]
    kept = 0
    for k in range(candidates):
        many = rows[1 - mine, k]
        equal = True
        for c in range(plan.rest.shape[0]):
            x, y = plan.rest[c, ONE], plan.rest[c, MANY]
            unknown = (slots[one, NULLS] >> x) & 1 != 0 or (slots[many, NULLS] >> y) & 1 != 0
            equal = equal and not unknown and slots[one, CELLS + x] == slots[many, CELLS + y]
        if equal:
            rows[1 - mine, kept] = many
            rows[mine, kept] = one
            kept += 1
    if plan.program.shape[0] == 0 or kept == 0:
        return kept
    n = kept
    predicate.run(plan.program, 0, plan.program.shape[0], slots, CELLS, rows, n, scratch[1], scratch[2])
    kept = 0
    for k in range(n):
        if scratch[1, 0, k] != 0 and scratch[2, 0, k] == 0:
            rows[1 - mine, kept] = rows[1 - mine, k]
            kept += 1
    return kept


@kernel
def _meet_waiting(state, plan, released, k, e, scratch, out):  # type: ignore[no-untyped-def]
    """Join tuple ``k`` of the one side with all that wait for it, and forget these."""
    slots, control = state.slots, state.control
    order, late = control[BASE] + k, released[3][k]
    tests = plan.options[TESTS] != 0
    one = _write(state, released, k, ONE) if tests else NONE
    waiting = scratch[0, 1 - plan.options[ONE_INPUT]]
    s = state.entries[e, HEAD]
    n = 0
    while s != NONE:
        behind = slots[s, NEXT]
        earlier = slots[s, ORDER] < order
        # Of two that meet, the one released last is the one that had to be in time.
        counts = not late if earlier else slots[s, LATE] == 0
        if counts and not tests:
            probe = k if earlier else slots[s, ORDER] - control[BASE]
            _emit(state, plan, released, e, released[1][k], slots[s, SEQ], probe, out)
        elif counts:
            waiting[n] = s
            n += 1
        slots[s, SIDE] = NONE
        s = behind
        if n == BLOCK or (s == NONE and n > 0):
            n = _passing(state, plan, one, n, scratch)
            for w in range(n):
                probe = max(k, slots[waiting[w], ORDER] - control[BASE])
                _emit(state, plan, released, e, released[1][k], slots[waiting[w], SEQ], probe, out)
            n = 0
    control[LIVE + MANY] -= state.entries[e, COUNT]
    state.entries[e, HEAD] = NONE
    state.entries[e, COUNT] = 0


@kernel
def _take_one(state, plan, released, k, key, scratch, out):  # type: ignore[no-untyped-def]
    """Take tuple ``k`` of the one side (paper: step 2); return FULL, with nothing done, if results lack room."""
    entries, control = state.entries, state.control
    h, e = find(entries, state.table, key)
    if e == NONE:
        if _in_ranges(state, plan.is_float, MANY, key):
            _write_finished(key, max(control[PASSED], released[2][k]), out)
        else:
            _put(state, released, k, ONE, e, h, key)
        return NONE
    if entries[e, FLAGS] & (CAME | ONE_OVER) != 0:
        # It contradicts a promise that the operator has forgotten.
        return NONE
    waiting = entries[e, COUNT]
    if waiting > 0:
        if out.rows.shape[0] > 0 and out.size[0] + waiting > out.rows.shape[0]:
            return FULL
        _meet_waiting(state, plan, released, k, e, scratch, out)
        if entries[e, FLAGS] & MANY_OVER != 0:
            control[OPEN] -= 1
    if entries[e, FLAGS] & MANY_OVER == 0:
        if not _in_ranges(state, plan.is_float, MANY, key):
            _put(state, released, k, ONE, e, h, key)
            return NONE
        entries[e, TIME] = max(entries[e, TIME], control[PASSED])
    entries[e, FLAGS] |= CAME | MANY_OVER
    _tell(state, e, out)
    _settle(state, plan, e)
    return NONE


@kernel(inline=True)
def _take_many(state, plan, released, k, key, hint, scratch, out):  # type: ignore[no-untyped-def]
    """Take tuple ``k`` of the many side (paper: step 3); return the entry in which it met its partner, NONE if it
    did not, or FULL. ``hint`` is its entry if that is known."""
    entries, slots, control = state.entries, state.slots, state.control
    h, e = np.int64(0), hint
    if e == NONE:
        h, e = find(entries, state.table, key)
    if e != NONE:
        one = entries[e, MEMBER]
        if one != NONE:
            if 0 < out.rows.shape[0] == out.size[0]:
                return FULL
            earlier = slots[one, ORDER] < control[BASE] + k
            counts = not released[3][k] if earlier else slots[one, LATE] == 0
            if counts and plan.options[TESTS] != 0:
                scratch[0, 1 - plan.options[ONE_INPUT], 0] = _write(state, released, k, MANY)
                counts = _passing(state, plan, one, 1, scratch) == 1
            if counts:
                probe = k if earlier else slots[one, ORDER] - control[BASE]
                _emit(state, plan, released, e, slots[one, SEQ], released[1][k], probe, out)
            return e
        if entries[e, FLAGS] & (CAME | ONE_OVER | MANY_OVER) != 0:
            return NONE
    if not _in_ranges(state, plan.is_float, ONE, key):
        _put(state, released, k, MANY, e, h, key)
    return NONE


@kernel(inline=True)
def take_tuple(state, plan, released, k, side, key, hint, scratch, out):  # type: ignore[no-untyped-def]
    """Take a tuple; return as ``_take_many``. One with a null key joins nothing and is dropped."""
    if hint == NONE and not read_key(plan.keys, side, released[4], released[5], k, key):
        return NONE
    if side == ONE:
        return _take_one(state, plan, released, k, key, scratch, out)
    return _take_many(state, plan, released, k, key, hint, scratch, out)


@kernel
def _write_finished(key, ts, out):  # type: ignore[no-untyped-def]
    n = out.size[1]
    out.ts[n] = ts
    for c in range(key.size):
        out.values[n, c] = key[c]
    out.size[1] = n + 1


@kernel
def _tell(state, e, out):  # type: ignore[no-untyped-def]
    """Pass a value on as finished, once."""
    if state.entries[e, FLAGS] & TOLD == 0:
        state.entries[e, FLAGS] |= TOLD
        _write_finished(state.entries[e, KEY:], state.entries[e, TIME], out)


@kernel
def _settle(state, plan, e):  # type: ignore[no-untyped-def]
    """Forget a value of which nothing more is to come, no tuple and no punctuation."""
    flags = state.entries[e, FLAGS]
    ended = flags & ONE_OVER != 0 or (flags & CAME != 0 and plan.options[AWAITS_ONE] == 0)
    if flags & MANY_OVER != 0 and ended:
        state.entries[e, FLAGS] = GONE


@kernel
def _end(state, plan, e, side, ts, out):  # type: ignore[no-untyped-def]
    """No later tuple of this side has the value of the entry."""
    entries, slots, control = state.entries, state.slots, state.control
    over = ONE_OVER if side == ONE else MANY_OVER
    if entries[e, FLAGS] & over != 0:
        return
    entries[e, FLAGS] |= over
    if side == MANY:
        entries[e, TIME] = max(entries[e, TIME], ts)
        if entries[e, COUNT] > 0:
            control[OPEN] += 1
            return
        one = entries[e, MEMBER]
        if one != NONE:
            slots[one, SIDE] = NONE
            entries[e, MEMBER] = NONE
            control[LIVE + ONE] -= 1
        if control[EVICTED] != 0 and entries[e, FLAGS] & (CAME | ONE_OVER) == 0:
            # What was evicted may have the value, and somebody else may keep it for its partner.
            return
        _tell(state, e, out)
    elif entries[e, FLAGS] & CAME == 0:
        entries[e, TIME] = max(entries[e, TIME], ts)
        if entries[e, COUNT] > 0 and entries[e, FLAGS] & MANY_OVER != 0:
            control[OPEN] -= 1
        s = entries[e, HEAD]
        while s != NONE:
            slots[s, SIDE] = NONE
            s = slots[s, NEXT]
        control[LIVE + MANY] -= entries[e, COUNT]
        entries[e, HEAD] = NONE
        entries[e, COUNT] = 0
        _tell(state, e, out)
    _settle(state, plan, e)


@kernel
def take_punctuation(state, plan, punctuations, p, key, out):  # type: ignore[no-untyped-def]
    """Add punctuation ``p`` to what is over; a range is applied to the state by ``purge``."""
    _, ts, sides, component, low, high = punctuations
    control = state.control
    side, c = sides[p], component[p]
    control[PASSED] = max(control[PASSED], ts[p])
    control[UNPURGED] += 1
    if c != NONE:
        is_float = plan.is_float[c] != 0
        first, last = ordered(low[p, 0], is_float), ordered(high[p], is_float)
        if first <= last and add_range(state.ranges, state.n_ranges, side * key.size + c, first, last):
            control[DUE] = 1
        return
    key[:] = low[p]
    h, e = find(state.entries, state.table, key)
    if e == NONE:
        if _in_ranges(state, plan.is_float, side, key):
            return
        e = add_entry(state, h, key)
    _end(state, plan, e, side, ts[p], out)


@kernel
def apply_ranges(state, plan, out):  # type: ignore[no-untyped-def]
    """Let the ranges that have come since the last time end what is in them."""
    control = state.control
    if control[DUE] == 0:
        return
    key = np.empty(plan.keys.shape[1], np.int64)
    for e in range(control[ENTRIES]):
        for side in range(2):
            if state.entries[e, FLAGS] & GONE == 0:
                key[:] = state.entries[e, KEY:]
                if _in_ranges(state, plan.is_float, side, key):
                    _end(state, plan, e, side, control[PASSED], out)
    control[DUE] = 0


@kernel
def purge(state, plan, out):  # type: ignore[no-untyped-def]
    """Apply what punctuations have said since the last purge; return whether entries have moved."""
    control, options = state.control, plan.options
    apply_ranges(state, plan, out)
    control[UNPURGED] = 0
    useless = control[SLOTS] - control[LIVE + ONE] - control[LIVE + MANY]
    # A sweep that frees little costs more than it gives; who wants the least memory pays for it.
    if useless == 0 or (options[IMMEDIATE] == 0 and 4 * useless < control[SLOTS]):
        return False
    sweep(state, options[FLAG_LIMIT])
    return True
