"""Punctuations: marked rows, an input of their own, and static metadata, with 1 and 8 shards.

The operator is compared with the per-tuple reading elsewhere.
"""

import json
from itertools import product
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from runner_contract import BEAM, SPARK, Case, halves, parquet, pipeline_of, sink

KINDS = {
    "marked": {
        "punctuations": [
            {"input": "a", "when": "kind = 'closed'", "key": "k"},
            {"input": "b", "when": "kind = 'closed'", "key": "k"},
        ]
    },
    "source": {"punctuations": {"source": "c", "input": "b", "key": {"k": "key"}}},
    "metadata": {"unique": "a.k", "clustered": ["b.k"]},
    "reference": {"foreign_key": "b.k -> a.k"},
}
SHARDS = (1, 8)


class Join(NamedTuple):
    """A join with punctuations."""

    strategy: str
    kind: str
    shards: int

    @property
    def name(self):
        return f"{self.strategy}_{self.kind}_{self.shards}"

    @property
    def node(self):
        inputs = {"a": "A", "b": "B"}
        if self.kind == "source":
            inputs = {"c": "C", **inputs}
        if self.kind in ("metadata", "reference"):
            inputs["a"] = "U"
        config = {
            "time": "ts",
            "arrival": "at",
            "where": "a.k = b.k",
            "join": {"strategy": self.strategy},
            "disorder": {"strategy": "fixed", "slack": "25ms"},
            "shards": self.shards,
            **({} if self.strategy in ("pjoin", "mjoin") else {"window": "60ms"}),
            **KINDS[self.kind],
        }
        return {"type": "SlidingWindowJoin", "name": self.name, "input": inputs, "config": config}


JOINS = {
    join.name: join
    for join in (
        *(Join(*join) for join in product(("wjoin", "pwjoin", "pjoin"), KINDS, SHARDS)),
        *(Join(*join) for join in product(("mjoin",), ("metadata", "reference"), SHARDS)),
    )
}
FEW = (
    "pwjoin_marked_1",
    "pjoin_marked_8",
    "pwjoin_source_8",
    "pjoin_source_1",
    "pwjoin_metadata_1",
    "pjoin_reference_8",
    "wjoin_marked_1",
    "wjoin_metadata_8",
    "mjoin_metadata_1",
    "mjoin_reference_8",
)
"""Every strategy with every number of shards, and every kind; each case costs seconds on Spark."""
IN_ONE_BATCH = [name for name in FEW if not name.startswith("pjoin")]
"""``joins`` has ``pjoin`` in one batch."""


def rows_of(rng, which, n=260):
    """Rows with texts as keys that move on; a key is closed when it is over, and now and then comes again."""
    progress = 3 * np.arange(n) + which
    ts = progress - rng.integers(0, 24, n) * (rng.random(n) < 0.3)
    on = ts // 40
    keys = on + rng.integers(0, 3, n)
    closed = rng.random(n) < 0.15
    keys = np.where(closed, on - 1, keys) - 3 * (rng.random(n) < 0.03)
    return {
        "id": np.arange(n),
        "ts": ts,
        "at": 2 * np.arange(n) + which,
        "k": [f"key {k}" for k in keys],
        "kind": ["closed" if c else "open" for c in closed],
    }


def write(folder):
    """Inputs a and b with marked rows; c, which has nothing but punctuations of b; u, whose keys are unique."""
    rng = np.random.default_rng(8)
    tables = {name: pa.table(rows_of(rng, which)) for which, name in enumerate("ab")}
    n = 40
    ends = np.sort(rng.integers(0, 780, n))
    tables["c"] = pa.table({"ts": ends, "at": ends * 2 // 3, "key": [f"key {e // 40 - 1}" for e in ends]})
    unique = {"ts": 40 * np.arange(20), "at": 26 * np.arange(20), "k": [f"key {k}" for k in [*range(18), 3, 4]]}
    tables["u"] = pa.table({"id": np.arange(20), **unique})
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=64)


def build(data, out, parts):
    nodes = [parquet(name.upper(), data / f"{name}.parquet") for name in "abcu"]
    for name in parts:
        nodes.append(JOINS[name].node)
        outputs = ("", ".late", ".punctuations")
        nodes += [sink(f"{name}{output}", f"{out}/{name}{output}.jsonl") for output in outputs]
    return pipeline_of(nodes)


def check(ran):
    """Every join has results, contradictions, and punctuations out where the strategy passes them on."""
    for name in ran.parts:
        strategy, kind, shards = JOINS[name]
        join = ran.joins[name]
        assert join["results"] > 30, name
        assert join["late"]["punctuation_violated"] > 0, name
        both = kind in ("marked", "metadata") or strategy == "pwjoin"
        assert (join["punctuations"]["out"] > 3) == (strategy != "wjoin" and both), name
        assert ("c" in join["input"]) == (kind == "source")
        if shards > 1:
            leaves_true(ran, name)
    source = "pwjoin_source_1"
    assert source not in ran.parts or ran.joins[source]["input"]["c"] == 40
    if ran.parts == tuple(JOINS):
        strategies_and_shards_agree(ran)


def leaves_true(ran, name):
    """What leaves a shard is true."""
    over = {}
    for row in ran.rows(f"{name}.punctuations.jsonl"):
        over[json.loads(row["pattern"])["a_k"]] = row["ts"]
    for row in ran.rows(f"{name}.jsonl"):
        assert row["ts"] <= over.get(row["a_k"], row["ts"])


def strategies_and_shards_agree(ran):
    """With a window every strategy gives the same; of a clustered column each shard follows its own part."""

    def lines(strategy, kind, shards, output):
        return sorted(ran.files[f"{Join(strategy, kind, shards).name}{output}.jsonl"])

    for kind, shards, output in product(KINDS, SHARDS, ("", ".late")):
        assert lines("pwjoin", kind, shards, output) == lines("wjoin", kind, shards, output)
        if kind != "metadata":
            for strategy in ("pwjoin", "pjoin"):
                assert lines(strategy, kind, 1, output) == lines(strategy, kind, shards, output)


CASES = [
    Case(
        "promises",
        write,
        build,
        check,
        {**dict.fromkeys(BEAM), "beam-spark": FEW, SPARK[0]: FEW, SPARK[1]: IN_ONE_BATCH},
        parts=tuple(JOINS),
        jobs=halves,
        rows_per_batch=130,
    )
]
