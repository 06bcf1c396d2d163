"""Rows of many bytes: results and late rows come in pieces, so that no column outgrows what Arrow can address."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from slackwater.pipelines.io.sinks import Sink
from slackwater.pipelines.runners.local.stage import OperatorStage
from slackwater.pipelines.template.graph import Write
from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.beam.shard import pieces as shard_pieces
from slackwater.transforms.beam.shard import run_shard
from slackwater.transforms.operators.join import Operator
from slackwater.transforms.output import result_rows
from slackwater.transforms.output.archive_directory import prepare
from slackwater.transforms.output.outputs import late_batches
from slackwater.transforms.rows import size as row_bytes
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import ARRIVAL, JoinPlan, bind
from slackwater.transforms.spark.blobs import Packed, blobs_of, from_blob, pack, pack_marks
from slackwater.transforms.spark.shard import Given, Shard
from slackwater.transforms.state.snapshot import dumps, loads

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("t", pa.string())])


def plan_of(**settings: object) -> JoinPlan:
    config = {"time": "ts", "window": "1s", "where": "a.k = b.k", **settings}
    return bind(JoinConfig.read(config), {"a": SCHEMA, "b": SCHEMA})


def rows(n: int, size: int, name: str, start: int = 0) -> pa.RecordBatch:
    columns = {"ts": np.arange(start, start + n), "k": np.zeros(n, np.int64), "t": [name * size] * n}
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def chunk_of(*batches: pa.RecordBatch) -> Chunk:
    which = np.repeat(np.arange(len(batches), dtype=np.int8), [batch.num_rows for batch in batches])
    return Chunk(which, np.arange(which.size), list(batches))


def test_cuts_cover_all_rows_and_hold_the_limit_unless_one_row_is_larger() -> None:
    sizes = np.array([3, 4, 5, 20, 1, 1, 8, 9])
    parts = list(row_bytes.cuts(sizes, 10))
    assert [sizes[part].tolist() for part in parts] == [[3, 4], [5], [20], [1, 1, 8], [9]]
    assert list(row_bytes.cuts(np.empty(0, np.int64), 10)) == []


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    """A limit that small rows reach."""
    limit = 20_000
    for module in (row_bytes, result_rows):
        monkeypatch.setattr(module, "PIECE_BYTES", limit)
    return limit


@pytest.fixture
def narrow(small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An Arrow whose batches end where small rows reach it, as its columns of text do at 2³¹ bytes."""
    put_together = pa.concat_batches

    def checked(batches: Iterable[pa.RecordBatch], *rest: object) -> pa.RecordBatch:
        whole = put_together(batches, *rest)
        if whole.nbytes > small + 10_000:
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")
        return whole

    monkeypatch.setattr(pa, "concat_batches", checked)


def shuffled(n: int, name: str) -> list[pa.RecordBatch]:
    """Batches whose rows are in no order, each with its number of arrival."""
    order = np.random.default_rng(5).permutation(n)
    whole = rows(n, 1_000, name).append_column("at", pa.array(np.arange(n))).take(pa.array(order))
    return [whole.slice(start, 7) for start in range(0, n, 7)]


@pytest.mark.parametrize("shards", [1, 2])
def test_rows_that_wait_for_their_turn_in_the_embedded_runner_come_in_pieces(narrow: None, shards: int) -> None:
    """One input is sorted when it has ended, and the other waits for it: each has three times the limit."""
    schema = SCHEMA.append(pa.field("at", pa.int64()))
    config = {
        "time": "ts",
        "window": "2ms",
        "where": "a.k = b.k",
        "arrival": "at",
        "disorder": {"strategy": "none"},
    }
    plan = bind(JoinConfig.read({**config, "shards": shards}), {"a": schema, "b": schema})
    found: list[pa.RecordBatch] = []
    stage = OperatorStage(
        "j", plan, frozenset("a"), lambda port, batch: found.append(batch) if not port.output else None, print
    )
    for batch in shuffled(60, "x"):
        stage.push("a", batch)
    ordered = pa.Table.from_batches(shuffled(60, "y")).sort_by("at").combine_chunks()
    for batch in ordered.to_batches(7):
        stage.push("b", batch)
    stage.end("b")
    assert not found, "everything waits for the input that is sorted"
    stage.end("a")
    times = [(row["a_ts"], row["b_ts"]) for batch in found for row in batch.to_pylist()]
    assert sorted(times) == [(a, b) for a in range(60) for b in range(60) if abs(a - b) <= 2]
    assert not any(stage.accounting().late.values())


def test_results_come_in_pieces_in_order_and_are_the_same(small: int) -> None:
    operator, whole = Operator(plan_of()), []
    operator.hand_over(whole.append)
    out = operator.push(chunk_of(rows(30, 300, "x"), rows(40, 500, "y")))
    taken = len(whole)
    whole += out.results + operator.finish().results
    assert taken > 10, "most leave before the step is over"
    assert sum(batch.num_rows for batch in whole) == 30 * 40
    assert max(batch.nbytes for batch in whole) <= small
    ts = np.concatenate([batch.column("ts").to_numpy() for batch in whole])
    assert (np.diff(ts) >= 0).all()
    assert {batch.schema for batch in whole} == {plan_of().result_schema}


def test_a_store_of_large_rows_goes_through_a_snapshot(small: int) -> None:
    plan = plan_of(disorder={"strategy": "fixed", "slack": "10s"})
    operator = Operator(plan)
    for start in range(0, 60, 20):
        operator.push(chunk_of(rows(20, 900, "x", start), rows(20, 900, "y", start)))
    again = Operator(plan, loads(dumps(operator.snapshot())))
    assert len(again.rows.stores[0]._chunks) > 1
    assert sum(batch.num_rows for batch in again.finish().results) == 60 * 60


def test_late_rows_come_in_pieces(small: int) -> None:
    many = rows(50, 2_000, "\n")
    batches = list(late_batches("a", "too_late", np.arange(50), None, many))
    assert len(batches) > 3
    found = pa.Table.from_batches(batches)
    assert found["ts"].to_pylist() == list(range(50)) and found["arrival"].null_count == 50
    assert [json.loads(text)["t"] for text in found["row"].to_pylist()] == ["\n" * 2_000] * 50


def test_json_lines_blobs_and_shards_are_written_in_pieces(small: int, tmp_path) -> None:
    many = rows(100, 1_000, "z")
    sink = Sink(Write("json", str(tmp_path / "out.jsonl")), SCHEMA)
    sink.write(many)
    sink.close()
    assert (tmp_path / "out.jsonl").read_text().count("\n") == 100
    blobs = list(blobs_of([many.slice(k, 10) for k in range(0, 100, 10)]))
    assert len(blobs) > 5 and sum(from_blob(blob).num_rows for blob in blobs) == 100
    plan = plan_of()
    parts = [(i, batch) for i in (0, 1) for _, batch in shard_pieces(plan, i, rows(30, 400, "v"), i * 30)]
    found = [batch for tag, batch in (o for o in run_shard(plan, 0, parts, True) if len(o) == 2) if tag == "out"]
    assert len(found) > 10 and sum(batch.num_rows for batch in found) == 900


def test_more_than_two_gigabytes_of_results_of_one_key() -> None:
    """Both text columns of the results have 2.2 GB, in one step."""
    operator, counts = Operator(plan_of()), []

    def take(batch: pa.RecordBatch) -> None:
        counts.append(batch.num_rows)
        assert batch.column("a_t")[-1].as_py() == "x" * 17_000

    operator.hand_over(take)
    for out in (operator.push(chunk_of(rows(360, 17_000, "x"), rows(360, 17_000, "y"))), operator.finish()):
        for batch in out.results:
            take(batch)
    assert sum(counts) == 360 * 360


@pytest.mark.parametrize("placed", [False, True])
def test_a_bounded_shard_of_beam_sorts_rows_in_pieces(narrow: None, placed: bool) -> None:
    """Batches come in any order; rows of one may be out of place, too."""
    schema = SCHEMA.append(pa.field("at", pa.int64()))
    config = {
        "time": "ts",
        "window": "2ms",
        "where": "a.k = b.k",
        "arrival": "at",
        "disorder": {"strategy": "none"},
    }
    plan = bind(JoinConfig.read(config), {"a": schema, "b": schema})
    parts = []
    for which in (0, 1):
        for start, batch in zip(range(0, 60, 7), shuffled(60, "x"), strict=True):
            if placed:
                batch = batch.append_column(ARRIVAL, batch.column("at"))
            parts += [(which, piece) for _, piece in shard_pieces(plan, which, batch, start)]
    found = [output for output in run_shard(plan, 0, parts[::-1], True)]
    batches = [batch for tag, batch in (output for output in found if len(output) == 2) if tag == "out"]
    times = [(row["a_ts"], row["b_ts"]) for batch in batches for row in batch.to_pylist()]
    assert sorted(times) == [(a, b) for a in range(60) for b in range(60) if abs(a - b) <= 2]


@pytest.mark.parametrize("marked", [False, True])
def test_a_shard_on_spark_takes_a_micro_batch_in_pieces(narrow: None, marked: bool) -> None:
    """Rows wait where marks say that earlier ones may come; without marks, ties are settled over all blobs."""
    schema = SCHEMA.append(pa.field("at", pa.int64()))
    config = {
        "time": "ts",
        "window": "2ms",
        "where": "a.k = b.k",
        "arrival": "at",
        "disorder": {"strategy": "none"},
    }
    plan = bind(JoinConfig.read(config), {"a": schema, "b": schema})
    given: list[Packed] = []
    for which in (0, 1):
        for place, batch in zip(range(0, 60, 7), shuffled(60, "x"), strict=True):
            if not marked:
                at = pc.bit_wise_and(batch.column("at"), ~3)
                batch = batch.set_column(3, "at", at)
            numbered = batch.append_column(ARRIVAL, pa.array(place + np.arange(batch.num_rows)))
            given += unpacked(pack(plan, which, numbered, [0], place))
    steps = [given]
    if marked:
        marks = [unpacked(pack_marks(marks, [0])) for marks in ([0, 0], [30, 20], [None, None])]
        steps = [given + marks[0], *marks[1:]]
    shard, found = Shard(plan), []
    for step in steps:
        found += [out for out in shard.take(Given(step, 0))]
        again = Shard(plan, loads(dumps(shard.snapshot())))
        assert len(again._waiting) == len(shard._waiting)
    found += [] if shard.ended else shard.take(Given([], 0), last=True)
    results = [row for out in found for batch in out.results for row in batch.to_pylist()]
    times = [(row["a_ts"], row["b_ts"]) for row in results]
    assert sorted(times) == [(a, b) for a in range(60) for b in range(60) if abs(a - b) <= 2]


def unpacked(packed: pa.RecordBatch) -> list[Packed]:
    return [Packed(row["input"], row["place"], row["blob"]) for row in packed.to_pylist()]


def test_rows_go_to_an_archive_in_pieces(narrow: None, tmp_path: Path) -> None:
    """Those that the join still had at the end, and those that never reached it: three times the limit each."""
    plan = plan_of(window="1s", archive=str(tmp_path), disorder={"strategy": "fixed", "slack": "0s"})
    prepare(plan)
    operator = Operator(plan)
    operator.push(chunk_of(rows(60, 1_000, "x", 100), rows(60, 1_000, "y", 100)))
    operator.delivery.archive.missed(0, rows(60, 1_000, "z", 100), np.arange(100, 160))
    operator = Operator(plan, loads(dumps(operator.snapshot())))
    operator.finish()
    logged = list((tmp_path / "input=a").glob("bucket=*/*.parquet"))
    found = [row for file in logged for row in pq.ParquetFile(file).read().to_pylist()]
    texts = Counter(row["t"][0] for row in found)
    assert texts == {"x": 60, "z": 60} and {len(row["t"]) for row in found} == {1_000}


def test_results_of_rows_that_are_on_disk_come_in_pieces(small: int) -> None:
    plan = plan_of(window=None, join={"strategy": "xjoin", "memory": 4}, disorder={"strategy": "none"})
    operator, found = Operator(plan), []
    for start in range(0, 40, 4):
        found += operator.push(chunk_of(rows(4, 900, "x", start), rows(4, 900, "y", start))).results
    for out in operator.finishing():
        found += out.results
    assert max(batch.nbytes for batch in found) <= small
    pairs = Counter((row["a_ts"], row["b_ts"]) for batch in found for row in batch.to_pylist())
    assert pairs == Counter((a, b) for a in range(40) for b in range(40))
