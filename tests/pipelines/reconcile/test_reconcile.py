"""Archives on every runner, reconciled here and on Spark, against DuckDB; and the command line."""

import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from cli_calls import call, edit, write_template

from slackwater.pipelines.reconcile import local as reconcile
from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.reader import TemplateError, read_template_text

JOINS = {
    "late": {"disorder": {"strategy": "fixed", "slack": "5ms"}, "guard": {"past": "45ms"}},
    "shed": {"shedding": {"strategy": "prob", "memory": 16}, "shards": 2},
}


def template(folder: Path, out: Path, joins):
    nodes = [
        {"type": "ReadFromParquet", "name": name.upper(), "config": {"path": f"{folder}/{name}.parquet"}}
        for name in "ab"
    ]
    for name in joins:
        config = {
            "time": "ts",
            "arrival": "at",
            "window": {"a": "60ms", "b": "30ms"},
            "where": "a.k = b.k",
            **JOINS[name],
        }
        config["archive"] = str(out / name)
        nodes.append({"type": "SlidingWindowJoin", "name": name, "input": {"a": "A", "b": "B"}, "config": config})
        for output in ("", ".late"):
            sink = {"type": "WriteToParquet", "name": f"{name} to{output}", "input": f"{name}{output}"}
            nodes.append({**sink, "config": {"path": f"{out}/{name}{output}.parquet"}})
    return read_template_text("t.yaml", json.dumps({"pipeline": {"type": "composite", "transforms": nodes}}))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("reconcile")
    rng = np.random.default_rng(4)
    for i, name in enumerate("ab"):
        n = 700
        progress = 2 * np.arange(n) + i
        late = rng.integers(0, 70, n) * (rng.random(n) < 0.3)
        keys = pa.array([f"key {k}" for k in rng.integers(0, 6, n)], mask=rng.random(n) < 0.05)
        pq.write_table(pa.table({"ts": progress - late, "k": keys, "at": progress}), path / f"{name}.parquet")
    return path


@pytest.fixture(scope="module")
def truth(folder):
    a, b = (f"'{folder}/{name}.parquet'" for name in "ab")
    near = "a.ts >= b.ts - 60 AND b.ts >= a.ts - 30"
    return sorted(duckdb.sql(f"SELECT a.at, b.at FROM {a} a JOIN {b} b ON a.k = b.k AND {near}").fetchall())


def pairs(file):
    table = pq.read_table(file)
    return list(zip(table["a_at"].to_pylist(), table["b_at"].to_pylist(), strict=True))


def check(folder, truth, name, run, joins=tuple(JOINS), run_parts=None):
    out = folder / name
    summary = run(template(folder, out, joins))
    assert {"too_late", "shed"} == set(summary["late"])
    for join in joins:
        produced = pairs(out / f"{join}.parquet")
        result = reconcile.reconcile(out / join, run_parts=run_parts)
        missed = pairs(out / join / "reconciled.parquet")
        assert result["results"] == len(missed) > 300
        assert pq.read_schema(out / join / "reconciled.parquet") == pq.read_schema(out / f"{join}.parquet")
        assert len(produced) > 300 and sorted(produced + missed) == truth, join
        assert {entry.name for entry in (out / join).iterdir()} >= {"join.json", "input=a", "input=b"}
        assert not (out / join / "unfinished").exists() and not (out / join / "log").exists()


def test_locally(folder, truth):
    check(folder, truth, "local", local.run)


@pytest.mark.beam
def test_on_beam(folder, truth):
    from slackwater.pipelines.runners.beam import runner as run_beam

    check(folder, truth, "beam", run_beam.run)


@pytest.mark.beam_spark
def test_on_beams_spark_runner(folder, truth):
    from slackwater.pipelines.runners.beam import runner as run_beam

    check(folder, truth, "beam-spark", lambda p: run_beam.run(p, spark=True), ["shed"])


@pytest.mark.spark
def test_on_spark_in_several_batches(folder, truth, spark, monkeypatch):
    from slackwater.pipelines.reconcile import spark as reconcile_spark
    from slackwater.pipelines.runners.spark import runner as run_spark

    monkeypatch.setattr(reconcile, "PART_ROWS", 300)

    def run_parts(archive, sink):
        assert len(list(archive.parts())) > 1
        reconcile_spark.run_parts(archive, sink, spark)

    def run(pipeline):
        return run_spark.run(pipeline, session=spark, rows_per_batch=400)

    check(folder, truth, "spark", run, ["shed"], run_parts)


@pytest.mark.spark
def test_streaming_dataframes_are_refused(folder, spark):
    from slackwater.transforms.errors import ConfigError
    from slackwater.transforms.spark import sliding_window_join

    stream = spark.readStream.format("rate").load().selectExpr("value AS ts", "value AS k")
    with pytest.raises(
        ConfigError, match="archive: is complete when the inputs end, and streaming DataFrames do"
    ):
        sliding_window_join(
            {"a": stream, "b": stream}, time="ts", window="5ms", where="a.k = b.k", archive=str(folder / "s")
        )


@pytest.fixture
def late(tmp_path):
    """A template with an archive; one of its rows comes too late."""
    file = write_template(tmp_path)
    for name, times in (("orders", [1000, 9000, 3000]), ("clicks", [1000, 9000, 3500])):
        table = pa.table({"id": [1, 2, 3], "v": [1, 2, 30], "ts": pa.array(times, pa.int64())})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    edit(file, "window: 5s", f"window: 5s\n        archive: {tmp_path}/kept")
    return file


def test_the_command_writes_what_was_missed_once(late, tmp_path):
    assert call("run", late, "--set", "slack=0s").exit_code == 0
    assert pq.read_table(tmp_path / "out.parquet")["orders_id"].to_pylist() == [1, 2]
    done = call("reconcile", tmp_path / "kept", "--summary", tmp_path / "summary.json")
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "archive     2 rows, 1 of them missed results"
    assert lines[1] == "results     1" and lines[2].endswith("kept/reconciled.parquet")
    assert pq.read_table(tmp_path / "kept" / "reconciled.parquet").to_pylist() == [
        {"orders_id": 3, "orders_v": 30, "orders_ts": 3000, "clicks_id": 3, "clicks_v": 30, "clicks_ts": 3500}
        | {"ts": 3500}
    ]
    assert json.loads((tmp_path / "summary.json").read_text())["missed_rows"] == 1
    again = call("reconcile", tmp_path / "kept")
    assert again.exit_code == 1 and "is there already; name another with --out, or add --force" in again.stderr
    assert call("reconcile", tmp_path / "kept", "--force").exit_code == 0
    assert call("reconcile", tmp_path / "kept", "--out", tmp_path / "missed.csv").exit_code == 0
    assert pa_csv.read_csv(tmp_path / "missed.csv")["clicks_id"].to_pylist() == [3]
    assert call("reconcile", tmp_path / "kept", "--out", tmp_path / "missed.json").exit_code == 0
    assert json.loads((tmp_path / "missed.json").read_text())["ts"] == 3500


def test_archives_that_cannot_be_reconciled_are_told_apart(late, tmp_path):
    kept = tmp_path / "kept"

    def fault(*arguments):
        done = call("reconcile", *arguments)
        assert done.exit_code != 0 and done.stderr.startswith("error: ") and "--debug" not in done.stderr
        return done.stderr

    assert "kept' is not an archive; name the directory that the join's setting archive names" in fault(kept)
    assert call("run", late, "--set", "slack=0s").exit_code == 0
    assert "xls': must end with .parquet, .csv, .json or .jsonl" in fault(kept, "--out", tmp_path / "x.xls")
    assert "--out: there is no folder" in fault(kept, "--out", tmp_path / "no" / "x.csv")
    assert "--runner beam: reconcile runs on local or spark" in fault(kept, "--runner", "beam")
    (kept / "finished").rename(kept / "unfinished")
    assert "has not finished; wait for it, or if it has failed, run it again with a new directory" in fault(kept)
    (kept / "unfinished").rename(kept / "finished")
    file = next(kept.glob("input=*/*/*.parquet"))
    file.write_bytes(file.read_bytes()[:-9])
    assert "is missing or damaged: " in fault(kept)
    file.unlink()
    assert "restore it, or run the join again with a new archive" in fault(kept)
    assert not list(kept.glob("*reconciled*")) and not list(kept.glob(".*"))
    for text in ("{", "{}"):
        (kept / "shard-00000.json").write_text(text)
        assert "shard-00000.json' is damaged: " in fault(kept)
    (kept / "shard-00000.json").unlink()
    (kept / "finished").unlink()
    assert "has not finished" in fault(kept)
    (kept / "join.json").write_text("{}")
    assert "is not an archive" in fault(kept)


def test_run_and_check_refuse_an_archive_that_is_there(late, tmp_path):
    assert call("run", late, "--set", "slack=0s").exit_code == 0
    for command in ("run", "check"):
        again = call(command, late, "--set", "slack=0s")
        assert again.exit_code == 2
        assert f"{late}:15: joined.archive: directory '{tmp_path}/kept' is not empty; name a new" in again.stderr


def test_a_run_that_fails_leaves_an_archive_that_says_so(late, tmp_path, monkeypatch):
    from slackwater.transforms.operators.join import Operator

    monkeypatch.setattr(Operator, "finishing", lambda self: 1 / 0)
    assert call("run", late, "--set", "slack=0s").exit_code == 1
    assert "has not finished" in call("reconcile", tmp_path / "kept").stderr


def test_two_joins_cannot_share_an_archive(folder, tmp_path):
    config = {"time": "ts", "window": "5ms", "archive": str(tmp_path / "x")}
    nodes: list[dict[str, Any]] = [
        {"type": "ReadFromParquet", "name": "A", "config": {"path": f"{folder}/a.parquet"}}
    ]
    for name in ("one", "two"):
        nodes.append({"type": "SlidingWindowJoin", "name": name, "input": {"a": "A", "b": "A"}, "config": config})
    pipeline = read_template_text("t.yaml", json.dumps({"pipeline": {"type": "composite", "transforms": nodes}}))
    with pytest.raises(TemplateError, match=r"two\.archive: is that of 'one' too; give each join a directory"):
        local.run(pipeline)
