"""The pace of an operator: where stream time enters an interval, its strategy adapts and metrics are written."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from slackwater.plugins.contract import (
    NEVER,
    Arrivals,
    Bools,
    DisorderLogic,
    Feedback,
    Float64s,
    Int8s,
    Int64s,
    Snapshot,
)
from slackwater.transforms.disorder.metrics import Meter, metrics_batch
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.output.outputs import Outputs
from slackwater.transforms.settings.plan import JoinPlan

_NO_FEEDBACK = (
    np.empty(0, np.int8),
    np.empty(0, np.int64),
    np.empty(0, np.int64),
    np.empty(0, np.bool_),
    np.empty(0, np.int64),
    np.empty(0, np.float64),
)


class Pacing:
    """Follows stream time, gathers what happens, and passes it on at the end of each interval.

    Intervals are counted over the whole stream: where an engine cuts its batches changes nothing.

    Args:
        plan: what the operator does.
        disorder: its disorder strategy.
        accounting: what became of its rows.
        buffered: tells how many rows wait.
        seconds: where the time that adaptations take is added up, as ``adapt``.
        snapshot: a mapping with what ``snapshot`` returned, or without.
    """

    def __init__(
        self,
        plan: JoinPlan,
        disorder: DisorderLogic,
        accounting: Accounting,
        buffered: Callable[[], int],
        seconds: dict[str, float],
        snapshot: Mapping[str, Any],
    ) -> None:
        self._disorder, self._accounting, self._buffered = disorder, accounting, buffered
        self._seconds = seconds
        every = plan.config.metrics
        self._interval = disorder.interval or (None if every is None else plan.setting.ticks(every))
        self.measured = self._interval is not None
        """Whether metrics are written."""
        self._meter = Meter(plan, snapshot.get("meter"))
        self.newest = int(snapshot.get("newest", NEVER))
        """Stream time: the largest event time seen."""
        self._next: int | None = snapshot.get("next_adapt")
        self._keeps_distance = plan.disorder.watermark_columns is None
        self._distance = np.full(len(plan.members), NEVER, np.int64)
        """How far the bound of each input was behind its progress at its last arrival, or NEVER."""
        self._distance[:] = snapshot.get("distance", NEVER)
        self._feedback: list[tuple[Any, ...]] = [tuple(snapshot["feedback"])] if "feedback" in snapshot else []

    def follow(self, progress: Int64s) -> Int64s:
        """Return stream time, the largest event time seen, after each arrival of a chunk."""
        newest = np.maximum(np.maximum.accumulate(progress), self.newest)
        self.newest = int(newest[-1]) if newest.size else self.newest
        return newest

    def intervals(self, out: Outputs, newest: Int64s) -> Iterator[slice]:
        """Cut a chunk before each arrival that moves stream time into the next interval.

        There the disorder strategy adapts and a row of metrics is written.
        """
        interval = self._interval
        if interval is None or not newest.size:
            yield slice(0, newest.size)
            return
        if self._next is None:
            self._next = int(newest[0]) + interval
        start, measured = 0, []
        while start < newest.size:
            stop = int(np.searchsorted(newest, self._next))
            if stop > start:
                yield slice(start, stop)
                start = stop
            if start < newest.size:
                now = int(newest[start])
                if self._disorder.interval is not None:
                    started = time.perf_counter()
                    self._disorder.adapt(Feedback(now, *self._gathered()))
                    self._feedback.clear()
                    self._seconds["adapt"] += time.perf_counter() - started
                if self.measured:
                    measured.append(self._measure(now))
                self._next += -(-(now + 1 - self._next) // interval) * interval
        if measured:
            out.metrics.append(metrics_batch(measured))

    def advance(self, out: Outputs, progress: Int64s) -> Int64s:
        """Follow progress that rows of other shards have made; return the bound that it sets for each input.

        The strategy adapts as before an arrival. One that does not say what its bounds are then
        (``DisorderLogic.bounds``) is taken to keep them as far behind progress as at the last arrival of the
        input, or, if it goes by watermarks, where they are.

        Args:
            out: where metrics go.
            progress: largest event time of each input, or NEVER if there is nothing new.
        """
        moved = progress != NEVER
        for _ in self.intervals(out, self.follow(np.sort(progress[moved])[-1:])):
            pass
        said = getattr(self._disorder, "bounds_at", None)
        if said is not None:
            bounds = said(progress)
        else:
            moved &= (self._distance != NEVER) & self._keeps_distance
            bounds = progress - self._distance
        return np.where(moved, bounds, NEVER)

    def hold(self, arrivals: Arrivals, bounds: Int64s) -> None:
        """Note the slack that arrivals met, except where nothing could be released yet."""
        known = bounds != NEVER
        said = getattr(self._disorder, "slacks", None)
        slack = np.maximum(arrivals.progress[known] - bounds[known], 0) if said is None else said(arrivals)[known]
        self._distance[arrivals.input[known]] = slack
        self._accounting.hold(slack)
        if self.measured:
            self._meter.arrive(slack)

    def release(self, waited: Int64s) -> None:
        """Note how far stream time had gone on when something left."""
        self._accounting.waited.release(waited)
        if self.measured:
            self._meter.release(waited)

    def learn(self, inputs: Int8s, ts: Int64s, delay: Int64s, late: Bools, *sizes: Int64s | Float64s) -> None:
        """Gather what the strategy will be told of tuples when it adapts: ``sizes`` ends as ``Feedback`` does."""
        if self._disorder.interval is not None:
            self._feedback.append((inputs, ts, delay, late, *sizes))

    def finish(self, out: Outputs) -> None:
        """Write the metrics of the interval so far: the inputs have ended, or are idle.

        Stream time stands still then, so nothing is adapted. What was gathered is looked at when it goes on.
        """
        if self.measured and self.newest != NEVER:
            out.metrics.append(metrics_batch([self._measure(self.newest)]))

    def snapshot(self) -> Snapshot:
        state = {
            "meter": self._meter.snapshot(),
            "newest": self.newest,
            "next_adapt": self._next,
            "distance": self._distance.copy(),
        }
        return {**state, "feedback": list(self._gathered())} if self._feedback else state

    def _measure(self, now: int) -> dict[str, Any]:
        report = getattr(self._disorder, "report", dict)
        return self._meter.row(now, self._accounting, self._buffered(), report())

    def _gathered(self) -> tuple[Any, ...]:
        if not self._feedback:
            return _NO_FEEDBACK
        return tuple(np.concatenate(arrays) for arrays in zip(*self._feedback, strict=True))
