"""Every disorder and shedding strategy, and a join behind a queue that sheds, with 1 and 8 shards."""

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from runner_contract import BEAM, SPARK, Case, halves, parquet, pipeline_of, sink

ADAPTIVE = {"recall": 0.9, "period": "400ms", "interval": "100ms", "granularity": "5ms"}
DISORDER = {
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
COMPLETE = {"strategy": "fixed", "slack": "100ms"}
"""A slack that loses nothing of the input."""


def shedding(shards):
    """Settings of each shedding strategy; one has a schedule."""
    memory = MEMORY[shards]
    return {
        "random": {"memory": {"0s": memory, "700ms": memory // 2}},
        "prob": {"memory": memory, "allocation": "fixed"},
        "life": {"memory": memory},
    }


def joins(shards):
    """Settings of every join that is tested, by name."""
    common = {"time": "ts", "arrival": "at", "window": "60ms", "where": "a.k = b.k", "shards": shards}
    measured = {**common, "metrics": "100ms"}
    found = {name: {**measured, "disorder": {"strategy": name, **opts}} for name, opts in DISORDER.items()}
    found["complete"] = {**measured, "disorder": COMPLETE}
    for name, options in shedding(shards).items():
        limits = {
            "disorder": {"strategy": "fixed", **DISORDER["fixed"]},
            "shedding": {"strategy": name, **options},
        }
        # Windows of rows take one shard.
        window = "30 rows" if name == "life" and shards == 1 else "60ms"
        found[name] = {**measured, **limits, "window": window}
    return {**found, "slow": {**common, "shedding": {"strategy": "prob", "queue": QUEUES[shards]}}}


def write(folder):
    rng = np.random.default_rng(4)
    for i, name in enumerate("ab"):
        n = 700
        progress = 2 * np.arange(n) + i
        late = rng.integers(0, 70, n) * (rng.random(n) < 0.3)
        watermark = [int(p) - 40 if k % 9 == 0 else None for k, p in enumerate(progress)]
        columns = {"ts": progress - late, "k": [f"key {k}" for k in rng.integers(0, 6, n)], "at": progress}
        pq.write_table(pa.table({**columns, "w": pa.array(watermark, pa.int64())}), folder / f"{name}.parquet")


def build_with(shards):
    def build(data, out, parts):
        nodes = [parquet(name.upper(), data / f"{name}.parquet") for name in "ab"]
        for name in parts:
            config = joins(shards)[name]
            inputs = {"a": "A", "b": "B"}
            nodes.append({"type": "SlidingWindowJoin", "name": name, "input": inputs, "config": config})
            outputs = ("", ".late", ".metrics") if "metrics" in config else ("", ".late")
            nodes += [sink(f"{name}{output}", f"{out}/{name}{output}.jsonl") for output in outputs]
        return pipeline_of(nodes)

    return build


def check_with(shards):
    def check(ran):
        assert len(ran.files) == 3 * len(joins(shards)) - 1
        assert all(len(ran.files[f"{name}.jsonl"]) > 500 for name in joins(shards))
        assert sum('"shed"' in line for line in ran.files["slow.late.jsonl"]) > 300
        for name in shedding(shards):
            join = ran.joins[name]
            assert join["late"]["shed"] > 100
            assert join["state"]["max_tuples"] <= MEMORY[shards] * shards
        a, b = (f"'{ran.data}/{name}.parquet'" for name in "ab")
        near = "b.ts BETWEEN a.ts - 60 AND a.ts + 60"
        query = f"SELECT a.at, b.at FROM {a} a JOIN {b} b ON a.k = b.k AND {near}"
        truth = sorted(duckdb.connect().sql(query).fetchall())
        complete = sorted((row["a_at"], row["b_at"]) for row in ran.rows("complete.jsonl"))
        assert complete == truth, "nothing is lost where the slack is enough, whatever the shards"
        assert len(ran.files["fixed.jsonl"]) < len(truth)

    return check


def case(shards, runners):
    parts = tuple(joins(shards))
    build, check = build_with(shards), check_with(shards)
    return Case(f"strategies in {shards}", write, build, check, dict.fromkeys(runners), parts=parts, jobs=halves)


CASES = [case(1, (*BEAM, "beam-spark", *SPARK)), case(8, SPARK)]
