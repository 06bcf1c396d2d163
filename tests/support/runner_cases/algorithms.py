"""The literal reading of the algorithms, and DuckDB.

Small streams with disorder within and between them, ties and missing keys, joined 2 to 4 ways, on keys and by a
theta condition, with every way to handle disorder that the reference knows (where a join takes seconds: with a
fixed slack), in the order of an arrival column and in that of the files.
"""

import json
from collections import Counter
from functools import cache
from itertools import pairwise, product
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from reference import reference_join
from runner_contract import BEAM, SPARK, Case, halves, parquet, pipeline_of, sink

ROWS = 45
WINDOWS = (40, 25, 60, 30)
ORDERS = ("column", "files")
"""Arrival by a column, or as the rows stand in the files, inputs merged by progress."""
SLACKS = {
    "column": {"none": "none", "fixed": 15, "enough": 100, "max": "max"},
    "files": {"none": "none", "fixed": 40, "enough": 100, "max": "max"},
}
"""What the reference is told; ``enough`` is above the largest delay."""


class Join(NamedTuple):
    """A join of the first ``m`` streams."""

    m: int
    kind: str
    slack: str
    order: str
    shards: int = 1

    @property
    def name(self):
        return f"{self.kind}{self.m}_{self.slack}_{self.order}_{self.shards}"

    @property
    def where(self):
        names = [f"s{i}" for i in range(self.m)]
        test = "{0}.k = {1}.k" if self.kind == "equi" else "abs({0}.v - {1}.v) < 2"
        return " AND ".join(test.format(a, b) for a, b in pairwise(names))

    def holds(self, rows):
        """What ``where`` means."""
        ordered = [rows[i] for i in range(self.m)]
        if self.kind == "equi":
            return all(a["k"] is not None and a["k"] == b["k"] for a, b in pairwise(ordered))
        return all(abs(a["v"] - b["v"]) < 2 for a, b in pairwise(ordered))

    @property
    def config(self):
        slack = SLACKS[self.order][self.slack]
        fixed = {"strategy": "fixed", "slack": f"{slack}ms"}
        return {
            "time": "ts",
            "window": {f"s{i}": f"{WINDOWS[i]}ms" for i in range(self.m)},
            "where": self.where,
            "disorder": {"strategy": slack} if isinstance(slack, str) else fixed,
            "shards": self.shards,
            **({"arrival": "arrived"} if self.order == "column" else {}),
        }


ALL = [Join(*join) for join in product((2, 3, 4), ("equi", "theta"), SLACKS["column"], ORDERS)]
SOME = [join for join in ALL if join.slack in ("fixed", "enough")]
SHARDED = [Join(m, "equi", "enough", "files", shards=4) for m in (2, 3, 4)]
JOINS = {join.name: join for join in ALL + SHARDED}
FEW = tuple(join.name for join in SOME + SHARDED)


def streams():
    """Four streams of rows that carry their number, time, key, value and place in the order of arrival.

    Delays grow, so that the largest delay seen so far is not enough for what follows.
    """
    rng = np.random.default_rng(11)
    arrived = rng.permutation(4 * ROWS)
    for i in range(4):
        progress = np.cumsum(rng.integers(0, 9, ROWS)) + 7 * i
        late = rng.integers(0, np.linspace(20, 90, ROWS).astype(int)) * (rng.random(ROWS) < 0.3)
        keys = [None if rng.random() < 0.05 else int(k) for k in rng.integers(0, 4, ROWS)]
        yield pa.table(
            {
                "id": np.arange(ROWS),
                "ts": progress - late,
                "k": pa.array(keys, pa.int64()),
                "v": rng.integers(0, 12, ROWS),
                "arrived": np.sort(arrived[i * ROWS : (i + 1) * ROWS]),
            }
        )


def write(folder):
    for i, table in enumerate(streams()):
        pq.write_table(table, folder / f"s{i}.parquet", row_group_size=16)


def build(data, out, parts):
    nodes = [parquet(f"S{i}", data / f"s{i}.parquet") for i in range(4)]
    for join in map(JOINS.get, parts):
        inputs = {f"s{i}": f"S{i}" for i in range(join.m)}
        nodes.append({"type": "SlidingWindowJoin", "name": join.name, "input": inputs, "config": join.config})
        nodes += [sink(f"{join.name}{output}", f"{out}/{join.name}{output}.jsonl") for output in ("", ".late")]
    return pipeline_of(nodes)


@cache
def truth():
    """What the reference gives for every join of one shard."""
    tables = [table.to_pylist() for table in streams()]
    for table in tables:
        for row, reached in zip(table, np.maximum.accumulate([row["ts"] for row in table]).tolist(), strict=True):
            row["reached"] = reached
    place = {"column": "arrived", "files": "reached"}
    runs = {}
    for join in ALL:
        rows = [(row[place[join.order]], i, row) for i in range(join.m) for row in tables[i]]
        arrivals = [(i, row) for _, i, row in sorted(rows, key=lambda r: r[:2])]
        runs[join] = reference_join(arrivals, WINDOWS[: join.m], join.holds, SLACKS[join.order][join.slack])
    return runs


def queried(data, join):
    """The join as a query: every member within its own window as seen from the newest."""
    names = [f"s{i}" for i in range(join.m)]
    newest = f"greatest({', '.join(f'{name}.ts' for name in names)})"
    within = " AND ".join(f"{name}.ts >= {newest} - {w}" for name, w in zip(names, WINDOWS, strict=False))
    ids = ", ".join(f"{name}.id" for name in names)
    files = ", ".join(f"'{data}/{name}.parquet' {name}" for name in names)
    query = f"SELECT {ids}, {newest} FROM {files} WHERE {within} AND {join.where}"
    return Counter((row[:-1], row[-1]) for row in duckdb.connect().execute(query).fetchall())


def results(ran, join):
    rows = ran.rows(f"{join.name}.jsonl")
    return Counter((tuple(row[f"s{i}_id"] for i in range(join.m)), row["ts"]) for row in rows)


def late(ran, join):
    rows = ran.rows(f"{join.name}.late.jsonl")
    assert {row["reason"] for row in rows} <= {"too_late"}
    return Counter((int(row["input"][1:]), json.loads(row["row"])["id"]) for row in rows)


def check(ran):
    reference = truth()
    assert set(ran.joins) == set(ran.parts)
    for join in map(JOINS.get, ran.parts):
        if join.shards == 1:
            assert results(ran, join) == reference[join].results, join.name
            assert late(ran, join) == Counter(reference[join].late), join.name
        else:
            found = results(ran, join)
            assert found and found == results(ran, join._replace(shards=1)), join.name
            assert not late(ran, join), join.name
        for account in ran.joins[join.name]["accounting"].values():
            assert account["input"] == ROWS == account["joined_or_expired"] + sum(account["late"].values())
    for join in (join for join in map(JOINS.get, ran.parts) if join.slack == "enough" and join.shards == 1):
        expected = queried(ran.data, join)
        assert len(expected) > 100
        assert results(ran, join) == expected, join.name


CASES = [
    Case(
        "algorithms",
        write,
        build,
        check,
        {
            BEAM[0]: None,
            "beam-spark": FEW,
            SPARK[0]: [name for name in FEW if JOINS[name].order == "files"],
            SPARK[1]: [name for name in FEW if JOINS[name].order == "column"],
        },
        parts=tuple(JOINS),
        jobs=halves,
        rows_per_batch=25,
    )
]
