"""Ranges of values that an input has punctuated.

A range speaks of more values than anyone has seen, so it is kept as a range, merged with those of the same input,
and I-Nodes are made only for its values of which a tuple is held or an input has spoken by itself. The rest is
finished at once, or when the last input has punctuated it; what is finished is kept as ranges too.
"""

import numpy as np

from slackwater.transforms.kernels.compiler import kernel
from slackwater.transforms.kernels.join.slots import (
    AFTER,
    COLUMNS,
    FIRST,
    GROUP,
    HEAD,
    LATE,
    LINKS,
    LIVE,
    NONE,
    OWNER,
    find_group,
    hash_in,
    hash_values,
)
from slackwater.transforms.kernels.punctuation.inodes import (
    BEHIND,
    DONE,
    EARLY,
    FULL,
    INDEX,
    INODES,
    IS_FLOAT,
    KEY,
    LIMIT,
    MASK,
    MEMBERS,
    OLDEST,
    find_inode,
    remove_inode,
)
from slackwater.transforms.kernels.punctuation.promises import add_range, in_range, ordered
from slackwater.transforms.kernels.punctuation.purge import apply, conclude, covering, finish, inode_of, tell


@kernel
def subtract(ranges, others):  # type: ignore[no-untyped-def]
    """Return what of ``ranges`` is in none of ``others``; each list is ascending and disjoint."""
    out = np.empty((ranges.shape[0] + others.shape[0], 2), np.int64)
    n = 0
    k = 0
    for r in range(ranges.shape[0]):
        low, high = ranges[r, 0], ranges[r, 1]
        while k < others.shape[0] and others[k, 1] < low:
            k += 1
        at = k
        rest = True
        while rest and at < others.shape[0] and others[at, 0] <= high:
            if others[at, 0] > low:
                out[n, 0] = low
                out[n, 1] = others[at, 0] - 1
                n += 1
            rest = others[at, 1] < high
            low = others[at, 1] + 1
            at += 1
        if rest:
            out[n, 0] = low
            out[n, 1] = high
            n += 1
    return out[:n]


@kernel
def intersect(ranges, others):  # type: ignore[no-untyped-def]
    """Return what is in both lists; each is ascending and disjoint."""
    out = np.empty((ranges.shape[0] + others.shape[0], 2), np.int64)
    n = a = b = 0
    while a < ranges.shape[0] and b < others.shape[0]:
        low = max(ranges[a, 0], others[b, 0])
        high = min(ranges[a, 1], others[b, 1])
        if low <= high:
            out[n, 0] = low
            out[n, 1] = high
            n += 1
        if ranges[a, 1] < others[b, 1]:
            a += 1
        else:
            b += 1
    return out[:n]


@kernel
def has_room(w, values, i, left, coming):  # type: ignore[no-untyped-def]
    """Return whether a range of input ``i`` fits: I-Nodes and ``left`` places for what it may prove finished.

    ``coming`` more punctuations are to have room after it.
    """
    held = w.control[:-1, LIVE].sum()
    inodes, size = values.icontrol[0, INODES], values.inodes.shape[0]
    fits = size == values.icontrol[0, LIMIT] or size - inodes >= held + coming
    return fits and left >= 2 * (held + inodes) + values.n_ranges[i] + values.n_ranges[-1] + 3 + coming


@kernel
def _is_known(w, plan, values, search):  # type: ignore[no-untyped-def]
    """Return whether the value in the last record of ``search`` has an I-Node or a tuple that is held."""
    h = hash_values(search, 1)
    if find_inode(values.inodes, values.itable, h, search, 1) != NONE:
        return True
    for j in range(plan.inputs.shape[0]):
        x = values.signature[1 + j, INDEX]
        if x == NONE:
            continue
        own = hash_in(j * plan.indexes.shape[1] + x, h)
        if find_group(w.slots, w.groups, w.table, plan.indexes, plan.first_cell, j, x, own, search, 1) != NONE:
            return True
    return False


@kernel
def _add_held(w, plan, values, j, slot, parts, out, n):  # type: ignore[no-untyped-def]
    """Add the value of a tuple of input ``j`` that is the first of its group and in ``parts``; count them."""
    x = values.signature[1 + j, INDEX]
    if w.slots[slot, OWNER] == NONE or x == NONE:
        return n
    g = w.slots[slot, LINKS + 3 * x + GROUP]
    if g == NONE or w.groups[g, HEAD] != slot:
        return n
    word = w.slots[slot, plan.first_cell + plan.indexes[j, x, COLUMNS]]
    out[n] = ordered(word, values.signature[0, IS_FLOAT] != 0)
    return n + 1 if in_range(parts, parts.shape[0], out[n]) else n


@kernel
def _known(w, plan, values, parts, search):  # type: ignore[no-untyped-def]
    """Return the values of ``parts`` that have an I-Node or a tuple that is held, ascending.

    Goes through the values of the parts, or through all that is held, whichever are fewer.
    """
    is_float = values.signature[0, IS_FLOAT] != 0
    most = w.control[:-1, LIVE].sum() + values.icontrol[0, INODES]
    width = 0.0
    for r in range(parts.shape[0]):
        width += float(parts[r, 1]) - float(parts[r, 0]) + 1.0
    out = np.empty(most + 1, np.int64)
    n = 0
    if width <= most:
        for r in range(parts.shape[0]):
            for word in range(parts[r, 0], parts[r, 1] + 1):
                search[-1, 0] = ordered(word, is_float)
                if _is_known(w, plan, values, search):
                    out[n] = word
                    n += 1
        return out[:n]
    for j in range(plan.inputs.shape[0]):
        slot = w.control[j, FIRST]
        while slot != NONE:
            n = _add_held(w, plan, values, j, slot, parts, out, n)
            slot = w.slots[slot, AFTER]
    for k in range(w.control[-1, LATE]):
        n = _add_held(w, plan, values, w.slots[w.late_slot[k], OWNER], w.late_slot[k], parts, out, n)
    v = values.icontrol[0, OLDEST]
    while v != NONE:
        out[n] = ordered(values.inodes[v, KEY], is_float)
        if in_range(parts, parts.shape[0], out[n]):
            n += 1
        v = values.inodes[v, BEHIND]
    return np.unique(out[:n])


@kernel
def punctuate_range(w, plan, values, i, low, high, at, now, search, out):  # type: ignore[no-untyped-def]
    """Take a range of input ``i``, both ends inclusive: no later tuple of it has a value from there."""
    signature, ranges, n_ranges = values.signature, values.ranges, values.n_ranges
    is_float, early = signature[0, IS_FLOAT] != 0, signature[0, EARLY] != 0
    over = n_ranges.size - 1
    asked = np.array([[ordered(low, is_float), ordered(high, is_float)]])
    fresh = subtract(asked, ranges[i, : n_ranges[i]])
    add_range(ranges, n_ranges, i, asked[0, 0], asked[0, 1])
    told = ranges[over, : n_ranges[over]].copy()
    # Values that are not finished, or that were told before: holes in what can be told now.
    known = _known(w, plan, values, fresh, search)
    holes = np.empty((known.size, 2), np.int64)
    n_holes = 0
    for word in known:
        if in_range(told, told.shape[0], word):
            continue
        search[-1, 0] = ordered(word, is_float)
        v = inode_of(w, plan, values, search)
        values.inodes[v, MASK] |= 1 << i
        whole = False
        if values.inodes[v, DONE]:
            add_range(ranges, n_ranges, over, word, word)
            remove_inode(values, v)
        elif apply(w, plan, values, i, v, search):
            whole = early or covering(values, word) == signature[0, MEMBERS]
            if whole:
                conclude(w, plan, values, v, search)
            else:
                finish(w, plan, values, v, at, now, search, out)
        if not whole:
            holes[n_holes] = word
            n_holes += 1
    done = fresh
    if not early:
        if not signature[0, FULL]:
            return
        for j in range(over):
            done = intersect(done, ranges[j, : n_ranges[j]])
    done = subtract(subtract(done, told), holes[:n_holes])
    for r in range(done.shape[0]):
        n = tell(out, at, now)
        out.values[n, 0] = ordered(done[r, 0], is_float)
        out.high[n] = ordered(done[r, 1], is_float)
        add_range(ranges, n_ranges, over, done[r, 0], done[r, 1])
