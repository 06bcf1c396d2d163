"""What a query on Spark reads and what its shards make of it: cuts, marks and snapshots, without Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from spark_cases import FIXED, NAMES, ROWS, bound, expected, rows_of, star, stream, write

pytest.importorskip("pyspark")

from slackwater.pipelines.runners.spark.source import Feed, Job, plan_job
from slackwater.pipelines.template.graph import Create, Read
from slackwater.transforms.spark.blobs import Packed, _spark_hash, from_blob, shard_keys
from slackwater.transforms.spark.shard import Given, Shard
from slackwater.transforms.state import snapshot as snapshots


def replay(job: Job) -> tuple[Counter[Any], Counter[Any], int]:
    """Run a job as Spark does, every shard written to bytes and read back after each micro-batch."""
    assert job.plan is not None
    saved: dict[int, bytes] = {}
    results: list[pa.RecordBatch] = []
    late: list[pa.RecordBatch] = []
    received = 0
    for tasks in job.pieces():
        packed = [row for task in reversed(tasks) for batch in job.read(*task) for row in batch.to_pylist()]
        for key in job.keys:
            shard = Shard(job.plan, snapshots.loads(saved[key]) if key in saved else None)
            rows = [Packed(r["input"], r["place"], r["blob"]) for r in packed if r["shard"] == key]
            for outputs in shard.take(Given(rows, 0)):
                results += outputs.results
                late += outputs.late
            received += int(shard.accounting.received.sum()) if shard.ended else 0
            saved[key] = snapshots.dumps(shard.snapshot())
    return rows_of(results), rows_of(late), received


@pytest.mark.parametrize(
    "disorder", [{"strategy": "none"}, FIXED, {"strategy": "max"}], ids=lambda d: d["strategy"]
)
@pytest.mark.parametrize("m", [2, 3, 4])
@pytest.mark.parametrize("rows_per_batch", [10_000, 61])
def test_cuts_between_micro_batches_change_no_result(
    tmp_path: Path, m: int, disorder: dict[str, Any], rows_per_batch: int
) -> None:
    tables = [stream(i, ROWS - 60 * i, sorted_by_arrival=i != 1) for i in range(m)]
    paths = write(tmp_path, tables, files=2)
    theta = "abs(a.v - b.v) < 20" + "".join(f" AND a.k = {name}.k" for name in NAMES[2:m])
    cases = [
        {"where": star(m), "arrival": "arrived", "shards": 4},
        {"where": star(m), "output": "counts", "arrival": "arrived"},
        {"where": theta},
    ]
    for case in cases:
        plan = bound(tables, disorder=disorder, **case)
        feeds = [
            Feed(Read("parquet", str(path)), table.schema) for path, table in zip(paths, tables, strict=True)
        ]
        job = plan_job(feeds, plan, shard_keys(plan.config.shards, 2), rows_per_batch)
        results, late, received = replay(job)
        assert expected(plan, tables) == (results, late)
        assert received == sum(table.num_rows for table in tables)
        assert results


def test_inputs_of_unequal_rates_are_cut_into_equally_many_parts_and_hardly_wait(tmp_path: Path) -> None:
    tables = [stream(0, 300), stream(0, 60)]
    tables[1] = tables[1].set_column(1, "ts", pa.array(np.arange(60) * 50))
    paths = write(tmp_path, tables)
    plan = bound(tables, where=star(2))
    feeds = [Feed(Read("parquet", str(p)), t.schema) for p, t in zip(paths, tables, strict=True)]
    job = plan_job(feeds, plan, [0], 100)
    assert job.cuts == ((0, 0), (100, 20), (200, 40), (1 << 40, 1 << 40))
    shard = Shard(plan)
    for tasks in job.pieces():
        packed = [row for task in tasks for batch in job.read(*task) for row in batch.to_pylist()]
        list(shard.take(Given([Packed(r["input"], r["place"], r["blob"]) for r in packed], 0)))
        assert len(shard._waiting) <= 10
    assert shard.ended


def test_text_files_are_cut_by_lines_and_keep_their_row_numbers(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('x,y\n1,"two\nlines"\n2,b\n3,c\n')
    feed = Feed(Read("csv", str(file)), pa.schema([("x", pa.int64()), ("y", pa.string())]))
    assert feed.sizes == [6]
    job = plan_job([feed], None, [0], 2)
    batches = [[b for task in tasks for b in job.read(*task)] for tasks in job.pieces()]
    assert [[from_blob(b["blob"][0].as_py())["x"].to_pylist() for b in group] for group in batches] == [
        [[1, 2]],
        [[3]],
        [],
    ]


def test_a_job_reads_a_range_over_many_small_files_in_few_tasks(tmp_path: Path) -> None:
    (path,) = write(tmp_path, [stream(0, 100)], files=10)
    job = plan_job([Feed(Read("parquet", str(path)), stream(0).schema)], None, [0], 1000)
    assert [len(tasks) for tasks in job.pieces()] == [2]
    rows = [
        n
        for batch in job.read(*job.pieces()[0][0])
        for n in from_blob(batch["blob"][0].as_py())["id"].to_pylist()
    ]
    assert rows == list(range(100))


def test_rows_of_the_template_are_a_feed() -> None:
    feed = Feed(Create(({"x": 1}, {"x": 2}, {"x": 3})), pa.schema([("x", pa.int64())]))
    assert [b["x"].to_pylist() for b in feed.read(1, 3)] == [[2, 3]]


def test_shard_keys_cover_the_partitions_evenly() -> None:
    keys = shard_keys(10, 4)
    assert len(set(keys)) == 10
    assert Counter(_spark_hash(key) % 4 for key in keys) == {0: 3, 1: 3, 2: 2, 3: 2}


@pytest.mark.spark
def test_hash_is_that_of_spark(spark: Any) -> None:
    values = [0, 1, 2, 77, 1 << 30]
    frame = spark.createDataFrame([(v,) for v in values], "x int").selectExpr("hash(x)")
    assert [row[0] for row in frame.collect()] == [_spark_hash(v) for v in values]
