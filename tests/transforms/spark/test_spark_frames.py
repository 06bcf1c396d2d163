"""``sliding_window_join`` on DataFrames, batch and streaming, against the operator fed directly."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from spark_cases import NAMES, ROWS, bound, expected, rows_of, settings, star, stream, write

pytest.importorskip("pyspark")


from frame_cases import streams

from slackwater.transforms.arrival.merge import arrival_numbers
from slackwater.transforms.arrival.ties import in_stable_order
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.operators.join import Operator
from slackwater.transforms.settings.plan import JoinPlan
from slackwater.transforms.spark import sliding_window_join
from slackwater.transforms.spark.state import read_account

pytestmark = pytest.mark.spark


def frame_rows(frame: Any) -> Counter[Any]:
    return rows_of([frame.toArrow()])


def drop_arrival(late: Counter[Any]) -> Counter[Any]:
    out: Counter[Any] = Counter()
    for row, n in late.items():
        out[tuple(pair for pair in row if pair[0] != "arrival")] += n
    return out


def test_batch_frames_are_joined_to_the_end(spark: Any) -> None:
    """Three inputs; the first frame is a source of punctuations, and joins nothing."""
    tables = [*(stream(i, sorted_by_arrival=i != 1) for i in range(3)), stream(3, 6)]
    frames = {name: spark.createDataFrame(t).repartition(3) for name, t in zip(NAMES, tables, strict=False)}
    frames = {"d": frames.pop("d"), **frames}
    case = settings(
        where=star(3),
        arrival="arrived",
        shards=4,
        window={"a": "80ms", "b": "40ms", "c": "1s"},
        join={"strategy": "pwjoin"},
        punctuations={"source": "d", "input": "b", "key": "k"},
    )
    # Ties in arrival are broken otherwise than in files: make the numbers unique.
    frames = {name: f.withColumn("arrived", f.arrived * 1000 + f.id) for name, f in frames.items()}
    tables = [
        t.set_column(4, "arrived", pa.array(t["arrived"].to_numpy() * 1000 + t["id"].to_numpy())) for t in tables
    ]
    joined = sliding_window_join(frames, **case)
    assert joined.results.columns[:2] == ["a_id", "a_ts"]
    results, late = expected(bound(tables, **case), tables)
    assert frame_rows(joined.results) == results
    assert frame_rows(joined.late) == late
    assert {"too_late", "punctuation_violated"} <= {dict(row)["reason"] for row in late}
    assert 0 < joined.punctuations.count() <= 6
    assert joined.metrics.count() == 0


def test_streaming_frames_keep_what_is_held_for_newer_rows(spark: Any, tmp_path: Path) -> None:
    """Three micro-batches, both outputs from one query; the last rows stay in the reorder buffer."""
    tables = [stream(i) for i in range(2)]
    paths = write(tmp_path, tables, files=3)
    for path in paths:
        for k in range(3):
            os.utime(path / f"{k}.parquet", (1_700_000_000 + k,) * 2)
    case = settings(where="a.k = b.k", shards=2)
    joined = sliding_window_join(streams(spark, paths), **case)
    out: dict[str, list[pa.Table]] = {"results": [], "late": []}

    def keep(batch: Any, number: int) -> None:
        parts = joined.unpack(batch.persist())
        out["results"].append(parts.results.toArrow())
        out["late"].append(parts.late.toArrow())
        batch.unpersist()

    query = (
        joined.packed.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert len(out["results"]) == 3
    plan = bound(tables, **case)
    results = rows_of(out["results"])
    everything, late = expected(plan, tables, "place")
    assert results < everything
    newest = max(dict(row)["ts"] for row in results)
    assert newest > max(dict(row)["ts"] for row in everything) - 300
    assert drop_arrival(rows_of(out["late"])) <= drop_arrival(late)
    last = max(out["late"][-1]["arrival"].to_pylist())
    assert last > ROWS // 2, "arrivals are numbered on from micro-batch to micro-batch"


def in_micro_batches(plan: JoinPlan, tables: list[pa.Table], files: int) -> Counter[Any]:
    """Results of one operator per shard that is given file after file of each input, and their progress."""
    operators = [Operator(plan) for _ in range(plan.config.shards)]
    results = []
    for k in range(files):
        sizes = [-(-table.num_rows // files) for table in tables]
        parts = [t.slice(k * n, n).combine_chunks().to_batches()[0] for t, n in zip(tables, sizes, strict=True)]
        progress = np.array([pc.max(batch["ts"]).as_py() for batch in parts])
        for shard, operator in enumerate(operators):
            homes = [plan.partitioning.routes(i, b).home for i, b in enumerate(parts)]
            of_shard = [b.filter(pa.array(home == shard)) for b, home in zip(parts, homes, strict=True)]
            arrivals = [arrival_numbers(plan, i, b) for i, b in enumerate(of_shard)]
            results += operator.push(in_stable_order(plan, of_shard, arrivals)).results
            results += operator.advance(progress).results
    return rows_of(results)


def test_a_query_that_restarts_reads_the_state_and_goes_on(spark: Any, tmp_path: Path) -> None:
    """Every run builds the join anew, so that no worker knows the shards."""
    tables = [stream(i) for i in range(2)]
    paths = write(tmp_path, tables, files=4)
    case = settings(where="a.k = b.k", shards=2, arrival="arrived")
    results: list[pa.Table] = []
    read = []

    def run(files: range) -> None:
        for path in paths:
            for k in files:
                (path / f"{k}.parquet").rename(path / f"{k}.seen.parquet")
                os.utime(path / f"{k}.seen.parquet", (1_700_000_000 + k,) * 2)
        joined = sliding_window_join(streams(spark, paths, "*.seen.parquet"), **case)

        def keep(batch: Any, number: int) -> None:
            batch.persist()
            results.append(joined.unpack(batch).results.toArrow())
            blobs = batch.where("kind = 'account'").toArrow()["blob"].to_pylist()
            read.append(sum(read_account(joined.plan, blob).state.read for blob in blobs))
            batch.unpersist()

        writer = joined.packed.writeStream.foreachBatch(keep).option(
            "checkpointLocation", str(tmp_path / "state")
        )
        writer.trigger(availableNow=True).start().awaitTermination()

    run(range(2))
    run(range(2, 4))
    assert len(results) == 4
    assert rows_of(results) == in_micro_batches(bound(tables, **case), tables, 4)
    assert read[0] == 0
    assert read[2] > 5_000


def test_inputs_that_fall_silent_are_found_by_the_clock(spark: Any, tmp_path: Path) -> None:
    tables = [stream(i) for i in range(2)]
    paths = write(tmp_path, tables)
    case = settings(where="a.k = b.k", shards=2, arrival="arrived", idle_timeout="1s")
    joined = sliding_window_join(streams(spark, paths), **case)
    everything = expected(bound(tables, **case), tables, frames=True)[0]
    found: list[pa.Table] = []

    def keep(batch: Any, number: int) -> None:
        found.append(joined.unpack(batch).results.toArrow())

    query = (
        joined.packed.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(tmp_path / "state"))
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    try:
        deadline = time.monotonic() + 60
        while sum(part.num_rows for part in found) < everything.total() and time.monotonic() < deadline:
            assert query.isActive
            time.sleep(0.1)
    finally:
        query.stop()
    assert rows_of(found) == everything
    assert found[0].num_rows < everything.total(), "the rest was held back until the inputs were idle"


def test_timers_take_micro_batches_without_rows(spark: Any) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    frame = session.readStream.format("rate").load().selectExpr("timestamp AS ts", "value AS k")
    case = settings(where="a.k = b.k", idle_timeout="1s")
    with pytest.raises(ConfigError, match="idle_timeout: takes micro-batches without rows; set spark"):
        sliding_window_join({"a": frame, "b": frame}, **case)


def test_times_are_timestamps_whatever_the_zone_of_the_session(spark: Any) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    a = session.sql("SELECT timestamp_millis(id * 1000) AS ts, id AS k FROM range(20)")
    b = session.sql("SELECT timestamp_millis(id * 1000 + 400) AS ts, id % 10 AS k FROM range(20)")
    joined = sliding_window_join({"a": a, "b": b}, time="ts", window="2s", where="a.k = b.k")
    found = joined.results.selectExpr("unix_millis(a_ts)", "unix_millis(b_ts)", "unix_millis(ts)").collect()
    assert sorted(tuple(row) for row in found) == [(1000 * k, 1000 * k + 400, 1000 * k + 400) for k in range(10)]
    assert dict(joined.results.dtypes)["ts"] == "timestamp"


def test_streaming_and_batch_frames_do_not_mix(spark: Any) -> None:
    frames = {"a": spark.range(1), "b": spark.readStream.format("rate").load()}
    with pytest.raises(ConfigError, match="some inputs are streaming and some are batch DataFrames"):
        sliding_window_join(frames, **settings())


def test_shards_learn_one_slack_together(spark: Any, tmp_path: Path) -> None:
    """What the strategy thinks is the same in all shards, and no less comes out than of one."""
    tables = [stream(i) for i in range(2)]
    paths = write(tmp_path, tables, files=2)
    for path in paths:
        for k in range(2):
            os.utime(path / f"{k}.parquet", (1_700_000_000 + k,) * 2)
    learns = {"recall": 0.9, "period": "400ms", "interval": "100ms", "granularity": "5ms"}
    case = settings(where="a.k = b.k", arrival="arrived", disorder=learns)
    results, thoughts = [], []
    for shards in (1, 6):
        joined = sliding_window_join(streams(spark, paths), **case, shards=shards)
        found: list[Any] = []

        def keep(batch: Any, number: int, joined: Any = joined, found: Any = found) -> None:
            outputs = joined.unpack(batch)
            found.append((outputs.results.toArrow(), outputs.metrics.toArrow().to_pylist()))

        writer = joined.packed.writeStream.foreachBatch(keep).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / f"state-{shards}")).start().awaitTermination()
        results.append(sum(table.num_rows for table, _ in found))
        thoughts.append({(row["recall_estimate"], row["true_estimate"]) for row in found[-1][1]})
    assert results[1] >= results[0] > 200
    assert len(thoughts[1]) == 1, "what they think after the last micro-batch"
    assert thoughts[1] <= thoughts[0], "is what one thinks then"
