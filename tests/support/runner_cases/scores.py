"""Shedding by weights, predicates and given frequencies."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from runner_contract import BEAM, Case, parquet, pipeline_of, sink

JOINS = {
    "weighted": ("a.k = b.k", {"weight": "a.v * b.v"}),
    "band": ("abs(a.v - b.v) <= 0.2", {}),
    "given": ("a.k = b.k", {"frequencies": {"a": "{0}/a.csv", "b.k": {"key 1": 0.5, "key 2": 0.25}}}),
}


def write(folder):
    rng = np.random.default_rng(4)
    for i, side in enumerate("ab"):
        at = 2 * np.arange(500) + i
        keys = [f"key {k}" for k in rng.integers(0, 6, 500)]
        columns = {"ts": at - rng.integers(0, 9, 500), "k": keys, "v": rng.exponential(1, 500), "at": at}
        pq.write_table(pa.table(columns), folder / f"{side}.parquet")
    (folder / "a.csv").write_text("k,frequency\nkey 1,30\nkey 3,10\n")


def build(data, out, parts):
    nodes = [parquet(side.upper(), data / f"{side}.parquet") for side in "ab"]
    for name, (where, options) in JOINS.items():
        options = json.loads(json.dumps(options).replace("{0}", str(data)))
        config = {"time": "ts", "arrival": "at", "window": "60ms", "where": where}
        config["shedding"] = {"strategy": "prob", "memory": 40, **options}
        nodes.append({"type": "SlidingWindowJoin", "name": name, "input": {"a": "A", "b": "B"}, "config": config})
        nodes += [sink(f"{name}{output}", f"{out}/{name}{output}.jsonl") for output in ("", ".late")]
    return pipeline_of(nodes)


def check(ran):
    assert all(len(ran.files[f"{name}.late.jsonl"]) > 100 for name in JOINS)


CASES = [Case("scores", write, build, check, {BEAM[0]: None})]
