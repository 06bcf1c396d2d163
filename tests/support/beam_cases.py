"""Joins and templates that the tests of the Beam runners share, and how their outputs are compared."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.testing.util import assert_that, equal_to

from slackwater.transforms.arrival.merge import in_arrival_order
from slackwater.transforms.arrival.order import numbers_of, times_of
from slackwater.transforms.beam import JoinOutputs, SlidingWindowJoin
from slackwater.transforms.operators.join import Operator
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import ARRIVAL, JoinPlan, bind

Rows = dict[str, list[dict[str, Any]]]
SCHEMA = pa.schema(
    [("id", pa.int64()), ("ts", pa.int64()), ("k", pa.int64()), ("x", pa.float64()), ("at", pa.int64())]
)

DISORDER: dict[str, dict[str, Any]] = {
    "none": {"strategy": "none"},
    "fixed": {"strategy": "fixed", "slack": "40ms"},
    "max": {"strategy": "max"},
}


@dataclass(frozen=True)
class Case:
    """A join to be compared between a runner and the operator."""

    name: str
    rows: Rows
    settings: dict[str, Any] = field(hash=False)

    @property
    def plan(self) -> JoinPlan:
        return bind(JoinConfig.read(self.settings), dict.fromkeys(self.rows, SCHEMA))


def rows_of(m: int, n: int, seed: int = 7) -> Rows:
    """Inputs a, b, … with disorder within and between them, ties, and ``at`` as the order of arrival."""
    rng = random.Random(seed)
    rows: Rows = {}
    for which, name in enumerate("abcdefgh"[:m]):
        rows[name] = [
            {
                "id": i,
                "ts": 10 * (i // 2) + 5 * which - (rng.randrange(120) if rng.random() < 0.3 else 0),
                "k": rng.randrange(4),
                "x": float(rng.randrange(10)),
                "at": i * m + (which * 3) % m,
            }
            for i in range(n)
        ]
    return rows


def cases(disorder: str, arrival: tuple[str | None, ...] = (None, "at")) -> list[Case]:
    """Joins of 2 to 4 inputs: keys and theta, one shard and four, rows and counts."""
    found = []
    for m, n in ((2, 90), (3, 50), (4, 30)):
        names = "abcd"[:m]
        equal = " AND ".join(f"a.k = {name}.k" for name in names[1:])
        theta = " AND ".join(f"abs({p}.x - {q}.x) < 1.5" for p, q in pairwise(names))
        kinds = [("equi", equal, 1), ("equi", equal, 4), ("theta", theta, 1)]
        for (kind, where, shards), column in ((k, a) for k in kinds for a in arrival):
            settings: dict[str, Any] = {
                "time": "ts",
                "window": "30ms",
                "where": where,
                "disorder": DISORDER[disorder],
                "shards": shards,
            }
            if column:
                settings["arrival"] = column
            name = f"{m} way {kind} {shards} shards by {column or 'order'}"
            found.append(Case(name, rows_of(m, n, seed=m), settings))
    counted = {"time": "ts", "window": "30ms", "where": "a.k = b.k", "output": "counts"}
    counted |= {"arrival": "at", "disorder": DISORDER[disorder]}
    return [*found, Case("counts", rows_of(2, 90, seed=2), counted)]


def expected(plan: JoinPlan, rows: Rows) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Results and late rows of operators that are fed directly, shard by shard."""
    results: list[tuple[Any, ...]] = []
    late: list[tuple[Any, ...]] = []
    batches = []
    for name, schema in plan.schemas.items():
        batch = pa.RecordBatch.from_pylist(rows[name], schema=schema)
        batches.append(batch.append_column(ARRIVAL, pa.array(np.arange(len(batch)))))
    for shard in range(plan.config.shards):
        parts, arrivals = [], []
        for i, batch in enumerate(batches):
            mine = pa.array(plan.partitioning.routes(i, batch).home == shard)
            parts.append(batch.filter(mine))
            # Rows of a PCollection have no order but that of a column, or else of event time.
            in_time = plan.arrival_columns is None
            numbers = times_of(plan, i, batch) if in_time else numbers_of(plan, i, batch).values
            arrivals.append(numbers[np.asarray(mine)])
        operator = Operator(plan)
        for out in (operator.push(in_arrival_order(parts, arrivals)), operator.finish()):
            results += [tuple(row.values()) for batch in out.results for row in batch.to_pylist()]
            late += [tuple(row.values()) for batch in out.late for row in batch.to_pylist()]
    return results, late


def created(pipeline: Any, rows: Rows, label: str = "") -> dict[str, Any]:
    """The inputs of a case as PCollections."""
    elements = {name: [beam.Row(**row) for row in given] for name, given in rows.items()}
    return {name: pipeline | f"{label}{name}" >> beam.Create(given) for name, given in elements.items()}


def apply_case(pipeline: Any, case: Case) -> JoinOutputs:
    """Create the inputs of a case and join them."""
    return created(pipeline, case.rows) | case.name >> SlidingWindowJoin(**case.settings)


def check_cases(pipeline: Any, given: list[Case]) -> None:
    """Assert that a runner gives what the operator gives, all in one pipeline: joins with the same rows share
    their inputs, and one assertion sees the outputs of all of them."""
    inputs: dict[int, dict[str, Any]] = {}
    found, wanted = [], []
    for case in given:
        m = len(case.rows)
        if m not in inputs:
            inputs[m] = created(pipeline, case.rows, f"{m} way ")
        outputs = inputs[m] | case.name >> SlidingWindowJoin(**case.settings)
        for tag, expect in zip(("out", "late"), expected(case.plan, case.rows), strict=True):
            assert expect or tag == "late", f"{case.name} tests nothing"
            found.append(outputs[tag] | f"{case.name} {tag}" >> beam.Map(_tagged, case.name, tag))
            wanted += [(case.name, tag, *row) for row in expect]
    assert_that(tuple(found) | "All" >> beam.Flatten(), equal_to(wanted))


def _tagged(row: Any, *tags: str) -> tuple[Any, ...]:
    return (*tags, *row._asdict().values())


TEMPLATE = """
pipeline:
  type: composite
  transforms:
    - {type: ReadFromParquet, name: A, config: {path: "%(dir)s/a*.parquet"}}
    - {type: ReadFromCsv, name: B, config: {path: "%(dir)s/b.csv"}}
    - {type: Create, name: C, config: {elements: [{k: 1, ts: 20}, {k: 2, ts: 60}, {k: 1, ts: 110}]}}
    - {type: Filter, name: Some, input: A, config: {keep: "x > 1"}}
    - type: MapToFields
      name: More
      input: B
      config: {append: true, language: python, fields: {y: "x * 2"}}
    - type: SlidingWindowJoin
      name: joined
      input: {a: Some, b: More}
      config:
        time: ts
        window: 30ms
        where: a.k = b.k
        disorder: {strategy: fixed, slack: 40ms}
        shards: %(shards)s
    - type: SlidingWindowJoin
      name: chained
      input: {j: joined, c: C}
      config: {time: ts, window: 100ms, where: j.a_k = c.k, disorder: {strategy: none}}
    - {type: WriteToParquet, name: Joined, input: joined, config: {path: "%(out)s/joined.parquet"}}
    - {type: WriteToJson, name: Late, input: joined.late, config: {path: "%(out)s/late.jsonl"}}
    - {type: WriteToCsv, name: Chained, input: chained, config: {path: "%(out)s/chained.csv"}}
    - {type: WriteToJson, name: Metrics, input: chained.metrics, config: {path: "%(out)s/metrics.jsonl"}}
"""


def write_inputs(folder: Path) -> None:
    """Write what TEMPLATE reads: two Parquet files, and a CSV file in which one time is no time."""
    rows = rows_of(2, 120)
    table = pa.Table.from_pylist(rows["a"], schema=SCHEMA)
    pq.write_table(table.slice(0, 70), folder / "a1.parquet")
    pq.write_table(table.slice(70), folder / "a2.parquet")
    lines = [",".join(map(str, row.values())) for row in rows["b"]]
    lines[5] = lines[5].replace(f",{rows['b'][5]['ts']},", ",yesterday,")
    (folder / "b.csv").write_text("\n".join(["id,ts,k,x,at", *lines]) + "\n")
