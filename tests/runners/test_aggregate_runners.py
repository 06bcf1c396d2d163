"""SlidingWindowAggregate, Flatten and the templates about them: the embedded runner's files on every runner."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.reader import read_template, read_template_text

AGGREGATES = {"n": "count(*)", "s": "sum(v)", "a": "avg(x)", "lo": "min(x)", "hi": "max(v + 1)"}
WINDOWS = {
    "ratio": {
        "group_by": "k", "range": "70ms", "slide": "30ms", "having": "n > 1 AND k <> 'key 3'", "metrics": "100ms",
        "disorder": {"strategy": "drop_ratio", "drop_ratio": 0.05},
    },
    "sharded": {
        "group_by": ["k", "j"], "range": "60ms", "slide": "30ms", "shards": 3, "aggregates": {"n": "count(*)"},
    },
    "sampled": {"time": "t", "range": "20ms", "slide": "50ms", "disorder": {"strategy": "none"}},
}  # fmt: skip
JOINS = {
    "synced": ({"r": "Ratio and syncs", "s": "Sharded and syncs"}, {"arrival": "extent", "window": "1ms"}),
    "direct": ({"r": "ratio", "s": "ratio"}, {"window": "40ms"}),
}


def windows(folder, out):
    nodes = [{"type": "ReadFromParquet", "name": "Rows", "config": {"path": f"{folder}/rows*.parquet"}}]
    for name, settings in WINDOWS.items():
        config = {"time": "ts", "arrival": "at", "aggregates": AGGREGATES, **settings}
        nodes.append({"type": "SlidingWindowAggregate", "name": name, "input": "Rows", "config": config})
    for name in ("ratio", "sharded"):
        both = {"type": "Flatten", "name": f"{name.title()} and syncs", "input": [name, f"{name}.syncs"]}
        nodes.append(both)
    for name, (inputs, settings) in JOINS.items():
        config = {"time": "ts", "where": "r.k = s.k", "disorder": {"strategy": "none"}, **settings}
        nodes.append({"type": "SlidingWindowJoin", "name": name, "input": inputs, "config": config})
    sinks = [f"{name}{output}" for name in WINDOWS for output in ("", ".late", ".syncs", ".metrics")]
    for k, port in enumerate([*sinks, *JOINS, "Ratio and syncs"]):
        sink = {
            "type": "WriteToJson",
            "name": f"Sink {k}",
            "input": port,
            "config": {"path": f"{out}/{port}.jsonl"},
        }
        nodes.append(sink)
    return read_template_text("t.yaml", json.dumps({"pipeline": {"type": "composite", "transforms": nodes}}))


def everything(folder, out):
    """The windows above and both templates in one pipeline: one start of an engine for all."""
    parts = [
        windows(folder, out),
        *(read_template(t, {"out": str(out)}) for t in ("speeding", "congestion-toll")),
    ]
    nodes = []
    for k, part in enumerate(parts):
        for node in part.nodes:
            inputs = {label: replace(port, node=f"{k} {port.node}") for label, port in node.inputs.items()}
            nodes.append(replace(node, name=f"{k} {node.name}", inputs=inputs))
    return replace(parts[0], nodes=tuple(nodes))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("windows")
    rng = np.random.default_rng(8)
    n = 500
    ts = 3 * np.arange(n) - rng.integers(0, 90, n) * (rng.random(n) < 0.3)
    columns = {
        "ts": ts,
        "t": pa.array(ts, pa.timestamp("ms")),
        "at": 3 * np.arange(n),
        "k": [None if k == 5 else f"key {k}" for k in rng.integers(0, 6, n)],
        "j": pa.array([None if j == 2 else int(j) for j in rng.integers(0, 3, n)], pa.int32()),
        "v": pa.array([None if v == 9 else int(v) for v in rng.integers(-9, 10, n)], pa.int64()),
        "x": rng.normal(0, 1, n),
    }
    table = pa.table(columns)
    pq.write_table(table.slice(0, 200), path / "rows1.parquet")
    pq.write_table(table.slice(200), path / "rows2.parquet")
    return path


def written(folder, name, run):
    out = folder / name
    summary = run(everything(folder, out))
    for part in summary["joins"].values():
        assert all(account["balanced"] for account in part["accounting"].values())
    return {path.name: path.read_text().splitlines() for path in sorted(out.iterdir())}


@pytest.fixture(scope="module")
def expected(folder):
    files = written(folder, "local", local.run)
    empty = {name for name, lines in files.items() if not lines}
    metrics = {f"{name}.metrics.jsonl" for name, settings in WINDOWS.items() if name in ("sharded", "sampled")}
    assert empty <= metrics | {"sharded.late.jsonl", "congestion-late.jsonl"} | {
        f"speeding-Q{k}-late.jsonl" for k in (1, 3, 4)
    }
    assert len(files["synced.jsonl"]) > 50 and len(files["direct.jsonl"]) > 50
    return files


def same(got, expected):
    """All files hold the same lines; those of one shard also in the same order."""
    for name, lines in expected.items():
        assert sorted(got[name]) == sorted(lines), name
        if not name.startswith(("sharded", "synced", "direct", "Ratio and", "congestion-toll")):
            assert got[name] == lines, name


def test_the_embedded_runner_gives_the_same_twice(folder, expected):
    assert written(folder, "again", local.run) == expected


@pytest.mark.beam
def test_on_beam(folder, expected):
    from slackwater.pipelines.runners.beam import runner as run_beam

    same(written(folder, "beam", run_beam.run), expected)


@pytest.mark.beam_spark
def test_on_beams_spark_runner(folder, expected):
    from slackwater.pipelines.runners.beam import runner as run_beam

    same(written(folder, "beam-spark", lambda p: run_beam.run(p, spark=True)), expected)


@pytest.mark.spark
def test_on_spark_in_several_batches(folder, expected, spark):
    from slackwater.pipelines.runners.spark import runner as run_spark

    same(written(folder, "spark", lambda p: run_spark.run(p, session=spark, rows_per_batch=300)), expected)
