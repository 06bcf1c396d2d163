"""The pace of an operator: its disorder strategy sets bounds, and adapts every interval of stream time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

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
from slackwater.plugins.guard.calls import guarded
from slackwater.transforms.disorder.metrics import Meter, metrics_batch
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.settings.plan import DisorderPlan

_NO_FEEDBACK = (
    np.empty(0, np.int8),
    np.empty(0, np.int64),
    np.empty(0, np.int64),
    np.empty(0, np.bool_),
    np.empty(0, np.int64),
    np.empty(0, np.float64),
)


class Pace:
    """Follows stream time; an ``Occasion`` where it enters the next interval.

    There the strategy adapts to what was gathered, and a row of metrics is written. Intervals are counted over
    the whole stream.

    Args:
        plan: what the operator does.
        accounting: what became of its rows.
        buffered: tells how many rows wait.
        seconds: where the time that adaptations take is added up, as ``adapt``.
        snapshot: a mapping with what ``snapshot`` returned, or without.
    """

    def __init__(
        self,
        plan: DisorderPlan,
        accounting: Accounting,
        buffered: Callable[[], int],
        seconds: dict[str, float],
        snapshot: Mapping[str, Any],
    ) -> None:
        self.logic: DisorderLogic = guarded(plan.disorder, plan.setting, snapshot.get("disorder"))
        """What decides on bounds."""
        self._accounting, self._buffered = accounting, buffered
        self._seconds = seconds
        every = plan.config.metrics
        self._interval = self.logic.interval or (None if every is None else plan.setting.ticks(every))
        self.measured = self._interval is not None
        """Whether metrics are written."""
        self._rows: list[dict[str, Any]] = []
        """Those that wait to be written."""
        self._meter = Meter(plan, snapshot.get("meter"))
        self.newest = int(snapshot.get("newest", NEVER))
        """Stream time: the largest event time seen."""
        self._next: int | None = snapshot.get("next_adapt")
        self._keeps_distance = plan.disorder.watermark_columns is None
        self._distance = np.full(len(plan.members), NEVER, np.int64)
        """How far the bound of each input was behind its progress at its last arrival, or NEVER."""
        self._distance[:] = snapshot.get("distance", NEVER)
        self._feedback: list[tuple[Any, ...]] = [tuple(snapshot["feedback"])] if "feedback" in snapshot else []

    @property
    def needs_cells(self) -> bool:
        """Whether the strategy looks at the cells of arrivals."""
        return self.logic.needs_cells

    def follow(self, progress: Int64s) -> Int64s:
        """Return stream time, the largest event time seen, after each arrival of a chunk."""
        newest = np.maximum(np.maximum.accumulate(progress), self.newest)
        self.newest = int(newest[-1]) if newest.size else self.newest
        return newest

    def meet(self, time: Int64s, start: int) -> int:
        """Adapt and measure if arrival ``start`` moves stream time into the next interval."""
        if self._interval is None:
            return time.size
        now = int(time[start])
        if self._next is None:
            self._next = now + self._interval
        if now >= self._next:
            self._adapt(now)
            self._next += -(-(now + 1 - self._next) // self._interval) * self._interval
        return int(np.searchsorted(time, self._next))

    def count(self, rows: int) -> None:
        """Intervals go by stream time."""

    def bounds(self, arrivals: Arrivals) -> Int64s:
        """Return the bound that each arrival sets for its input; note the slack that it met, unless there is
        nothing yet that could be released."""
        bounds = self.logic.bounds(arrivals)
        self.hold(arrivals, bounds)
        return bounds

    def hold(self, arrivals: Arrivals, bounds: Int64s) -> None:
        """Note the slack that arrivals with these bounds met."""
        known = bounds != NEVER
        said = self.logic.slacks(arrivals)
        slack = np.maximum(arrivals.progress[known] - bounds[known], 0) if said is None else said[known]
        self._distance[arrivals.input[known]] = slack
        self._accounting.hold(slack)
        if self.measured:
            self._meter.arrive(slack)

    def advance(self, progress: Int64s) -> Int64s:
        """Follow progress that rows of other shards have made; return the bound that it sets for each input.

        The strategy adapts as before an arrival. One that does not say what its bounds are then
        (``DisorderLogic.bounds``) is taken to keep them as far behind progress as at the last arrival of the
        input, or, if it goes by watermarks, where they are.

        Args:
            progress: largest event time of each input, or NEVER if there is nothing new.
        """
        moved = progress != NEVER
        newest = self.follow(np.sort(progress[moved])[-1:])
        if newest.size:
            self.meet(newest, 0)
        bounds = self.logic.bounds_at(progress)
        if bounds is None:
            moved &= (self._distance != NEVER) & self._keeps_distance
            bounds = progress - self._distance
        return np.where(moved, bounds, NEVER)

    def release(self, waited: Int64s) -> None:
        """Note how far stream time had gone on when something left."""
        self._accounting.waited.release(waited)
        if self.measured:
            self._meter.release(waited)

    def learn(self, inputs: Int8s, ts: Int64s, delay: Int64s, late: Bools, *sizes: Int64s | Float64s) -> None:
        """Gather what the strategy will be told of tuples when it adapts: ``sizes`` ends as ``Feedback`` does."""
        if self.logic.interval is not None:
            self._feedback.append((inputs, ts, delay, late, *sizes))

    def measure(self) -> None:
        """Measure the interval so far: the inputs have ended, or are idle.

        Stream time stands still then, so nothing is adapted. What was gathered is looked at when it goes on.
        """
        if self.measured and self.newest != NEVER:
            self._rows.append(self._measure(self.newest))

    def metrics(self) -> list[pa.RecordBatch]:
        """Return what was measured in this step."""
        rows, self._rows = self._rows, []
        return [metrics_batch(rows)] if rows else []

    def snapshot(self) -> Snapshot:
        state = {
            "disorder": self.logic.snapshot(),
            "meter": self._meter.snapshot(),
            "newest": self.newest,
            "next_adapt": self._next,
            "distance": self._distance.copy(),
        }
        return {**state, "feedback": list(self._gathered())} if self._feedback else state

    def _adapt(self, now: int) -> None:
        if self.logic.interval is not None:
            started = time.perf_counter()
            self.logic.adapt(Feedback(now, *self._gathered()))
            self._feedback.clear()
            self._seconds["adapt"] += time.perf_counter() - started
        if self.measured:
            self._rows.append(self._measure(now))

    def _measure(self, now: int) -> dict[str, Any]:
        return self._meter.row(now, self._accounting, self._buffered(), self.logic.report())

    def _gathered(self) -> tuple[Any, ...]:
        if not self._feedback:
            return _NO_FEEDBACK
        return tuple(np.concatenate(arrays) for arrays in zip(*self._feedback, strict=True))
