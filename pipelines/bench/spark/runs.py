"""What ``slackwater bench spark`` runs: one join by Spark and by us, on the same files, and its state."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from slackwater.pipelines.generate import generate
from slackwater.transforms.spark.blobs import ACCOUNT
from slackwater.transforms.spark.join import sliding_window_join
from slackwater.transforms.spark.state import StateBytes, read_account

SLACK_MS: Final = 2_000
SHARDS: Final = 2
_HOUR_MS: Final = 3_600_000
_LAST_ROWS: Final = 128
_OLDEST_FILE: Final = 1_600_000_000
_NATIVE_STATE: Final = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
"""Several times as fast for Spark's own join as RocksDB."""


@dataclass(frozen=True)
class Data:
    """Two streams in files of which each is a micro-batch."""

    folder: Path
    rows: int
    results: int
    """Of the complete join."""
    window_ms: int

    def stream(self, session: SparkSession, name: str) -> DataFrame:
        """Return one of the streams, a file at a time."""
        reader = session.readStream.schema("ts long, a1 long, arrived long").option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder / name))


def make_data(folder: Path, rows: int, batch_rows: int, keys: int, window_ms: int, seed: int) -> Data:
    """Write rows over two streams, a fifth of them up to 2 s late, and last ones that release all the others."""
    knobs: dict[str, Any] = {"delayed": 0.2, "max_delay": SLACK_MS, "keys": keys, "window": window_ms}
    made = generate("syn2", folder / "whole", rows=rows // 2, seed=seed, **knobs)
    for which, (name, file) in enumerate(made.files.items()):
        (folder / name).mkdir()
        table = pq.read_table(file)
        newest, arrived = max(table["ts"].to_pylist()[-SLACK_MS:]), table["arrived"][-1].as_py()
        last = {
            # The Synchronizer waits for a later row that has been released, so it takes two times.
            "ts": [newest + (1 + 2 * k // _LAST_ROWS) * _HOUR_MS for k in range(_LAST_ROWS)],
            # Keys of no other row, not even of the other stream, which reach every shard.
            "a1": [-(2 * k + which + 1) for k in range(_LAST_ROWS)],
            "arrived": [arrived + 1 + k for k in range(_LAST_ROWS)],
        }
        step = batch_rows // 2
        for k, start in enumerate(range(0, table.num_rows, step)):
            part = table.slice(start, step)
            if start + step >= table.num_rows:
                part = pa.concat_tables([part, pa.table(last, schema=part.schema)])
            pq.write_table(part, folder / name / f"{k:04}.parquet")
            os.utime(folder / name / f"{k:04}.parquet", (_OLDEST_FILE + k,) * 2)
    return Data(folder, rows, made.results, window_ms)


def native(session: SparkSession, data: Data) -> DataFrame:
    """Return Spark's own join of two streams, with a watermark that keeps every row."""
    session = session.newSession()
    session.conf.set("spark.sql.streaming.stateStore.providerClass", _NATIVE_STATE)
    left, right = (
        data.stream(session, name)
        .withColumn("time", F.timestamp_millis("ts"))
        .withWatermark("time", f"{SLACK_MS} milliseconds")
        .alias(name)
        for name in ("s1", "s2")
    )
    span = F.expr(f"INTERVAL '{data.window_ms / 1000}' SECOND")
    near = F.col("s2.time").between(F.col("s1.time") - span, F.col("s1.time") + span)
    return left.join(right, (F.col("s1.a1") == F.col("s2.a1")) & near)


def ours(session: SparkSession, data: Data) -> Any:
    """Return our join of the same streams."""
    return sliding_window_join(
        {name: data.stream(session, name) for name in ("s1", "s2")},
        time="ts",
        time_unit="ms",
        arrival="arrived",
        window=f"{data.window_ms}ms",
        where="s1.a1 = s2.a1",
        disorder={"strategy": "fixed", "slack": f"{SLACK_MS}ms"},
        shards=SHARDS,
    )


class Run(NamedTuple):
    """One query from its start to its end."""

    rows_per_s: float
    results: int


def measure(frame: DataFrame, data: Data) -> Run:
    """Run a query on all files into nothing; count what it finds."""
    counted = frame.observe("found", F.count(F.lit(1)).alias("rows"))
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="slackwater-bench-", ignore_cleanup_errors=True) as checkpoint:
        writer = counted.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        seconds = time.perf_counter() - started
        results = sum(progress.observedMetrics["found"].rows for progress in query.recentProgress)
    return Run(data.rows / seconds, results)


def state_of(session: SparkSession, data: Data) -> list[StateBytes]:
    """Run our join; return what each micro-batch gave, read, wrote and left stored over all shards."""
    joined = ours(session, data)
    costs: list[StateBytes] = []

    def add_up(batch: DataFrame, number: int) -> None:
        blobs = batch.where(batch.kind == ACCOUNT).toArrow()["blob"]
        cost = StateBytes()
        for blob in blobs:
            cost = cost.plus(read_account(joined.plan, blob.as_py()).state)
        costs.append(cost)

    with tempfile.TemporaryDirectory(prefix="slackwater-bench-", ignore_cleanup_errors=True) as checkpoint:
        writer = joined.packed.writeStream.foreachBatch(add_up).option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
    return costs
