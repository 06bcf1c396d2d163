"""Joins whose rows are copied to several shards."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from runner_contract import BEAM, SPARK, Case, parquet, pipeline_of, sink

SHARDS = 4
JOINS = {
    "hot": {"where": "a.k = b.k", "hot_keys": {"input": "a", "values": ["key 0"], "split": 3}},
    "near": {"where": "abs(a.x - b.x) < 3 AND abs(a.y - b.y) < 3"},
    "other": {"where": "a.x + b.y < 20"},
}


def write(folder):
    rng = np.random.default_rng(4)
    for i, name in enumerate("ab"):
        n = 500
        late = rng.integers(0, 70, n) * (rng.random(n) < 0.3)
        columns = {"ts": 2 * np.arange(n) + i - late, "k": [f"key {k}" for k in rng.geometric(0.4, n) - 1]}
        columns |= {"x": rng.random(n) * 30, "y": rng.random(n) * 30}
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")


def build(data, out, parts):
    nodes = [parquet(name.upper(), data / f"{name}.parquet") for name in "ab"]
    disorder = {"strategy": "fixed", "slack": "20ms"}
    for name, settings in JOINS.items():
        config = {"time": "ts", "window": "60ms", "disorder": disorder, "shards": SHARDS, **settings}
        nodes.append({"type": "SlidingWindowJoin", "name": name, "input": {"a": "A", "b": "B"}, "config": config})
        nodes += [sink(f"{name}{output}", f"{out}/{name}{output}.jsonl") for output in ("", ".late")]
    return pipeline_of(nodes)


def check(ran):
    """A row is in late once for every shard that it is late in, and accounted for once."""
    assert len(ran.files) == 2 * len(JOINS)
    for name, join in ran.joins.items():
        assert len(ran.files[f"{name}.jsonl"]) > 300
        late = Counter(ran.files[f"{name}.late.jsonl"])
        assert len(late) > 30 and max(late.values()) <= SHARDS
        accounts = join["accounting"].values()
        assert all(account["input"] == 500 for account in accounts)
        copies = sum(sum(account.get("late_copies", {}).values()) for account in accounts)
        assert late.total() == sum(join["late"].values())
        assert late.total() == sum(sum(account["late"].values()) for account in accounts) + copies


CASES = [Case("shards", write, build, check, dict.fromkeys((BEAM[0], SPARK[0])), rows_per_batch=300)]
