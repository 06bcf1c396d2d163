"""What every constant slack would have given, without running a join.

With the same slack K on every stream, a result is produced iff each of its members arrives while the frontier,
the slowest stream's progress, is at most K past the result's event time. So rows need only their frontier at
arrival, and counts of what a constant K leaves follow from one sweep. Exact but for ties at the frontier: the
operator's own progress trails ``frontier - K`` by up to one gap between rows, so it may give a little more; and
a row that arrives just as the frontier is K past a result may find that result gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from slackwater.plugins.contract import NEVER, Int64s
from slackwater.transforms.errors import SlackwaterError


class Log(NamedTuple):
    """All rows of a data set in arrival order; equal arrivals go in input order, then in row order."""

    stream: Int64s
    row: Int64s
    """Row number within the stream."""
    ts: Int64s
    progress: Int64s
    """Largest event time seen on the row's stream."""
    frontier: Int64s
    """Smallest progress over all streams, or NEVER until each has been seen."""

    @classmethod
    def of(cls, streams: list[Mapping[str, Any]]) -> Log:
        """Merge streams that have ``ts`` and ``arrived``, each in arrival order."""
        sizes = [len(columns["ts"]) for columns in streams]
        stream = np.repeat(np.arange(len(streams)), sizes)
        order = np.argsort(np.concatenate([columns["arrived"] for columns in streams]), kind="stable")
        stream = stream[order]
        ts = np.concatenate([columns["ts"] for columns in streams])[order]
        row = np.concatenate([np.arange(size) for size in sizes])[order]
        newest = [np.maximum.accumulate(np.where(stream == i, ts, NEVER)) for i in range(len(streams))]
        progress = np.choose(stream, newest)
        return cls(stream, row, ts, progress, np.minimum.reduce(newest))

    @property
    def newest(self) -> Int64s:
        """Stream time: the largest event time seen on any stream."""
        return np.maximum.accumulate(self.progress)


class Intervals:
    """Event time cut into intervals of equal length, with the true results of each.

    Recall is measured at the end of each interval over the period that ends there; the first two periods are
    left out, and so are periods without results. Results come out in order of their event time, so this is
    what one would measure right before each adaptation, moved by the slack.
    """

    def __init__(self, log: Log, interval: int, period: int) -> None:
        self.first = int(log.ts.min())
        self.interval = interval
        self.count = (int(log.ts.max()) - self.first) // interval + 1
        self._per_period = max(1, round(period / interval))
        self.true = np.zeros(self.count, np.int64)
        """Results on complete data."""

    def add_up(self, ts: Int64s, results: Int64s) -> Int64s:
        """Return the results of each interval."""
        out = np.zeros(self.count, np.int64)
        np.add.at(out, (ts - self.first) // self.interval, results)
        return out

    def recalls(self, produced: Int64s) -> tuple[Int64s, Any]:
        """Return the intervals at whose end recall is measured, and the recalls of the periods before."""
        totals = []
        for counts in (produced, self.true):
            reached = np.concatenate([[0], np.cumsum(counts)])
            totals.append(reached[self._per_period :] - reached[: -self._per_period])
        ends = np.arange(self._per_period - 1, self.count)
        measured = (totals[1] > 0) & (ends >= 2 * self._per_period) if len(ends) else np.zeros(0, np.bool_)
        if not measured.any():
            return np.empty(0, np.int64), np.empty(0)
        return ends[measured], totals[0][measured] / totals[1][measured]

    def fulfilled(self, produced: Int64s, recall: float) -> float | None:
        """Return the share of measurements that are at least ``recall``, or None if there are none."""
        _, recalls = self.recalls(produced)
        # A millionth of a millionth: 0.99 * 0.9 is not quite what it says.
        return float(np.mean(recalls >= recall - 1e-12)) if len(recalls) else None

    def overall(self, produced: Int64s) -> float:
        """Return the recall over all data; 1 where there is nothing to find."""
        true = int(self.true.sum())
        return int(produced.sum()) / true if true else 1.0


Sweep = Callable[[int], Int64s]
"""Results that each row completes with a slack in ticks."""


class Hindsight:
    """Results of every constant slack on one data set.

    Args:
        log: the rows.
        streams: the columns of each stream, in arrival order.
        kind: how the query joins: ``equal`` (all streams on one column), ``star`` (the first stream with
            every other, on the columns named), or ``near`` (two streams, ``x`` and ``y`` less than 5 apart).
        columns: the columns joined on; none for ``near``.
        window: in ticks, closed at both ends.
        intervals: filled with the true results here.
        step: slacks are multiples of this, in ticks.
    """

    DISTANCE = 5.0

    def __init__(
        self,
        log: Log,
        streams: list[Mapping[str, Any]],
        kind: str,
        columns: tuple[str, ...],
        window: int,
        intervals: Intervals,
        step: int,
    ) -> None:
        self._log, self._streams, self._window = log, streams, window
        self._columns, self._intervals = columns, intervals
        self.step = step
        late = np.where(log.frontier == NEVER, 0, log.frontier - log.ts)
        self.most = -(-max(0, int(late.max())) // step) * step
        """Slack that misses nothing."""
        self._sweep = None if kind == "near" else self._sweep_of(kind)
        self._known: dict[int, Int64s] = {}
        intervals.true = self.produced(self.most)

    def produced(self, slack: int) -> Int64s:
        """Return the results of each interval that a slack gives, in ticks and a multiple of ``step``."""
        if self._sweep is None:
            return np.asarray(self._near[:, slack // self.step])
        if slack not in self._known:
            self._known[slack] = self._intervals.add_up(self._log.ts, self._sweep(slack))
        return self._known[slack]

    def results(self, slack: int) -> tuple[Int64s, Int64s]:
        """Return event times and numbers of the results that a slack gives.

        For ``near``, results of an interval are said to be in the middle of it.
        """
        if self._sweep is not None:
            return self._log.ts, self._sweep(slack)
        starts = self._intervals.first + self._intervals.interval * np.arange(self._intervals.count)
        middle = np.minimum(starts + self._intervals.interval // 2, int(self._log.ts.max()))
        return middle, self.produced(slack)

    def best(self, recall: float, share: float = 0.97) -> int | None:
        """Return the smallest slack at which the share of measurements with ``recall`` is at least ``share``.

        None if nothing is measured. Recall over any period grows with the slack, so bisection finds it.
        """
        if self._intervals.fulfilled(self._intervals.true, recall) is None:
            return None
        low, high = 0, self.most // self.step
        while low < high:
            middle = (low + high) // 2
            reached = self._intervals.fulfilled(self.produced(middle * self.step), recall)
            if reached is not None and reached >= share:
                high = middle
            else:
                low = middle + 1
        return low * self.step

    def _sweep_of(self, kind: str) -> Sweep:
        from slackwater.pipelines.bench.disorder import kernels

        log = self._log
        sweep = {"equal": kernels.equal_entered, "star": kernels.star_entered}[kind]
        key = self._keys()
        key = key[:, 0].copy() if kind == "equal" else key
        by_ts = np.argsort(log.ts, kind="stable")

        def count(slack: int) -> Int64s:
            entry = np.where(log.frontier == NEVER, log.ts, np.maximum(log.ts, log.frontier - slack))
            order = np.lexsort((entry == log.ts, entry))
            window, streams = self._window, len(self._streams)
            completed: Int64s = sweep(order, by_ts, entry, log.stream, log.ts, key, window, streams)
            return completed

        return count

    def _keys(self) -> Int64s:
        """Return ``[rows, columns]``: values as numbers from 0 on, 0 where a stream lacks the column."""
        log = self._log
        starts = np.cumsum([0, *(len(columns["ts"]) for columns in self._streams)])
        at = starts[log.stream] + log.row
        keys = np.zeros((len(log.ts), len(self._columns)), np.int64)
        for position, name in enumerate(self._columns):
            have = [i for i, columns in enumerate(self._streams) if name in columns]
            values = np.concatenate([self._streams[i][name] for i in have])
            numbers = np.zeros(starts[-1], np.int64)
            owned = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in have])
            numbers[owned] = np.unique(values, return_inverse=True)[1].ravel()
            keys[:, position] = numbers[at]
        return keys

    @cached_property
    def _near(self) -> Int64s:
        """``[intervals, slacks]``: results that each slack gives, from one pass over all pairs."""
        from slackwater.pipelines.bench.disorder.kernels import near_needs

        log, intervals = self._log, self._intervals
        counts = np.zeros((intervals.count, self.most // self.step + 1), np.int64)
        if counts.nbytes > 1 << 31:
            raise SlackwaterError("slacks times intervals are too many to count; use a longer --interval")
        sides = []
        for number, columns in enumerate(self._streams):
            frontier = log.frontier[log.stream == number]
            order = np.argsort(columns["ts"], kind="stable")
            place = np.stack([columns["x"], columns["y"]], axis=1)[order]
            sides.append((columns["ts"][order], place, frontier[order]))
        grid = (intervals.first, intervals.interval, self.step, counts)
        near_needs(*sides[0], *sides[1], self._window, self.DISTANCE, True, *grid)
        near_needs(*sides[1], *sides[0], self._window, self.DISTANCE, False, *grid)
        return np.cumsum(counts, axis=1)
