"""Slots and their indexes: hashes from key values to groups, doubly linked lists of the slots that have them.

Slots and groups are int64 tables with named columns; free slots are chained through AFTER, free groups
through HEAD.
"""

import numpy as np

from slackwater.transforms.kernels.compiler import kernel
from slackwater.transforms.kernels.rows.dictionary import mix

NONE = -1

# Columns of a slot; then next, previous and group for each index; then the cells.
NULLS, TS, SEQ, OWNER, AFTER, LINKS = range(6)
NEXT, PREVIOUS, GROUP = range(3)
# Columns of a group. The low byte of TAG is the number of the index that it is in, the rest what the group is
# marked with.
HASH, TAG, HEAD, TAIL, COUNT = range(5)
# Columns of an input's control record.
FIRST, LAST, LIVE = range(3)
# The last control record is the join's own.
FREE_SLOT, FREE_GROUP, LATE = range(3)
# Columns of an index.
KEYS, COLUMNS = range(2)


@kernel(inline=True)
def hash_values(search, n_keys):  # type: ignore[no-untyped-def]
    """Hash the key values in the last record of ``search``."""
    h = np.uint64(0)
    for c in range(n_keys):
        h = mix(h ^ np.uint64(search[-1, c]))
    return np.int64(h >> np.uint64(1))


@kernel(inline=True)
def hash_in(tag, h):  # type: ignore[no-untyped-def]
    """Turn the hash of values into the one they have in an index, apart for every index, or back again."""
    return h ^ np.int64((np.uint64(tag + 1) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(1))


@kernel(inline=True)
def hash_key(tag, search, n_keys):  # type: ignore[no-untyped-def]
    """Hash the key values in the last record of ``search`` for an index."""
    return hash_in(tag, hash_values(search, n_keys))


@kernel(inline=True)
def mark_of(groups, g):  # type: ignore[no-untyped-def]
    """Return the number that a group is marked with, or NONE."""
    return (groups[g, TAG] >> 8) - 1


@kernel(inline=True)
def mark_group(groups, g, mark):  # type: ignore[no-untyped-def]
    """Mark a group with a number, or with NONE."""
    groups[g, TAG] = (groups[g, TAG] & 0xFF) | ((mark + 1) << 8)


@kernel(inline=True)
def find_group(slots, groups, table, indexes, first_cell, j, x, h, search, n_keys):  # type: ignore[no-untyped-def]
    """Return the group of input ``j``'s index ``x`` with these key values, or NONE."""
    mask = table.size - 1
    tag = j * indexes.shape[1] + x
    at = h & mask
    while True:
        g = table[at]
        if g < 0:
            return NONE
        if groups[g, HASH] == h and groups[g, TAG] & 0xFF == tag:
            slot = groups[g, HEAD]
            same = True
            for c in range(n_keys):
                if slots[slot, first_cell + indexes[j, x, COLUMNS + c]] != search[-1, c]:
                    same = False
                    break
            if same:
                return g
        at = (at + 1) & mask


@kernel(inline=True)
def take_out(records, table, g):  # type: ignore[no-untyped-def]
    """Take a record out of the table, closing the gap in its probe sequence."""
    mask = table.size - 1
    hole = records[g, HASH] & mask
    while table[hole] != g:
        hole = (hole + 1) & mask
    at = hole
    while True:
        at = (at + 1) & mask
        other = table[at]
        if other < 0:
            break
        home = records[other, HASH] & mask
        if ((at - home) & mask) >= ((at - hole) & mask):
            table[hole] = other
            hole = at
    table[hole] = NONE


@kernel(inline=True)
def forget_group(groups, table, control, g):  # type: ignore[no-untyped-def]
    """Take an empty group out of the table and free it."""
    take_out(groups, table, g)
    groups[g, HEAD] = control[-1, FREE_GROUP]
    control[-1, FREE_GROUP] = g


@kernel(inline=True)
def unlink_slot(slots, groups, table, control, n_indexes, slot):  # type: ignore[no-untyped-def]
    """Take a slot out of its indexes; it is not free yet."""
    for x in range(n_indexes):
        link = LINKS + 3 * x
        g = slots[slot, link + GROUP]
        if g == NONE:
            continue
        before = slots[slot, link + PREVIOUS]
        behind = slots[slot, link + NEXT]
        if before == NONE:
            groups[g, HEAD] = behind
        else:
            slots[before, link + NEXT] = behind
        if behind == NONE:
            groups[g, TAIL] = before
        else:
            slots[behind, link + PREVIOUS] = before
        groups[g, COUNT] -= 1
        if groups[g, COUNT] == 0:
            forget_group(groups, table, control, g)
    control[slots[slot, OWNER], LIVE] -= 1


@kernel(inline=True)
def free_slot(slots, control, slot):  # type: ignore[no-untyped-def]
    """Put a slot that nothing refers to before the free chain."""
    slots[slot, AFTER] = control[-1, FREE_SLOT]
    control[-1, FREE_SLOT] = slot


@kernel(inline=True)
def drop_slot(slots, groups, table, control, n_indexes, slot):  # type: ignore[no-untyped-def]
    """Take a slot out of its indexes and free it; its time list or late heap is the caller's business."""
    unlink_slot(slots, groups, table, control, n_indexes, slot)
    free_slot(slots, control, slot)


@kernel(inline=True)
def link_slot(slots, groups, table, control, tag, x, g, h, slot):  # type: ignore[no-untyped-def]
    """Append a slot to group ``g`` of index ``x``; if that is NONE, to a new one with this hash."""
    link = LINKS + 3 * x
    if g == NONE:
        g = control[-1, FREE_GROUP]
        control[-1, FREE_GROUP] = groups[g, HEAD]
        groups[g, HASH] = h
        groups[g, TAG] = tag
        groups[g, HEAD] = slot
        groups[g, COUNT] = 0
        slots[slot, link + PREVIOUS] = NONE
        mask = table.size - 1
        at = h & mask
        while table[at] >= 0:
            at = (at + 1) & mask
        table[at] = g
    else:
        slots[slot, link + PREVIOUS] = groups[g, TAIL]
        slots[groups[g, TAIL], link + NEXT] = slot
    slots[slot, link + NEXT] = NONE
    slots[slot, link + GROUP] = g
    groups[g, TAIL] = slot
    groups[g, COUNT] += 1


@kernel(inline=True)
def index_slot(slots, groups, table, control, indexes, n_indexes, first_cell, slot, search):  # type: ignore[no-untyped-def]
    """Add a slot to the indexes of its input; a null key is in no index, it equals nothing."""
    i = slots[slot, OWNER]
    nulls = slots[slot, NULLS]
    for x in range(n_indexes):
        n_keys = indexes[i, x, KEYS]
        slots[slot, LINKS + 3 * x + GROUP] = NONE
        has_null = False
        for c in range(n_keys):
            column = indexes[i, x, COLUMNS + c]
            search[-1, c] = slots[slot, first_cell + column]
            has_null = has_null or (nulls >> column) & 1 != 0
        if has_null:
            continue
        tag = i * indexes.shape[1] + x
        h = hash_key(tag, search, n_keys)
        g = find_group(slots, groups, table, indexes, first_cell, i, x, h, search, n_keys)
        link_slot(slots, groups, table, control, tag, x, g, h, slot)


@kernel
def rebuild_table(groups, table):  # type: ignore[no-untyped-def]
    """Fill the emptied hash table from the groups that are in use."""
    mask = table.size - 1
    for g in range(groups.shape[0]):
        if groups[g, COUNT] > 0:
            at = groups[g, HASH] & mask
            while table[at] >= 0:
                at = (at + 1) & mask
            table[at] = g


@kernel
def list_slots(slots, late_slot, control, out):  # type: ignore[no-untyped-def]
    """Write every live slot: the inputs' time lists one after the other, then the late heap.

    Slots of no input are dead and wait to be freed. Returns how many of the others are in time lists.
    """
    n = 0
    for j in range(control.shape[0] - 1):
        slot = control[j, FIRST]
        while slot != NONE:
            if slots[slot, OWNER] != NONE:
                out[n] = slot
                n += 1
            slot = slots[slot, AFTER]
    in_order = n
    for k in range(control[-1, LATE]):
        if slots[late_slot[k], OWNER] != NONE:
            out[n] = late_slot[k]
            n += 1
    return in_order


@kernel
def read_slots(slots, at, first_cell, out_input, out_seq, out_ts, out_cells, out_nulls):  # type: ignore[no-untyped-def]
    """Write what some slots hold."""
    for k in range(at.size):
        slot = at[k]
        out_input[k] = slots[slot, OWNER]
        out_seq[k] = slots[slot, SEQ]
        out_ts[k] = slots[slot, TS]
        out_nulls[k] = slots[slot, NULLS]
        for c in range(out_cells.shape[1]):
            out_cells[k, c] = slots[slot, first_cell + c]
