"""Every disorder and shedding strategy on every runner: the embedded runner's results, late rows and metrics.

Also a join behind a queue that sheds.
"""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.pipelines import local
from slackwater.pipelines.template import read_template_text
from slackwater.plugins.manager import manager

ADAPTIVE = {"recall": 0.9, "period": "400ms", "interval": "100ms", "granularity": "5ms"}
OPTIONS = {
    "none": {},
    "fixed": {"slack": "20ms"},
    "max": {},
    "quality_driven": {**ADAPTIVE, "basic_window": "5ms"},
    "result_slack": ADAPTIVE,
    "drop_ratio": {"drop_ratio": 0.05},
    "heartbeat": {},
    "external": {"watermark": "w"},
}
QUEUE = {"strategy": "prob", "queue": {"rows": 30, "service_rate": 700, "refresh": 60}}

SHEDDING = {
    "random": {"shedding": {"memory": {"0s": 40, "700ms": 20}}},
    "prob": {"shedding": {"memory": 40, "allocation": "fixed"}},
    "life": {"shedding": {"memory": 40}, "window": "30 rows"},
}
"""Settings of a join with each shedding strategy; one has a schedule, one a window of rows."""


def template(folder, out):
    nodes = [
        {"type": "ReadFromParquet", "name": name.upper(), "config": {"path": f"{folder}/{name}.parquet"}}
        for name in "ab"
    ]
    common = {"time": "ts", "arrival": "at", "window": "60ms", "where": "a.k = b.k", "metrics": "100ms"}
    joins = {name: {"disorder": {"strategy": name, **options}} for name, options in OPTIONS.items()}
    for name, settings in SHEDDING.items():
        shedding = {"strategy": name, **settings["shedding"]}
        joins[name] = {**settings, "disorder": {"strategy": "fixed", "slack": "20ms"}, "shedding": shedding}
    for name, settings in joins.items():
        config = {**common, **settings}
        nodes.append({"type": "SlidingWindowJoin", "name": name, "input": {"a": "A", "b": "B"}, "config": config})
        for output in ("", ".late", ".metrics"):
            path = f"{out}/{name}{output}.jsonl"
            sink = {"type": "WriteToJson", "name": f"{name} to{output}", "input": f"{name}{output}"}
            nodes.append({**sink, "config": {"path": path}})
    config = {"time": "ts", "arrival": "at", "window": "60ms", "where": "a.k = b.k", "shedding": QUEUE}
    nodes.append({"type": "SlidingWindowJoin", "name": "slow", "input": {"a": "A", "b": "B"}, "config": config})
    for output in ("", ".late"):
        sink = {"type": "WriteToJson", "name": f"slow to{output}", "input": f"slow{output}"}
        nodes.append({**sink, "config": {"path": f"{out}/slow{output}.jsonl"}})
    return read_template_text("t.yaml", json.dumps({"pipeline": {"type": "composite", "transforms": nodes}}))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("strategies")
    rng = np.random.default_rng(4)
    for i, name in enumerate("ab"):
        n = 700
        progress = 2 * np.arange(n) + i
        late = rng.integers(0, 70, n) * (rng.random(n) < 0.3)
        watermark = [int(p) - 40 if k % 9 == 0 else None for k, p in enumerate(progress)]
        columns = {"ts": progress - late, "k": [f"key {k}" for k in rng.integers(0, 6, n)], "at": progress}
        pq.write_table(pa.table({**columns, "w": pa.array(watermark, pa.int64())}), path / f"{name}.parquet")
    return path


def written(folder, name, run):
    out = folder / name
    run(template(folder, out))
    return {path.name: path.read_text().splitlines() for path in sorted(out.iterdir())}


@pytest.fixture(scope="module")
def expected(folder):
    summaries = []
    files = written(folder, "local", lambda pipeline: summaries.append(local.run(pipeline)))
    assert len(files) == 3 * len(OPTIONS | SHEDDING) + 2
    assert all(len(files[f"{name}.jsonl"]) > 500 for name in (*OPTIONS, *SHEDDING, "slow"))
    assert sum('"shed"' in line for line in files["slow.late.jsonl"]) > 300
    for name in SHEDDING:
        summary = summaries[0]["joins"][name]
        assert summary["late"]["shed"] > 100
        assert summary["state"]["max_tuples"] <= 40
        assert all(part["balanced"] for part in summary["accounting"].values())
    return files


def same(got, expected):
    for name, lines in expected.items():
        assert sorted(got[name]) == sorted(lines), name


def test_every_built_in_strategy_is_tested_here():
    for stage, tested in (("disorder", set(OPTIONS)), ("shedding", {"none", *SHEDDING})):
        assert {p.strategy.name for p in manager().strategies(stage) if p.plugin == "builtin"} == tested


@pytest.mark.beam
@pytest.mark.parametrize("runner", ["FnApiRunner", "BundleBasedDirectRunner"])
def test_on_beam(folder, expected, runner):
    from slackwater.pipelines import run_beam

    same(written(folder, runner, lambda p: run_beam.run(p, options={"runner": runner})), expected)


@pytest.mark.beam_spark
def test_on_beams_spark_runner(folder, expected):
    from slackwater.pipelines import run_beam

    same(written(folder, "beam-spark", lambda p: run_beam.run(p, spark=True)), expected)


@pytest.mark.spark
def test_on_spark_in_several_batches(folder, expected, spark):
    from slackwater.pipelines import run_spark

    same(written(folder, "spark", lambda p: run_spark.run(p, session=spark, rows_per_batch=300)), expected)
