"""A per-tuple join in plain Python: what the benchmarks compare with.

It does the same work as ``fixed`` or ``max`` with ``mswj`` on one key column per input, tuple by tuple.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Sequence
from itertools import product
from typing import Any, Literal

Row = dict[str, Any]
Slack = int | Literal["none", "max"]
NEVER = float("-inf")


class PerTupleJoin:
    """A join on one key column per input, per tuple, as a careful Python programmer would write it.

    Heaps for both buffers, a dictionary of value lists per window, expiry from the front of a queue.
    ``process`` returns the results that a row completes as tuples of rows; ``finish`` returns the rest.
    """

    def __init__(
        self, windows: Sequence[int], keys: Sequence[str], slack: Slack = "none", time: str = "ts"
    ) -> None:
        self._sizes = list(windows)
        self._keys = list(keys)
        self._slack = slack
        self._time = time
        m = self._m = len(windows)
        self._k = slack if isinstance(slack, int) else 0
        self._progress: list[float] = [NEVER] * m
        self._buffers: list[list[tuple[int, int, int, Row]]] = [[] for _ in range(m)]
        self._sync: list[tuple[int, int, int, Row]] = []
        self._waiting = [0] * m
        self._t_sync: float = NEVER
        self._on_t: float = NEVER
        self._seq = 0
        self._groups: list[dict[Any, list[Row]]] = [defaultdict(list) for _ in range(m)]
        self._queues: list[deque[tuple[int, Row]]] = [deque() for _ in range(m)]
        self._late_held: list[tuple[int, int, int, Row]] = []
        self.late: list[tuple[int, Row]] = []

    def process(self, which: int, row: Row) -> list[tuple[Row, ...]]:
        """Take one arrival."""
        ts = row[self._time]
        out: list[tuple[Row, ...]] = []
        self._seq += 1
        progress = self._progress[which]
        if ts > progress:
            progress = self._progress[which] = ts
        elif self._slack == "max" and progress - ts > self._k:
            self._k = int(progress - ts)
        buffer = self._buffers[which]
        heapq.heappush(buffer, (ts, self._seq, which, row))
        bound = progress - self._k
        while buffer and buffer[0][0] <= bound:
            self._synchronize(heapq.heappop(buffer), out)
        return out

    def finish(self) -> list[tuple[Row, ...]]:
        """The inputs have ended: join everything held, in timestamp order."""
        out: list[tuple[Row, ...]] = []
        for e in sorted((e for buffer in [*self._buffers, self._sync] for e in buffer), key=lambda e: e[:2]):
            self._join(e, out)
        return out

    def _synchronize(self, e: tuple[int, int, int, Row], out: list[tuple[Row, ...]]) -> None:
        if e[0] <= self._t_sync:
            self._join(e, out)
            return
        sync, waiting = self._sync, self._waiting
        heapq.heappush(sync, e)
        waiting[e[2]] += 1
        while all(waiting):
            self._t_sync = sync[0][0]
            while sync and sync[0][0] == self._t_sync:
                leaving = heapq.heappop(sync)
                waiting[leaving[2]] -= 1
                self._join(leaving, out)

    def _join(self, e: tuple[int, int, int, Row], out: list[tuple[Row, ...]]) -> None:
        ts, seq, i, row = e
        key = row[self._keys[i]]
        if ts < self._on_t:
            self.late.append((i, row))
            if ts >= self._on_t - self._sizes[i] and key is not None:
                self._groups[i][key].append(row)
                heapq.heappush(self._late_held, (ts + self._sizes[i], seq, i, row))
            return
        self._on_t = ts
        self._expire(ts)
        if key is None:
            return
        others = [(row,) if j == i else self._groups[j].get(key, ()) for j in range(self._m)]
        if all(others):
            out.extend(product(*others))
        self._groups[i][key].append(row)
        self._queues[i].append((ts, row))

    def _expire(self, now: int) -> None:
        for j, queue in enumerate(self._queues):
            oldest = now - self._sizes[j]
            while queue and queue[0][0] < oldest:
                self._drop(j, queue.popleft()[1])
        while self._late_held and self._late_held[0][0] < now:
            _, _, j, row = heapq.heappop(self._late_held)
            self._drop(j, row)

    def _drop(self, j: int, row: Row) -> None:
        key = row[self._keys[j]]
        group = self._groups[j][key]
        for at, other in enumerate(group):
            if other is row:
                del group[at]
                break
        if not group:
            del self._groups[j][key]
