"""``sliding_window_join`` on DataFrames, batch and streaming, against the operator fed directly."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from spark_cases import NAMES, ROWS, bound, expected, rows_of, settings, star, stream, write

pytest.importorskip("pyspark")

from slackwater.transforms.errors import ConfigError
from slackwater.transforms.spark import sliding_window_join

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
    # Ties in arrival are broken by Spark's partitions: make the numbers unique to know the order.
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
    frames = {
        name: spark.readStream.schema(spark.read.parquet(str(p)).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(p))
        for name, p in zip(NAMES, paths, strict=False)
    }
    joined = sliding_window_join(frames, **case)
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
    everything, late = expected(plan, tables)
    assert results < everything
    newest = max(dict(row)["ts"] for row in results)
    assert newest > max(dict(row)["ts"] for row in everything) - 300
    assert drop_arrival(rows_of(out["late"])) <= drop_arrival(late)
    last = max(out["late"][-1]["arrival"].to_pylist())
    assert last > ROWS // 2, "arrivals are numbered on from micro-batch to micro-batch"


def test_streaming_and_batch_frames_do_not_mix(spark: Any) -> None:
    frames = {"a": spark.range(1), "b": spark.readStream.format("rate").load()}
    with pytest.raises(ConfigError, match="some inputs are streaming and some are batch DataFrames"):
        sliding_window_join(frames, **settings())
