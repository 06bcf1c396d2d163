"""Joins whose rows are copied to several shards: every runner gives what the embedded one gives."""

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.reader import read_template_text

SHARDS = 4
JOINS = {
    "hot": {"where": "a.k = b.k", "hot_keys": {"input": "a", "values": ["key 0"], "split": 3}},
    "near": {"where": "abs(a.x - b.x) < 3 AND abs(a.y - b.y) < 3"},
    "other": {"where": "a.x + b.y < 20"},
}


def template(folder, out):
    nodes = [
        {"type": "ReadFromParquet", "name": name.upper(), "config": {"path": f"{folder}/{name}.parquet"}}
        for name in "ab"
    ]
    common = {
        "time": "ts",
        "window": "60ms",
        "disorder": {"strategy": "fixed", "slack": "20ms"},
        "shards": SHARDS,
    }
    for name, settings in JOINS.items():
        config = {**common, **settings}
        nodes.append({"type": "SlidingWindowJoin", "name": name, "input": {"a": "A", "b": "B"}, "config": config})
        for output in ("", ".late"):
            sink = {"type": "WriteToJson", "name": f"{name} to{output}", "input": f"{name}{output}"}
            nodes.append({**sink, "config": {"path": f"{out}/{name}{output}.jsonl"}})
    return read_template_text("t.yaml", json.dumps({"pipeline": {"type": "composite", "transforms": nodes}}))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("partitions")
    rng = np.random.default_rng(4)
    for i, name in enumerate("ab"):
        n = 500
        late = rng.integers(0, 70, n) * (rng.random(n) < 0.3)
        columns = {"ts": 2 * np.arange(n) + i - late, "k": [f"key {k}" for k in rng.geometric(0.4, n) - 1]}
        pq.write_table(
            pa.table({**columns, "x": rng.random(n) * 30, "y": rng.random(n) * 30}), path / f"{name}.parquet"
        )
    return path


def written(folder, name, run):
    out = folder / name
    summary = run(template(folder, out))
    for join in JOINS:
        accounting = summary["joins"][join]["accounting"]
        assert all(part["balanced"] and part["input"] == 500 for part in accounting.values())
    return {path.name: sorted(path.read_text().splitlines()) for path in sorted(out.iterdir())}


@pytest.fixture(scope="module")
def expected(folder):
    summaries = []
    files = written(folder, "local", lambda pipeline: summaries.append(local.run(pipeline)) or summaries[0])
    assert len(files) == 2 * len(JOINS)
    for name, summary in summaries[0]["joins"].items():
        assert len(files[f"{name}.jsonl"]) > 300
        late = Counter(files[f"{name}.late.jsonl"])
        assert len(late) > 30 and max(late.values()) <= SHARDS, "a row is in late once for every shard at most"
        accounts = summary["accounting"].values()
        copies = sum(sum(account.get("late_copies", {}).values()) for account in accounts)
        assert late.total() == sum(summary["late"].values())
        assert late.total() == sum(sum(account["late"].values()) for account in accounts) + copies
    return files


@pytest.mark.beam
def test_on_beam(folder, expected):
    from slackwater.pipelines.runners.beam import runner as run_beam

    assert written(folder, "beam", lambda p: run_beam.run(p, options={"runner": "FnApiRunner"})) == expected


@pytest.mark.spark
def test_on_spark_in_several_batches(folder, expected, spark):
    from slackwater.pipelines.runners.spark import runner as run_spark

    run = lambda p: run_spark.run(p, session=spark, rows_per_batch=300)  # noqa: E731
    assert written(folder, "spark", run) == expected
