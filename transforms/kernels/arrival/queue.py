"""The queue in front of a join whose processor is slow, one arrival at a time (SAJ 2.3, slow CPU).

Rows are served in the order in which they came. One that comes while the join is busy waits; if more would wait
than may, the one with the lowest score leaves, the newcomer among them. Time is exact: a second of work is cut
into as many parts as a row costs, and a tick of the clock pays for ``pace`` of them.
"""

from typing import Any, NamedTuple

from slackwater.transforms.kernels.compiler import kernel
from slackwater.transforms.kernels.shedding.score_heap import CODE, SLOT, add, before, fill, remove

NONE = -1
# Columns of a slot; the list of waiting rows is linked both ways.
SEQ, OWNER, TS, CAME, AHEAD, BEHIND, COLUMNS = range(7)
# The state of the queue: ends of the list, free slots, slots used ever, time, work left for the row being served.
FIRST, LAST, FREE, USED, CLOCK, DEBT, PEAK, STATES = range(8)


class Queue(NamedTuple):
    """Rows that wait."""

    slots: Any
    heaps: Any
    """One heap of all."""
    state: Any


@kernel(inline=True)
def _unlink(q, slot):  # type: ignore[no-untyped-def]
    ahead, behind = q.slots[slot, AHEAD], q.slots[slot, BEHIND]
    if ahead == NONE:
        q.state[FIRST] = behind
    else:
        q.slots[ahead, BEHIND] = behind
    if behind == NONE:
        q.state[LAST] = ahead
    else:
        q.slots[behind, AHEAD] = ahead
    q.slots[slot, BEHIND] = q.state[FREE]
    q.state[FREE] = slot


@kernel
def _enqueue(q, code, ts, came, rank):  # type: ignore[no-untyped-def]
    """Add a row at the end."""
    slot = q.state[FREE]
    if slot == NONE:
        slot = q.state[USED]
        q.state[USED] += 1
    else:
        q.state[FREE] = q.slots[slot, BEHIND]
    last = q.state[LAST]
    q.slots[slot, SEQ] = code >> 3
    q.slots[slot, OWNER] = code & 7
    q.slots[slot, TS] = ts
    q.slots[slot, CAME] = came
    q.slots[slot, AHEAD] = last
    q.slots[slot, BEHIND] = NONE
    if last == NONE:
        q.state[FIRST] = slot
    else:
        q.slots[last, BEHIND] = slot
    q.state[LAST] = slot
    add(q.heaps, 0, rank, ts, code, slot)
    q.state[PEAK] = max(q.state[PEAK], q.heaps.size[0])


@kernel
def advance(q, ticks, pace, cost, out_code, out_wait, n_out):  # type: ignore[no-untyped-def]
    """Serve the rows whose turn comes within ``ticks``, or all if negative; return how many have been served."""
    waiting = q.heaps.size[0]
    work = q.state[DEBT] + waiting * cost
    if ticks < 0 or ticks > work // pace:
        ticks = work // pace + 1
    paid = ticks * pace
    due = q.state[DEBT]
    while q.heaps.size[0] > 0 and due <= paid:
        slot = q.state[FIRST]
        out_code[n_out] = q.slots[slot, SEQ] * 8 + q.slots[slot, OWNER]
        out_wait[n_out] = q.state[CLOCK] + (due + pace - 1) // pace - q.slots[slot, CAME]
        n_out += 1
        remove(q.heaps, 0, q.heaps.place[slot])
        _unlink(q, slot)
        due += cost
    q.state[DEBT] = max(0, due - paid)
    return n_out


@kernel
def serve(q, capacity, pace, cost, codes, ts, clock, ranks, known, out_code, out_wait, gone):  # type: ignore[no-untyped-def]
    """Take arrivals one after the other; return how many rows have been served and how many shed.

    Args:
        q: the queue, with room for all that may wait.
        capacity: rows that may wait.
        pace: parts of work done per tick of the clock.
        cost: parts of work that a row takes.
        codes: ``seq * 8 + input`` of each arrival.
        ts: its event time.
        clock: when it came. Where that goes back, it is taken to have come when the row before did.
        ranks: of its score; the lowest leaves first, of equal ones the older.
        known: False for rows that are no work, which pass at once.
        out_code: to be written: codes in the order of service.
        out_wait: to be written: ticks from a row's arrival to its turn; -1 for rows that are no work.
        gone: to be written: codes of the rows that were shed.
    """
    n_out = n_gone = 0
    for k in range(codes.size):
        if q.heaps.size[0] > 0 or q.state[DEBT] > 0:
            ticks = max(0, clock[k] - q.state[CLOCK])
            n_out = advance(q, ticks, pace, cost, out_code, out_wait, n_out)
            q.state[CLOCK] += ticks
        else:
            q.state[CLOCK] = max(q.state[CLOCK], clock[k])
        if not known[k]:
            out_code[n_out] = codes[k]
            out_wait[n_out] = -1
            n_out += 1
        elif q.heaps.size[0] == 0 and q.state[DEBT] == 0:
            out_code[n_out] = codes[k]
            out_wait[n_out] = 0
            n_out += 1
            q.state[DEBT] = cost
        else:
            if q.heaps.size[0] == capacity:
                lowest = q.heaps.entries[0, 0]
                if before(ranks[k], ts[k], codes[k], lowest):
                    gone[n_gone] = codes[k]
                    n_gone += 1
                    continue
                gone[n_gone] = lowest[CODE]
                n_gone += 1
                slot = lowest[SLOT]
                remove(q.heaps, 0, 0)
                _unlink(q, slot)
            _enqueue(q, codes[k], ts[k], q.state[CLOCK], ranks[k])
    return n_out, n_gone


@kernel
def restore(q, codes, ts, came, ranks):  # type: ignore[no-untyped-def]
    """Let rows wait in this order. The queue is empty and has room for them."""
    for k in range(codes.size):
        _enqueue(q, codes[k], ts[k], came[k], ranks[k])


@kernel
def waiting(q, out):  # type: ignore[no-untyped-def]
    """Write the slots of the rows that wait, in their order."""
    slot = q.state[FIRST]
    n = 0
    while slot != NONE:
        out[n] = slot
        n += 1
        slot = q.slots[slot, BEHIND]


@kernel
def renew(q, held, ranks):  # type: ignore[no-untyped-def]
    """Give the rows in the slots ``held``, which are all that wait, new ranks."""
    q.heaps.size[0] = 0
    fill(q.heaps, ranks, held, q.slots, TS, SEQ, OWNER)
