"""What Spark does to the stateful step, in one process: workers, and state variables that commit or do not."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.settings.plan import ARRIVAL, JoinPlan
from slackwater.transforms.spark import state
from slackwater.transforms.spark.blobs import ACCOUNT, LATE, METRICS, RESULT, from_blob, pack
from slackwater.transforms.spark.checkpoint import settings_of
from slackwater.transforms.spark.processor import JoinProcessor
from slackwater.transforms.spark.state import Account, read_account
from slackwater.transforms.state.journal import LEAST_LOG, Shards

PackedRow = Row("shard", "input", "place", "blob")


class Value:
    """A ValueState."""

    def __init__(self) -> None:
        self.content: Any = None

    def get(self) -> Any:
        return self.content

    def update(self, value: Any) -> None:
        self.content = value

    def clear(self) -> None:
        self.content = None


class Map:
    """A MapState."""

    def __init__(self) -> None:
        self.content: dict[Any, Any] = {}
        self.reads: list[Any] = []

    def getValue(self, key: Any) -> Any:
        self.reads.append(key[0])
        return self.content.get(key)

    def updateValue(self, key: Any, value: Any) -> None:
        self.content[key] = value

    def removeKey(self, key: Any) -> None:
        del self.content[key]

    def clear(self) -> None:
        self.content = {}


@dataclass
class Handle:
    """What a StatefulProcessorHandle gives access to: the state of one key."""

    summary: Value = field(default_factory=Value)
    settings: Value = field(default_factory=Value)
    base: Map = field(default_factory=Map)
    log: Map = field(default_factory=Map)
    timers: set[int] = field(default_factory=set)

    def getValueState(self, name: str, schema: str) -> Any:
        return getattr(self, name)

    def getMapState(self, name: str, key: str, value: str) -> Any:
        variable = getattr(self, name)
        variable.reads = []
        return variable

    def registerTimer(self, ms: int) -> None:
        self.timers.add(ms)


class Query:
    """The state of a shard, and workers that take its micro-batches in turns."""

    def __init__(
        self,
        plan: JoinPlan,
        workers: int = 1,
        timers: bool = False,
        least: int = LEAST_LOG,
        cache_bytes: int | None = None,
    ) -> None:
        self.plan, self._timers, self._least_log, self._cache_bytes = plan, timers, least, cache_bytes
        self.handle = Handle()
        self.shards: list[Shards[Any]] = [Shards() for _ in range(workers)]
        self.accounts: list[Account] = []
        self.counts: list[dict[str, Any]] = []

    def forget(self, worker: int) -> None:
        """Let a worker die, and another take its place."""
        self.shards[worker] = Shards()

    def micro_batch(
        self, rows: list[Any], worker: int = 0, ms: int = 0, fails: bool = False
    ) -> dict[str, list[pa.RecordBatch]]:
        """Process a micro-batch, then the timers that are due; return what came out, unless it fails."""
        handle = deepcopy(self.handle)
        settings = settings_of(self.plan, "1")
        processor = JoinProcessor(self.plan, "query", [7], settings, self._timers, cache_bytes=self._cache_bytes)
        with patch.multiple(state, SHARDS=self.shards[worker], LEAST_LOG=self._least_log):
            processor.init(handle)
            out = list(processor.handleInputRows((7,), iter(rows), TimerValues(ms))) if rows else []
            for due in sorted(timer for timer in handle.timers if timer <= ms):
                handle.timers.remove(due)
                out += processor.handleExpiredTimer((7,), TimerValues(ms), ExpiredTimerInfo(due))
        if fails:
            return {}
        self.handle = handle
        assert [row.number for row in out] == list(range(len(out)))
        self.counts += [row.counts for row in out if row.kind == ACCOUNT]
        self.accounts += [read_account(self.plan, row.blob) for row in out if row.kind == ACCOUNT]
        return {
            kind: [from_blob(row.blob) for row in out if row.kind == kind] for kind in (RESULT, LATE, METRICS)
        }


def packed_rows(plan: JoinPlan, chunk: Chunk, pieces: int = 1) -> list[Any]:
    """Return arrivals as rows of ``packing.PACKED``, each input in so many blobs, the last one first."""
    rows = []
    for i, batch in enumerate(chunk.batches):
        batch = batch.append_column(ARRIVAL, pa.array(chunk.arrival[chunk.input == i]))
        cuts = np.linspace(0, batch.num_rows, pieces + 1).astype(int).tolist()
        for start, stop in pairwise(cuts):
            if stop > start:
                for row in pack(plan, i, batch.slice(start, stop - start), [7], start).to_pylist():
                    rows.insert(0, PackedRow(*row.values()))
    return rows
