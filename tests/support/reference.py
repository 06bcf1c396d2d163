"""The truth that the operator is tested against: QDDH read line by line, tuple by tuple, in plain Python.

K-slack (sec. III-A), the Synchronizer (Alg. 1) and the m-way sliding window join (Alg. 2), with these
readings where the paper leaves a choice: windows are inclusive at both ends; release is checked at every
arrival; at the end of the input everything held goes to the join in timestamp order; a tuple is late when it
reaches the join with ``ts < onT``, whether or not its window still takes it. Tuples with equal timestamps may
leave in any order; here it is that of the row number, then of the input, so that sizes per tuple compare.

Nothing here is shared with the package.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
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

    def __init__(
        self, windows: Sequence[int], condition: Callable[[dict[int, Row]], Any], run: ReferenceRun
    ) -> None:
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
