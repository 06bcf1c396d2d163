"""``slackwater bench disorder``: how much slack disorder strategies take for the recall that is asked for.

Every installed disorder strategy with an option ``recall`` runs on each data set at each recall, and so do the
baselines ``none`` and ``max``. They stand against the best constant slack in hindsight: the smallest at which
97 % of the measured periods reach 99 % of the recall asked for. Φ(Γ) is the share of periods with a recall of
at least Γ; it is measured once per interval, the first two periods apart. The average slack is over all arrivals.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from slackwater.pipelines.bench.disorder import NANOS_PER_MS
from slackwater.pipelines.bench.disorder.figures import Line, plots, table
from slackwater.pipelines.bench.disorder.hindsight import Hindsight, Intervals, Log
from slackwater.pipelines.bench.disorder.measurement import Measured, latency, measure
from slackwater.pipelines.bench.report import Report
from slackwater.pipelines.generate import generate
from slackwater.plugins.registry.manager import manager
from slackwater.plugins.registry.options import Duration
from slackwater.transforms.errors import SlackwaterError
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import bind

BASELINES = ("none", "max")
BEST = "best constant"


@dataclass(frozen=True)
class Case:
    """A data set, how its query joins (see ``Hindsight``) and the settings that its pace asks for."""

    kind: str
    columns: tuple[str, ...]
    period: str = "1m"
    interval: str = "1s"
    granularity: str = "10ms"
    """Also the basic window."""
    step: int = 10
    """Constant slacks are multiples of this, in ms."""


_SLOW: Mapping[str, Any] = {"period": "3d", "interval": "1h", "granularity": "5m", "step": 60_000}
CASES = {
    "syn3": Case("equal", ("a1",)),
    "syn4": Case("star", ("a1", "a2", "a3")),
    "soccer": Case("near", ()),
    "flights": Case("equal", ("dest",), **_SLOW),
    "flights_weather": Case("equal", ("origin",), **_SLOW),
}
USUAL = ("syn3", "syn4", "soccer", "flights")


class Subject:
    """A data set in memory, what is known of it in hindsight, and runs of strategies on it."""

    def __init__(self, name: str, rows: int | None, period: str | None, interval: str | None, seed: int) -> None:
        import pyarrow.parquet as pq

        self.name, self.case = name, CASES[name]
        self.period, self.interval = period or self.case.period, interval or self.case.interval
        with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as folder:
            made = generate(name, Path(folder), rows=rows, seed=seed)
            self.tables = {stream: pq.read_table(path) for stream, path in made.files.items()}
        self._query = made.query
        streams = [_columns(table) for table in self.tables.values()]
        self.log = Log.of(streams)
        self.intervals = Intervals(self.log, _ms(self.interval), _ms(self.period))
        window, step = made.query.window, self.case.step
        self.hindsight = Hindsight(
            self.log, streams, self.case.kind, self.case.columns, window, self.intervals, step
        )
        if int(self.intervals.true.sum()) != made.results:
            raise SlackwaterError(
                f"{name}: counted {int(self.intervals.true.sum())} results, and {made.results} when generated; "
                "one of the two counts is wrong: report this"
            )

    @property
    def rows(self) -> int:
        """Rows over all streams."""
        return len(self.log.ts)

    def run(self, strategy: str, **options: Any) -> Measured:
        """Run a strategy; of the options it gets those that it has."""
        settings = self._settings(strategy, options)
        plan = bind(JoinConfig.read(settings), {name: table.schema for name, table in self.tables.items()})
        return measure(plan, self.tables, self.log, self.intervals)

    def at_recall(self, strategy: str, recall: float) -> Measured:
        """Run a strategy with a recall and the settings of this data set."""
        return self.run(strategy, **self._pace(recall))

    def settings(self, strategy: str, recall: float) -> dict[str, Any]:
        """Return the settings of the join with which ``at_recall`` runs a strategy."""
        return self._settings(strategy, self._pace(recall))

    def _pace(self, recall: float) -> dict[str, Any]:
        case = self.case
        pace = {"period": self.period, "interval": self.interval, "granularity": case.granularity}
        return {"recall": recall, **pace, "basic_window": case.granularity}

    def _settings(self, strategy: str, options: Mapping[str, Any]) -> dict[str, Any]:
        known = {p.strategy.name: p.strategy for p in manager().strategies("disorder")}[strategy].model_fields
        return {
            "time": "ts",
            "arrival": "arrived",
            "window": self._query.duration,
            "where": self._query.where,
            "output": "counts",
            "disorder": {"strategy": strategy, **{name: v for name, v in options.items() if name in known}},
        }

    def constant(self, slack: int) -> Measured:
        """Return what a constant slack gives, without a run."""
        late = latency(self.log, self.log.progress - slack, *self.hindsight.results(slack))
        slacks = np.full(self.intervals.count, float(slack))
        return Measured(self.hindsight.produced(slack), float(slack), slacks, late, 0.0)


def run(options: argparse.Namespace, report: Report) -> None:
    """Generate, run and compare."""
    lines: list[Line] = []
    for name in options.data or USUAL:
        report.progress(f"{name}: generating and counting")
        try:
            subject = Subject(name, options.rows, options.period, options.interval, options.seed)
        except ValueError as error:
            if options.data:
                raise SlackwaterError(str(error)) from error
            report.progress(f"{name}: left out: {error}")
            continue
        if not len(subject.intervals.recalls(subject.intervals.true)[0]):
            report.progress(
                f"{name}: shorter than three periods of {subject.period}, so Φ is not measured; "
                "use more --rows or a shorter --period"
            )
        lines += _lines(subject, options.recall, options.strategies or (*BASELINES, *_with_recall()), report)
    if not lines:
        raise SlackwaterError("no data set could be used; see above")
    report.add(table(lines))
    report.plot(partial(plots, lines))


def _with_recall() -> list[str]:
    """Names of the installed disorder strategies that take a recall, in order of registration."""
    found = [p.strategy for p in manager().strategies("disorder")]
    return [strategy.name for strategy in found if "recall" in strategy.model_fields]


def _lines(
    subject: Subject, recalls: tuple[float, ...], strategies: tuple[str, ...], report: Report
) -> Iterator[Line]:
    """Yield the lines of one data set: for each recall the best constant slack, then every strategy."""
    adaptive = set(_with_recall())
    once: dict[str, Measured] = {}
    maximum = _maximum(subject)
    for recall in recalls:
        best = subject.hindsight.best(0.99 * recall)
        if best is not None:
            yield _line(subject, BEST, recall, subject.constant(best), best, maximum)
        for name in strategies:
            measured = once.get(name)
            if measured is None:
                measured = subject.at_recall(name, recall) if name in adaptive else subject.run(name)
                label = f"{name} at {recall:g}" if name in adaptive else name
                report.progress(f"{subject.name}: {label}: {subject.rows:,} rows in {measured.seconds:.1f} s")
            if name not in adaptive:
                once[name] = measured
            yield _line(subject, name, recall, measured, best, maximum)
    _check(subject, recalls, report)


def _check(subject: Subject, recalls: tuple[float, ...], report: Report) -> None:
    """Run ``fixed`` once, at a slack that hindsight has chosen, and say how far the two are apart."""
    middle = sorted(recalls)[len(recalls) // 2]
    slack = subject.hindsight.best(0.99 * middle) or subject.case.step * 10
    both = (subject.hindsight.produced(slack), subject.run("fixed", slack=f"{slack}ms").produced)
    counted, ran = (subject.intervals.overall(produced) for produced in both)
    reached = [subject.intervals.fulfilled(produced, 0.99 * middle) for produced in both]
    phi = "" if None in reached else f" (Φ(.99·{middle:g}) {reached[0]:.3f} and {reached[1]:.3f})"
    report.progress(
        f"{subject.name}: check of hindsight: a constant slack of {slack} ms gives a recall of {counted:.4f} "
        f"by count and {ran:.4f} by running it{phi}"
    )


def _maximum(subject: Subject) -> float:
    """Return the average slack of Max-K-slack, in ms."""
    return float(np.maximum.accumulate(subject.log.progress - subject.log.ts).mean())


def _line(
    subject: Subject, strategy: str, recall: float, measured: Measured, best: int | None, maximum: float
) -> Line:
    intervals = subject.intervals
    ends, recalls = intervals.recalls(measured.produced)
    return Line(
        data=subject.name,
        recall=recall,
        strategy=strategy,
        slack_ms=measured.slack,
        overall=intervals.overall(measured.produced),
        fulfilled=intervals.fulfilled(measured.produced, recall),
        nearly=intervals.fulfilled(measured.produced, 0.99 * recall),
        latency_ms=measured.latency,
        to_max=measured.slack / maximum if maximum else None,
        to_best=measured.slack / best if best else None,
        hours=(ends + 1) * intervals.interval / 3_600_000,
        recalls=recalls,
        slack_hours=(np.arange(intervals.count) + 1) * intervals.interval / 3_600_000,
        slacks=measured.slacks,
    )


def _columns(table: Any) -> Mapping[str, Any]:
    return {name: table[name].to_numpy() for name in table.column_names}


def _ms(duration: str) -> int:
    return max(1, int(Duration.parse(duration)) // NANOS_PER_MS)
