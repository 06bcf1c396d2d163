"""What joins report to Beam's metrics, in the namespace ``slackwater``.

Counters ``results`` and ``late_<reason>``, shed rows included; distributions over all shards and steps of
``slack_ms`` (K), ``recall_ppm`` (the estimate, in parts per million), ``state_tuples`` and ``state_bytes``;
gauges of the same with ``_now`` at the end, as the shard that reported last has them.
Live joins also count ``journal_read``, ``journal_written`` and ``journal_stored``, in bytes: what was read from
the state that Beam keeps, what was written to it, and what there was to read, each added up over all steps.
"""

from __future__ import annotations

from typing import Any, Final

from apache_beam.metrics import Metrics

from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.state.journal import Opened

NAMESPACE: Final = "slackwater"


def report(account: Accounting, nanos_per_tick: int, nbytes: int, before: Accounting | None = None) -> None:
    """Report how a shard stands.

    Args:
        account: of the shard.
        nanos_per_tick: unit of its times.
        nbytes: bytes it holds.
        before: its account when it was last reported, less of what ``Accounting.mark`` leaves out.
    """
    part = account if before is None else account - before
    Metrics.counter(NAMESPACE, "results").inc(part.results)
    for (_, reason), n in part.late.items():
        Metrics.counter(NAMESPACE, f"late_{reason}").inc(n)
    recall = account.recall_estimate()
    measured = {
        "slack_ms": None if account.last_slack is None else account.last_slack * nanos_per_tick / 1e6,
        "recall_ppm": None if recall is None else recall * 1e6,
        "state_tuples": account.last_tuples if before is not None else account.max_tuples,
        "state_bytes": nbytes,
    }
    for name, value in measured.items():
        if value is not None:
            Metrics.distribution(NAMESPACE, name).update(round(value))
            Metrics.gauge(NAMESPACE, f"{name}_now").set(round(value))


def report_journal(opened: Opened[Any]) -> None:
    """Report what a step has read and written of a shard's state."""
    for name, nbytes in (
        ("read", opened.read_bytes), ("written", opened.written_bytes), ("stored", opened.stored_bytes)
    ):  # fmt: skip
        Metrics.counter(NAMESPACE, f"journal_{name}").inc(nbytes)
