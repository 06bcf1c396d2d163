"""A sample of the rows of a join, from which all its shards learn (``scouting``).

Rows are chosen by key where all inputs share one, so that what a chosen row may find is chosen too; else by
number of arrival. Of rows that are dense in event time one in 2 to the power of ``level`` is chosen, such that an
interval has about ENOUGH of an input. Samples of a higher level are part of those of a lower one, so that whoever
gets samples of several levels can bring them to the highest.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import NEVER, Int8s, Int64s, UInt64s
from slackwater.transforms.arrival.event_times import event_times
from slackwater.transforms.arrival.intake import PartProgress
from slackwater.transforms.arrival.merge import arrival_numbers
from slackwater.transforms.kernels.rows import dictionary as strings
from slackwater.transforms.settings.plan import JoinPlan
from slackwater.transforms.settings.time_unit import NANOS
from slackwater.transforms.sharding.by_key import key_hashes

DEPTH: Final = "__depth"
"""Hidden column of a sample: the highest level that has the row."""
ENOUGH: Final = 4096
"""Rows of an input in an interval that are enough to learn from."""
_ALWAYS: Final = 127
_MOST: Final = 40
_SLOT: Final = 64
"""Windows of event time after which other keys are chosen: a few of them may be unlike the rest."""
_ODD: Final = np.int64(-7046029254386353131)
_SECOND: Final = 10**9


class Sample(NamedTuple):
    """Rows of a batch that were chosen, with their columns DEPTH, and the level of the choice."""

    rows: pa.RecordBatch
    level: int


class Sampler:
    """Chooses among the rows of one input, batch by batch; the same rows wherever batches are cut at one level.

    Strategies may go by extremes, so some rows are always chosen, at most ENOUGH of a kind in a batch: those with
    a larger delay than all before, and the newest row until then; the newest of all; for strategies that go by
    times of arrival those with a larger latency than all before, and the last to arrive; the largest watermark.
    So the largest latency of a sample is that of all rows at any arrival. The largest delay is too, if a batch
    has arrived before the next begins; with an ``arrival`` column, batches of several partitions may not have.

    Args:
        plan: the join.
        which: the input.
        columns: the columns that are of interest.
    """

    def __init__(self, plan: JoinPlan, which: int, columns: list[str]) -> None:
        self._plan, self._which, self._columns = plan, which, columns
        self._keyed = plan.condition.shard_columns is not None
        self._slot = _SLOT * max(1, *plan.windows)
        self._interval = max(1, int(plan.disorder.stated_interval or _SECOND) // NANOS[plan.unit])
        self._progress = PartProgress(plan, which)
        self._clock = plan.disorder.system_clock(plan.setting)

    def choose(self, batch: pa.RecordBatch) -> Sample:
        """Return the chosen rows of a batch that has a number of arrival for each."""
        ts, known = event_times(batch.column(self._plan.time_columns[self._which]), self._plan.unit)
        depth = _trailing_zeros(self._numbers(batch, np.where(known, ts, 0)))
        depth[self._extremes(batch, ts)] = _ALWAYS
        level = self._level(ts[known])
        sample = batch.select(self._columns).append_column(DEPTH, pa.array(depth))
        return Sample(sample if level == 0 else sample.filter(pa.array(depth >= level)), level)

    def _numbers(self, batch: pa.RecordBatch, ts: Int64s) -> UInt64s:
        """Return what rows are chosen by: equal for rows of equal keys at about the same time."""
        if self._keyed:
            keys = key_hashes(batch, self._plan.shard_cells(self._which))
            return np.asarray(strings.spread(keys ^ ts // self._slot * _ODD))
        return np.asarray(strings.spread(arrival_numbers(self._plan, self._which, batch)))

    def _extremes(self, batch: pa.RecordBatch, ts: Int64s) -> Int64s:
        """Return the rows that are always chosen."""
        arrival = arrival_numbers(self._plan, self._which, batch)
        # As ``ties`` orders them.
        rows = np.lexsort((ts, arrival))
        rows = rows[self._progress.follow(batch)[rows]]
        if not rows.size:
            return rows
        ts = ts[rows]
        progress = np.maximum.accumulate(ts)
        latest = _records(progress - ts)
        found: list[Any] = [latest, np.searchsorted(progress, progress[latest]), np.argmax(ts)]
        if self._clock is not None:
            found += [_records(self._clock.ticks(arrival[rows]) - ts), rows.size - 1]
        if self._plan.watermark_columns is not None:
            said = batch.column(self._plan.watermark_columns[self._which])
            ticks, known = event_times(said, self._plan.unit)
            found.append(np.argmax(np.where(known, ticks, NEVER)[rows]))
        return np.asarray(rows[np.hstack(found)])

    def _level(self, ts: Int64s) -> int:
        if ts.size <= ENOUGH:
            return 0
        ends = [ts.size // 20, ts.size - 1 - ts.size // 20]
        early, late = np.partition(ts, ends)[ends].tolist()
        in_interval = 0.9 * ts.size * self._interval / max(1, late - early)
        return min(_MOST, max(0, math.ceil(math.log2(min(in_interval, ts.size) / ENOUGH))))


def at_level(rows: pa.RecordBatch, level: int) -> pa.RecordBatch:
    """Return the rows of a sample that one of this level has too, without their depths."""
    depth = rows.column(DEPTH).to_numpy()
    return rows.drop_columns([DEPTH]).filter(pa.array(depth >= level))


def _trailing_zeros(numbers: UInt64s) -> Int8s:
    lowest = numbers & (~numbers + np.uint64(1))
    return np.log2(np.maximum(lowest, np.uint64(1)).astype(np.float64)).astype(np.int8)


def _records(values: Int64s) -> Int64s:
    """Return where values are larger than all before; of more than ENOUGH, some, the largest among them."""
    largest = np.maximum.accumulate(values)
    at = np.flatnonzero(np.append(True, largest[1:] > largest[:-1]))
    return at if at.size <= ENOUGH else at[np.linspace(0, at.size - 1, ENOUGH).astype(np.int64)]
