"""The truth that the operator is tested against: QDDH read line by line, one tuple at a time, in plain Python.

K-slack (sec. III-A), the Synchronizer (Alg. 1) and the m-way sliding window join (Alg. 2), with these
readings where the paper leaves a choice: windows are inclusive at both ends; release is checked at every
arrival; at the end of the input everything held goes to the join in timestamp order; a tuple is late when it
reaches the join with ``ts < onT``, whether or not its window still takes it. Tuples with equal timestamps may
leave in any order; here it is that of the row number, then of the input, so that sizes per tuple compare.

Nothing here is shared with the package. ``reference_join`` is as literal as possible and takes any condition;
``ReferenceJoin`` is the same for key joins with heaps and dictionaries, a fair opponent in benchmarks.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, NamedTuple

NEVER = float("-inf")

Row = dict[str, Any]
Slack = int | str
"""``none``, ``max``, or K in ticks."""


class Tuple(NamedTuple):
    """A row on its way through the algorithms; compares by time, then row number, then input."""

    ts: int
    seq: int
    input: int
    row: Any


@dataclass
class ReferenceRun:
    """What a join gave. A row is known by (input, row number within the input)."""

    results: Counter[tuple[tuple[int, ...], int]] = field(default_factory=Counter)
    """(row number of each input's member, timestamp of the result): how often."""
    late: list[tuple[int, int]] = field(default_factory=list)
    order: list[tuple[int, int]] = field(default_factory=list)
    """The tuples in the order in which they reached the join."""
    join_sizes: list[int] = field(default_factory=list)
    cross_sizes: list[int] = field(default_factory=list)
    """Per tuple of ``order``; 0 for late ones."""

    @property
    def counts(self) -> dict[int, int]:
        """Results per timestamp."""
        totals: Counter[int] = Counter()
        for (_, ts), n in self.results.items():
            totals[ts] += n
        return dict(totals)


def reference_join(
    arrivals: Iterable[tuple[int, Row]],
    windows: Sequence[int],
    condition: Callable[[dict[int, Row]], Any],
    slack: Slack = "none",
    time: str = "ts",
) -> ReferenceRun:
    """Join rows in the order of their arrival; ``condition`` gets one row of each input by its index."""
    run = ReferenceRun()
    mswj = _Mswj(windows, condition, run)
    synchronizer = _Synchronizer(len(windows), mswj)
    buffers = [_KSlack(synchronizer) for _ in windows]
    largest_delay = 0
    seqs: Counter[int] = Counter()
    for which, row in arrivals:
        e = Tuple(row[time], seqs[which], which, row)
        seqs[which] += 1
        buffer = buffers[which]
        buffer.now = max(buffer.now, e.ts)
        largest_delay = max(largest_delay, int(buffer.now - e.ts))
        k = {"none": 0, "max": largest_delay}[slack] if isinstance(slack, str) else slack
        buffer.arrive(e, k)
    held = [e for buffer in buffers for e in buffer.held] + synchronizer.held
    for e in sorted(held, key=lambda e: e[:3]):
        mswj.arrive(e)
    return run


class _KSlack:
    """Sorts one input: a tuple leaves once one K newer has been seen."""

    def __init__(self, after: _Synchronizer) -> None:
        self.now: float = NEVER
        self.held: list[Tuple] = []
        self.after = after

    def arrive(self, e: Tuple, k: int) -> None:
        self.held.append(e)
        due = sorted((x for x in self.held if x.ts + k <= self.now), key=lambda x: x[:3])
        self.held = [x for x in self.held if x.ts + k > self.now]
        for x in due:
            self.after.arrive(x)


class _Synchronizer:
    """Algorithm 1."""

    def __init__(self, inputs: int, after: _Mswj) -> None:
        self.inputs = inputs
        self.t_sync: float = NEVER
        self.held: list[Tuple] = []
        self.after = after

    def arrive(self, e: Tuple) -> None:
        if e.ts > self.t_sync:
            self.held.append(e)
            while {x.input for x in self.held} == set(range(self.inputs)):
                self.t_sync = min(x.ts for x in self.held)
                out = sorted((x for x in self.held if x.ts == self.t_sync), key=lambda x: x[:3])
                self.held = [x for x in self.held if x.ts != self.t_sync]
                for x in out:
                    self.after.arrive(x)
        else:
            self.after.arrive(e)


class _Mswj:
    """Algorithm 2."""

    def __init__(self, windows: Sequence[int], condition: Callable[[dict[int, Row]], Any], run: ReferenceRun) -> None:
        self.on_t: float = NEVER
        self.sizes = windows
        self.windows: list[list[Tuple]] = [[] for _ in windows]
        self.condition = condition
        self.run = run

    def arrive(self, e: Tuple) -> None:
        i, join_size, cross_size = e.input, 0, 0
        if e.ts >= self.on_t:
            self.on_t = e.ts
            others = [j for j in range(len(self.windows)) if j != i]
            for j in others:
                self.windows[j] = [x for x in self.windows[j] if x.ts >= e.ts - self.sizes[j]]
            cross_size = prod(len(self.windows[j]) for j in others)
            for members in product(*(self.windows[j] for j in others)):
                result = {i: e, **dict(zip(others, members, strict=True))}
                if self.condition({j: x.row for j, x in result.items()}):
                    seqs = tuple(result[j].seq for j in range(len(self.windows)))
                    self.run.results[seqs, e.ts] += 1
                    join_size += 1
            self.windows[i].append(e)
        else:
            self.run.late.append((i, e.seq))
            if e.ts >= self.on_t - self.sizes[i]:
                self.windows[i].append(e)
        self.run.order.append((i, e.seq))
        self.run.join_sizes.append(join_size)
        self.run.cross_sizes.append(cross_size)


class ReferenceJoin:
    """A join on one key column per input, per tuple, as a careful Python programmer would write it.

    Heaps for both buffers, a dictionary of value lists per window, expiry from the front of a queue.
    ``process`` returns the results that a row completes as tuples of rows; ``finish`` returns the rest.
    """

    def __init__(self, windows: Sequence[int], keys: Sequence[str], slack: Slack = "none", time: str = "ts") -> None:
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


def joined(join: ReferenceJoin, arrivals: Iterable[tuple[int, Row]]) -> Iterator[tuple[Row, ...]]:
    """Run arrivals through a ``ReferenceJoin`` to the end."""
    for which, row in arrivals:
        yield from join.process(which, row)
    yield from join.finish()
