"""Measurements of a join while it runs: one row per interval of stream time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from slackwater.plugins.contract import Int64s, Snapshot
from slackwater.plugins.disorder.budget import NEARLY
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.settings.plan import METRICS_SCHEMA, DisorderPlan


def metrics_batch(rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Return rows of ``Meter`` as rows of the metrics output."""
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in METRICS_SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=METRICS_SCHEMA)


class Meter:
    """Adds up what happens and turns it into a row at the end of each interval."""

    def __init__(self, plan: DisorderPlan, snapshot: Snapshot | None = None) -> None:
        self._ms = plan.setting.nanos_per_tick / 1e6
        self._slack, self._arrivals = 0.0, 0
        self._latency, self._tuples = 0.0, 0
        self._asked, period = plan.disorder.stated_recall, plan.disorder.stated_period
        self._period = None if period is None or self._asked is None else plan.setting.ticks(period)
        self._began: int | None = snapshot.get("began") if snapshot else None
        """When the period at hand began, and what there was until then."""
        self._until = Accounting(plan.inputs, snapshot.get("until") if snapshot else None)
        self._before = Accounting(plan.inputs, snapshot["before"] if snapshot else None)
        if snapshot:
            self._slack, self._arrivals, self._latency, self._tuples = snapshot["sums"]

    def arrive(self, slack: Int64s) -> None:
        """Note the slack that arrivals met."""
        self._slack += float(slack.sum())
        self._arrivals += slack.size

    def release(self, waited: Int64s) -> None:
        """Note how far stream time had gone on when tuples reached the join."""
        self._latency += float(waited.sum())
        self._tuples += waited.size

    def row(self, now: int, account: Accounting, buffered: int, said: Mapping[str, float]) -> dict[str, Any]:
        """Return the row of the interval that ends at ``now``, and begin the next.

        Args:
            now: stream time in ticks.
            account: what became of all rows so far.
            buffered: rows that wait to be joined.
            said: what the disorder strategy reports of itself, if anything.
        """
        part = account - self._before
        self._before = account.mark()
        self._pass(now, account)
        recall = part.recall_estimate()
        if "recall" in said:
            recall = said["recall"] * (part.results / (part.results + part.shed) if part.shed else 1.0)
        true = said.get("true", part.results / recall if recall else None)
        row: dict[str, Any] = {
            "ts": now,
            "slack_ms": said["slack"] * self._ms if "slack" in said else self._mean(self._slack, self._arrivals),
            "required_recall": said.get("required_recall"),
            "recall_estimate": recall,
            "produced": part.results,
            "true_estimate": true,
            "buffered": buffered,
            "late": sum(part.late.values()),
            "latency_ms": self._mean(self._latency, self._tuples),
        }
        self._slack, self._arrivals, self._latency, self._tuples = 0.0, 0, 0.0, 0
        return row

    def snapshot(self) -> Snapshot:
        sums = [self._slack, self._arrivals, self._latency, self._tuples]
        state = {"sums": sums, "before": self._before.snapshot()}
        return state if self._period is None else {**state, "began": self._began, "until": self._until.snapshot()}

    def _pass(self, now: int, account: Accounting) -> None:
        """Note whether the period at hand had the recall that was asked for, once it is over."""
        if self._period is None or self._asked is None:
            return
        if self._began is None:
            self._began = now
        if now - self._began >= self._period:
            part = account - self._until
            recall = part.recall_estimate()
            if recall is not None and (part.results or part.missed.any() or part.shed):
                account.waited.close_period(recall >= NEARLY * self._asked)
            self._began, self._until = now, account.mark()

    def _mean(self, total: float, n: int) -> float | None:
        return total / n * self._ms if n else None
