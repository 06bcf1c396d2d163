"""``slackwater bench spark``: our join on Structured Streaming against Spark's own, and the bytes of its state.

Both read the same Parquet files, one of each stream per micro-batch, and write to nothing. Both find every
result: a fifth of the rows is up to 2 s late, which Spark's watermark and our slack allow for; the recall of each
is printed. Spark's own join gets the state store that it is fastest with, and the compiler of the JVM that our
short runs do without. They take turns, after a run of each that is not counted; the best of each counts.

Then what micro-batches give our shards, and what they read and write of their state, as windows grow.

Last, the recall that is reached where one is asked for, with 1, 4 and 16 shards, on live streams.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from slackwater.pipelines.bench.report import Column, Report, Table
from slackwater.transforms.spark.state import StateBytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from slackwater.pipelines.bench.spark.runs import Data, Run

WINDOWS_MS = {"5 s": 5_000, "1 min": 60_000, "10 min": 600_000}
KEYS = 1_000
"""At 100 rows/s per stream and windows of 5 s, about one result for two rows."""
MANY_KEYS = 50_000
"""So that the longest window still gives few results."""


def run(options: argparse.Namespace, report: Report) -> None:
    """Generate, join both ways, compare."""
    from slackwater.transforms.spark.session import LASTING_CONF, start_session

    conf = LASTING_CONF | {"spark.sql.streaming.numRecentProgressUpdates": "10000"}
    session = start_session(app="slackwater bench", conf=conf)
    try:
        with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as folder:
            if options.only in (None, "throughput"):
                report.add(_throughput(session, Path(folder), options))
            if options.only in (None, "state"):
                report.add(_state(session, Path(folder), options))
        if options.only in (None, "recall"):
            report.add(_recall(session, options))
    finally:
        session.stop()


def _throughput(session: SparkSession, folder: Path, options: argparse.Namespace) -> Table:
    from slackwater.pipelines.bench.spark.runs import make_data, measure, native, ours

    table = Table(
        "rows", "join", "results", "rows/s", Column("times", ".1f"), Column("recall", ".4f"),
        title=f"Throughput, micro-batches of {options.batch_rows:,} rows", name="throughput",
    )  # fmt: skip
    joins: dict[str, Callable[[Data], Run]] = {
        "Spark's own": lambda data: measure(native(session, data), data),
        "slackwater": lambda data: measure(ours(session, data).results, data),
    }
    for rows in options.rows:
        given = (options.batch_rows, KEYS, WINDOWS_MS["5 s"], options.seed)
        data = make_data(folder / f"{rows}", rows, *given)
        # The JVM takes some micro-batches to compile what runs often.
        first = make_data(folder / f"{rows}-first", min(rows, 5 * options.batch_rows), *given)
        for join in joins.values():
            join(first)
        runs: dict[str, list[Run]] = {name: [] for name in joins}
        for _ in range(options.repeat):
            for name, join in joins.items():
                runs[name].append(join(data))
        best = {name: max(found) for name, found in runs.items()}
        for name, (rate, results) in best.items():
            recall = results / data.results
            table.add(rows, name, results, rate, rate / best["Spark's own"].rows_per_s, recall)
    return table


def _state(session: SparkSession, folder: Path, options: argparse.Namespace) -> Table:
    from slackwater.pipelines.bench.spark.runs import make_data, state_of

    rows, batch_rows = options.state_rows, options.state_batch_rows
    times = [Column(heading, ".2f") for heading in ("written", "median", "largest", "read", "stored")]
    table = Table(
        "window", "bytes given", *times, name="state",
        title=f"State: {rows:,} rows by {batch_rows:,}, second half of the run, in multiples of the bytes given",
    )  # fmt: skip
    for name, window_ms in WINDOWS_MS.items():
        data = make_data(folder / f"window-{window_ms}", rows, batch_rows, MANY_KEYS, window_ms, options.seed)
        costs = state_of(session, data)
        table.add(name, *_figures(costs[len(costs) // 2 :]))
    return table


def _recall(session: SparkSession, options: argparse.Namespace) -> Table:
    from slackwater.pipelines.bench.disorder.comparison import Subject
    from slackwater.pipelines.bench.spark.recall import STRATEGY, reached

    table = Table(
        "data", Column("asked", "g"), "shards", Column("recall", ".4f"), Column("Φ(.99Γ)", ".3f", "phi_99"),
        title=f"Recall: {STRATEGY}", name="recall",
    )  # fmt: skip
    for name in options.data:
        subject = Subject(name, options.data_rows, None, None, options.seed)
        for line in reached(session, subject, options.recall, options.shards, options.data_batch_rows):
            table.add(line.data, line.asked, line.shards, line.overall, line.nearly)
    return table


def _figures(costs: list[StateBytes]) -> list[float]:
    given = statistics.mean(cost.given for cost in costs)
    written = [cost.written for cost in costs]
    read = statistics.mean(cost.read for cost in costs)
    sizes = (statistics.mean(written), statistics.median(written), max(written), read, costs[-1].stored)
    return [given, *(size / given for size in sizes)]
