"""What follows once a value is punctuated: purge, and tell downstream what is finished (PWJoin, sec. 4.2, 4.4).

The rules for n inputs, with proofs, are in ``plugins.join.punctuated.logic``.
"""

from typing import Any, NamedTuple

from slackwater.transforms.kernels.borrow import borrowed
from slackwater.transforms.kernels.compiler import kernel
from slackwater.transforms.kernels.join.probe import INDEXES, borrowed_plan
from slackwater.transforms.kernels.join.slots import (
    COUNT,
    HEAD,
    LINKS,
    LIVE,
    NEXT,
    NONE,
    OWNER,
    forget_group,
    hash_values,
    mark_group,
    unlink_slot,
)
from slackwater.transforms.kernels.join.windows import borrowed_windows
from slackwater.transforms.kernels.punctuation.inodes import (
    DEAD,
    DONE,
    EARLY,
    FULL,
    INDEX,
    IS_FLOAT,
    JUDGES,
    KEY,
    KEYS,
    MASK,
    MEMBERS,
    OPEN,
    add_inode,
    borrowed_values,
    find_inode,
    group_of,
    remove_inode,
)
from slackwater.transforms.kernels.punctuation.promises import add_range, in_range, ordered


class Out(NamedTuple):
    """Finished values and ranges, as they are found; ``size`` holds their number."""

    size: Any
    at: Any
    ts: Any
    values: Any
    high: Any
    """Upper end of a range; of a value its first key."""


@kernel(inline=True)
def borrowed_out(out):  # type: ignore[no-untyped-def]
    return Out(borrowed(out.size), borrowed(out.at), borrowed(out.ts), borrowed(out.values), borrowed(out.high))


@kernel(inline=True)
def tell(out, at, now):  # type: ignore[no-untyped-def]
    """Return the place of one more that is finished; its values are the caller's to write."""
    n = out.size[0]
    out.at[n] = at
    out.ts[n] = now
    out.size[0] = n + 1
    return n


@kernel(inline=True)
def covering(values, word):  # type: ignore[no-untyped-def]
    """Return bits of the inputs that have punctuated a range with this ``ordered`` value."""
    mask = 0
    for i in range(values.n_ranges.size - 1):
        if in_range(values.ranges[i], values.n_ranges[i], word):
            mask |= 1 << i
    return mask


@kernel
def purge(w, plan, values, j, g):  # type: ignore[no-untyped-def]
    """Delete the tuples of a group of input ``j``; their slots stay in the time list for now."""
    w = borrowed_windows(w)
    mark_group(w.groups, g, NONE)
    values.icontrol[0, DEAD] += w.groups[g, COUNT]
    link = LINKS + 3 * values.signature[1 + j, INDEX] + NEXT
    slot = w.groups[g, HEAD]
    if plan.inputs[j, INDEXES] == 1:
        # The whole group goes, so its list need not stay one.
        w.control[j, LIVE] -= w.groups[g, COUNT]
        w.groups[g, COUNT] = 0
        forget_group(w.groups, w.table, w.control, g)
        while slot != NONE:
            w.slots[slot, OWNER] = NONE
            slot = w.slots[slot, link]
        return
    while slot != NONE:
        behind = w.slots[slot, link]
        unlink_slot(w.slots, w.groups, w.table, w.control, plan.inputs[j, INDEXES], slot)
        w.slots[slot, OWNER] = NONE
        slot = behind


@kernel(inline=True)
def conclude(w, plan, values, inode, search):  # type: ignore[no-untyped-def]
    """Delete every tuple of a finished value; forget its I-Node where nothing can ask for it any more."""
    values.inodes[inode, DONE] = 1
    values.icontrol[0, OPEN] -= 1
    members = values.signature[0, MEMBERS]
    for j in range(plan.inputs.shape[0]):
        if (members >> j) & 1:
            g = group_of(w, plan, values, j, inode, search)
            if g != NONE:
                purge(w, plan, values, j, g)
    over = values.n_ranges.size - 1
    word = ordered(values.inodes[inode, KEY], values.signature[0, IS_FLOAT] != 0)
    if covering(values, word) != 0:
        # It is a hole in a range; that what is finished of the range closes spares the I-Node.
        add_range(values.ranges, values.n_ranges, over, word, word)
        remove_inode(values, inode)
    elif values.inodes[inode, MASK] == members and not values.signature[0, JUDGES]:
        remove_inode(values, inode)


@kernel(inline=True)
def _finish(w, plan, values, inode, at, now, search, out):  # type: ignore[no-untyped-def]
    n = tell(out, at, now)
    for c in range(values.signature[0, KEYS]):
        out.values[n, c] = values.inodes[inode, KEY + c]
    out.high[n] = values.inodes[inode, KEY]
    conclude(w, plan, values, inode, search)


@kernel
def finish(w, plan, values, inode, at, now, search, out):  # type: ignore[no-untyped-def]
    """Tell downstream that no later result has the value; delete every tuple that has it."""
    w, plan, values = borrowed_windows(w), borrowed_plan(plan), borrowed_values(values)
    _finish(w, plan, values, inode, at, now, borrowed(search), borrowed_out(out))


@kernel(inline=True)
def inode_of(w, plan, values, search):  # type: ignore[no-untyped-def]
    """Return the I-Node of the value in the last record of ``search``; make it if there is none.

    A new one has the bits of the inputs whose ranges contain the value.
    """
    n_keys = values.signature[0, KEYS]
    h = hash_values(search, n_keys)
    v = find_inode(values.inodes, values.itable, h, search, n_keys)
    if v == NONE:
        v = add_inode(w, plan, values, search, h)
        if n_keys == 1:
            word = ordered(values.inodes[v, KEY], values.signature[0, IS_FLOAT] != 0)
            values.inodes[v, MASK] = covering(values, word)
    return v


@kernel(inline=True)
def apply(w, plan, values, i, v, search):  # type: ignore[no-untyped-def]
    """Draw the conclusions of input ``i`` having punctuated the value of an I-Node.

    Returns whether it is finished, with all its tuples still there. Else what is useless is purged.
    """
    signature, mask = values.signature, values.inodes[v, MASK]
    members = signature[0, MEMBERS]
    g = group_of(w, plan, values, i, v, search)
    if (signature[0, FULL] and mask == members) or (signature[0, EARLY] and g == NONE):
        return True
    if g != NONE:
        mark_group(w.groups, g, v)
    if signature[0, FULL]:
        for j in range(plan.inputs.shape[0]):
            if mask | (1 << j) == members:
                other = group_of(w, plan, values, j, v, search)
                if other != NONE:
                    purge(w, plan, values, j, other)
    return False


@kernel(inline=True)
def punctuate(w, plan, values, i, low, p, at, now, search, out):  # type: ignore[no-untyped-def]
    """Take punctuation ``p`` of input ``i``: no later tuple of it has these values (paper: Purge)."""
    # Inlined, and mostly one function: a call with all these arrays costs as much as the work.
    w, plan, values = borrowed_windows(w), borrowed_plan(plan), borrowed_values(values)
    search, out = borrowed(search), borrowed_out(out)
    n_keys = values.signature[0, KEYS]
    for c in range(n_keys):
        search[-1, c] = low[p, c]
    over = values.n_ranges.size - 1
    if values.n_ranges[over] > 0:
        word = ordered(low[p, 0], values.signature[0, IS_FLOAT] != 0)
        if in_range(values.ranges[over], values.n_ranges[over], word):
            return
    v = inode_of(w, plan, values, search)
    values.inodes[v, MASK] |= 1 << i
    if values.inodes[v, DONE]:
        if values.inodes[v, MASK] == values.signature[0, MEMBERS] and not values.signature[0, JUDGES]:
            remove_inode(values, v)
    elif apply(w, plan, values, i, v, search):
        _finish(w, plan, values, v, at, now, search, out)
