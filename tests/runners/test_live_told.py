"""A live run says now and then how it stands; a fake query stands in for Spark's."""

from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from slackwater.pipelines.cli.progress import Silent
from slackwater.pipelines.runners.spark import live
from slackwater.transforms.output.accounting import Accounting


class Query:
    """Makes a micro-batch of so many rows each time it is waited for, and ends after the last."""

    def __init__(self, rows: list[int]) -> None:
        self._rows, self.at = rows, -1

    def awaitTermination(self, timeout: float) -> bool:
        self.at += 1
        return self.at == len(self._rows)

    @property
    def lastProgress(self) -> dict[str, Any]:
        return {"batchId": self.at, "numInputRows": self._rows[self.at]}


def told(rows: list[int], times: list[float], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a run says of micro-batches of so many rows that end at these seconds."""
    query = Query(rows)
    clock = SimpleNamespace(monotonic=lambda: times[query.at] if query.at >= 0 else 0.0)
    monkeypatch.setattr(live, "time", clock)
    run = object.__new__(live.LiveRun)
    run._sources, run._progress, run.name = [], Silent(), "joined"
    run.plan = SimpleNamespace(idle_timeout=None, inputs=("a", "b"))  # type: ignore[assignment]
    account = Accounting(("a", "b"))
    account.received[:] = 1200, 34
    run._accounts = {0: SimpleNamespace(accounting=account)}  # type: ignore[dict-item]
    lines: list[str] = []
    run._wait(query, Event(), [], lines.append)
    return lines


def test_it_is_said_every_half_minute_in_which_there_were_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "joined: 1,234 rows, 0 results, 0 late"
    assert told([5, 5, 5], [1, 20, 29], monkeypatch) == []
    assert told([5, 5, 5, 5], [1, 31, 45, 62], monkeypatch) == [line, line]
    assert told([0, 0, 5], [31, 62, 63], monkeypatch) == [line]
