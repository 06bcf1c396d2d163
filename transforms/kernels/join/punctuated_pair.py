"""The window join that exploits punctuations, of two inputs joined on the columns that these speak of.

As ``join.punctuated_windows``, with less to ask. A tuple finds the group of its own value first, where it will be
kept. If there is one, its mark says whether the tuple's own input has punctuated the value; the other has not, or
the group would have been purged. Only a tuple that is the first of its value asks the filter of the I-Nodes.
"""

import numpy as np

from slackwater.transforms.kernels.borrow import borrowed
from slackwater.transforms.kernels.compiler import kernel
from slackwater.transforms.kernels.join.probe import BOUND, WINDOW, borrowed_plan, probe_group
from slackwater.transforms.kernels.join.punctuated_windows import NEVER, pass_to
from slackwater.transforms.kernels.join.slots import (
    COUNT,
    FREE_SLOT,
    GROUP,
    LINKS,
    LIVE,
    NONE,
    find_group,
    free_slot,
    hash_in,
    hash_values,
    link_slot,
    mark_of,
)
from slackwater.transforms.kernels.join.windows import borrowed_windows, keep_slot, place_slot
from slackwater.transforms.kernels.punctuation.inodes import (
    DISCARDED,
    DROPPED,
    JOINS,
    KEYS,
    borrowed_values,
    contradicts,
    fate_of,
    inode_with,
    read_key,
)
from slackwater.transforms.kernels.punctuation.purge import borrowed_out, punctuate


# fmt: off
@kernel
def step(  # type: ignore[no-untyped-def]
    windows, plan, values, released, punctuations, start, end, first, now, search, scratch, out_rows, out_probe,
    join_size, cross_size, wrong, out,
):
    # fmt: on
    """As ``punctuated.step``, for values without ranges."""
    p_at, p_ts, p_input, p_low, _, _ = punctuations
    tuple_input, tuple_seq, tuple_ts, tuple_late, cells, nulls = released
    cells, nulls = borrowed(cells), borrowed(nulls)
    w, plan, values = borrowed_windows(windows), borrowed_plan(plan), borrowed_values(values)
    slots, groups, table, late_due, late_slot, control = w
    inputs, steps, indexes, program, first_cell = plan
    signature = values.signature
    search, scratch = borrowed(search), borrowed(scratch)
    out_rows, out_probe = borrowed(out_rows), borrowed(out_probe)
    out = borrowed_out(out)
    n_keys, apart, x = signature[0, KEYS], indexes.shape[1], np.int64(0)
    n_out = np.int64(0)
    p = first
    last = end if end == tuple_ts.size else end - 1
    begin = start
    while True:
        coming = p_at[p] if p < p_at.size and p_at[p] <= last else NEVER
        for k in range(begin, min(coming, end)):
            i = np.int64(tuple_input[k])
            j = 1 - i
            ts, late = tuple_ts[k], tuple_late[k]
            has_null = read_key(signature, i, cells, nulls, k, search)
            h = hash_values(search, n_keys)
            own, v = np.int64(NONE), np.int64(NONE)
            if not has_null:
                own = find_group(
                    slots, groups, table, indexes, first_cell, i, x, hash_in(i * apart, h), search, n_keys
                )
                v = mark_of(groups, own) if own != NONE else inode_with(values, h, search)
                # What contradicts is as if it had not come: no time passes.
                if contradicts(values, i, v):
                    wrong[k - start] = True
                    continue
            if not late:
                now = ts
                if pass_to(w, plan, values, k, now, search, out):
                    read_key(signature, i, cells, nulls, k, search)
                if own != NONE and groups[own, COUNT] == 0:
                    own = np.int64(NONE)
            fate = JOINS
            if v != NONE:
                # It may have been forgotten meanwhile.
                fate = fate_of(values, i, inode_with(values, h, search), 0)
            if late and ts < now - inputs[i, WINDOW]:
                continue
            if not late:
                cross_size[k - start] = control[j, LIVE]
            if fate == DROPPED:
                continue
            if control[-1, FREE_SLOT] == NONE:
                return k, p, n_out, now
            slot = place_slot(slots, control, first_cell, i, tuple_seq[k], ts, cells, nulls, k)
            if not late and not has_null and control[j, LIVE] > 0:
                g = find_group(
                    slots, groups, table, indexes, first_cell, j, x, hash_in(j * apart, h), search, n_keys
                )
                if g != NONE:
                    search[0, BOUND] = slot
                    search[1, BOUND] = slot
                    found = probe_group(
                        slots, groups, table, inputs, steps, indexes, program, first_cell, i, g, k, search,
                        scratch, out_rows, out_probe, n_out,
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
            if has_null:
                slots[slot, LINKS + GROUP] = NONE
            else:
                link_slot(slots, groups, table, control, i * apart, x, own, hash_in(i * apart, h), slot)
            keep_slot(slots, late_due, late_slot, control, inputs, slot, late)
        if coming == NEVER:
            return end, p, n_out, now
        begin = coming
        if p_ts[p] > now:
            now = p_ts[p]
            pass_to(w, plan, values, coming, now, search, out)
        if p_input[p] != NONE:
            punctuate(w, plan, values, p_input[p], p_low, p, coming, now, search, out)
        p += 1
