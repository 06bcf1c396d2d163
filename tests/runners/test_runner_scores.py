"""Shedding by weights, predicates and given frequencies: the embedded runner's results and late rows on Beam."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.reader import read_template_text

JOINS = {
    "weighted": ("a.k = b.k", {"weight": "a.v * b.v"}),
    "band": ("abs(a.v - b.v) <= 0.2", {}),
    "given": ("a.k = b.k", {"frequencies": {"a": "{0}/a.csv", "b.k": {"key 1": 0.5, "key 2": 0.25}}}),
}


def written(folder, name, run):
    nodes = [
        {"type": "ReadFromParquet", "name": side.upper(), "config": {"path": f"{folder}/{side}.parquet"}}
        for side in "ab"
    ]
    for join, (where, options) in JOINS.items():
        options = json.loads(json.dumps(options).replace("{0}", str(folder)))
        config = {"time": "ts", "arrival": "at", "window": "60ms", "where": where}
        config["shedding"] = {"strategy": "prob", "memory": 40, **options}
        nodes.append({"type": "SlidingWindowJoin", "name": join, "input": {"a": "A", "b": "B"}, "config": config})
        for output in ("", ".late"):
            sink = {"type": "WriteToJson", "name": f"{join} to{output}", "input": f"{join}{output}"}
            nodes.append({**sink, "config": {"path": f"{folder / name}/{join}{output}.jsonl"}})
    text = json.dumps({"pipeline": {"type": "composite", "transforms": nodes}})
    run(read_template_text("t.yaml", text))
    return {path.name: sorted(path.read_text().splitlines()) for path in (folder / name).iterdir()}


@pytest.mark.beam
def test_every_score_drops_the_same_rows_on_beam(tmp_path):
    from slackwater.pipelines.runners.beam import runner as run_beam

    rng = np.random.default_rng(4)
    for i, side in enumerate("ab"):
        at = 2 * np.arange(500) + i
        keys = [f"key {k}" for k in rng.integers(0, 6, 500)]
        columns = {"ts": at - rng.integers(0, 9, 500), "k": keys, "v": rng.exponential(1, 500), "at": at}
        pq.write_table(pa.table(columns), tmp_path / f"{side}.parquet")
    (tmp_path / "a.csv").write_text("k,frequency\nkey 1,30\nkey 3,10\n")
    expected = written(tmp_path, "local", local.run)
    assert all(len(expected[f"{join}.late.jsonl"]) > 100 for join in JOINS)
    assert written(tmp_path, "beam", run_beam.run) == expected
