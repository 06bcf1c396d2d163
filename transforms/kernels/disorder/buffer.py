"""K-slack buffers and the Synchronizer, one tuple at a time (QDDH sec. III-A and Alg. 1).

A row is known here by its event time and a *code*, ``seq * 8 + input``. Ties leave in the order of the code.
All arrays are owned by the caller, large enough for the whole chunk; a kernel never allocates state.
"""

from typing import Any, NamedTuple

import numpy as np

from slackwater.transforms.kernels.borrow import borrowed
from slackwater.transforms.kernels.compiler import kernel
from slackwater.transforms.kernels.heap import pop, push

MAX_INPUTS = 8
NEVER = np.iinfo(np.int64).min
NOT_YET = np.iinfo(np.int64).max


class ReorderState(NamedTuple):
    """Buffers of one shard. A K-slack buffer is a ring of the rows that came in order, sorted by itself, and a
    heap of the others; most rows never see the heap. ``sync_*`` is the Synchronizer's heap."""

    ring_ts: Any
    ring_code: Any
    """``[inputs, capacity]``, the capacity a power of two."""
    heap_ts: Any
    heap_code: Any
    slack: Any
    """``[inputs, 4]``: first of the ring, rows in the ring, rows in the heap, largest time released."""
    sync_ts: Any
    sync_code: Any
    clock: Any
    """[T_sync, onT, rows in the Synchronizer]: largest event time that has left the Synchronizer; largest
    that has reached the join."""


FIRST, IN_RING, IN_HEAP, RELEASED = range(4)
T_SYNC, ON_T, IN_SYNC = range(3)


@kernel
def _take_oldest(ring_ts, ring_code, heap_ts, heap_code, slack, sync_ts, sync_code, n_sync):  # type: ignore[no-untyped-def]
    """Take the oldest row out of all buffers; return its time and code, and what the Synchronizer has left."""
    mask = ring_ts.shape[1] - 1
    which, from_ring = -1, False
    found = n_sync > 0
    ts = sync_ts[0]
    code = sync_code[0]
    for i in range(slack.shape[0]):
        first = slack[i, FIRST]
        if slack[i, IN_RING] > 0 and (
            not found or ring_ts[i, first] < ts or (ring_ts[i, first] == ts and ring_code[i, first] < code)
        ):
            found, which, from_ring = True, i, True
            ts = ring_ts[i, first]
            code = ring_code[i, first]
        if slack[i, IN_HEAP] > 0 and (
            not found or heap_ts[i, 0] < ts or (heap_ts[i, 0] == ts and heap_code[i, 0] < code)
        ):
            found, which, from_ring = True, i, False
            ts = heap_ts[i, 0]
            code = heap_code[i, 0]
    if which < 0:
        pop(sync_ts, sync_code, n_sync)
        n_sync -= 1
    elif from_ring:
        slack[which, FIRST] = (slack[which, FIRST] + 1) & mask
        slack[which, IN_RING] -= 1
    else:
        pop(heap_ts[which], heap_code[which], slack[which, IN_HEAP])
        slack[which, IN_HEAP] -= 1
    return ts, code, n_sync


@kernel
def give_up(state, out_code, out_ts, out_late):  # type: ignore[no-untyped-def]
    """Let the oldest rows go, as many as there is room for in the arrays; T_sync follows them."""
    clock = state.clock
    for n in range(out_code.size):
        ts, code, left = _take_oldest(
            state.ring_ts, state.ring_code, state.heap_ts, state.heap_code, state.slack, state.sync_ts,
            state.sync_code, clock[IN_SYNC],
        )  # fmt: skip
        clock[IN_SYNC] = left
        out_code[n] = code
        out_ts[n] = ts
        out_late[n] = ts < clock[ON_T]
        clock[T_SYNC] = max(clock[T_SYNC], ts)
        clock[ON_T] = max(clock[ON_T], ts)


@kernel
def release(  # type: ignore[no-untyped-def]
    inputs, ts, codes, bounds, follows, capacity, first_arrival, state, out_code, out_ts, out_late, out_at
):
    """Buffer the arrivals, release what their bounds allow, synchronise; return how many were emitted.

    After each arrival its input gives up everything at or before the arrival's bound, oldest first. Then, as
    Alg. 1 says: a tuple older than T_sync goes straight on, others wait until every input has released one
    at least as new. Draining "while each input has a tuple in the buffer" ends exactly at the smallest of the
    inputs' largest released times, so T_sync is the running maximum of that minimum. ``out_at`` tells at which
    arrival a tuple left; arrivals are counted from ``first_arrival``. With ``follows``, tuples also wait for
    older ones that are still held (``ReorderBuffer.leader``). Where more than ``capacity`` rows would be held
    (negative for no limit), the oldest leave before their time, and T_sync follows them.
    """
    ring_ts, ring_code = borrowed(state.ring_ts), borrowed(state.ring_code)
    heap_ts, heap_code = borrowed(state.heap_ts), borrowed(state.heap_code)
    sync_ts, sync_code = borrowed(state.sync_ts), borrowed(state.sync_code)
    slack, clock = borrowed(state.slack), borrowed(state.clock)
    m = slack.shape[0]
    mask = ring_ts.shape[1] - 1
    n_sync = clock[IN_SYNC]
    t_sync = clock[T_SYNC]
    on_t = clock[ON_T]
    emitted = 0
    held = n_sync
    for i in range(m):
        held += slack[i, IN_RING] + slack[i, IN_HEAP]
    for k in range(ts.size):
        i = inputs[k]
        bound = bounds[k]
        first = slack[i, FIRST]
        n_ring = slack[i, IN_RING]
        n_heap = slack[i, IN_HEAP]
        e_ts = ts[k]
        e_code = codes[k]
        straight = (
            e_ts <= bound and (n_ring == 0 or e_ts < ring_ts[i, first]) and (n_heap == 0 or e_ts < heap_ts[i, 0])
        )
        if not straight:
            if n_ring == 0 or e_ts >= ring_ts[i, (first + n_ring - 1) & mask]:
                at = (first + n_ring) & mask
                ring_ts[i, at] = e_ts
                ring_code[i, at] = e_code
                n_ring += 1
            else:
                push(heap_ts[i], heap_code[i], n_heap, e_ts, e_code)
                n_heap += 1
        while True:
            if straight:
                straight = False
            else:
                from_ring = n_ring > 0 and (
                    n_heap == 0
                    or ring_ts[i, first] < heap_ts[i, 0]
                    or (ring_ts[i, first] == heap_ts[i, 0] and ring_code[i, first] < heap_code[i, 0])
                )
                if from_ring:
                    e_ts = ring_ts[i, first]
                    e_code = ring_code[i, first]
                    if e_ts > bound:
                        break
                    first = (first + 1) & mask
                    n_ring -= 1
                else:
                    if n_heap == 0 or heap_ts[i, 0] > bound:
                        break
                    e_ts = heap_ts[i, 0]
                    e_code = heap_code[i, 0]
                    pop(heap_ts[i], heap_code[i], n_heap)
                    n_heap -= 1
            if e_ts <= t_sync and not follows:
                out_code[emitted] = e_code
                out_ts[emitted] = e_ts
                out_late[emitted] = e_ts < on_t
                out_at[emitted] = first_arrival + k
                on_t = max(on_t, e_ts)
                emitted += 1
                continue
            push(sync_ts, sync_code, n_sync, e_ts, e_code)
            n_sync += 1
            if e_ts <= slack[i, RELEASED]:
                continue
            slack[i, RELEASED] = e_ts
            if follows:
                continue
            slowest = e_ts
            for j in range(m):
                slowest = min(slowest, slack[j, RELEASED])
            if slowest > t_sync:
                t_sync = slowest
                while n_sync > 0 and sync_ts[0] <= t_sync:
                    out_code[emitted] = sync_code[0]
                    out_ts[emitted] = sync_ts[0]
                    out_late[emitted] = sync_ts[0] < on_t
                    out_at[emitted] = first_arrival + k
                    on_t = max(on_t, sync_ts[0])
                    emitted += 1
                    pop(sync_ts, sync_code, n_sync)
                    n_sync -= 1
        slack[i, FIRST] = first
        slack[i, IN_RING] = n_ring
        slack[i, IN_HEAP] = n_heap
        if follows:
            slowest = slack[i, RELEASED]
            oldest = NOT_YET
            for j in range(m):
                slowest = min(slowest, slack[j, RELEASED])
                if slack[j, IN_RING] > 0:
                    oldest = min(oldest, ring_ts[j, slack[j, FIRST]])
                if slack[j, IN_HEAP] > 0:
                    oldest = min(oldest, heap_ts[j, 0])
            t_sync = max(t_sync, min(slowest, oldest))
            while n_sync > 0 and sync_ts[0] <= min(t_sync, oldest):
                out_code[emitted] = sync_code[0]
                out_ts[emitted] = sync_ts[0]
                out_late[emitted] = sync_ts[0] < on_t
                out_at[emitted] = first_arrival + k
                on_t = max(on_t, sync_ts[0])
                emitted += 1
                pop(sync_ts, sync_code, n_sync)
                n_sync -= 1
        while capacity >= 0 and held + k + 1 - emitted > capacity:
            e_ts, e_code, n_sync = _take_oldest(
                ring_ts, ring_code, heap_ts, heap_code, slack, sync_ts, sync_code, n_sync
            )
            out_code[emitted] = e_code
            out_ts[emitted] = e_ts
            out_late[emitted] = e_ts < on_t
            out_at[emitted] = first_arrival + k
            t_sync = max(t_sync, e_ts)
            on_t = max(on_t, e_ts)
            emitted += 1
    clock[IN_SYNC] = n_sync
    clock[T_SYNC] = t_sync
    clock[ON_T] = on_t
    return emitted
