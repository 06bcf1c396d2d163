"""Every runner against the literal reading of the algorithms, and against DuckDB.

Each runner gets all cases in one job: small streams with disorder within and between them, ties and missing
keys, joined 2 to 4 ways, on keys and by a theta condition, with every way to handle disorder that the reference
knows (on Spark: with a fixed slack), in the order of an arrival column and in that of the files.
"""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, product
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reference import reference_join

from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.reader import read_template_text

ROWS = 45
WINDOWS = (40, 25, 60, 30)
ORDERS = ("column", "files")
"""Arrival by a column, or as the rows stand in the files, inputs merged by progress."""
SLACKS = {
    "column": {"none": "none", "fixed": 15, "enough": 100, "max": "max"},
    "files": {"none": "none", "fixed": 40, "enough": 100, "max": "max"},
}
"""What the reference is told; ``enough`` is above the largest delay."""


class Case(NamedTuple):
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
        return {
            "time": "ts",
            "window": {f"s{i}": f"{WINDOWS[i]}ms" for i in range(self.m)},
            "where": self.where,
            "disorder": {"strategy": slack}
            if isinstance(slack, str)
            else {"strategy": "fixed", "slack": f"{slack}ms"},
            "shards": self.shards,
            **({"arrival": "arrived"} if self.order == "column" else {}),
        }


CASES = [Case(*case) for case in product((2, 3, 4), ("equi", "theta"), SLACKS["column"], ORDERS)]
SOME = [case for case in CASES if case.slack in ("fixed", "enough")]
"""For runners on which a join takes seconds."""
SHARDED = [Case(m, "equi", "enough", "files", shards=4) for m in (2, 3, 4)]


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


def template(folder, out, cases):
    nodes = [
        {"type": "ReadFromParquet", "name": f"S{i}", "config": {"path": f"{folder}/s{i}.parquet"}}
        for i in range(4)
    ]
    for case in cases:
        inputs = {f"s{i}": f"S{i}" for i in range(case.m)}
        nodes.append({"type": "SlidingWindowJoin", "name": case.name, "input": inputs, "config": case.config})
        for output, port in (("results", case.name), ("late", f"{case.name}.late")):
            path = f"{out}/{case.name}_{output}"
            nodes.append(
                {"type": "WriteToJson", "name": f"{case.name} {output}", "input": port, "config": {"path": path}}
            )
    return read_template_text(
        "runners.yaml", json.dumps({"pipeline": {"type": "composite", "transforms": nodes}})
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams")
    for i, table in enumerate(streams()):
        pq.write_table(table, folder / f"s{i}.parquet", row_group_size=16)
    return folder


@pytest.fixture(scope="module")
def truth(data):
    tables = [pq.read_table(data / f"s{i}.parquet").to_pylist() for i in range(4)]
    for table in tables:
        for row, reached in zip(table, np.maximum.accumulate([row["ts"] for row in table]).tolist(), strict=True):
            row["reached"] = reached
    place = {"column": "arrived", "files": "reached"}
    runs = {}
    for case in CASES:
        rows = [(row[place[case.order]], i, row) for i in range(case.m) for row in tables[i]]
        arrivals = [(i, row) for _, i, row in sorted(rows, key=lambda r: r[:2])]
        runs[case] = reference_join(arrivals, WINDOWS[: case.m], case.holds, SLACKS[case.order][case.slack])
    return runs


def run_local(data, out, spark):
    return [local.run(template(data, out, CASES + SHARDED))]


def run_beam(data, out, spark):
    from slackwater.pipelines.runners.beam import runner as run_beam

    return [run_beam.run(template(data, out, CASES + SHARDED))]


def run_beam_spark(data, out, spark):
    from slackwater.pipelines.runners.beam import runner as run_beam

    return [run_beam.run(template(data, out, SOME + SHARDED), spark=True)]


def run_spark(data, out, spark):
    """Two jobs at a time, as most of a query is the start of processes; one in one micro-batch, one in two."""
    from slackwater.pipelines.runners.spark import runner as run_spark

    def run(order):
        cases = [case for case in SOME + SHARDED if case.order == order]
        rows = {} if order == "column" else {"rows_per_batch": 25}
        return run_spark.run(template(data, out, cases), session=spark, **rows)

    with ThreadPoolExecutor(len(ORDERS)) as pool:
        return list(pool.map(run, ORDERS))


class Ran(NamedTuple):
    """What a runner wrote, and what it said."""

    out: object
    cases: list
    joins: dict

    def results(self, case):
        rows = read(self.out / f"{case.name}_results.jsonl")
        return Counter((tuple(row[f"s{i}_id"] for i in range(case.m)), row["ts"]) for row in rows)

    def late(self, case):
        rows = read(self.out / f"{case.name}_late.jsonl")
        assert {row["reason"] for row in rows} <= {"too_late"}
        return Counter((int(row["input"][1:]), json.loads(row["row"])["id"]) for row in rows)


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(run_local, id="local"),
        pytest.param(run_beam, id="beam", marks=pytest.mark.beam),
        pytest.param(
            run_beam_spark,
            id="beam-spark",
            marks=[
                pytest.mark.beam_spark,
                # Workers of a job that has ended find their channels closed, and say so from their threads.
                pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
            ],
        ),
        pytest.param(run_spark, id="spark", marks=pytest.mark.spark),
    ],
)
def ran(request, data, tmp_path_factory):
    spark = request.getfixturevalue("spark") if request.param is run_spark else None
    out = tmp_path_factory.mktemp("out")
    summaries = request.param(data, out, spark)
    cases = CASES if request.param in (run_local, run_beam) else SOME
    return Ran(out, cases, {name: join for summary in summaries for name, join in summary["joins"].items()})


@pytest.mark.parametrize("order", ORDERS)
def test_results_and_late_rows_are_those_of_the_reference(ran, truth, order):
    for case in ran.cases:
        if case.order == order:
            assert ran.results(case) == truth[case].results, case.name
            assert ran.late(case) == Counter(truth[case].late), case.name


@pytest.mark.parametrize("kind", ["equi", "theta"])
@pytest.mark.parametrize("m", [2, 3, 4])
def test_with_enough_slack_results_are_those_of_a_query_on_the_files(ran, data, m, kind):
    expected = duckdb_results(data, Case(m, kind, "enough", "files"))
    assert len(expected) > 100
    for order in ORDERS:
        assert ran.results(Case(m, kind, "enough", order)) == expected


def duckdb_results(data, case):
    """The join as a query: every member within its own window as seen from the newest."""
    names = [f"s{i}" for i in range(case.m)]
    newest = f"greatest({', '.join(f'{name}.ts' for name in names)})"
    within = " AND ".join(f"{name}.ts >= {newest} - {w}" for name, w in zip(names, WINDOWS, strict=False))
    ids = ", ".join(f"{name}.id" for name in names)
    files = ", ".join(f"'{data}/{name}.parquet' {name}" for name in names)
    query = f"SELECT {ids}, {newest} FROM {files} WHERE {within} AND {case.where}"
    return Counter((row[:-1], row[-1]) for row in duckdb.connect().execute(query).fetchall())


@pytest.mark.parametrize("case", SHARDED, ids=lambda case: case.name)
def test_four_shards_give_what_one_gives(ran, case):
    found = ran.results(case)
    assert found == ran.results(case._replace(shards=1))
    assert found
    assert not ran.late(case)


def test_every_row_is_accounted_for(ran):
    assert set(ran.joins) == {case.name for case in ran.cases + SHARDED}
    for join in ran.joins.values():
        for account in join["accounting"].values():
            assert account["balanced"]
            assert account["input"] == ROWS == account["joined_or_expired"] + sum(account["late"].values())


def test_the_cases_show_the_differences(truth):
    """Too little slack loses results and makes rows late, enough does not: no case is there for nothing."""
    for m, kind, order in product((2, 3, 4), ("equi", "theta"), ORDERS):
        none, fixed, enough, most = (truth[Case(m, kind, slack, order)] for slack in SLACKS[order])
        assert none.results < fixed.results < enough.results
        assert none.results < most.results < enough.results
        assert most.results != fixed.results
        assert none.late and fixed.late and most.late and not enough.late
    for table in streams():
        ts = table["ts"].to_numpy()
        assert len(set(ts)) < ROWS and 40 < (np.maximum.accumulate(ts) - ts).max() < 100
