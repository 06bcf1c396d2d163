"""Measurements of a join while it runs: one row per interval of stream time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from slackwater.plugins.contract import Int64s, Snapshot
from slackwater.transforms.accounting import Accounting
from slackwater.transforms.plan import METRICS_SCHEMA, JoinPlan


def metrics_batch(rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Return rows of ``Meter`` as rows of the metrics output."""
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in METRICS_SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=METRICS_SCHEMA)


class Meter:
    """Adds up what happens and turns it into a row at the end of each interval."""

    def __init__(self, plan: JoinPlan, snapshot: Snapshot | None = None) -> None:
        self._ms = plan.setting.nanos_per_tick / 1e6
        self._slack, self._arrivals = 0.0, 0
        self._latency, self._tuples = 0.0, 0
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
        return {"sums": sums, "before": self._before.snapshot()}

    def _mean(self, total: float, n: int) -> float | None:
        return total / n * self._ms if n else None
