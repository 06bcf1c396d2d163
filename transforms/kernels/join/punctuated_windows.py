"""The window join that exploits punctuations, one tuple or punctuation at a time (PWJoin, for n inputs).

The windows are those of ``kernels.join.windows``: a group of equal keys is the paper's value list, the chain of
slots of an input its time list. On top there is an *I-Node* per punctuated value: which inputs have punctuated
it, and whether it is finished. A group whose input has punctuated its value points to the I-Node: that closes
the punctuated ring, so that the tuple which leaves such a group last tells that the value is finished. Slots
that punctuations purge are taken out of their groups at once and stay in the time list, marked, until its head
gets there (lazy deletion).

The rules for n inputs, with proofs, are in ``plugins.join.punctuated.logic``.
"""

from typing import Any, NamedTuple

import numpy as np

from slackwater.transforms.kernels.borrow import borrowed
from slackwater.transforms.kernels.compiler import kernel
from slackwater.transforms.kernels.heap import pop
from slackwater.transforms.kernels.join.probe import (
    INDEXES,
    OWN_FROM,
    OWN_TO,
    WINDOW,
    borrowed_plan,
    first_group,
    probe_group,
    qualify,
)
from slackwater.transforms.kernels.join.slots import (
    AFTER,
    COUNT,
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
    hash_values,
    index_slot,
    mark_group,
    mark_of,
)
from slackwater.transforms.kernels.join.windows import borrowed_windows, expire, keep_slot, place_slot
from slackwater.transforms.kernels.punctuation.inodes import (
    BEHIND,
    CELLS,
    DEAD,
    DISCARDED,
    DONE,
    DROPPED,
    EARLY,
    INDEX,
    INODES,
    IS_FLOAT,
    JOINS,
    JUDGES,
    KEYS,
    MASK,
    MEMBERS,
    OLDEST,
    OPEN,
    borrowed_values,
    contradicts,
    fate_of,
    group_of,
    inode_with,
    read_key,
)
from slackwater.transforms.kernels.punctuation.promises import in_range, ordered
from slackwater.transforms.kernels.punctuation.purge import borrowed_out, covering, finish, punctuate
from slackwater.transforms.kernels.punctuation.value_ranges import has_room, punctuate_range


class Given(NamedTuple):
    """Punctuations as ``contract.Punctuations``, on the key classes that the join follows."""

    at: Any
    ts: Any
    input: Any
    """NONE for those on other columns."""
    low: Any
    high: Any
    is_range: Any


NEVER = 1 << 62


@kernel(inline=True)
def _leave(slots, groups, table, control, icontrol, signature, n_indexes, j, slot):  # type: ignore[no-untyped-def]
    """Free a slot that is in no time list any more.

    Where it is the last of a value that its input has punctuated, return the I-Node, else NONE.
    """
    v = NONE
    if slots[slot, OWNER] == NONE:
        icontrol[0, DEAD] -= 1
        free_slot(slots, control, slot)
    else:
        x = signature[1 + j, INDEX]
        g = slots[slot, LINKS + 3 * x + GROUP] if x != NONE else NONE
        drop_slot(slots, groups, table, control, n_indexes, slot)
        if g != NONE and groups[g, COUNT] == 0:
            v = mark_of(groups, g) if signature[0, EARLY] else NONE
    return v


@kernel(inline=True)
def _expire(slots, groups, table, late_due, late_slot, control, inputs, icontrol, signature, now):  # type: ignore[no-untyped-def]
    """Drop every tuple with ``ts < now - W``, and what is dead at the heads of the time lists.

    Stops where a value has lost its last tuple of an input that has punctuated it, which finishes the value
    (Theorem 4.1), and returns its I-Node; NONE when all is done.
    """
    v = NONE
    for j in range(inputs.shape[0]):
        slot = control[j, FIRST]
        while (
            v == NONE
            and slot != NONE
            and (slots[slot, TS] < now - inputs[j, WINDOW] or slots[slot, OWNER] == NONE)
        ):
            control[j, FIRST] = slots[slot, AFTER]
            v = _leave(slots, groups, table, control, icontrol, signature, inputs[j, INDEXES], j, slot)
            slot = control[j, FIRST]
        if slot == NONE:
            control[j, LAST] = NONE
    while v == NONE and control[-1, LATE] > 0 and late_due[0] < now:
        slot = late_slot[0]
        pop(late_due, late_slot, control[-1, LATE])
        control[-1, LATE] -= 1
        j = slots[slot, OWNER]
        v = _leave(slots, groups, table, control, icontrol, signature, inputs[j, INDEXES], j, slot)
    return v


@kernel(inline=True)
def _inode(values, i, cells, nulls, k, search):  # type: ignore[no-untyped-def]
    """Return the I-Node of tuple ``k``, or NONE; its values are left in ``search``."""
    if read_key(values.signature, i, cells, nulls, k, search):
        return np.int64(NONE)
    return inode_with(values, hash_values(search, values.signature[0, KEYS]), search)


@kernel(inline=True)
def _fate(values, ranged, i, cells, nulls, k, search):  # type: ignore[no-untyped-def]
    """Return what punctuations make of a tuple: JOINS, DISCARDED or DROPPED."""
    v = _inode(values, i, cells, nulls, k, search)
    mask = 0
    if ranged and (np.int64(nulls[k]) >> values.signature[1 + i, CELLS]) & 1 == 0:
        over = values.n_ranges.size - 1
        value = ordered(search[-1, 0], values.signature[0, IS_FLOAT] != 0)
        if in_range(values.ranges[over], values.n_ranges[over], value):
            return DROPPED
        mask = covering(values, value)
    return fate_of(values, i, v, mask)


@kernel(inline=True)
def pass_to(w, plan, values, at, now, search, out):  # type: ignore[no-untyped-def]
    """Let the time of the join pass to ``now``, and finish what that finishes; return whether there was any."""
    finished = False
    while True:
        v = _expire(
            w.slots, w.groups, w.table, w.late_due, w.late_slot, w.control, plan.inputs, values.icontrol,
            values.signature, now,
        )  # fmt: skip
        if v == NONE:
            return finished
        finish(w, plan, values, v, at, now, search, out)
        finished = True


@kernel(inline=True)
def _is_ranged(values):  # type: ignore[no-untyped-def]
    """Return whether some input has punctuated a range."""
    ranged = False
    for j in range(values.n_ranges.size):
        ranged = ranged or values.n_ranges[j] > 0
    return ranged


# fmt: off
@kernel
def step(  # type: ignore[no-untyped-def]
    windows, plan, values, released, punctuations, start, end, first, now, search, scratch, out_rows, out_probe,
    join_size, cross_size, wrong, out,
):
    # fmt: on
    """Process released tuples ``start`` to ``end``, and the punctuations from ``first`` on that come before.

    Returns (next tuple, next punctuation, results written, onT). As ``windows.step``, it stops early when no slot
    is free or ``out_rows`` is full; and before a range that has no room (``has_room``). Punctuations after the
    last tuple are taken with it. ``out`` has room for all I-Nodes and all punctuations. Tuples whose values their
    own input has punctuated are neither joined nor kept, but noted in ``wrong``.
    """
    p_at, p_ts, p_input, p_low, p_high, p_is_range = punctuations
    tuple_input, tuple_seq, tuple_ts, tuple_late, cells, nulls = released
    cells, nulls = borrowed(cells), borrowed(nulls)
    w, plan, values = borrowed_windows(windows), borrowed_plan(plan), borrowed_values(values)
    slots, groups, table, late_due, late_slot, control = w
    inputs, steps, indexes, program, first_cell = plan
    icontrol, signature = values.icontrol, values.signature
    search, scratch = borrowed(search), borrowed(scratch)
    out_rows, out_probe = borrowed(out_rows), borrowed(out_probe)
    out = borrowed_out(out)
    m = inputs.shape[0]
    members = signature[0, MEMBERS]
    ranged, judges = _is_ranged(values), signature[0, JUDGES] != 0
    n_out = np.int64(0)
    p = first
    last = end if end == tuple_ts.size else end - 1
    coming = p_at[p] if p < p_at.size and p_at[p] <= last else NEVER
    for k in range(start, end + 1):
        while k == coming:
            if p_ts[p] > now:
                now = p_ts[p]
                pass_to(w, plan, values, k, now, search, out)
            i = p_input[p]
            if i != NONE and p_is_range[p]:
                if not has_room(w, values, i, out.at.size - out.size[0], p_at.size - p):
                    return k, p, n_out, now
                ranged = True
                punctuate_range(w, plan, values, i, p_low[p, 0], p_high[p], k, now, search, out)
            elif i != NONE:
                punctuate(w, plan, values, i, p_low, p, k, now, search, out)
            p += 1
            coming = p_at[p] if p < p_at.size and p_at[p] <= last else NEVER
        if k == end:
            break
        i = tuple_input[k]
        ts = tuple_ts[k]
        late = tuple_late[k]
        asks = (ranged or icontrol[0, INODES] > 0) and (members >> i) & 1
        # What contradicts is as if it had not come: no time passes.
        if asks and judges and contradicts(values, i, _inode(values, i, cells, nulls, k, search)):
            wrong[k - start] = True
            continue
        if not late:
            now = ts
            if icontrol[0, OPEN] == 0 and icontrol[0, DEAD] == 0:
                expire(slots, groups, table, late_due, late_slot, control, inputs, now)
            else:
                pass_to(w, plan, values, k, now, search, out)
        fate = _fate(values, ranged, i, cells, nulls, k, search) if asks else JOINS
        if late and ts < now - inputs[i, WINDOW]:
            continue
        ways = 1.0
        for j in range(m):
            if j != i:
                ways *= control[j, LIVE]
        if not late:
            cross_size[k - start] = ways
        if fate == DROPPED:
            continue
        if control[-1, FREE_SLOT] == NONE:
            return k, p, n_out, now
        slot = place_slot(slots, control, first_cell, i, tuple_seq[k], ts, cells, nulls, k)
        qualifies = True
        if inputs[i, OWN_TO] > inputs[i, OWN_FROM]:
            qualifies = qualify(
                slots, program, first_cell, inputs[i, OWN_FROM], inputs[i, OWN_TO], i, slot, search, scratch
            )
        if not late and qualifies and ways > 0.0:
            g = first_group(slots, groups, table, inputs, steps, indexes, first_cell, i, slot, search)
            if g != NONE:
                found = probe_group(
                    slots, groups, table, inputs, steps, indexes, program, first_cell, i, g, k, search, scratch,
                    out_rows, out_probe, n_out,
                )  # fmt: skip
                if found < 0:
                    free_slot(slots, control, slot)
                    return k, p, n_out, now
                join_size[k - start] = found
                if out_rows.shape[0] > 0:
                    n_out += found
        if fate == DISCARDED:
            free_slot(slots, control, slot)
            continue
        n_indexes = inputs[i, INDEXES]
        if qualifies:
            index_slot(slots, groups, table, control, indexes, n_indexes, first_cell, slot, search)
        else:
            for x in range(n_indexes):
                slots[slot, LINKS + 3 * x + GROUP] = NONE
        keep_slot(slots, late_due, late_slot, control, inputs, slot, late)
    return end, p, n_out, now


@kernel
def close_rings(w, plan, values, now, search, out):  # type: ignore[no-untyped-def]
    """Let groups point to their I-Nodes again after windows were filled anew; finish what has lost its last."""
    v = values.icontrol[0, OLDEST]
    while v != NONE:
        behind = values.inodes[v, BEHIND]
        done = values.inodes[v, DONE] != 0
        for j in range(plan.inputs.shape[0]):
            if done or (values.inodes[v, MASK] >> j) & 1 == 0:
                continue
            g = group_of(w, plan, values, j, v, search)
            if g != NONE:
                mark_group(w.groups, g, v)
            elif values.signature[0, EARLY]:
                finish(w, plan, values, v, 0, now, search, out)
                done = True
        v = behind
