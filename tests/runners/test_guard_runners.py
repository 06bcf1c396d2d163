"""The guard in whole runs: generated data are as without it, and runners refuse the same rows."""

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.pipelines.generate import DATASETS, generate
from slackwater.pipelines.runners.beam import runner as run_beam
from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.reader import read_template_text

NOW = 1_700_000_000_000
YEAR = 365 * 86_400_000


def template(files, folder, settings):
    nodes = [
        {"type": "ReadFromParquet", "name": name.title(), "config": {"path": str(path)}}
        for name, path in files.items()
    ]
    nodes += [
        {"type": "SlidingWindowJoin", "name": "j", "input": {n: n.title() for n in files}, "config": settings},
        {"type": "WriteToParquet", "name": "Out", "input": "j", "config": {"path": f"{folder}/out"}},
        {"type": "WriteToJson", "name": "Late", "input": "j.late", "config": {"path": f"{folder}/late"}},
    ]
    return read_template_text("t.yaml", json.dumps({"pipeline": {"type": "composite", "transforms": nodes}}))


@pytest.mark.parametrize("name", [name for name in DATASETS if not name.startswith("flights")])
def test_generated_data_are_as_without_the_guard(name, tmp_path):
    made = generate(name, tmp_path / "data", rows=1500)
    settings = {
        "time": "ts",
        "arrival": made.variables["arrival"],
        "window": made.query.duration,
        "where": made.query.where,
        "disorder": {"strategy": "fixed", "slack": "20ms"},
        "output": "counts",
    }
    written = []
    for folder, guard in (("with", {}), ("without", {"guard": "none"})):
        (tmp_path / folder).mkdir()
        summary = local.run(template(made.files, tmp_path / folder, settings | guard))
        numbers = {
            key: summary[key] for key in ("input", "results", "late", "slack_ms", "latency_ms", "accounting")
        }
        files = sorted(path for path in (tmp_path / folder).iterdir())
        written.append(([(path.name, path.read_bytes()) for path in files], numbers))
    assert written[0] == written[1]
    assert written[0][1]["results"]


@pytest.mark.parametrize("shards", [1, 3])
def test_runners_refuse_the_same_rows(tmp_path, shards):
    good = NOW + 10 * np.arange(1200)
    bad = {0: NOW + 10 * YEAR, 1: NOW + 10 * YEAR, 500: NOW - 8 * YEAR, 700: NOW + 3 * YEAR, 701: NOW + 3 * YEAR}
    files = {}
    for name in ("a", "b"):
        ts = good.copy()
        ts[list(bad)] = list(bad.values())
        files[name] = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table({"ts": ts, "k": np.arange(ts.size) % 7, "at": np.arange(ts.size)}), files[name])
    settings = {
        "time": "ts",
        "arrival": "at",
        "window": "100ms",
        "where": "a.k = b.k",
        "disorder": {"strategy": "none"},
        "shards": shards,
    }
    found = []
    for name, runner in (("local", local), ("beam", run_beam)):
        folder = tmp_path / name
        folder.mkdir()
        summary = runner.run(template(files, folder, settings))
        assert summary["late"] == {"future_time": 8, "too_late": 2}
        rows = [row for path in folder.glob("out*") for row in pq.read_table(path).to_pylist()]
        lines = [json.loads(line) for path in folder.glob("late*") for line in path.read_text().splitlines()]
        found.append((Counter(map(str, rows)), Counter((r["input"], r["reason"], r["ts"]) for r in lines)))
    assert found[0] == found[1]
    assert sum(found[0][0].values()) > 1000
