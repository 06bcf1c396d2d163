"""Joins without a window, most of whose state is on disk: the results are those of DuckDB."""

import json

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from runner_contract import BEAM, SPARK, Case, parquet, pipeline_of, sink

MARKS = [{"input": name, "when": "p = 1", "key": "k"} for name in "ab"]
JOINS = {
    "symmetric_hash": {},
    "xjoin": {"memory": 60, "partitions": 4},
    "pjoin": {"memory": 60, "partitions": 4},
}


def write(folder):
    """Keys that move on; a key is punctuated when it is over."""
    (folder / "spill").mkdir()
    rng = np.random.default_rng(4)
    for name in "ab":
        n = 900
        p = (np.arange(n) % 10 == 9).astype(np.int64)
        keys = np.arange(n) // 10 + np.where(p, -20, rng.integers(0, 12, n))
        text = pa.array([f"key {k}" for k in keys])
        pq.write_table(pa.table({"ts": np.arange(n), "k": text, "p": p}), folder / f"{name}.parquet")


def build_with(shards):
    def build(data, out, parts):
        nodes = [parquet(name.upper(), data / f"{name}.parquet") for name in "ab"]
        for name, options in JOINS.items():
            config = {
                "time": "ts",
                "where": "a.k = b.k",
                "disorder": {"strategy": "max"},
                "shards": shards,
                "join": {"strategy": name, **options, **({"directory": str(data / "spill")} if options else {})},
                "punctuations": MARKS,
            }
            inputs = {"a": "A", "b": "B"}
            nodes.append({"type": "SlidingWindowJoin", "name": name, "input": inputs, "config": config})
            outputs = ("", ".punctuations")
            nodes += [sink(f"{name}{output}", f"{out}/{name}{output}.jsonl") for output in outputs]
        return pipeline_of(nodes)

    return build


def check(ran):
    a, b = (f"(SELECT * FROM '{ran.data}/{name}.parquet' WHERE p = 0)" for name in "ab")
    query = f"SELECT a.ts, b.ts, greatest(a.ts, b.ts) FROM {a} a JOIN {b} b ON a.k = b.k"
    truth = sorted(duckdb.connect().sql(query).fetchall())
    assert len(truth) > 5_000
    for join in JOINS:
        assert sorted((row["a_ts"], row["b_ts"], row["ts"]) for row in ran.rows(f"{join}.jsonl")) == truth, join
        assert (ran.joins[join]["state"]["spilled_tuples"] > 200) == (join != "symmetric_hash")
    over = [json.loads(row["pattern"])["a_k"] for row in ran.rows("pjoin.punctuations.jsonl")]
    assert len(over) == len(set(over)) > 60
    assert list((ran.data / "spill").iterdir()) == []


def case(shards, runners):
    return Case(
        f"joins in {shards}",
        write,
        build_with(shards),
        check,
        dict.fromkeys(runners),
        rows_per_batch=500,
        told=("input", "results"),
        # When a punctuation is passed on depends on what is on disk then.
        compared=lambda file: "punctuations" not in file,
    )


CASES = [case(1, SPARK), case(2, (*BEAM, "beam-spark")), case(8, SPARK)]
