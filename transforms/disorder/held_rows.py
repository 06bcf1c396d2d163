"""The rows in a reorder buffer, as they lie in memory for its kernel."""

from __future__ import annotations

import numpy as np

from slackwater.plugins.contract import NEVER, Int64s
from slackwater.transforms.kernels.disorder import buffer as kernel


class HeldRows:
    """Times and codes of the rows that wait: a ring and a heap for each input, and the Synchronizer's heap.

    Args:
        inputs: how many there are.
        room: rows that there is room for to begin with, in each.
    """

    def __init__(self, inputs: int, room: int) -> None:
        self.state = _empty(inputs, room)

    def __len__(self) -> int:
        s = self.state
        return int(s.slack[:, kernel.IN_RING : kernel.RELEASED].sum() + s.clock[kernel.IN_SYNC])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.state)

    def of_inputs(self) -> list[tuple[Int64s, Int64s]]:
        """Times and codes of each K-slack buffer, in any order."""
        s = self.state
        held = []
        for i, (first, in_ring, in_heap, _) in enumerate(s.slack):
            ring = (first + np.arange(in_ring)) & (s.ring_ts.shape[1] - 1)
            ts = np.concatenate([s.ring_ts[i, ring], s.heap_ts[i, :in_heap]])
            held.append((ts, np.concatenate([s.ring_code[i, ring], s.heap_code[i, :in_heap]])))
        return held

    def synced(self) -> tuple[Int64s, Int64s]:
        """Times and codes of the Synchronizer's heap, in any order."""
        n = self.state.clock[kernel.IN_SYNC]
        return self.state.sync_ts[:n].copy(), self.state.sync_code[:n].copy()

    def reserve(self, n: int) -> None:
        """Make room for ``n`` more rows in any one buffer, so that the kernel never has to grow one."""
        s = self.state
        fullest = int(s.slack[:, kernel.IN_RING : kernel.RELEASED].max(initial=0))
        if fullest + n > s.ring_ts.shape[1] or len(self) + n > s.sync_ts.size:
            self.fill(self.of_inputs(), self.synced(), len(self) + n)

    def clear(self, room: int) -> None:
        """Hold nothing any more, and have room for ``room`` rows; times that have been released stay so."""
        old = self.state
        self.state = _empty(len(old.slack), room)
        self.state.slack[:, kernel.RELEASED] = old.slack[:, kernel.RELEASED]
        self.state.clock[: kernel.IN_SYNC] = old.clock[: kernel.IN_SYNC]

    def fill(self, held: list[tuple[Int64s, Int64s]], synced: tuple[Int64s, Int64s], room: int) -> None:
        """Lay rows out anew, with room for ``room`` rows in every buffer; sorted, they all go to the rings."""
        old = self.state
        room = max(room, len(synced[0]), *(len(ts) for ts, _ in held))
        self.state = new = _empty(len(held), 2 * room)
        new.slack[:, kernel.RELEASED] = old.slack[:, kernel.RELEASED]
        new.clock[:] = old.clock
        for i, (ts, code) in enumerate(held):
            order = np.lexsort((code, ts))
            new.ring_ts[i, : ts.size], new.ring_code[i, : ts.size] = ts[order], code[order]
            new.slack[i, kernel.IN_RING] = ts.size
        order = np.lexsort((synced[1], synced[0]))
        new.sync_ts[: order.size], new.sync_code[: order.size] = synced[0][order], synced[1][order]
        new.clock[kernel.IN_SYNC] = order.size


def _empty(inputs: int, room: int) -> kernel.ReorderState:
    size = 1 << (room - 1).bit_length()
    slack = np.zeros((inputs, 4), np.int64)
    slack[:, kernel.RELEASED] = NEVER
    return kernel.ReorderState(
        ring_ts=np.empty((inputs, size), np.int64),
        ring_code=np.empty((inputs, size), np.int64),
        heap_ts=np.empty((inputs, size), np.int64),
        heap_code=np.empty((inputs, size), np.int64),
        slack=slack,
        sync_ts=np.empty(size, np.int64),
        sync_code=np.empty(size, np.int64),
        clock=np.array([NEVER, NEVER, 0], np.int64),
    )
