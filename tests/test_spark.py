"""The Spark runner and ``sliding_window_join`` against the operator fed directly, in arrival order."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")


from slackwater.pipelines import run_spark
from slackwater.pipelines.graph import Create, Read
from slackwater.pipelines.spark_source import Feed, Job, plan_job
from slackwater.pipelines.template import read_template_text
from slackwater.transforms.config import JoinConfig
from slackwater.transforms.errors import ConfigError, SlackwaterError
from slackwater.transforms.operator import Operator
from slackwater.transforms.plan import ARRIVAL, JoinPlan, bind
from slackwater.transforms.replay import arrival_numbers, in_arrival_order, shards_of
from slackwater.transforms.spark import sliding_window_join
from slackwater.transforms.spark.packing import (
    ACCOUNT,
    LATE,
    RESULT,
    Packed,
    _spark_hash,
    from_blob,
    shard_keys,
)
from slackwater.transforms.spark.shard import Shard, read_account

NAMES = "abcd"
ROWS = 400
FIXED = {"strategy": "fixed", "slack": "60ms"}


def stream(seed: int, rows: int = ROWS, keys: int = 12, sorted_by_arrival: bool = True) -> pa.Table:
    """A disordered stream with ties in time and in arrival; about one row in fifty has no time."""
    rng = np.random.default_rng(seed)
    ts = np.arange(rows) * 10 + 15 * seed - np.where(rng.random(rows) < 0.3, rng.integers(0, 200, rows), 0)
    table = pa.table(
        {
            "id": np.arange(rows),
            "ts": pa.array(ts // 5 * 5, mask=rng.random(rows) < 0.02),
            "k": pa.array([f"key {k}" for k in rng.integers(0, keys, rows)]),
            "v": rng.integers(0, 100, rows),
            "arrived": np.sort(rng.integers(0, rows, rows)),
        }
    )
    return table if sorted_by_arrival else table.take(pa.array(rng.permutation(rows)))


def star(m: int) -> str:
    return " AND ".join(f"a.k = {name}.k" for name in NAMES[1:m])


def settings(**changes: Any) -> dict[str, Any]:
    return {"time": "ts", "window": "80ms", "disorder": FIXED, **changes}


def bound(tables: list[pa.Table], **changes: Any) -> JoinPlan:
    schemas = {name: table.schema for name, table in zip(NAMES, tables, strict=False)}
    return bind(JoinConfig.read(settings(**changes)), schemas)


def expected(plan: JoinPlan, tables: list[pa.Table]) -> tuple[Counter[Any], Counter[Any]]:
    """Results and late rows of one operator per shard, each fed all its rows at once."""
    shards: list[list[tuple[pa.RecordBatch, Any]]] = [[] for _ in range(plan.config.shards)]
    for i, table in enumerate(tables):
        batch = table.combine_chunks().to_batches()[0] if table.num_rows else empty_batch(table.schema)
        batch = batch.append_column(ARRIVAL, pa.array(np.arange(table.num_rows)))
        arrival = arrival_numbers(plan, i, batch)
        of_row = shards_of(plan, i, batch)
        for s, parts in enumerate(shards):
            parts.append((batch.filter(pa.array(of_row == s)), arrival[of_row == s]))
    results, late = [], []
    for parts in shards:
        operator = Operator(plan)
        chunk = in_arrival_order([batch for batch, _ in parts], [arrival for _, arrival in parts])
        for out in (operator.push(chunk), operator.finish()):
            results += out.results
            late += out.late
    return rows_of(results), rows_of(late)


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)


def rows_of(batches: Any) -> Counter[Any]:
    return Counter(tuple(row.items()) for batch in batches for row in batch.to_pylist())


def frame_rows(frame: Any) -> Counter[Any]:
    return rows_of([frame.toArrow()])


def file_rows(file: Path) -> Counter[Any]:
    return rows_of([pq.read_table(file)])


def write(folder: Path, tables: list[pa.Table], files: int = 1) -> list[Path]:
    """Write each table to ``files`` Parquet files with small row groups; return the paths to read."""
    paths = []
    for name, table in zip(NAMES, tables, strict=False):
        (folder / name).mkdir()
        size = -(-table.num_rows // files) or 1
        for k in range(files):
            pq.write_table(table.slice(k * size, size), folder / name / f"{k}.parquet", row_group_size=90)
        paths.append(folder / name)
    return paths


# Without Spark: the cuts, the marks and the shards, through snapshots.


def replay(job: Job) -> tuple[Counter[Any], Counter[Any], int]:
    """Run a job as Spark does, every shard written to bytes and read back after each micro-batch."""
    assert job.plan is not None
    saved: dict[int, bytes] = {}
    out: dict[str, list[pa.RecordBatch]] = {RESULT: [], LATE: []}
    received = 0
    for tasks in job.pieces():
        packed = [row for task in reversed(tasks) for batch in job.read(*task) for row in batch.to_pylist()]
        for key in job.keys:
            shard = Shard.restore(job.plan, saved[key]) if key in saved else Shard(job.plan)
            rows = [Packed(r["input"], r["place"], r["blob"]) for r in packed if r["shard"] == key]
            for kind, blob in shard.take(rows):
                if kind != ACCOUNT:
                    out[kind].append(from_blob(blob))
                elif shard.ended:
                    received += int(read_account(job.plan, blob)[0].received.sum())
            saved[key] = shard.snapshot()
    return rows_of(out[RESULT]), rows_of(out[LATE]), received


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
        if plan.arrival_columns is None:
            half = [-(-t.num_rows // 2) for t in tables]
            assert expected_two_files(plan, tables, half) == (results, late)
        else:
            assert expected(plan, tables) == (results, late)
        assert received == sum(table.num_rows for table in tables)
        assert results


def expected_two_files(
    plan: JoinPlan, tables: list[pa.Table], first: list[int]
) -> tuple[Counter[Any], Counter[Any]]:
    """As ``expected``, where the rows of each input are in two files."""
    numbered = [
        t.append_column("n", pa.array(np.where(np.arange(len(t)) < n, 0, 1 << 40) + np.arange(len(t)) % n))
        for t, n in zip(tables, first, strict=True)
    ]
    parts = [
        [t.slice(0, n) for t, n in zip(numbered, first, strict=True)],
        [t.slice(n) for t, n in zip(numbered, first, strict=True)],
    ]
    operator = Operator(plan)
    results, late = [], []
    for part in parts:
        batches = [t.drop_columns("n").combine_chunks().to_batches()[0] for t in part]
        chunk = in_arrival_order(batches, [t["n"].to_numpy() for t in part])
        out = operator.push(chunk)
        results, late = results + out.results, late + out.late
    out = operator.finish()
    return rows_of(results + out.results), rows_of(late + out.late)


def drop_arrival(late: Counter[Any]) -> Counter[Any]:
    out: Counter[Any] = Counter()
    for row, n in late.items():
        out[tuple(pair for pair in row if pair[0] != "arrival")] += n
    return out


def test_inputs_in_file_order_never_wait(tmp_path: Path) -> None:
    tables = [stream(0, 300), stream(1, 50)]
    paths = write(tmp_path, tables)
    plan = bound(tables, where=star(2))
    feeds = [Feed(Read("parquet", str(p)), t.schema) for p, t in zip(paths, tables, strict=True)]
    job = plan_job(feeds, plan, [0], 100)
    assert job.cuts == ((0, 0), (100, 100), (200, 200), (1 << 40, 1 << 40))
    shard = Shard(plan)
    for tasks in job.pieces():
        packed = [row for task in tasks for batch in job.read(*task) for row in batch.to_pylist()]
        list(shard.take(Packed(r["input"], r["place"], r["blob"]) for r in packed))
        assert shard._waiting == [None, None]
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


def test_no_java_is_said_with_a_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    pipeline = read_template_text("t", "pipeline: {transforms: [{type: Create, config: {elements: [{x: 1}]}}]}")
    with pytest.raises(SlackwaterError, match="needs Java 17 or later, and there is none; install a JDK"):
        run_spark.run(pipeline)


# On Spark.


def run(spark: Any, transforms: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    text = json.dumps({"pipeline": {"transforms": transforms}})
    return run_spark.run(read_template_text("test", text), session=spark, **options)


def read(name: str, path: Path, format: str = "Parquet") -> dict[str, Any]:
    return {"type": f"ReadFrom{format}", "name": name, "config": {"path": str(path)}}


def join(name: str, inputs: dict[str, str], **config: Any) -> dict[str, Any]:
    return {"type": "SlidingWindowJoin", "name": name, "input": inputs, "config": settings(**config)}


def sink(name: str, source: str, path: Path, format: str = "Parquet") -> dict[str, Any]:
    return {"type": f"WriteTo{format}", "name": name, "input": source, "config": {"path": str(path)}}


@pytest.mark.spark
def test_hash_is_that_of_spark(spark: Any) -> None:
    values = [0, 1, 2, 77, 1 << 30]
    frame = spark.createDataFrame([(v,) for v in values], "x int").selectExpr("hash(x)")
    assert [row[0] for row in frame.collect()] == [_spark_hash(v) for v in values]


@pytest.mark.spark
def test_results_late_rows_and_accounts_equal_those_of_the_operator(spark: Any, tmp_path: Path) -> None:
    """Two joins and a plain copy in one template: two- and four-way, shards, several micro-batches."""
    tables = [stream(i, sorted_by_arrival=i != 1) for i in range(4)]
    paths = write(tmp_path, tables)
    two = {"where": star(2), "arrival": "arrived", "shards": 4}
    four = {
        "where": "a.k = b.k AND c.k = d.k AND a.v < c.v",
        "disorder": {"strategy": "max"},
        "output": "counts",
    }
    out = tmp_path / "out"
    summary = run(
        spark,
        [
            *(read(name.upper(), path) for name, path in zip(NAMES, paths, strict=True)),
            join("two", {"a": "A", "b": "B"}, **two),
            join("four", {name: name.upper() for name in NAMES}, **four),
            sink("W1", "two", out / "two.parquet"),
            sink("W2", "two.late", out / "late.parquet"),
            sink("W3", "four", out / "four.parquet"),
            sink("W4", "A", out / "copy.parquet"),
            sink("W5", "two.metrics", out / "metrics.jsonl", "Json"),
        ],
        rows_per_batch=250,
    )
    results, late = expected(bound(tables[:2], **two), tables[:2])
    assert (file_rows(out / "two.parquet"), file_rows(out / "late.parquet")) == (results, late)
    assert file_rows(out / "four.parquet") == expected(bound(tables, **four), tables)[0]
    assert pq.read_table(out / "copy.parquet").equals(tables[0])
    assert (out / "metrics.jsonl").read_text() == ""
    body = summary["joins"]["two"]
    assert summary["runner"] == "spark"
    assert body["input"] == {"a": ROWS, "b": ROWS}
    assert body["results"] == results.total()
    assert sum(body["late"].values()) == late.total()
    assert all(account["balanced"] for account in body["accounting"].values())


@pytest.mark.spark
def test_filters_maps_text_files_and_a_join_of_a_join(spark: Any, tmp_path: Path) -> None:
    tables = [stream(i) for i in range(3)]
    for name, table in zip(NAMES, tables[:2], strict=False):
        pa_csv.write_csv(table, tmp_path / f"{name}.csv")
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in tables[2].to_pylist()))
    first = {"where": "a.k = b.k", "disorder": {"strategy": "none"}}
    second = {"where": "ab.a_k = c.k", "time": {"ab": "ts", "c": "ts"}}
    seen: list[int] = []

    class Watch:
        def total(self, rows: int) -> None:
            seen.append(-rows)

        def advance(self, rows: int) -> None:
            seen.append(rows)

    summary = run(
        spark,
        [
            read("A", tmp_path / "a.csv", "Csv"),
            read("B", tmp_path / "b.csv", "Csv"),
            read("C", tmp_path / "c.jsonl", "Json"),
            {"type": "Filter", "name": "F", "input": "A", "config": {"keep": "v < 70"}},
            {
                "type": "MapToFields",
                "name": "M",
                "input": "B",
                "config": {"fields": {"id": "id", "ts": "ts + 5", "k": "k"}},
            },
            join("ab", {"a": "F", "b": "M"}, **first),
            join("abc", {"ab": "ab", "c": "C"}, **second),
            {"type": "Filter", "name": "G", "input": "abc", "config": {"keep": "c_v >= 50"}},
            sink("W", "ab", tmp_path / "ab.csv", "Csv"),
            sink("X", "G", tmp_path / "abc.parquet"),
        ],
        rows_per_batch=250,
        progress=Watch(),
    )
    numbered = [t.append_column("n", pa.array(np.arange(len(t)))) for t in tables[:2]]
    a = numbered[0].filter(pa.compute.less(tables[0]["v"], 70))
    b = numbered[1].set_column(1, "ts", pa.compute.add(tables[1]["ts"], 5)).select(["id", "ts", "k", "n"])
    plan = bound([a.drop_columns("n"), b.drop_columns("n")], **first)
    operator = Operator(plan)
    batches = [t.combine_chunks().to_batches()[0] for t in (a, b)]
    chunk = in_arrival_order([x.drop_columns("n") for x in batches], [x["n"].to_numpy() for x in batches])
    results = operator.push(chunk).results + operator.finish().results
    assert pa_csv.read_csv(tmp_path / "ab.csv").equals(pa.Table.from_batches(results))
    ab = pa.Table.from_batches(results)
    plan = bind(JoinConfig.read(settings(**second)), {"ab": ab.schema, "c": tables[2].schema})
    want = expected(plan, [ab, tables[2]])[0]
    assert file_rows(tmp_path / "abc.parquet") == Counter({r: n for r, n in want.items() if dict(r)["c_v"] >= 50})
    assert summary["joins"]["abc"]["results"] == want.total() > 0
    assert seen[0] < -3 * ROWS + 1
    assert sum(seen) == 0


@pytest.mark.spark
def test_input_without_rows_gives_files_without_rows(spark: Any, tmp_path: Path) -> None:
    schema = stream(0).schema
    paths = write(tmp_path, [schema.empty_table(), stream(1)])
    summary = run(
        spark,
        [
            read("A", paths[0]),
            read("B", paths[1]),
            join("j", {"a": "A", "b": "B"}, where="a.k = b.k", arrival="arrived"),
            sink("W", "j", tmp_path / "out.parquet"),
        ],
    )
    assert summary["input"] == {"a": 0, "b": ROWS}
    assert summary["results"] == 0
    names = [f"{i}_{field.name}" for i in "ab" for field in schema]
    assert pq.read_schema(tmp_path / "out.parquet").names == [*names, "ts"]


@pytest.mark.spark
def test_fault_on_a_worker_is_one_clean_message_and_leaves_no_file(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"ts": 1, "k": 1}\n{"ts": 2, "k": \n')
    (tmp_path / "b.jsonl").write_text('{"ts": 1, "k": 1}\n')
    steps = [
        {"type": "Create", "name": "A", "config": {"elements": [{"ts": 1, "k": 1 << 62}, {"ts": 2, "k": 2}]}},
        {"type": "MapToFields", "name": "M", "input": "A", "config": {"fields": {"ts": "ts", "k": "k * k"}}},
        read("B", tmp_path / "b.jsonl", "Json"),
        join("j", {"a": "M", "b": "B"}, where="a.k = b.k"),
        sink("W", "j", tmp_path / "out" / "j.parquet"),
    ]
    with pytest.raises(SlackwaterError, match=r"^.*k \* k.*overflow; keep the numbers smaller[^\n]*$"):
        run(spark, steps)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.spark
def test_batch_frames_are_joined_to_the_end(spark: Any) -> None:
    tables = [stream(i, sorted_by_arrival=i != 1) for i in range(3)]
    frames = {name: spark.createDataFrame(t).repartition(3) for name, t in zip(NAMES, tables, strict=False)}
    case = settings(where=star(3), arrival="arrived", shards=4, window={"a": "80ms", "b": "40ms", "c": "1s"})
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
    assert joined.metrics.count() == joined.punctuations.count() == 0


@pytest.mark.spark
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


@pytest.mark.spark
def test_streaming_and_batch_frames_do_not_mix(spark: Any) -> None:
    frames = {"a": spark.range(1), "b": spark.readStream.format("rate").load()}
    with pytest.raises(ConfigError, match="some inputs are streaming and some are batch DataFrames"):
        sliding_window_join(frames, **settings())
