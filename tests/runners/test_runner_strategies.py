"""Every disorder and shedding strategy on every runner: the embedded runner's results, late rows and metrics.

Also a join behind a queue that sheds. On Spark with 1 and 8 shards, in one and in several micro-batches.
"""

import json
from concurrent.futures import ThreadPoolExecutor

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.reader import read_template_text
from slackwater.plugins.registry.manager import manager

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
QUEUES = {1: {"rows": 30, "service_rate": 700, "refresh": 60}, 8: {"rows": 9, "service_rate": 120, "refresh": 60}}
MEMORY = {1: 40, 8: 14}
"""Tuples that a shard may hold, by the number of shards."""


def shedding(shards):
    """Settings of each shedding strategy; one has a schedule."""
    memory = MEMORY[shards]
    return {
        "random": {"memory": {"0s": memory, "700ms": memory // 2}},
        "prob": {"memory": memory, "allocation": "fixed"},
        "life": {"memory": memory},
    }


SHARDS = (1, 8)
COMPLETE = {"strategy": "fixed", "slack": "100ms"}
"""A slack that loses nothing of the input."""


def joins(shards):
    """Settings of every join that is tested, by name."""
    common = {"time": "ts", "arrival": "at", "window": "60ms", "where": "a.k = b.k", "shards": shards}
    measured = {**common, "metrics": "100ms"}
    found = {name: {**measured, "disorder": {"strategy": name, **opts}} for name, opts in OPTIONS.items()}
    found["complete"] = {**measured, "disorder": COMPLETE}
    for name, options in shedding(shards).items():
        limits = {
            "disorder": {"strategy": "fixed", **OPTIONS["fixed"]},
            "shedding": {"strategy": name, **options},
        }
        # Windows of rows take one shard.
        window = "30 rows" if name == "life" and shards == 1 else "60ms"
        found[name] = {**measured, **limits, "window": window}
    return {**found, "slow": {**common, "shedding": {"strategy": "prob", "queue": QUEUES[shards]}}}


def template(folder, out, shards=1, part=slice(None)):
    nodes = [
        {"type": "ReadFromParquet", "name": name.upper(), "config": {"path": f"{folder}/{name}.parquet"}}
        for name in "ab"
    ]
    for name, config in list(joins(shards).items())[part]:
        nodes.append({"type": "SlidingWindowJoin", "name": name, "input": {"a": "A", "b": "B"}, "config": config})
        for output in ("", ".late", *([".metrics"] if "metrics" in config else [])):
            sink = {"type": "WriteToJson", "name": f"{name} to{output}", "input": f"{name}{output}"}
            nodes.append({**sink, "config": {"path": f"{out}/{name}{output}.jsonl"}})
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


def lines_in(out):
    return {path.name: path.read_text().splitlines() for path in sorted(out.iterdir())}


def written(folder, name, run, shards=1):
    run(template(folder, folder / name, shards))
    return lines_in(folder / name)


@pytest.fixture(scope="module")
def expected(folder):
    """What the embedded runner writes, by the number of shards."""
    summaries = {}

    def run(shards):
        def keep(pipeline):
            summaries[shards] = local.run(pipeline)["joins"]

        return written(folder, f"local {shards}", keep, shards)

    found = {shards: run(shards) for shards in SHARDS}
    for shards, files in found.items():
        assert len(files) == 3 * len(joins(shards)) - 1
        assert all(len(files[f"{name}.jsonl"]) > 500 for name in joins(shards))
        assert sum('"shed"' in line for line in files["slow.late.jsonl"]) > 300
        for name in shedding(shards):
            summary = summaries[shards][name]
            assert summary["late"]["shed"] > 100
            assert summary["state"]["max_tuples"] <= MEMORY[shards] * shards
            assert all(part["balanced"] for part in summary["accounting"].values())
    return found


def same(got, expected):
    for name, lines in expected.items():
        assert sorted(got[name]) == sorted(lines), name


def test_shards_lose_nothing_where_the_slack_is_enough(folder, expected):
    one, eight = (sorted(expected[shards]["complete.jsonl"]) for shards in SHARDS)
    a, b = (f"'{folder}/{name}.parquet'" for name in "ab")
    near = "b.ts BETWEEN a.ts - 60 AND a.ts + 60"
    ((truth,),) = duckdb.sql(f"SELECT count(*) FROM {a} a JOIN {b} b ON a.k = b.k AND {near}").fetchall()
    assert one == eight
    assert len(one) == truth
    assert len(expected[1]["fixed.jsonl"]) < truth


def test_every_built_in_strategy_is_tested_here():
    for stage, tested in (("disorder", set(OPTIONS)), ("shedding", {"none", *shedding(1)})):
        assert {p.strategy.name for p in manager().strategies(stage) if p.plugin == "builtin"} == tested


@pytest.mark.beam
@pytest.mark.parametrize("runner", ["FnApiRunner", "BundleBasedDirectRunner"])
def test_on_beam(folder, expected, runner):
    from slackwater.pipelines.runners.beam import runner as run_beam

    same(written(folder, runner, lambda p: run_beam.run(p, options={"runner": runner})), expected[1])


@pytest.mark.beam_spark
def test_on_beams_spark_runner(folder, expected):
    from slackwater.pipelines.runners.beam import runner as run_beam

    same(written(folder, "beam-spark", lambda p: run_beam.run(p, spark=True)), expected[1])


@pytest.mark.spark
@pytest.mark.parametrize("shards", SHARDS)
@pytest.mark.parametrize("rows_per_batch", [400, 1 << 20], ids=["several batches", "one batch"])
def test_on_spark(folder, expected, spark, shards, rows_per_batch):
    from slackwater.pipelines.runners.spark import runner as run_spark

    out = folder / f"spark {shards} {rows_per_batch}"

    def run(part):
        run_spark.run(template(folder, out, shards, part), session=spark, rows_per_batch=rows_per_batch)

    # Two at a time, as most of a query is the start of processes.
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, (slice(0, None, 2), slice(1, None, 2))))
    same(lines_in(out), expected[shards])
