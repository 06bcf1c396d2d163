"""I-Nodes: what is known of punctuated values, by value, oldest first (PWJoin, sec. 4.1).

One hash table for all inputs: an I-Node has a bit for each input that has punctuated its value. A group whose
input has is marked with it. I-Nodes in use are chained in the order in which they came, so that the oldest can be
forgotten. In front of the table there is a filter, two bits per value, asked for every tuple: most have a
value that nobody has punctuated, and need no more than that. Hashes in the inputs' indexes follow from the one
that an I-Node keeps.
"""

from typing import Any, NamedTuple

import numpy as np

from slackwater.transforms.kernels.borrow import borrowed
from slackwater.transforms.kernels.compiler import kernel
from slackwater.transforms.kernels.join.slots import (
    FREE_GROUP,
    HASH,
    HEAD,
    NONE,
    find_group,
    forget_group,
    hash_in,
    hash_values,
    mark_group,
)

# Columns of an I-Node; HASH and HEAD are those of a group, as its hash table is kept by the same functions.
MASK, _HEAD, BEFORE, BEHIND, DONE, KEY = range(1, 7)
# The control record of the I-Nodes; column FREE_GROUP holds the free chain. OPEN ones are not finished.
OLDEST, _FREE, NEWEST, INODES, LIMIT, DEAD, STALE, OPEN = range(8)
# The signature: one record of its own, then one per input. JUDGES: I-Nodes of values that are over stay, so that
# tuples which contradict a punctuation are known by them.
KEYS, MEMBERS, FULL, EARLY, IS_FLOAT, JUDGES = range(6)
INDEX, CELLS = range(2)
# What becomes of a tuple: it joins, or is discarded after it has probed, or unseen.
JOINS, DISCARDED, DROPPED = range(3)


class Values(NamedTuple):
    """The I-Nodes, and where the values are that they speak of."""

    inodes: Any
    itable: Any
    icontrol: Any
    signature: Any
    """Number of key columns, bits of the inputs that have them, whether all do, whether to propagate early,
    whether the first key is a float; per input then the index over these columns and the cells."""
    bits: Any
    """The filter: a power of two of words; of a hash whose value has no I-Node, one of two bits is mostly 0."""
    ranges: Any
    """``[inputs + 1, capacity, 2]``: what each input has punctuated by ranges, then what of it is finished."""
    n_ranges: Any


@kernel(inline=True)
def borrowed_values(values):  # type: ignore[no-untyped-def]
    return Values(
        borrowed(values.inodes), borrowed(values.itable), borrowed(values.icontrol), borrowed(values.signature),
        borrowed(values.bits), borrowed(values.ranges), borrowed(values.n_ranges),
    )  # fmt: skip


@kernel(inline=True)
def _two_bits(h):  # type: ignore[no-untyped-def]
    """Return the bits that a hash sets in its word of the filter."""
    return np.uint64(1) << np.uint64((h >> 51) & 63) | np.uint64(1) << np.uint64((h >> 57) & 63)


@kernel(inline=True)
def is_unheard(bits, h):  # type: ignore[no-untyped-def]
    """Return whether the value with this hash certainly has no I-Node."""
    wanted = _two_bits(h)
    return bits[(h >> 32) & (bits.size - 1)] & wanted != wanted


@kernel(inline=True)
def _announce(values, h):  # type: ignore[no-untyped-def]
    """Set the bits of the value with this hash."""
    values.bits[(h >> 32) & (values.bits.size - 1)] |= _two_bits(h)


@kernel(inline=True)
def find_inode(inodes, itable, h, search, n_keys):  # type: ignore[no-untyped-def]
    mask = itable.size - 1
    at = h & mask
    while True:
        v = itable[at]
        if v < 0:
            return NONE
        if inodes[v, HASH] == h:
            same = True
            for c in range(n_keys):
                if inodes[v, KEY + c] != search[-1, c]:
                    same = False
                    break
            if same:
                return v
        at = (at + 1) & mask


@kernel(inline=True)
def read_key(signature, i, cells, nulls, k, search):  # type: ignore[no-untyped-def]
    """Copy the values of tuple ``k`` to the last record of ``search``; return whether one is null."""
    has_null = False
    for c in range(signature[0, KEYS]):
        cell = signature[1 + i, CELLS + c]
        has_null = has_null or (np.int64(nulls[k]) >> cell) & 1 != 0
        search[-1, c] = cells[k, cell]
    return has_null


@kernel(inline=True)
def inode_with(values, h, search):  # type: ignore[no-untyped-def]
    """Return the I-Node of the value in the last record of ``search``, which has this hash, or NONE."""
    if is_unheard(values.bits, h):
        return np.int64(NONE)
    return find_inode(values.inodes, values.itable, h, search, values.signature[0, KEYS])


@kernel(inline=True)
def contradicts(values, i, v):  # type: ignore[no-untyped-def]
    """Return whether a tuple of input ``i`` whose value has this I-Node, or none, is known to contradict."""
    return v != NONE and values.signature[0, JUDGES] != 0 and (values.inodes[v, MASK] >> i) & 1 != 0


@kernel(inline=True)
def fate_of(values, i, v, mask):  # type: ignore[no-untyped-def]
    """Return what becomes of a tuple of input ``i`` whose value has this I-Node, or none; ``mask`` has bits of
    inputs that have punctuated it otherwise."""
    if v != NONE:
        if values.inodes[v, DONE]:
            return DROPPED
        mask |= values.inodes[v, MASK]
    return DISCARDED if values.signature[0, FULL] and mask | (1 << i) == values.signature[0, MEMBERS] else JOINS


@kernel(inline=True)
def group_of(w, plan, values, j, inode, search):  # type: ignore[no-untyped-def]
    """Return the group of input ``j`` with the value of an I-Node, or NONE."""
    n_keys = values.signature[0, KEYS]
    for c in range(n_keys):
        search[-1, c] = values.inodes[inode, KEY + c]
    x = values.signature[1 + j, INDEX]
    h = hash_in(j * plan.indexes.shape[1] + x, values.inodes[inode, HASH])
    return find_group(w.slots, w.groups, w.table, plan.indexes, plan.first_cell, j, x, h, search, n_keys)


@kernel(inline=True)
def remove_inode(values, inode):  # type: ignore[no-untyped-def]
    """Forget an I-Node that no group points to."""
    inodes, icontrol = values.inodes, values.icontrol
    before, behind = inodes[inode, BEFORE], inodes[inode, BEHIND]
    if before == NONE:
        icontrol[0, OLDEST] = behind
    else:
        inodes[before, BEHIND] = behind
    if behind == NONE:
        icontrol[0, NEWEST] = before
    else:
        inodes[behind, BEFORE] = before
    icontrol[0, INODES] -= 1
    icontrol[0, OPEN] -= 1 - inodes[inode, DONE]
    icontrol[0, STALE] += 1
    forget_group(inodes, values.itable, icontrol, inode)


@kernel
def _forget_oldest(w, plan, values, search):  # type: ignore[no-untyped-def]
    """Forget the oldest I-Node; its tuples stay until the window drops them."""
    oldest = values.icontrol[0, OLDEST]
    kept = search[-1].copy()
    for j in range(plan.inputs.shape[0]):
        if not values.inodes[oldest, DONE] and (values.inodes[oldest, MASK] >> j) & 1:
            g = group_of(w, plan, values, j, oldest, search)
            if g != NONE:
                mark_group(w.groups, g, NONE)
    search[-1] = kept
    remove_inode(values, oldest)


@kernel(inline=True)
def add_inode(w, plan, values, search, h):  # type: ignore[no-untyped-def]
    """Make an I-Node for the value in the last record of ``search``; forget the oldest if there are too many."""
    inodes, icontrol = values.inodes, values.icontrol
    n_keys = values.signature[0, KEYS]
    if icontrol[0, INODES] == icontrol[0, LIMIT]:
        _forget_oldest(w, plan, values, search)
    v = icontrol[0, FREE_GROUP]
    icontrol[0, FREE_GROUP] = inodes[v, HEAD]
    inodes[v, HASH] = h
    inodes[v, MASK] = 0
    inodes[v, DONE] = 0
    inodes[v, BEHIND] = NONE
    inodes[v, BEFORE] = icontrol[0, NEWEST]
    if icontrol[0, NEWEST] == NONE:
        icontrol[0, OLDEST] = v
    else:
        inodes[icontrol[0, NEWEST], BEHIND] = v
    icontrol[0, NEWEST] = v
    icontrol[0, INODES] += 1
    icontrol[0, OPEN] += 1
    for c in range(n_keys):
        inodes[v, KEY + c] = search[-1, c]
    mask = values.itable.size - 1
    at = h & mask
    while values.itable[at] >= 0:
        at = (at + 1) & mask
    values.itable[at] = v
    _announce(values, h)
    return v


@kernel
def refilter(values):  # type: ignore[no-untyped-def]
    """Set the filter to the I-Nodes there are: those that are gone have left their bits behind."""
    values.bits[:] = 0
    v = values.icontrol[0, OLDEST]
    while v != NONE:
        _announce(values, values.inodes[v, HASH])
        v = values.inodes[v, BEHIND]
    values.icontrol[0, STALE] = 0


@kernel
def rehash(values):  # type: ignore[no-untyped-def]
    """Fill the emptied table of I-Nodes."""
    mask = values.itable.size - 1
    v = values.icontrol[0, OLDEST]
    while v != NONE:
        at = values.inodes[v, HASH] & mask
        while values.itable[at] >= 0:
            at = (at + 1) & mask
        values.itable[at] = v
        v = values.inodes[v, BEHIND]


@kernel
def restore(w, plan, values, masks, done, keys, search):  # type: ignore[no-untyped-def]
    """Make the I-Nodes of a snapshot, oldest first; no group points to them yet."""
    n_keys = values.signature[0, KEYS]
    for k in range(masks.size):
        for c in range(n_keys):
            search[-1, c] = keys[k, c]
        v = add_inode(w, plan, values, search, hash_values(search, n_keys))
        values.inodes[v, MASK] = masks[k]
        values.inodes[v, DONE] = done[k]
        values.icontrol[0, OPEN] -= done[k]


@kernel
def list_inodes(values, out):  # type: ignore[no-untyped-def]
    """Write the I-Nodes in use, oldest first."""
    v = values.icontrol[0, OLDEST]
    n = 0
    while v != NONE:
        out[n] = v
        n += 1
        v = values.inodes[v, BEHIND]
