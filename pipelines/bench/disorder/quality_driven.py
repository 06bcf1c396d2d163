"""``slackwater bench quality_driven``: its recall and slack on the streams of QDDH, beside Max-K-slack.

Shows, for each required recall Γ: the average K, the recall over all results, the share of recall measurements
that are at least Γ and at least 0.99 Γ (Φ), and the median time of one adaptation. A measurement is taken before
every adaptation, over the results with timestamps in the last period up to the join's progress; those of the
first period are left out.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from slackwater.pipelines.bench.report import Column, Report, Table
from slackwater.pipelines.generate import GeneratedDataset, generate
from slackwater.plugins import Arrivals, DisorderLogic, DisorderStrategy, Feedback, Setting, Snapshot
from slackwater.plugins.contract import Float64s, Int64s
from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.arrival.merge import in_arrival_order
from slackwater.transforms.operators.join import Operator
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import bind

SECOND = 1000
ROWS = 8_192


class Observation(NamedTuple):
    """The state right before an adaptation."""

    now: int
    """Stream time."""
    slack: int
    """K of the interval that has ended."""
    reached: int
    """Largest event time that had reached the join."""
    report: Mapping[str, float]
    """What the strategy says of its last adaptation."""
    seconds: float
    """How long the adaptation took."""


class Observed(DisorderStrategy):
    """Another disorder strategy, with its K and the join's progress written down at every interval."""

    name: ClassVar[str] = "observed"
    inner: Any
    interval: int
    log: Any

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> ObservedLogic:
        return ObservedLogic(self.inner.build(setting), self.interval, self.log)


class ObservedLogic(DisorderLogic):
    """Passes everything on to the logic it observes."""

    def __init__(self, inner: Any, interval: int, log: list[Observation]) -> None:
        self.interval: int | None = inner.interval or interval
        self._inner, self._log = inner, log
        self._slack, self._reached = 0, np.iinfo(np.int64).min

    def bounds(self, arrivals: Arrivals) -> Int64s:
        bounds = self._inner.bounds(arrivals)
        if bounds.size:
            self._slack = int(arrivals.progress[-1] - bounds[-1])
        return bounds

    def adapt(self, feedback: Feedback) -> None:
        self._reached = int(feedback.ts.max(initial=self._reached))
        report = self._inner.report()
        started = time.perf_counter()
        self._inner.adapt(feedback)
        took = time.perf_counter() - started
        self._log.append(Observation(feedback.now, self._slack, self._reached, report, took))

    def snapshot(self) -> Snapshot:
        raise NotImplementedError


class Measured(NamedTuple):
    """A run over a data set."""

    log: list[Observation]
    first: int
    """Second of event time that the two arrays below start with."""
    produced: Int64s
    """Results by second of event time."""
    true: Int64s
    """The same on complete, sorted data."""
    recalls: Float64s
    """The recall over the last period right before each adaptation, the first period left out."""

    @property
    def recall(self) -> float:
        """Recall over all results."""
        return float(self.produced.sum() / max(self.true.sum(), 1))

    @property
    def average_slack(self) -> float:
        """Average K in ticks."""
        return float(np.mean([seen.slack for seen in self.log]))

    def fulfilled(self, recall: float) -> float:
        """Φ: the share of recall measurements that are at least ``recall``; NaN where there is none."""
        return float((self.recalls >= recall).mean()) if self.recalls.size else float("nan")


def chunks(data: GeneratedDataset) -> Iterator[Chunk]:
    """Read a generated data set in arrival order; its streams have equally many rows and take turns."""
    tables = [pq.read_table(path) for path in data.files.values()]
    for start in range(0, tables[0].num_rows, ROWS):
        batches = [table.slice(start, ROWS).combine_chunks().to_batches()[0] for table in tables]
        arrivals = [batch.column("arrived").to_numpy() for batch in batches]
        yield in_arrival_order([batch.drop_columns(["arrived"]) for batch in batches], arrivals)


def measure(
    data: GeneratedDataset, disorder: dict[str, Any], period: int = 60 * SECOND, interval: int = SECOND
) -> Measured:
    """Run the data set's query with a disorder setting; period and interval in ms, for the measurements."""
    schemas = {
        name: pa.schema([f for f in pq.read_schema(path) if f.name != "arrived"])
        for name, path in data.files.items()
    }
    settings = {"time": "ts", "window": data.query.duration, "where": data.query.where, "output": "counts"}
    plan = bind(JoinConfig.read({**settings, "disorder": disorder}), schemas)
    log: list[Observation] = []
    observed = Observed(inner=plan.disorder, interval=interval, log=log)
    operator = Operator(dataclasses.replace(plan, disorder=observed))
    batches = [batch for chunk in chunks(data) for batch in operator.push(chunk).results]
    batches += operator.finish().results
    counts = pa.Table.from_batches(batches, plan.result_schema)
    truth = pyarrow.csv.read_csv(data.truth)
    seconds = truth["second"].to_numpy()
    first = int(seconds[0])
    size = int(seconds[-1]) - first + 1
    true = np.zeros(size, np.int64)
    true[seconds - first] = truth["results"].to_numpy()
    at = counts["ts"].to_numpy() // SECOND - first
    produced = np.bincount(at, counts["count"].to_numpy(), size).astype(np.int64)
    return Measured(log, first, produced, true, _recalls(log, first, produced, true, period // SECOND))


def _recalls(log: list[Observation], first: int, produced: Int64s, true: Int64s, period: int) -> Float64s:
    """The recall over the ``period`` whole seconds that the join had left behind at each observation."""
    made, owed = (np.concatenate([[0], np.cumsum(sizes)]) for sizes in (produced, true))
    start = log[0].reached // SECOND - first
    stops = np.array([seen.reached // SECOND - first for seen in log])
    stops = stops[(stops - period >= start) & (stops < owed.size)]
    owing = owed[stops] - owed[stops - period]
    return (made[stops] - made[stops - period])[owing > 0] / owing[owing > 0]


def run(options: argparse.Namespace, report: Report) -> None:
    """Run every recall on every data set, and both baselines."""
    table = Table(
        "data", "strategy", Column("Γ", "g", "recall_asked"), Column("K s, mean", ".2f"), Column("recall", ".4f"),
        Column("Φ(Γ)", ".1%", "phi"), Column("Φ(.99Γ)", ".1%", "phi_99"), Column("adaptation ms", ".3f"),
    )  # fmt: skip
    for name in options.data:
        with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as folder:
            data = generate(name, Path(folder), rows=options.rows, seed=options.seed)
            runs = [("quality_driven", recall) for recall in (0.8, 0.9, 0.95, 0.99)]
            for strategy, recall in [*runs, ("max", 1.0), ("none", 1.0)]:
                given = {"recall": recall} if strategy == "quality_driven" else {}
                got = measure(data, {"strategy": strategy, **given})
                took = np.median([seen.seconds for seen in got.log]) * 1e3
                table.add(
                    name, strategy, recall, got.average_slack / SECOND, got.recall, got.fulfilled(recall),
                    got.fulfilled(0.99 * recall), took,
                )  # fmt: skip
                report.progress(f"{name}: {strategy} at {recall:g}")
    report.add(table)
