"""The m-way sliding window join over indexed windows, one tuple at a time (QDDH Alg. 2).

All inputs share one space of *slots*. A slot is in the time list of its input (tuples that came in order) or
in the heap of late ones, and in every *index* of its input: a hash from the values of some key columns to a
*group*, a doubly linked list of the slots with those values and their number. An index over no columns is one
group of everything: cross and theta joins need no code of their own.

Probing follows a *plan* per input: an order of the other inputs, the index to look each one up in, and the
predicates that can be tested once it is bound. Enumeration is an iterative backtracking over blocks of
candidates; when only counts are wanted, the steps that nothing depends on are multiplied, not enumerated.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from slackwater.transforms.kernels import predicate
from slackwater.transforms.kernels.heap import pop, push
from slackwater.transforms.kernels.predicate import BLOCK
from slackwater.transforms.kernels.strings import mix

NONE = -1


class Windows(NamedTuple):
    """State of the join: arrays by slot, by group and by input."""

    ts: Any
    seq: Any
    owner: Any
    cells: Any
    nulls: Any
    after: Any
    """Next slot in the time list of the same input."""
    nxt: Any
    prv: Any
    grp: Any
    """``[slots, indexes]``: neighbours in the group of each index, and the group (NONE: not indexed)."""
    free: Any
    group_hash: Any
    group_index: Any
    group_head: Any
    group_tail: Any
    group_count: Any
    group_free: Any
    table: Any
    late_due: Any
    late_slot: Any
    """Heap of late slots by the time from which they are expired."""
    head: Any
    tail: Any
    live: Any
    meta: Any
    """[free slots, free groups, late slots, onT]."""


class ProbePlan(NamedTuple):
    """How tuples of each input are probed and indexed; first axis: the probing (or indexed) input."""

    windows: Any
    step_input: Any
    step_index: Any
    step_source: Any
    """``[input, step, key, 2]``: the bound input and its column that give each key value."""
    step_keys: Any
    step_predicates: Any
    """``[input, step, 2]``: instructions to run once the step's input is bound."""
    own_predicates: Any
    """``[input, 2]``: instructions that need this input alone; a tuple that fails joins nothing."""
    multiply_from: Any
    """Step from which group counts are multiplied instead of enumerated."""
    index_count: Any
    index_keys: Any
    index_columns: Any
    program: Any


FREE, FREE_GROUPS, LATE, ON_T = 0, 1, 2, 3


@njit(cache=True, nogil=True)
def _find(w, plan, index, j, h, key, n_keys):  # type: ignore[no-untyped-def]
    """Return the group of input ``j``'s ``index`` with these key values, or NONE."""
    mask = w.table.size - 1
    tag = j * plan.index_keys.shape[1] + index
    at = np.int64(h & np.uint64(mask))
    while True:
        g = w.table[at]
        if g < 0:
            return NONE
        if w.group_hash[g] == h and w.group_index[g] == tag:
            slot = w.group_head[g]
            same = True
            for c in range(n_keys):
                if w.cells[slot, plan.index_columns[j, index, c]] != key[c]:
                    same = False
                    break
            if same:
                return g
        at = (at + 1) & mask


@njit(cache=True, nogil=True)
def _hash(j, index, key, n_keys):  # type: ignore[no-untyped-def]
    h = np.uint64(j * 64 + index + 1)
    for c in range(n_keys):
        h = mix((h << np.uint64(1)) ^ np.uint64(key[c]) ^ np.uint64(0x9E3779B97F4A7C15))
    return mix(h)


@njit(cache=True, nogil=True)
def _forget_group(w, g):  # type: ignore[no-untyped-def]
    """Take an empty group out of the table, closing the gap in its probe sequence."""
    table = w.table
    mask = table.size - 1
    hole = np.int64(w.group_hash[g] & np.uint64(mask))
    while table[hole] != g:
        hole = (hole + 1) & mask
    at = hole
    while True:
        at = (at + 1) & mask
        other = table[at]
        if other < 0:
            break
        home = np.int64(w.group_hash[other] & np.uint64(mask))
        if ((at - home) & mask) >= ((at - hole) & mask):
            table[hole] = other
            hole = at
    table[hole] = NONE
    w.group_free[w.meta[FREE_GROUPS]] = g
    w.meta[FREE_GROUPS] += 1


@njit(cache=True, nogil=True)
def _unlink(w, plan, slot):  # type: ignore[no-untyped-def]
    """Take a slot out of its indexes and free it; its time list or late heap is the caller's business."""
    i = w.owner[slot]
    for x in range(plan.index_count[i]):
        g = w.grp[slot, x]
        if g == NONE:
            continue
        before = w.prv[slot, x]
        behind = w.nxt[slot, x]
        if before == NONE:
            w.group_head[g] = behind
        else:
            w.nxt[before, x] = behind
        if behind == NONE:
            w.group_tail[g] = before
        else:
            w.prv[behind, x] = before
        w.group_count[g] -= 1
        if w.group_count[g] == 0:
            _forget_group(w, g)
    w.owner[slot] = NONE
    w.live[i] -= 1
    w.free[w.meta[FREE]] = slot
    w.meta[FREE] += 1


@njit(cache=True, nogil=True)
def _index(w, plan, slot, key):  # type: ignore[no-untyped-def]
    """Add a slot to the indexes of its input; a null key is in no index, it equals nothing."""
    i = w.owner[slot]
    for x in range(plan.index_count[i]):
        n_keys = plan.index_keys[i, x]
        w.grp[slot, x] = NONE
        has_null = False
        for c in range(n_keys):
            column = plan.index_columns[i, x, c]
            key[c] = w.cells[slot, column]
            has_null = has_null or (w.nulls[slot] >> np.uint64(column)) & np.uint64(1) != 0
        if has_null:
            continue
        h = _hash(i, x, key, n_keys)
        g = _find(w, plan, x, i, h, key, n_keys)
        if g == NONE:
            w.meta[FREE_GROUPS] -= 1
            g = w.group_free[w.meta[FREE_GROUPS]]
            w.group_hash[g] = h
            w.group_index[g] = i * plan.index_keys.shape[1] + x
            w.group_head[g] = slot
            w.group_count[g] = 0
            w.prv[slot, x] = NONE
            mask = w.table.size - 1
            at = np.int64(h & np.uint64(mask))
            while w.table[at] >= 0:
                at = (at + 1) & mask
            w.table[at] = g
        else:
            w.prv[slot, x] = w.group_tail[g]
            w.nxt[w.group_tail[g], x] = slot
        w.nxt[slot, x] = NONE
        w.group_tail[g] = slot
        w.group_count[g] += 1
        w.grp[slot, x] = g


@njit(cache=True, nogil=True)
def _expire(w, plan, now):  # type: ignore[no-untyped-def]
    """Drop every tuple with ``ts < now - W``."""
    for j in range(w.head.size):
        slot = w.head[j]
        while slot != NONE and w.ts[slot] < now - plan.windows[j]:
            w.head[j] = w.after[slot]
            _unlink(w, plan, slot)
            slot = w.head[j]
        if slot == NONE:
            w.tail[j] = NONE
    while w.meta[LATE] > 0 and w.late_due[0] < now:
        slot = w.late_slot[0]
        pop(w.late_due, w.late_slot, w.meta[LATE])
        w.meta[LATE] -= 1
        _unlink(w, plan, slot)


@njit(cache=True, nogil=True)
def _place(w, i, seq, ts, cells, nulls):  # type: ignore[no-untyped-def]
    """Write a tuple to a free slot; it is in no list and no index yet."""
    w.meta[FREE] -= 1
    slot = w.free[w.meta[FREE]]
    w.owner[slot] = i
    w.ts[slot] = ts
    w.seq[slot] = seq
    w.nulls[slot] = nulls
    for c in range(cells.size):
        w.cells[slot, c] = cells[c]
    return slot


@njit(cache=True, nogil=True)
def _passing(w, plan, first, last, bound, which, block, n, scratch):  # type: ignore[no-untyped-def]
    """Move the candidates in ``block`` that pass instructions ``first`` to ``last`` to its front."""
    slots, ints, floats, null = scratch
    for i in range(bound.size):
        if i != which:
            for k in range(n):
                slots[i, k] = bound[i]
    for k in range(n):
        slots[which, k] = block[k]
    predicate.run(plan.program, first, last, w.cells, w.nulls, slots, n, ints, floats, null)
    kept = 0
    for k in range(n):
        if ints[0, k] != 0 and null[0, k] == 0:
            block[kept] = block[k]
            kept += 1
    return kept


@njit(cache=True, nogil=True)
def _qualifies(w, plan, slot, search, scratch):  # type: ignore[no-untyped-def]
    """Return whether the tuple passes the predicates that speak of its input alone."""
    bound, blocks = search[0], search[1]
    i = w.owner[slot]
    first = plan.own_predicates[i, 0]
    stop = plan.own_predicates[i, 1]
    if stop == first:
        return True
    blocks[0, 0] = slot
    bound[:] = slot
    return _passing(w, plan, first, stop, bound, i, blocks[0], 1, scratch) == 1


@njit(cache=True, nogil=True)
def _keep(w, plan, slot, late, qualifies, key):  # type: ignore[no-untyped-def]
    """Put a placed tuple into its window, and into the indexes if it can be part of a result."""
    i = w.owner[slot]
    w.live[i] += 1
    if late:
        push(w.late_due, w.late_slot, w.meta[LATE], w.ts[slot] + plan.windows[i], slot)
        w.meta[LATE] += 1
    else:
        w.after[slot] = NONE
        if w.tail[i] == NONE:
            w.head[i] = slot
        else:
            w.after[w.tail[i]] = slot
        w.tail[i] = slot
    if qualifies:
        _index(w, plan, slot, key)
    else:
        for x in range(plan.index_count[i]):
            w.grp[slot, x] = NONE


@njit(cache=True, nogil=True)
def _lookup(w, plan, i, d, bound, key):  # type: ignore[no-untyped-def]
    """Return the group to join at step ``d`` given the slots already bound, or NONE."""
    j = plan.step_input[i, d]
    n_keys = plan.step_keys[i, d]
    for c in range(n_keys):
        slot = bound[plan.step_source[i, d, c, 0]]
        column = plan.step_source[i, d, c, 1]
        if (w.nulls[slot] >> np.uint64(column)) & np.uint64(1) != 0:
            return NONE
        key[c] = w.cells[slot, column]
    return _find(w, plan, plan.step_index[i, d], j, _hash(j, plan.step_index[i, d], key, n_keys), key, n_keys)


@njit(cache=True, nogil=True)
def _product(w, plan, i, d, bound, key):  # type: ignore[no-untyped-def]
    """Return how many ways the steps from ``d`` on can be bound, by the sizes of their groups alone."""
    ways = 1
    for step in range(d, plan.step_input.shape[1]):
        g = _lookup(w, plan, i, step, bound, key)
        if g == NONE:
            return 0
        ways *= w.group_count[g]
    return ways


@njit(cache=True, nogil=True)
def _probe(w, plan, slot, k, search, scratch, out_rows, out_probe, n_out):  # type: ignore[no-untyped-def]
    """Find every result that ``slot`` completes; return their number, or -1 when ``out_rows`` is too small.

    ``search`` is the scratch of the backtracking: bound slot per input, then per step the block of
    candidates, its size, the position in it, and where in the group to go on.
    """
    bound, blocks, sizes, at, cursor, key = search
    i = w.owner[slot]
    last = plan.step_input.shape[1] - 1
    bound[:] = slot
    multiply_from = plan.multiply_from[i]
    if multiply_from == 0:
        return _product(w, plan, i, 0, bound, key)
    found = 0
    d = 0
    g = _lookup(w, plan, i, 0, bound, key)
    cursor[0] = NONE if g == NONE else w.group_head[g]
    sizes[0] = 0
    at[0] = 0
    while d >= 0:
        j = plan.step_input[i, d]
        if at[d] == sizes[d]:
            s = cursor[d]
            if s == NONE:
                d -= 1
                continue
            x = plan.step_index[i, d]
            block = blocks[d]
            n = 0
            while s != NONE and n < BLOCK:
                block[n] = s
                n += 1
                s = w.nxt[s, x]
            cursor[d] = s
            first = plan.step_predicates[i, d, 0]
            stop = plan.step_predicates[i, d, 1]
            if stop > first:
                n = _passing(w, plan, first, stop, bound, j, block, n, scratch)
            sizes[d] = n
            at[d] = 0
            if d == last:
                if multiply_from > last and out_rows.shape[0] > 0:
                    if n_out + found + n > out_rows.shape[0]:
                        return -1
                    for r in range(n):
                        bound[j] = block[r]
                        for c in range(bound.size):
                            out_rows[n_out + found + r, c] = w.seq[bound[c]]
                        out_probe[n_out + found + r] = k
                found += n
                at[d] = n
            continue
        bound[j] = blocks[d, at[d]]
        at[d] += 1
        if d + 1 == multiply_from:
            found += _product(w, plan, i, d + 1, bound, key)
            continue
        d += 1
        g = _lookup(w, plan, i, d, bound, key)
        cursor[d] = NONE if g == NONE else w.group_head[g]
        sizes[d] = 0
        at[d] = 0
    return found


@njit(cache=True, nogil=True)
def step(w, plan, released, start, search, scratch, out_rows, out_probe, join_size, cross_size):  # type: ignore[no-untyped-def]
    """Process released tuples from ``start``; return (next tuple, results written).

    Stops early only when ``out_rows`` is full; what the unfinished tuple had found is taken back, so the
    caller can go on from that tuple with an empty or a larger array.
    """
    inputs, seqs, ts, late, cells, nulls = released
    key = search[5]
    n_out = 0
    for k in range(start, ts.size):
        i = inputs[k]
        join_size[k] = 0
        cross_size[k] = 0.0
        if not late[k]:
            w.meta[ON_T] = ts[k]
            _expire(w, plan, ts[k])
        elif ts[k] < w.meta[ON_T] - plan.windows[i]:
            continue
        slot = _place(w, i, seqs[k], ts[k], cells[k], nulls[k])
        qualifies = _qualifies(w, plan, slot, search, scratch)
        if not late[k]:
            ways = 1.0
            for j in range(w.live.size):
                if j != i:
                    ways *= w.live[j]
            cross_size[k] = ways
            if qualifies and ways > 0.0:
                found = _probe(w, plan, slot, k, search, scratch, out_rows, out_probe, n_out)
                if found < 0:
                    w.owner[slot] = NONE
                    w.free[w.meta[FREE]] = slot
                    w.meta[FREE] += 1
                    return k, n_out
                join_size[k] = found
                if out_rows.shape[0] > 0:
                    n_out += found
        _keep(w, plan, slot, late[k], qualifies, key)
    return ts.size, n_out


@njit(cache=True, nogil=True)
def restore(w, plan, held, late, search, scratch):  # type: ignore[no-untyped-def]
    """Insert tuples in the order given without probing: how a snapshot becomes windows again."""
    inputs, seqs, ts, cells, nulls = held
    for k in range(ts.size):
        slot = _place(w, inputs[k], seqs[k], ts[k], cells[k], nulls[k])
        _keep(w, plan, slot, late[k], _qualifies(w, plan, slot, search, scratch), search[5])


@njit(cache=True, nogil=True)
def list_slots(w, out):  # type: ignore[no-untyped-def]
    """Write every live slot: the inputs' time lists one after the other, then the late heap.

    Returns how many there are, and how many of them are in time lists.
    """
    n = 0
    for j in range(w.head.size):
        slot = w.head[j]
        while slot != NONE:
            out[n] = slot
            n += 1
            slot = w.after[slot]
    in_order = n
    for k in range(w.meta[LATE]):
        out[n] = w.late_slot[k]
        n += 1
    return n, in_order


@njit(cache=True, nogil=True)
def rebuild_table(w):  # type: ignore[no-untyped-def]
    """Fill the emptied hash table from the groups that are in use."""
    mask = w.table.size - 1
    for g in range(w.group_count.size):
        if w.group_count[g] > 0:
            at = np.int64(w.group_hash[g] & np.uint64(mask))
            while w.table[at] >= 0:
                at = (at + 1) & mask
            w.table[at] = g
