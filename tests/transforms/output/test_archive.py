"""Produced and reconciled results together are the exact join, each once; brute force tells what is exact."""

import itertools
import json
import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conditions import EFFORT, THREE_WAY, TWO_WAY, Spec, cuts, star, streams
from hypothesis import given, settings
from hypothesis import strategies as st
from running import NAMES, SCHEMA, Run, chunk_of, numbered, plan_of, run

from slackwater.pipelines.reconcile import local as reconcile
from slackwater.pipelines.reconcile.local import Reconciliation
from slackwater.plugins.contract import Released
from slackwater.transforms.arrival import merge as replay
from slackwater.transforms.errors import ConfigError, SlackwaterError
from slackwater.transforms.operators.join import Operator
from slackwater.transforms.output import archive_files
from slackwater.transforms.output.archive import Archive
from slackwater.transforms.output.archive_directory import prepare
from slackwater.transforms.state import snapshot as snapshots

SHEDDING = [
    {"strategy": "none"},
    {"strategy": "random", "memory": 9},
    {"strategy": "prob", "memory": 5, "allocation": "fixed"},
    {"strategy": "life", "memory": 14},
]
JOINS = ["mswj", "wjoin", "pwjoin", "pjoin"]
PUNCTUATIONS = {"input": "a", "when": "v = 2", "key": "k"}
LATE = {"strategy": "fixed", "slack": "2ms"}


def exact(arrivals, spec: Spec, windows) -> Counter[Any]:
    """Count the results of rows that all were there from the start: by ids, with the result's time."""
    rows = [[row for which, row in arrivals if which == i] for i in range(spec.m)]
    results: Counter[Any] = Counter()
    for combination in itertools.product(*rows):
        newest = max(row["ts"] for row in combination)
        near = all(row["ts"] >= newest - window for row, window in zip(combination, windows, strict=True))
        if near and spec.test(dict(enumerate(combination))):
            results[tuple(row["id"] for row in combination), newest] += 1
    return results


def run_and_retry(plan, arrivals, edges, retries) -> Run:
    """Run arrivals to the end; at each of ``retries``, first lose all that a try of the next chunk has done."""
    got = Run(Operator(plan))
    edges = sorted({0, *edges, *retries, len(arrivals)})
    for start, stop in itertools.pairwise([*edges, len(arrivals)]):
        chunk = chunk_of(plan, arrivals[start:stop], start)
        if start in retries:
            saved = snapshots.dumps(got.operator.snapshot())
            got.operator.push(chunk)
            got.operator.snapshot()
            if stop == len(arrivals):
                got.operator.finish()
            got.operator = Operator(plan, snapshots.loads(saved))
        got.take(got.operator.push(chunk))
    got.take(got.operator.finish())
    return got


def reconciled(folder) -> list[dict[str, Any]]:
    return [row for batch in Reconciliation(Path(folder)).missed_results() for row in batch.to_pylist()]


def identities(rows, m) -> Counter[Any]:
    return Counter((tuple(row[f"{name}_id"] for name in NAMES[:m]), row["ts"]) for row in rows)


@settings(max_examples=40 * EFFORT)
@given(st.data())
def test_produced_and_reconciled_are_exact(data):
    spec = data.draw(st.sampled_from([*TWO_WAY, star(3), *THREE_WAY]))
    m = spec.m
    arrivals = data.draw(streams(m, 70 if m == 2 else 45, 25))
    closed = data.draw(st.sampled_from(["both", "right"]))
    sizes = [9, 4, 20][:m]
    more = data.draw(
        st.sampled_from(
            [{}, {}, {"guard": {"past": "12ms"}}, {"output": "counts"}, {"punctuations": PUNCTUATIONS}]
        )
    )
    window = {**{name: f"{size}ms" for name, size in zip(NAMES, sizes, strict=False)}, "closed": closed}
    common = {"window": window, "disorder": LATE, **more}
    join = {"strategy": data.draw(st.sampled_from(JOINS))}
    shedding = data.draw(st.sampled_from(SHEDDING))
    reconcile_rows = data.draw(st.sampled_from([3, 20, reconcile.PART_ROWS]))
    bucket_rows = data.draw(st.sampled_from([1, archive_files.BUCKET_ROWS]))
    edges, retries = data.draw(cuts(len(arrivals))), data.draw(cuts(len(arrivals)))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(reconcile, "PART_ROWS", reconcile_rows)
        patch.setattr(archive_files, "BUCKET_ROWS", bucket_rows)
        plan = plan_of(SCHEMA, m, where=spec.sql, **common, join=join, shedding=shedding, archive=folder)
        prepare(plan)
        got = run_and_retry(plan, arrivals, edges, retries)
        missed = reconciled(folder)
    wrong = got.late_ids("punctuation_violated")
    if "punctuations" in more:
        marks = {row["id"] for which, row in arrivals if which == 0 and row["v"] == 2}
        arrivals = [
            (which, row)
            for which, row in arrivals
            if (which, row["id"]) not in wrong and not (which == 0 and row["id"] in marks)
        ]
    truth = exact(arrivals, spec, [size - (closed == "right") for size in sizes])
    if "output" in more:
        counts: Counter[int] = Counter()
        for row in [*got.rows, *missed]:
            counts[row["ts"]] += row["count"]
        assert counts == Counter(ts for (_, ts), n in truth.items() for _ in range(n))
    else:
        assert identities(got.rows, m) + identities(missed, m) == truth


def texts(n=300):
    """Rows with text keys, some null, of which those with an odd key come in order."""
    rng = np.random.default_rng(5)
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("ms")), ("k", pa.string())])
    arrivals = []
    for i in range(n):
        k = int(rng.integers(0, 40))
        late = int(rng.integers(0, 60)) * (k % 2 == 0)
        row = {"ts": 5_000_000 + 3 * i - late, "k": None if k == 1 else f"key {k}"}
        arrivals.append((int(rng.integers(0, 2)), row))
    return schema, numbered(arrivals)


def test_shards_with_text_keys_keep_what_missed_rows_could_have_met(tmp_path):
    schema, arrivals = texts()
    common = {"where": "a.k = b.k", "disorder": {"strategy": "none"}, "window": "50ms", "shards": 3}
    plan = plan_of(schema, **common, archive=str(tmp_path))
    prepare(plan)
    produced: Counter[Any] = Counter()
    for shard in range(3):
        operator = Operator(plan, shard=shard)
        whole = chunk_of(plan, arrivals)
        split = [
            {part.shard: part for part in replay.split_by_shard(plan, i, b)} for i, b in enumerate(whole.batches)
        ]
        parts = [of_input[shard].rows for of_input in split]
        kept = [whole.arrival[whole.input == i][of_input[shard].at] for i, of_input in enumerate(split)]
        out = operator.push(replay.in_arrival_order(parts, kept))
        results = [*out.results, *operator.finish().results]
        produced += identities([row for batch in results for row in batch.to_pylist()], 2)
    spec = Spec(2, None, lambda r: r[0]["k"] is not None and r[0]["k"] == r[1]["k"])
    truth = exact(arrivals, spec, (50, 50))
    missed = identities(reconciled(tmp_path), 2)
    assert missed and not produced & missed
    assert {ids for ids, _ in produced + missed} == {ids for ids, _ in truth}
    files = list(tmp_path.glob("input=*/bucket=*/*.parquet"))
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    even = [row for row in rows if row["k"] is not None and int(row["k"].split()[1]) % 2 == 0]
    assert len(even) == len(rows) > 50
    assert not (tmp_path / "log").exists() or not any((tmp_path / "log").iterdir())


def test_rows_that_never_reached_the_join_are_reconciled_whoever_kept_them_away(tmp_path):
    plan = plan_of(SCHEMA, where="a.k = b.k", window="10ms", disorder={"strategy": "none"}, archive=str(tmp_path))
    prepare(plan)
    operator = Operator(plan)
    archive = operator.delivery.archive
    assert isinstance(archive, Archive)
    operator.push(chunk_of(plan, [(0, {"id": 0, "ts": 5, "k": 1}), (1, {"id": 0, "ts": 6, "k": 1})]))
    dropped = pa.RecordBatch.from_pylist([{"id": 1, "ts": 7, "k": 1}], schema=SCHEMA)
    archive.missed(0, dropped, np.array([7]))
    operator = Operator(plan, snapshots.loads(snapshots.dumps(operator.snapshot())))
    operator.finish()
    assert list(identities(reconciled(tmp_path), 2)) == [((1, 0), 7)]


def test_rows_of_long_ago_and_sources_of_punctuations_with_finer_times(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("ms")), ("k", pa.int64())])
    over = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("k", pa.int64())])
    plan = plan_of(
        {"a": schema, "b": schema, "over": over},
        where="a.k = b.k",
        window="10ms",
        disorder={"strategy": "none"},
        join={"strategy": "pwjoin"},
        punctuations={"source": "over", "input": "b", "key": "k"},
        archive=str(tmp_path),
    )
    prepare(plan)
    now = 1_700_000_000_000
    times = [(0, now), (1, now + 3), (2, (now + 4) * 1000), (0, now + 20), (1, now + 20)]
    times += [(1, now + 15), (0, -(10**12)), (1, 5 - 10**12), (0, now + 40), (1, now + 41)]
    got = run(plan, numbered((which, {"ts": ts, "k": 1}) for which, ts in times))
    missed = reconciled(tmp_path)
    assert [(row["a_id"], row["b_id"]) for row in got.rows] == [(0, 0)]
    assert Counter(row["reason"] for row in got.late) == {"punctuation_violated": 2, "too_late": 3}
    assert sorted((row["a_id"], row["b_id"]) for row in missed) == [(1, 2), (2, 3)]
    assert {batch.schema.field("ts").type for batch in got.batches} == {pa.timestamp("us")}
    assert {batch.schema for batch in Reconciliation(tmp_path).missed_results()} == {got.batches[0].schema}


def test_a_run_that_misses_nothing_leaves_no_rows(tmp_path):
    plan = plan_of(SCHEMA, where="a.k = b.k", window="10ms", disorder={"strategy": "max"}, archive=str(tmp_path))
    prepare(plan)
    run(plan, numbered((i % 2, {"ts": i, "k": 1}) for i in range(50)))
    assert list(tmp_path.glob("input=*")) == []
    assert Reconciliation(tmp_path).rows == 0 and reconciled(tmp_path) == []


def test_a_directory_that_cannot_be_written_any_more_is_named(tmp_path):
    plan = plan_of(SCHEMA, where="a.k = b.k", window="10ms", disorder={"strategy": "none"}, archive=str(tmp_path))
    prepare(plan)
    (tmp_path / "log").write_text("in the way")
    with pytest.raises(SlackwaterError, match=r"archive: cannot write '.*arrow': .*; make room there, or name"):
        run(plan, numbered((i % 2, {"ts": i, "k": 1}) for i in range(50)))


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({"window": None, "join": {"strategy": "symmetric_hash"}}, "archive: works with windows of time only: "),
        ({"archive": "s3://bucket/x"}, "archive: must be a directory that all workers can write to, got 's3://"),
        ({"archive": ""}, "archive: must be a directory that all workers can write to, got ''"),
    ],
)
def test_joins_that_cannot_have_an_archive_are_refused(tmp_path, more, fault):
    given = {"where": "a.k = b.k", "window": "5ms", "archive": str(tmp_path), **more}
    with pytest.raises(ConfigError) as error:
        plan_of(SCHEMA, **{key: value for key, value in given.items() if value is not None})
    assert str(error.value).startswith(fault)


def test_a_column_with_a_name_of_the_archive_is_refused(tmp_path):
    with pytest.raises(
        ConfigError, match="archive: needs the column name '__gone', which input 'a' uses; rename"
    ):
        plan_of(SCHEMA.append(pa.field("__gone", pa.int64())), window="5ms", archive=str(tmp_path))


def test_directories_that_cannot_be_an_archive_are_refused(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    for name, fault in {
        "file": "is a file; name a directory",
        "full": "is not empty; name a new one, or empty it",
        "file/below": "cannot write to '.*below': '.*file' is a file; name a directory that can be written",
    }.items():
        plan = plan_of(SCHEMA, window="5ms", archive=str(tmp_path / name))
        with pytest.raises(ConfigError, match=f"archive: .*{fault}"):
            prepare(plan)
    prepare(plan_of(SCHEMA, window="5ms", archive=str(tmp_path / "new" / "one")))
    assert json.loads((tmp_path / "new" / "one" / "join.json").read_text())["join"]["window"] == "5ms"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_permission_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match=r"archive: cannot write to '.*': Permission denied; name a directory"):
        prepare(plan_of(SCHEMA, window="5ms", archive=str(tmp_path / "below")))


def test_no_released_tuples_change_nothing(tmp_path):
    plan = plan_of(SCHEMA, window="5ms", archive=str(tmp_path))
    archive = Archive(plan, 0, Operator(plan).rows.stores)
    before = archive.snapshot()
    archive.release(Released.none(plan.condition.width))
    assert archive.snapshot()["position"] == before["position"] == 0
