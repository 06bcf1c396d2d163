"""Joins without a window on every runner: the results are those of DuckDB, with most of the state on disk."""

import json

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.reader import read_template_text
from slackwater.plugins.registry.manager import manager

MARKS = [{"input": name, "when": "p = 1", "key": "k"} for name in "ab"]
JOINS = {
    "symmetric_hash": {},
    "xjoin": {"memory": 60, "partitions": 4},
    "pjoin": {"memory": 60, "partitions": 4},
}
ELSEWHERE = {"mswj", "wjoin", "pwjoin", "mjoin"}
"""Those of ``test_runner_strategies`` and ``test_runner_punctuations``."""


def template(folder, out, shards=2):
    nodes = [
        {"type": "ReadFromParquet", "name": name.upper(), "config": {"path": f"{folder}/{name}.parquet"}}
        for name in "ab"
    ]
    for name, options in JOINS.items():
        place = {"directory": str(folder / "spill")} if options else {}
        config = {
            "time": "ts",
            "where": "a.k = b.k",
            "disorder": {"strategy": "max"},
            "shards": shards,
            "join": {"strategy": name, **options, **place},
            "punctuations": MARKS,
        }
        nodes.append({"type": "SlidingWindowJoin", "name": name, "input": {"a": "A", "b": "B"}, "config": config})
        for output in ("", ".punctuations"):
            sink = {"type": "WriteToJson", "name": f"{name} to{output}", "input": f"{name}{output}"}
            nodes.append({**sink, "config": {"path": f"{out}/{name}{output}.jsonl"}})
    return read_template_text("t.yaml", json.dumps({"pipeline": {"type": "composite", "transforms": nodes}}))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Keys that move on; a key is punctuated when it is over."""
    path = tmp_path_factory.mktemp("joins")
    (path / "spill").mkdir()
    rng = np.random.default_rng(4)
    for name in "ab":
        n = 900
        p = (np.arange(n) % 10 == 9).astype(np.int64)
        keys = np.arange(n) // 10 + np.where(p, -20, rng.integers(0, 12, n))
        text = pa.array([f"key {k}" for k in keys])
        pq.write_table(pa.table({"ts": np.arange(n), "k": text, "p": p}), path / f"{name}.parquet")
    return path


@pytest.fixture(scope="module")
def truth(folder):
    a, b = (f"(SELECT * FROM '{folder}/{name}.parquet' WHERE p = 0)" for name in "ab")
    return sorted(
        duckdb.sql(f"SELECT a.ts, b.ts, greatest(a.ts, b.ts) FROM {a} a JOIN {b} b ON a.k = b.k").fetchall()
    )


def check(folder, truth, name, run, shards=2):
    out = folder / name
    summary = run(template(folder, out, shards))
    files = {path.stem: [json.loads(line) for line in path.open()] for path in out.iterdir()}
    for join in JOINS:
        rows = sorted((row["a_ts"], row["b_ts"], row["ts"]) for row in files[join])
        assert rows == truth, join
        state = summary["joins"][join]["state"]
        assert (state["spilled_tuples"] > 200) == (join != "symmetric_hash")
    over = [json.loads(row["pattern"])["a_k"] for row in files["pjoin.punctuations"]]
    assert len(over) == len(set(over)) > 60
    assert list((folder / "spill").iterdir()) == []


def test_every_built_in_strategy_is_tested_on_every_runner():
    names = {p.strategy.name for p in manager().strategies("join") if p.plugin == "builtin"}
    assert names == {*JOINS, *ELSEWHERE}


def test_locally(folder, truth):
    assert len(truth) > 5_000
    check(folder, truth, "local", local.run)


@pytest.mark.beam
@pytest.mark.parametrize("runner", ["FnApiRunner", "BundleBasedDirectRunner"])
def test_on_beam(folder, truth, runner):
    from slackwater.pipelines.runners.beam import runner as run_beam

    check(folder, truth, runner, lambda p: run_beam.run(p, options={"runner": runner}))


@pytest.mark.beam_spark
def test_on_beams_spark_runner(folder, truth):
    from slackwater.pipelines.runners.beam import runner as run_beam

    check(folder, truth, "beam-spark", lambda p: run_beam.run(p, spark=True))


@pytest.mark.spark
@pytest.mark.parametrize("shards", [1, 8])
@pytest.mark.parametrize("rows_per_batch", [500, 1 << 20], ids=["several batches", "one batch"])
def test_on_spark(folder, truth, spark, shards, rows_per_batch):
    from slackwater.pipelines.runners.spark import runner as run_spark

    name = f"spark {shards} {rows_per_batch}"
    check(folder, truth, name, lambda p: run_spark.run(p, session=spark, rows_per_batch=rows_per_batch), shards)
