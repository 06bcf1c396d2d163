"""GroupClose read literally, one event after the other, and what runs the operator on the same events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from aggregate_reference import AGGREGATES, values

from slackwater.transforms.operators.group_close.operator import GroupCloser
from slackwater.transforms.operators.group_close.plan import GroupClosePlan, bind_group_close
from slackwater.transforms.operators.join import Chunk
from slackwater.transforms.settings.models import GroupCloseConfig
from slackwater.transforms.state import snapshot as snapshots

Row = dict[str, Any]
Event = tuple[int, Row]
"""Input, 0 for rows and 1 for punctuations, and the row."""

ROWS = pa.schema(
    [("id", pa.int64()), ("ts", pa.int64()), ("k", pa.string()), ("j", pa.int64()), ("twin", pa.int64()),
     ("v", pa.int64()), ("x", pa.float64())]
)  # fmt: skip
PUNCTUATIONS = pa.schema([("ts", pa.int64()), ("pattern", pa.string())])


@dataclass
class Closings:
    """What is to come out."""

    groups: list[tuple[Any, ...]] = field(default_factory=list)
    """Key, values of AGGREGATES, ts, closed_by."""
    late: list[tuple[int, str]] = field(default_factory=list)
    """Row number and reason."""


def merged(rows: Sequence[Row], punctuations: Sequence[Row]) -> list[Event]:
    """All events in order of time, rows before punctuations."""
    events = [(0, row) for row in rows] + [(1, row) for row in punctuations]
    return sorted(events, key=lambda event: (event[1]["ts"], event[0]))


def covers(pattern: Row, row: Row) -> bool:
    """Whether a row matches a pattern."""
    for column, wanted in pattern.items():
        value = row[column]
        if isinstance(wanted, dict):
            low, high = wanted.get("from"), wanted.get("to")
            if value is None or (low is not None and value < low) or (high is not None and value > high):
                return False
        elif value not in (wanted if isinstance(wanted, list) else [wanted]):
            return False
    return True


def reference(events: Sequence[Event], by: Sequence[str], window: int | None = None) -> Closings:
    """The groups that come out of events in order of time."""
    out = Closings()
    opened: dict[tuple[Any, ...], list[Row]] = {}
    said: list[Row] = []
    clock = -(1 << 62)

    def close(key: tuple[Any, ...], ts: int, why: str) -> None:
        out.groups.append((key, values(opened.pop(key)), ts, why))

    for which, event in events:
        clock = max(clock, event["ts"])
        for key, members in list(opened.items()):
            if window is not None and members[0]["ts"] + window < clock:
                close(key, members[0]["ts"] + window, "window")
        if which:
            pattern = json.loads(event["pattern"])
            said.append(pattern)
            for key, members in list(opened.items()):
                if covers(pattern, members[0]):
                    close(key, event["ts"], "punctuation")
            continue
        key = tuple(event[column] for column in by)
        if key not in opened and any(covers(pattern, event) for pattern in said):
            out.late.append((event["id"], "punctuation_violated"))
        else:
            opened.setdefault(key, []).append(event)
    for key in list(opened):
        close(key, clock, "end")
    return out


def plan_of(schema: pa.Schema = ROWS, **settings: Any) -> GroupClosePlan:
    """Bind GroupClose of AGGREGATES over the column ``ts`` unless told."""
    given = {"time": "ts", "aggregates": AGGREGATES, **settings}
    return bind_group_close(GroupCloseConfig.read(given), {"rows": schema, "punctuations": PUNCTUATIONS})


@dataclass
class Run:
    """What an operator gave."""

    operator: GroupCloser
    outputs: list[Any] = field(default_factory=list)

    def rows(self, output: str = "results") -> list[Row]:
        """All rows of an output, in order."""
        return [row for out in self.outputs for batch in getattr(out, output) for row in batch.to_pylist()]

    def closings(self, by: Sequence[str]) -> Closings:
        """The outputs in the form of the reference."""
        found = Closings(late=[(json.loads(row["row"])["id"], row["reason"]) for row in self.rows("late")])
        for row in self.rows():
            key, got = tuple(row[column] for column in by), tuple(row[name] for name in AGGREGATES)
            found.groups.append((key, got, row["ts"], row["closed_by"]))
        return found


def run(plan: GroupClosePlan, events: Sequence[Event], cut: int | None = None, restart: bool = False) -> Run:
    """Run events to the end in chunks of ``cut``; with ``restart``, through a snapshot after each chunk."""
    gathered = Run(GroupCloser(plan))
    size = cut or max(1, len(events))
    for start in range(0, len(events), size):
        part = events[start : start + size]
        batches = [
            pa.RecordBatch.from_pylist([row for which, row in part if which == i], schema=schema)
            for i, schema in enumerate(plan.schemas.values())
        ]
        inputs = np.array([which for which, _ in part], np.int8)
        chunk = Chunk(inputs, np.arange(start, start + len(part)), batches)
        gathered.outputs.append(gathered.operator.push(chunk))
        if restart:
            saved = snapshots.loads(snapshots.dumps(gathered.operator.snapshot()))
            gathered.operator = GroupCloser(plan, saved)
    gathered.outputs.append(gathered.operator.finish())
    return gathered
