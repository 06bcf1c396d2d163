"""``slackwater bench beam``: SlidingWindowJoin on FnApiRunner against a join that looks at every element.

Two inputs are joined in one run with the same rows: a thousand ids, about one partner for every other row, a
fifth of the rows up to a second late. The other join (``by_element``) is what a Beam user writes: a stateful
DoFn with a bag for each side of a key and a timer that clears them. Both start from the same Arrow batches,
which the DoFn's pipeline has to take apart; ours is shown with batches as its input and with rows, and gives
rows out. All count the same results. The DoFn gets fewer rows, as it takes minutes for a million, and gets
slower the more there are: on bounded input, timers fire at the end, and bags grow until then.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa

from slackwater.pipelines.bench.beam.by_element import BLOCK, SCHEMA, WINDOW, timed
from slackwater.pipelines.bench.report import Column, Report, Table
from slackwater.transforms.beam import SlidingWindowJoin
from slackwater.transforms.errors import SlackwaterError


class Order(NamedTuple):
    id: int
    ts: int
    at: int
    price: float


class Unpack(beam.DoFn):
    def process(self, element: pa.RecordBatch) -> Iterator[Order]:
        return map(Order._make, zip(*(column.to_pylist() for column in element.columns), strict=True))


def by_batch(p: beam.Pipeline, inputs: dict[str, Any]) -> None:
    inputs | _join().with_schemas(dict.fromkeys(inputs, SCHEMA))


def by_row(p: beam.Pipeline, inputs: dict[str, Any]) -> None:
    unpacked = beam.ParDo(Unpack()).with_output_types(Order)
    {name: rows | f"Unpack {name}" >> unpacked for name, rows in inputs.items()} | _join()


def _join() -> SlidingWindowJoin:
    return SlidingWindowJoin(
        time="ts",
        arrival="at",
        window=f"{WINDOW}ms",
        where="a.id = b.id",
        disorder={"strategy": "fixed", "slack": "1s"},
    )


def in_other_process(rows: int, seed: int) -> tuple[float, int]:
    """Return what ``timed`` does, of the join by element."""
    program = Path(__file__).with_name("by_element.py")
    command = [sys.executable, str(program), str(rows), str(seed)]
    speed, results = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return speed, results


def run(options: argparse.Namespace, report: Report) -> None:
    """Check that all agree, then time them in turns."""
    ways: dict[str, Any] = {
        "Arrow batches in": partial(timed, by_batch),
        "rows in": partial(timed, by_row),
        "by element": in_other_process,
    }
    sizes = dict.fromkeys(ways, options.rows) | {"by element": options.reference_rows}
    best, found = dict.fromkeys(ways, 0.0), dict.fromkeys(ways, 0)
    same = {name: way(min(options.reference_rows, 4 * BLOCK), options.seed)[1] for name, way in ways.items()}
    if len(set(same.values())) != 1:
        raise SlackwaterError(f"the joins disagree: {same}")
    for number in range(options.rounds):
        for name, way in ways.items():
            speed, found[name] = way(sizes[name], options.seed)
            best[name] = max(best[name], speed)
            report.progress(f"{number}: {name}: {speed:,.0f} rows/s")
    table = Table("join", "rows", "results", "rows/s", Column("to by element", ".1f"))
    for name, rate in best.items():
        table.add(name, sizes[name], found[name], rate, rate / best["by element"])
    report.add(table)
