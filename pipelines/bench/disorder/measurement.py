"""One run of a disorder strategy on a data set in memory, with every slack it chose written down."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from slackwater.pipelines.bench.disorder.hindsight import Intervals, Log
from slackwater.plugins.contract import (
    NEVER,
    Arrivals,
    DisorderLogic,
    DisorderStrategy,
    Int64s,
    Setting,
    Snapshot,
)
from slackwater.transforms.arrival.merge import in_arrival_order
from slackwater.transforms.operators.join import Operator
from slackwater.transforms.settings.plan import JoinPlan

CHUNK = 1 << 14
"""Arrivals at a time. Where chunks are cut changes no result."""


class Measured(NamedTuple):
    """What a run gave."""

    produced: Int64s
    """Results of each interval."""
    slack: float
    """Average over all arrivals, in ticks."""
    slacks: Any
    """Average of each interval of stream time, NaN where nothing arrived."""
    latency: float
    """Stream time at which a result comes out, less its own time: average over results, in ticks."""
    seconds: float
    """Time that the operator took."""


class Recorded(DisorderStrategy):
    """Another disorder strategy, whose bounds are written down as they are set."""

    name: ClassVar[str] = "recorded"
    inner: DisorderStrategy
    bounds: list[Any]

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> DisorderLogic:
        logic: Any = RecordedLogic(self.inner.build(setting, snapshot), self.bounds)
        return logic


class RecordedLogic:
    """Passes everything on; keeps what ``bounds`` returns."""

    def __init__(self, logic: DisorderLogic, kept: list[Int64s]) -> None:
        self._logic, self._kept = logic, kept

    def bounds(self, arrivals: Arrivals) -> Int64s:
        bounds = np.asarray(self._logic.bounds(arrivals), np.int64)
        self._kept.append(bounds)
        return bounds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logic, name)


def measure(plan: JoinPlan, tables: Mapping[str, pa.Table], log: Log, intervals: Intervals) -> Measured:
    """Run an operator with ``output: counts`` over all rows and measure it; the plan's strategy is left as is."""
    # model_construct: validation would copy the list.
    recorded = Recorded.model_construct(inner=plan.disorder, bounds=[])
    operator = Operator(dataclasses.replace(plan, disorder=recorded))
    ts, counts = [], []
    seconds = 0.0
    for chunk in (*_chunks(tables, log), None):
        started = time.perf_counter()
        out = operator.finish() if chunk is None else operator.push(chunk)
        seconds += time.perf_counter() - started
        for batch in out.results:
            ts.append(batch.column("ts").cast(pa.int64()).to_numpy())
            counts.append(batch.column("count").to_numpy())
    empty = np.empty(0, np.int64)
    result_ts, results = np.concatenate([empty, *ts]), np.concatenate([empty, *counts])
    bounds = np.concatenate([empty, *recorded.bounds])
    produced = intervals.add_up(result_ts, results)
    slack, slacks = _slacks(log, bounds, intervals)
    return Measured(produced, slack, slacks, latency(log, bounds, result_ts, results), seconds)


def _chunks(tables: Mapping[str, pa.Table], log: Log) -> Iterator[Any]:
    """Yield all rows in arrival order, in chunks that together hold each row once."""
    batches = [table.combine_chunks().to_batches(max_chunksize=None)[0] for table in tables.values()]
    arrived = [batch.column("arrived").to_numpy() for batch in batches]
    taken = np.zeros(len(batches), np.int64)
    for start in range(0, len(log.stream), CHUNK):
        sizes = np.bincount(log.stream[start : start + CHUNK], minlength=len(batches))
        parts = [batch.slice(at, size) for batch, at, size in zip(batches, taken, sizes, strict=True)]
        clocks = [clock[at : at + size] for clock, at, size in zip(arrived, taken, sizes, strict=True)]
        taken += sizes
        yield in_arrival_order(parts, clocks)


def _slacks(log: Log, bounds: Int64s, intervals: Intervals) -> tuple[float, Any]:
    """Return the average slack over all arrivals with a bound, and that of each interval of stream time."""
    known = bounds != NEVER
    slack = (log.progress[known] - bounds[known]).astype(np.float64)
    at = (log.newest[known] - intervals.first) // intervals.interval
    total, n = (np.bincount(at, weights, intervals.count) for weights in (slack, np.ones(len(slack))))
    per_interval = np.where(n > 0, total / np.maximum(n, 1), np.nan)
    return float(slack.mean()) if len(slack) else 0.0, per_interval


def latency(log: Log, bounds: Int64s, ts: Int64s, results: Int64s) -> float:
    """Return how far stream time is past the results' own time when they come out, on average, in ticks.

    A result comes out once every stream is released past it, or at the end of the inputs.
    """
    if not results.sum():
        return 0.0
    streams = int(log.stream.max()) + 1
    released = [np.maximum.accumulate(np.where(log.stream == i, bounds, NEVER)) for i in range(streams)]
    passed = np.minimum.reduce(released)
    at = np.minimum(np.searchsorted(passed, ts), len(passed) - 1)
    return float(np.average(log.newest[at] - ts, weights=results))
