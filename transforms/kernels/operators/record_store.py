"""The record store of a window operator: records by time, in a 2-level index (ADC sec. 3).

Time is cut into *panes*, the longest stretches that no extent cuts through; with panes of one tick this is the
paper's store. A pane has a *place* in a p-node of 128 places; the i-node lists the p-nodes in order of time and
grows and shrinks by array copies. While no p-node is missing between two others, a pane is found by
subtraction, as in the paper's Fig. 3; across a gap of silence by binary search, so that a gap costs no memory.

A place holds a ring of *records* in order of arrival: the partial aggregate of one row, or of all rows of a
group once the place has been folded. Folding merges records from left to right, so it makes no difference to
any sum when, or how often, it is done. All arrays are owned by the caller; a kernel never allocates state.
"""

from typing import Any, NamedTuple

import numpy as np

from slackwater.transforms.kernels.compiler import kernel

PLACES = 128
NONE = -1
NEVER = np.iinfo(np.int64).min


class StoreState(NamedTuple):
    """The store of one shard, and how far its extents have been produced."""

    inode: Any
    """``[capacity, 2]``, ascending: number of a p-node (pane // PLACES), and where it is in ``nodes``."""
    nodes: Any
    """``[capacity, PLACES, 2]``: last record of the place's ring or NONE; rows that no extent has shown yet."""
    records: Any
    """``[capacity, 2 + words]``: group of a record, the record after it, integer words and floating words of its
    partial aggregate; free ones are chained. All of a record lies in one or two cache lines."""
    reals: Any
    """The same memory as floats."""
    seen: Any
    """``[groups, 2]``: for the place or extent at work, marked by a stamp, where each group is."""
    control: Any


NUMBER, NODE = range(2)
LAST, WAITING = range(2)
GROUP, NEXT, WORDS = range(3)
STAMP, INDEX = range(2)
# Entries of the control record: p-nodes in the i-node, heads of the chains of free p-nodes and records, records
# in use and their largest number so far, rows that no extent has shown yet, the last stamp, the punctuation, the
# last extent produced.
N_NODES, FREE_NODE, FREE_RECORD, N_RECORDS, MOST_RECORDS, N_WAITING, LAST_STAMP, TAU, PRODUCED, CONTROLS = range(
    10
)

# A pair is a number of 128 bits: its upper half, and after it the lower one, less 2**63.
ADD, MIN, MAX, MIN_PAIR, MAX_PAIR, LOWER = range(6)


@kernel(inline=True)
def find_node(inode, n, number):  # type: ignore[no-untyped-def]
    """Return the position of p-node ``number`` in the i-node, or ``-1 - position`` where it would have to be."""
    if n > 0:
        guess = number - inode[0, NUMBER]
        if 0 <= guess < n and inode[guess, NUMBER] == number:
            return guess
    low = 0
    high = n
    while low < high:
        middle = (low + high) >> 1
        if inode[middle, NUMBER] < number:
            low = middle + 1
        else:
            high = middle
    if low < n and inode[low, NUMBER] == number:
        return low
    return -1 - low


@kernel(inline=True)
def place(state, pane, group, whole, real, k):  # type: ignore[no-untyped-def]
    """Append row ``k`` to the place of its pane; return False, with nothing done, if there is no free p-node.

    The caller has seen to a free record.
    """
    control = state.control
    number = pane // PLACES
    at = find_node(state.inode, control[N_NODES], number)
    if at < 0:
        node = control[FREE_NODE]
        if node == NONE:
            return False
        at = -1 - at
        for j in range(control[N_NODES], at, -1):
            state.inode[j, NUMBER] = state.inode[j - 1, NUMBER]
            state.inode[j, NODE] = state.inode[j - 1, NODE]
        control[N_NODES] += 1
        control[FREE_NODE] = state.nodes[node, 0, LAST]
        state.inode[at, NUMBER] = number
        state.inode[at, NODE] = node
        for p in range(PLACES):
            state.nodes[node, p, LAST] = NONE
            state.nodes[node, p, WAITING] = 0
    node = state.inode[at, NODE]
    p = pane - number * PLACES
    record = control[FREE_RECORD]
    control[FREE_RECORD] = state.records[record, NEXT]
    control[N_RECORDS] += 1
    control[MOST_RECORDS] = max(control[MOST_RECORDS], control[N_RECORDS])
    control[N_WAITING] += 1
    state.records[record, GROUP] = group
    floating = WORDS + whole.shape[1]
    for c in range(whole.shape[1]):
        state.records[record, WORDS + c] = whole[k, c]
    for c in range(real.shape[1]):
        state.reals[record, floating + c] = real[k, c]
    last = state.nodes[node, p, LAST]
    if last == NONE:
        state.records[record, NEXT] = record
    else:
        state.records[record, NEXT] = state.records[last, NEXT]
        state.records[last, NEXT] = record
    state.nodes[node, p, LAST] = record
    state.nodes[node, p, WAITING] += 1
    return True


@kernel(inline=True)
def merge(ops, floating, records, reals, into, from_records, from_reals, record):  # type: ignore[no-untyped-def]
    """Merge the words of a record into another, of which those from ``floating`` on are floats.

    NaN is larger than every number, as in PostgreSQL.
    """
    for c in range(WORDS, floating):
        value = from_records[record, c]
        if ops[c] == ADD:
            records[into, c] += value
        elif ops[c] == MIN:
            records[into, c] = min(records[into, c], value)
        elif ops[c] == MAX:
            records[into, c] = max(records[into, c], value)
        elif ops[c] != LOWER:
            lower = from_records[record, c + 1]
            mine = records[into, c]
            below = value < mine or (value == mine and lower < records[into, c + 1])
            if below == (ops[c] == MIN_PAIR):
                records[into, c] = value
                records[into, c + 1] = lower
    for c in range(floating, ops.size):
        number = from_reals[record, c]
        if ops[c] == ADD:
            reals[into, c] += number
        elif ops[c] == MIN:
            if number < reals[into, c] or reals[into, c] != reals[into, c]:
                reals[into, c] = number
        elif number > reals[into, c] or number != number:
            reals[into, c] = number


@kernel(inline=True)
def fold(state, node, p, ops, floating):  # type: ignore[no-untyped-def]
    """Merge the records of a place so that each group has one, the groups in the order of their first rows."""
    control = state.control
    records = state.records
    last = state.nodes[node, p, LAST]
    if last == NONE or records[last, NEXT] == last:
        return
    control[LAST_STAMP] += 1
    stamp = control[LAST_STAMP]
    first = records[last, NEXT]
    record = first
    kept = NONE
    while True:
        after = records[record, NEXT]
        group = records[record, GROUP]
        if state.seen[group, STAMP] == stamp:
            into = state.seen[group, INDEX]
            merge(ops, floating, records, state.reals, into, records, state.reals, record)
            records[record, NEXT] = control[FREE_RECORD]
            control[FREE_RECORD] = record
            control[N_RECORDS] -= 1
        else:
            state.seen[group, STAMP] = stamp
            state.seen[group, INDEX] = record
            if kept != NONE:
                records[kept, NEXT] = record
            kept = record
        if record == last:
            break
        record = after
    records[kept, NEXT] = first
    state.nodes[node, p, LAST] = kept


@kernel(inline=True)
def clear_place(state, node, p):  # type: ignore[no-untyped-def]
    """Free the records of a place."""
    control = state.control
    records = state.records
    last = state.nodes[node, p, LAST]
    if last == NONE:
        return
    record = records[last, NEXT]
    while True:
        after = records[record, NEXT]
        records[record, NEXT] = control[FREE_RECORD]
        control[FREE_RECORD] = record
        control[N_RECORDS] -= 1
        if record == last:
            break
        record = after
    state.nodes[node, p, LAST] = NONE


@kernel(inline=True)
def drop_before(state, pane):  # type: ignore[no-untyped-def]
    """Forget all places before ``pane``; a p-node goes as a whole once its last place has gone."""
    control = state.control
    inode = state.inode
    gone = 0
    for at in range(control[N_NODES]):
        base = inode[at, NUMBER] * PLACES
        if base >= pane:
            break
        node = inode[at, NODE]
        for p in range(min(PLACES, pane - base)):
            clear_place(state, node, p)
        if pane - base < PLACES:
            break
        state.nodes[node, 0, LAST] = control[FREE_NODE]
        control[FREE_NODE] = node
        gone += 1
    if gone > 0:
        for at in range(gone, control[N_NODES]):
            inode[at - gone, NUMBER] = inode[at, NUMBER]
            inode[at - gone, NODE] = inode[at, NODE]
        control[N_NODES] -= gone


@kernel
def fold_all(state, ops, floating):  # type: ignore[no-untyped-def]
    """Fold every place: what makes room before the store grows."""
    for at in range(state.control[N_NODES]):
        for p in range(PLACES):
            fold(state, state.inode[at, NODE], p, ops, floating)


@kernel
def listed(state, out_pane, out_waiting, out_record):  # type: ignore[no-untyped-def]
    """List the records in order of time and, within a place, of the ring; return how many there are.

    ``out_waiting`` is the number of rows that wait in the record's place.
    """
    n = 0
    for at in range(state.control[N_NODES]):
        node = state.inode[at, NODE]
        for p in range(PLACES):
            last = state.nodes[node, p, LAST]
            if last == NONE:
                continue
            record = last
            while True:
                record = state.records[record, NEXT]
                out_pane[n] = state.inode[at, NUMBER] * PLACES + p
                out_waiting[n] = state.nodes[node, p, WAITING]
                out_record[n] = record
                n += 1
                if record == last:
                    break
    return n


@kernel
def restore(state, pane, waiting, group, whole, real):  # type: ignore[no-untyped-def]
    """Fill an empty store, which has room for them, with records as ``listed`` gave them."""
    total = 0
    for k in range(pane.size):
        place(state, pane[k], group[k], whole, real, k)
        number = pane[k] // PLACES
        at = find_node(state.inode, state.control[N_NODES], number)
        state.nodes[state.inode[at, NODE], pane[k] - number * PLACES, WAITING] = waiting[k]
        if k == 0 or pane[k] != pane[k - 1]:
            total += waiting[k]
    state.control[N_WAITING] = total
