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

from rich import box
from rich.console import Console
from rich.table import Table

from slackwater.transforms.spark.state import StateBytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from slackwater.pipelines.bench.spark_runs import Data, Run

WINDOWS_MS = {"5 s": 5_000, "1 min": 60_000, "10 min": 600_000}
KEYS = 1_000
"""At 100 rows/s per stream and windows of 5 s, about one result for two rows."""
MANY_KEYS = 50_000
"""So that the longest window still gives few results."""


def main(arguments: list[str]) -> None:
    """Generate, join both ways, compare, print."""
    parser = argparse.ArgumentParser(prog="slackwater bench spark", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 5_000_000], help="over both streams")
    parser.add_argument("--batch-rows", type=int, default=200_000, help="rows of a micro-batch")
    parser.add_argument("--repeat", type=int, default=2, help="runs; the best one counts for both sides")
    parser.add_argument("--state-rows", type=int, default=600_000, help="rows for the bytes of the state")
    parser.add_argument("--state-batch-rows", type=int, default=20_000, help="rows of a micro-batch there")
    parser.add_argument("--data", nargs="+", default=["syn3", "flights"], help="data sets for the recall")
    parser.add_argument("--data-rows", type=int, help="rows per stream there; default: the data set's own number")
    parser.add_argument("--data-batch-rows", type=int, default=40_000, help="rows of a micro-batch there")
    parser.add_argument("--recall", type=float, nargs="+", default=[0.9, 0.99], help="recalls asked for")
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 4, 16], help="shards that share the work")
    parser.add_argument("--only", choices=["throughput", "state", "recall"], help="one part of the benchmark")
    options = parser.parse_args(arguments)
    from slackwater.transforms.spark.session import LASTING_CONF, start_session

    conf = LASTING_CONF | {"spark.sql.streaming.numRecentProgressUpdates": "10000"}
    session = start_session(app="slackwater bench", conf=conf)
    console = Console()
    try:
        with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as folder:
            if options.only in (None, "throughput"):
                for rows in options.rows:
                    _throughput(console, session, Path(folder), rows, options.batch_rows, options.repeat)
            if options.only in (None, "state"):
                _state(console, session, Path(folder), options.state_rows, options.state_batch_rows)
        if options.only in (None, "recall"):
            _recall(console, session, options)
    finally:
        session.stop()


def _throughput(
    console: Console, session: SparkSession, folder: Path, rows: int, batch_rows: int, repeat: int
) -> None:
    from slackwater.pipelines.bench.spark_runs import make_data, native, ours, run

    data = make_data(folder / f"{rows}", rows, batch_rows, KEYS, WINDOWS_MS["5 s"])
    # The JVM takes some micro-batches to compile what runs often.
    first = make_data(folder / f"{rows}-first", min(rows, 5 * batch_rows), batch_rows, KEYS, WINDOWS_MS["5 s"])
    joins: dict[str, Callable[[Data], Run]] = {
        "Spark's own": lambda data: run(native(session, data), data),
        "slackwater": lambda data: run(ours(session, data).results, data),
    }
    for join in joins.values():
        join(first)
    runs: dict[str, list[Run]] = {name: [] for name in joins}
    for _ in range(repeat):
        for name, join in joins.items():
            runs[name].append(join(data))
    best = {name: max(found) for name, found in runs.items()}
    console.print(f"[bold]{rows:,} rows[/bold] in micro-batches of {batch_rows:,}, {data.results:,} results")
    for name, (rate, results) in best.items():
        ratio = rate / best["Spark's own"].rows_per_s
        recall = results / data.results
        console.print(f"  {name:<12} {rate:>12,.0f} rows/s   {ratio:>6.1f} times   recall {recall:.4f}")


def _state(console: Console, session: SparkSession, folder: Path, rows: int, batch_rows: int) -> None:
    from slackwater.pipelines.bench.spark_runs import make_data, state_of

    table = Table(
        "window", "bytes given", "written", "median", "largest", "read", "stored", box=box.SIMPLE,
        title=f"State: {rows:,} rows by {batch_rows:,}, second half of the run, in multiples of the bytes given",
    )  # fmt: skip
    for name, window_ms in WINDOWS_MS.items():
        data = make_data(folder / f"window-{window_ms}", rows, batch_rows, MANY_KEYS, window_ms)
        costs = state_of(session, data)
        table.add_row(name, *_figures(costs[len(costs) // 2 :]))
    console.print(table)


def _recall(console: Console, session: SparkSession, options: argparse.Namespace) -> None:
    from slackwater.pipelines.bench.disorder import Subject
    from slackwater.pipelines.bench.spark_recall import STRATEGY, reached

    table = Table("data", "asked", "shards", "recall", "Φ(.99Γ)", box=box.SIMPLE, title=f"Recall: {STRATEGY}")
    for name in options.data:
        subject = Subject(name, options.data_rows, None, None, seed=7)
        for line in reached(session, subject, options.recall, options.shards, options.data_batch_rows):
            figures = (f"{line.overall:.4f}", f"{line.nearly:.3f}")
            table.add_row(line.data, f"{line.asked:g}", f"{line.shards}", *figures)
    console.print(table)


def _figures(costs: list[StateBytes]) -> list[str]:
    given = statistics.mean(cost.given for cost in costs)
    written = [cost.written for cost in costs]
    read = statistics.mean(cost.read for cost in costs)
    sizes = (statistics.mean(written), statistics.median(written), max(written), read, costs[-1].stored)
    return [f"{given:,.0f}", *(f"{size / given:.2f}" for size in sizes)]
