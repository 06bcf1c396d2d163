"""Punctuations on every runner: marked rows, an input of their own, and static metadata, with 1 and 8 shards.

The operator is compared with the per-tuple reading elsewhere; here every other runner must give the results, late
rows and punctuations of the embedded one.
"""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.reader import read_template_text

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


class Case(NamedTuple):
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


CASES = [
    *(Case(*case) for case in product(("wjoin", "pwjoin", "pjoin"), KINDS, SHARDS)),
    *(Case(*case) for case in product(("mjoin",), ("metadata", "reference"), SHARDS)),
]
ON_SPARK = [
    Case("pwjoin", "marked", 1),
    Case("pjoin", "marked", 8),
    Case("pwjoin", "source", 8),
    Case("pjoin", "source", 1),
    Case("pwjoin", "metadata", 1),
    Case("pjoin", "reference", 8),
    Case("wjoin", "marked", 1),
    Case("wjoin", "metadata", 8),
    Case("mjoin", "metadata", 1),
    Case("mjoin", "reference", 8),
]
"""Every strategy with every number of shards, and every kind; each case costs seconds there."""
IN_ONE_BATCH = [case for case in ON_SPARK if case.strategy != "pjoin"]
"""``test_runner_joins`` has that."""


def template(folder, out, cases):
    nodes = [
        {"type": "ReadFromParquet", "name": name.upper(), "config": {"path": f"{folder}/{name}.parquet"}}
        for name in "abcu"
    ]
    for case in cases:
        nodes.append(case.node)
        for output in ("", ".late", ".punctuations"):
            path = f"{out}/{case.name}{output}.jsonl"
            sink = {"type": "WriteToJson", "name": f"{case.name} to{output}", "input": f"{case.name}{output}"}
            nodes.append({**sink, "config": {"path": path}})
    return read_template_text("t.yaml", json.dumps({"pipeline": {"type": "composite", "transforms": nodes}}))


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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Inputs a and b with marked rows; c, which has nothing but punctuations of b; u, whose keys are unique."""
    path = tmp_path_factory.mktemp("punctuations")
    rng = np.random.default_rng(8)
    tables = {name: pa.table(rows_of(rng, which)) for which, name in enumerate("ab")}
    n = 40
    ends = np.sort(rng.integers(0, 780, n))
    tables["c"] = pa.table({"ts": ends, "at": ends * 2 // 3, "key": [f"key {e // 40 - 1}" for e in ends]})
    unique = {"ts": 40 * np.arange(20), "at": 26 * np.arange(20), "k": [f"key {k}" for k in [*range(18), 3, 4]]}
    tables["u"] = pa.table({"id": np.arange(20), **unique})
    for name, table in tables.items():
        pq.write_table(table, path / f"{name}.parquet", row_group_size=64)
    return path


class Ran(NamedTuple):
    files: dict
    joins: dict


def ran(folder, name, run, cases=CASES):
    out = folder / name
    summary = run(template(folder, out, cases))
    for way, total in summary["punctuations"].items():
        assert total == sum(join["punctuations"][way] for join in summary["joins"].values())
    return Ran({path.name: Counter(path.read_text().splitlines()) for path in out.iterdir()}, summary["joins"])


@pytest.fixture(scope="module")
def expected(folder):
    return ran(folder, "local", local.run)


def same(got, expected, cases=ON_SPARK):
    for case in cases:
        for output in ("", ".late", ".punctuations"):
            name = f"{case.name}{output}.jsonl"
            assert got.files[name] == expected.files[name], name
        for part in ("input", "results", "late", "punctuations", "accounting"):
            assert got.joins[case.name][part] == expected.joins[case.name][part], (case.name, part)


def test_the_cases_show_something(expected):
    """Every case has results, contradictions, and punctuations out where the strategy passes them on."""
    for case in CASES:
        join = expected.joins[case.name]
        assert join["results"] > 30, case.name
        assert all(account["balanced"] for account in join["accounting"].values())
        assert join["late"]["punctuation_violated"] > 0, case.name
        both = case.kind in ("marked", "metadata") or case.strategy == "pwjoin"
        assert (join["punctuations"]["out"] > 3) == (case.strategy != "wjoin" and both), case.name
        assert ("c" in join["input"]) == (case.kind == "source")
    assert expected.joins["pwjoin_source_1"]["input"]["c"] == 40


@pytest.mark.parametrize("kind", KINDS)
def test_strategies_and_shards_agree(expected, kind):
    """With a window every strategy gives the same; of a clustered column each shard follows its own part."""
    for shards, output in product(SHARDS, ("", ".late")):
        wjoin, pwjoin = (
            expected.files[f"{Case(s, kind, shards).name}{output}.jsonl"] for s in ("wjoin", "pwjoin")
        )
        assert pwjoin == wjoin
        if kind != "metadata":
            for strategy in ("pwjoin", "pjoin"):
                one, many = (expected.files[f"{Case(strategy, kind, n).name}{output}.jsonl"] for n in (1, shards))
                assert one == many


@pytest.mark.parametrize("case", [case for case in CASES if case.shards > 1], ids=lambda case: case.name)
def test_what_leaves_a_shard_is_true(folder, expected, case):
    over = {}
    for line in expected.files[f"{case.name}.punctuations.jsonl"]:
        row = json.loads(line)
        over[json.loads(row["pattern"])["a_k"]] = row["ts"]
    for line in expected.files[f"{case.name}.jsonl"]:
        row = json.loads(line)
        assert row["ts"] <= over.get(row["a_k"], row["ts"])


@pytest.mark.beam
@pytest.mark.parametrize("runner", ["FnApiRunner", "BundleBasedDirectRunner"])
def test_on_beam(folder, expected, runner):
    from slackwater.pipelines.runners.beam import runner as run_beam

    same(ran(folder, runner, lambda p: run_beam.run(p, options={"runner": runner})), expected, CASES)


@pytest.mark.beam_spark
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_on_beams_spark_runner(folder, expected):
    from slackwater.pipelines.runners.beam import runner as run_beam

    same(ran(folder, "beam-spark", lambda p: run_beam.run(p, spark=True), ON_SPARK), expected)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("cases", "rows_per_batch"), [(ON_SPARK, 130), (IN_ONE_BATCH, 1 << 20)], ids=["several batches", "one batch"]
)
def test_on_spark(folder, expected, spark, cases, rows_per_batch):
    """Several micro-batches: punctuations that are pending or in force are part of the snapshots between them."""
    from slackwater.pipelines.runners.spark import runner as run_spark

    def run(part):
        out = f"spark {rows_per_batch} {part[0].name}"
        run_part = lambda p: run_spark.run(p, session=spark, rows_per_batch=rows_per_batch)  # noqa: E731
        same(ran(folder, out, run_part, part), expected, part)

    # Two at a time, as most of a query is the start of processes.
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, (cases[::2], cases[1::2])))
