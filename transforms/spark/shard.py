"""One shard between micro-batches: the operator, and the rows whose turn to arrive has not come."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Int64s, Snapshot
from slackwater.transforms import ipc
from slackwater.transforms import snapshot as snapshots
from slackwater.transforms.accounting import Accounting
from slackwater.transforms.encode import int64s
from slackwater.transforms.operator import Chunk, Outputs
from slackwater.transforms.operators import open_operator
from slackwater.transforms.plan import ARRIVAL, JoinPlan
from slackwater.transforms.replay import in_arrival_order
from slackwater.transforms.spark.packing import (
    ACCOUNT,
    ENDED,
    LATE,
    MARKS,
    METRICS,
    PUNCTUATION,
    RESULT,
    SYNC,
    Packed,
    blobs_of,
    from_blob,
    read_marks,
)

STEP_ROWS: Final = 1 << 17
"""Rows that the operator is given at a time: bounds what it builds up before results leave."""

Output = tuple[str, bytes]
"""Kind and blob."""


class Shard:
    """Takes the packed rows of one micro-batch after the other.

    Rows are processed in arrival order over all inputs. Where the source sends marks, a row waits until no
    input can bring an earlier one, so the cuts between micro-batches change no result; the wait is bounded by
    how far the inputs' cuts are apart. Without marks every micro-batch is taken to have arrived after the one
    before, and nothing waits; where no arrival column is named, numbers go on from one to the next.
    """

    def __init__(self, plan: JoinPlan, snapshot: Snapshot | None = None, number: int = 0) -> None:
        self._plan = plan
        self._operator = open_operator(plan, snapshot["operator"] if snapshot else None, number)
        self._waiting: list[pa.RecordBatch | None] = [None] * len(plan.inputs)
        self._numbered = int(snapshot["numbered"]) if snapshot else 0
        self._taken = int(snapshot["taken"]) if snapshot else 0
        if snapshot:
            self._waiting = [from_blob(blob) if blob else None for blob in snapshot["waiting"]]
        self.ended = False

    def take(self, rows: Iterable[Packed], last: bool = False) -> Iterator[Output]:
        """Process a micro-batch; the shard is in its new state once the iterator is exhausted.

        Args:
            rows: packed rows in any order.
            last: whether every input ends with these rows; marks may say so too.
        """
        started = time.perf_counter()
        batches, marks = self._gather(rows)
        if marks is not None and (marks == ENDED).all():
            last = True
        if not last and marks is not None:
            batches = self._hold(batches, marks)
        else:
            self._waiting = [None] * len(batches)
        arrivals = [int64s(batch.column(ARRIVAL)) for batch in batches]
        if marks is None and self._plan.arrival_columns is None:
            arrivals = [arrival + self._numbered for arrival in arrivals]
            self._numbered = max(
                (int(arrival.max()) + 1 for arrival in arrivals if arrival.size), default=self._numbered
            )
        chunk = in_arrival_order(batches, arrivals)
        if marks is None and not last:
            chunk = chunk._replace(came=self._since_last(chunk.input.size))
        for step in _steps(chunk):
            yield from _packed(self._operator.push(step))
        queue = getattr(self._operator, "queue", None)
        if queue is not None and chunk.came is not None:
            queue.measure(time.perf_counter() - started)
        if last:
            for outputs in self._operator.finishing():
                yield from _packed(outputs)
            self.ended = True
        account = {"account": self._operator.accounting.snapshot(), "warnings": self._operator.warnings}
        yield ACCOUNT, snapshots.dumps(account)

    def snapshot(self) -> bytes:
        """Everything needed to go on in another process."""
        waiting = [b"" if batch is None else ipc.to_bytes(batch) for batch in self._waiting]
        operator = self._operator.snapshot()
        own = {"numbered": self._numbered, "taken": self._taken}
        return snapshots.dumps({"operator": operator, "waiting": waiting, **own})

    def give_up_disk(self) -> bool:
        """Remove what is on disk, which the snapshot has; return whether there was any: this is no use then."""
        used = self._operator.accounting.spilled_tuples > 0
        if used:
            self._operator.close()
        return used

    @classmethod
    def restore(cls, plan: JoinPlan, snapshot: bytes, number: int = 0) -> Shard:
        """Return the shard as it was when the snapshot was taken."""
        return cls(plan, snapshots.loads(snapshot), number)

    def _since_last(self, n: int) -> Int64s:
        """Return when the rows of a micro-batch came: one after the other since the one before was taken."""
        now = time.time_ns() // 1000
        before, self._taken = self._taken or now, now
        return before + (now - before) * np.arange(1, n + 1) // max(1, n)

    def _gather(self, rows: Iterable[Packed]) -> tuple[list[pa.RecordBatch], Any]:
        """Return one batch per input, what waited first, and the marks if there are any."""
        marks = None
        blobs: list[list[tuple[int, bytes]]] = [[] for _ in self._plan.inputs]
        for which, place, blob in rows:
            if which == MARKS:
                marks = read_marks(blob)
            else:
                blobs[which].append((place, blob))
        batches = []
        for i, name in enumerate(self._plan.inputs):
            parts = [from_blob(blob) for _, blob in sorted(blobs[i], key=lambda pair: pair[0])]
            waited = self._waiting[i]
            if waited is not None:
                parts.insert(0, waited)
            if not parts:
                schema = self._plan.schemas[name].append(pa.field(ARRIVAL, pa.int64()))
                parts = [pa.RecordBatch.from_pylist([], schema=schema)]
            batches.append(parts[0] if len(parts) == 1 else pa.concat_batches(parts))
        return batches, marks

    def _hold(self, batches: list[pa.RecordBatch], marks: Any) -> list[pa.RecordBatch]:
        """Return the rows that come before all that is outstanding; keep the others."""
        first, behind = min((int(mark), i) for i, mark in enumerate(marks))
        ready = []
        for i, batch in enumerate(batches):
            arrival = int64s(batch.column(ARRIVAL))
            due = arrival <= first if i <= behind else arrival < first
            if due.all():
                ready.append(batch)
                self._waiting[i] = None
            else:
                ready.append(batch.filter(pa.array(due)))
                self._waiting[i] = batch.filter(pa.array(~due))
        return ready


def read_account(plan: JoinPlan, blob: bytes) -> tuple[Accounting, list[str]]:
    """Return the account of a shard, and its warnings, from an output of kind ACCOUNT."""
    content = snapshots.loads(blob)
    return Accounting(plan.inputs, content["account"]), content["warnings"]


def _packed(outputs: Outputs) -> Iterator[Output]:
    for kind, batches in zip((RESULT, LATE, METRICS, SYNC, PUNCTUATION), outputs, strict=True):
        for blob in blobs_of(batches):
            yield kind, blob


def _steps(chunk: Chunk) -> Iterator[Chunk]:
    """Cut a chunk into smaller ones."""
    taken = np.zeros(len(chunk.batches), np.int64)
    for start in range(0, chunk.input.size, STEP_ROWS):
        part = slice(start, start + STEP_ROWS)
        counts = np.bincount(chunk.input[part], minlength=len(taken))
        batches = [b.slice(int(a), int(n)) for b, a, n in zip(chunk.batches, taken, counts, strict=True)]
        taken += counts
        came = None if chunk.came is None else chunk.came[part]
        yield Chunk(chunk.input[part], chunk.arrival[part], batches, came)
