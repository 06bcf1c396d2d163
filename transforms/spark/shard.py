"""One shard between micro-batches: the operator, and the rows whose turn to arrive has not come."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from slackwater.plugins.clock import clock_at
from slackwater.plugins.contract import NEVER, Int64s, Snapshot
from slackwater.transforms.arrival.merge import in_arrival_order
from slackwater.transforms.arrival.order import Numbers, Reached, followers
from slackwater.transforms.arrival.ties import in_stable_order
from slackwater.transforms.disorder.sample import Sample
from slackwater.transforms.disorder.scout import LedOperator, Scout, scout_plan
from slackwater.transforms.engine.faults import naming_rows
from slackwater.transforms.operators.join import Chunk, Outputs
from slackwater.transforms.operators.registry import ShardOperator, open_operator
from slackwater.transforms.rows import ipc
from slackwater.transforms.rows.encoder import int64s
from slackwater.transforms.settings.plan import ARRIVAL, JoinPlan
from slackwater.transforms.spark.blobs import (
    BEAT,
    MARKS,
    NOTE,
    SAMPLE,
    Note,
    Packed,
    from_blob,
    read_beat,
    read_marks,
    read_note,
    read_sample,
)
from slackwater.transforms.state import snapshot as snapshots

STEP_ROWS: Final = 1 << 17
"""Rows that the operator is given at a time: bounds what it builds up before results leave."""


class Given(NamedTuple):
    """All that a shard is ever given: the rows of a micro-batch, none by a timer, and the time of day."""

    rows: Sequence[Packed]
    nanos: int

    @property
    def nbytes(self) -> int:
        """Bytes of the rows as they were packed."""
        return sum(len(row.blob) for row in self.rows)

    def dumps(self) -> bytes:
        """Return this as bytes."""
        return snapshots.dumps({"nanos": self.nanos, "rows": [list(row) for row in self.rows]})

    @classmethod
    def loads(cls, data: bytes) -> Given:
        """Return what ``dumps`` wrote."""
        tree = snapshots.loads(data)
        return cls([Packed(*row) for row in tree["rows"]], tree["nanos"])


class Shard:
    """Takes the packed rows of one micro-batch after the other; given the same again, it does the same.

    Rows are processed in arrival order over all inputs. Where the source sends marks, a row waits until no
    input can bring an earlier one, so the cuts between micro-batches change no result; the wait is bounded by
    how far the inputs' cuts are apart. Without marks every micro-batch is taken to have arrived after the one
    before, and nothing waits; rows with equal numbers are taken in the same order wherever they were read
    (``ties``); where no arrival column is named, numbers go on from one micro-batch to the next. Beats then
    tell how far rows of all shards have brought each input: as far as it is once the micro-batch has been taken
    (QDDH sec. V). An input that has brought no rows to any shard for ``idle_timeout`` holds nothing back any
    more, until it does.

    Args:
        plan: what the operator does.
        snapshot: what ``snapshot`` returned, or None.
        number: of the shard.
        scouts: whether samples come with the rows, so that all shards use the slack that they teach.
    """

    def __init__(
        self, plan: JoinPlan, snapshot: Snapshot | None = None, number: int = 0, scouts: bool = False
    ) -> None:
        self.plan, self._number = plan, number
        scouting = scout_plan(plan) if scouts else None
        self._scout = None if scouting is None else Scout(scouting, snapshot["scout"] if snapshot else None)
        before = snapshot["operator"] if snapshot else None
        self._operator: ShardOperator = (
            open_operator(plan, before, number)
            if self._scout is None
            else LedOperator(plan, self._scout, before, number)
        )
        self._measures = plan.queue is not None and plan.queue.service_rate is None
        self._waiting: list[pa.RecordBatch | None] = [None] * len(plan.inputs)
        self._numbered = int(snapshot["numbered"]) if snapshot else 0
        self._taken = int(snapshot["taken"]) if snapshot else 0
        self._reached: list[int] = list((snapshot or {}).get("reached", [NEVER] * len(plan.inputs)))
        """The largest number of arrival that each bounded input has come to, over all shards."""
        self.read = np.array((snapshot or {}).get("read", [[0, 0]] * len(plan.inputs)), np.int64)
        """Of each bounded input, rows that tasks have read for all shards, and those that Filter left of them."""
        self._heard: list[int] = list(snapshot["heard"]) if snapshot else []
        """When each member last brought rows, in nanoseconds; from the first micro-batch on."""
        self._silent: set[int] = set(snapshot["silent"]) if snapshot else set()
        if snapshot:
            self._waiting = [from_blob(blob) if blob else None for blob in snapshot["waiting"]]
        self.accounting = self._operator.accounting
        self._given = np.array((snapshot or {}).get("given", self.accounting.received))
        """Rows of each input that the operator was given, but for copies."""
        self.ended = False

    def take(self, given: Given, last: bool = False) -> Iterator[Outputs]:
        """Process a micro-batch; the shard is in its new state once the iterator is exhausted.

        Args:
            given: packed rows in any order, and the time of day.
            last: whether every input ends with these rows; marks may say so too.
        """
        started = time.perf_counter()
        batches, marks = self._gather(given.rows)
        last = last or (marks is not None and all(mark is None for mark in marks))
        live = marks is None and not last
        progress = _progress(given.rows, len(self.plan.members))
        speak = {self.plan.counts_as[i] for i, batch in enumerate(batches) if batch.num_rows}
        speak |= set(np.flatnonzero(progress != NEVER).tolist())
        if live:
            yield from self._wake(speak, given.nanos)
        if not last and marks is not None:
            batches = self._hold(batches, marks)
        else:
            self._waiting = [None] * len(batches)
        arrivals = [int64s(batch.column(ARRIVAL)) for batch in batches]
        first = self._numbered if marks is None and self.plan.arrival_columns is None else 0
        if self._scout is not None:
            with clock_at(given.nanos):
                self._scout.take(_samples(given.rows, len(self.plan.members)), first)
        if marks is None and self.plan.arrival_columns is None:
            arrivals = [arrival + first for arrival in arrivals]
            self._numbered = max(
                (int(arrival.max()) + 1 for arrival in arrivals if arrival.size), default=self._numbered
            )
        if marks is None:
            chunk = in_stable_order(self.plan, batches, arrivals)
        else:
            chunk = in_arrival_order(batches, arrivals)
        chunk = chunk._replace(bounded=not live)
        if live:
            chunk = chunk._replace(came=self._since_last(chunk.input.size, given.nanos // 1000))
        self._given += np.bincount(chunk.at_home, minlength=self._given.size)
        for step in _steps(chunk):
            with clock_at(given.nanos), naming_rows(self.plan, self._number, step):
                outputs = self._operator.push(step)
            yield outputs
        if live and (progress != NEVER).any():
            with clock_at(given.nanos):
                if self._scout is not None:
                    self._scout.advance(progress)
                outputs = self._operator.advance(progress)
            yield outputs
        if self._scout is not None:
            self._scout.settle()
        queue = getattr(self._operator, "queue", None)
        if queue is not None and live and self._measures:
            queue.measure(time.perf_counter() - started)
        if live and self.plan.config.idle_timeout is not None:
            yield from self._rest(speak, given.nanos, self.plan.config.idle_timeout)
        if last:
            with naming_rows(self.plan, self._number):
                yield from self._operator.finishing()
                self.accounting.settle(self._given)
            self.ended = True

    @property
    def repeats(self) -> bool:
        """Whether it would do the same again: not if it measures its own pace, or writes files."""
        return not self._measures and self.plan.config.archive is None and not self.on_disk

    @property
    def on_disk(self) -> bool:
        """Whether part of it is in files, which nobody would remove if it went on in another process."""
        return self.accounting.spilled_tuples > 0

    @property
    def warnings(self) -> list[str]:
        """What the user should know of the data."""
        return self._operator.warnings

    @property
    def nbytes(self) -> int:
        """Bytes of everything held."""
        waiting = sum(batch.nbytes for batch in self._waiting if batch is not None)
        return self._operator.nbytes + waiting + (0 if self._scout is None else self._scout.nbytes)

    def next_silence(self) -> int | None:
        """When an input falls idle unless it brings rows, in nanoseconds; None if none does."""
        timeout = self.plan.config.idle_timeout
        if timeout is None:
            return None
        heard = [nanos for i, nanos in enumerate(self._heard) if i not in self._silent]
        return min(heard) + timeout if heard else None

    def snapshot(self) -> Snapshot:
        """Everything needed to go on in another process."""
        return {
            "operator": self._operator.snapshot(),
            "scout": None if self._scout is None else self._scout.snapshot(),
            "waiting": [b"" if batch is None else ipc.to_bytes(batch) for batch in self._waiting],
            "numbered": self._numbered,
            "taken": self._taken,
            "reached": self._reached,
            "read": self.read.copy(),
            "given": self._given.copy(),
            "heard": self._heard,
            "silent": sorted(self._silent),
        }

    def close(self) -> None:
        """Remove what is on disk; the shard is of no use any more."""
        self._operator.close()

    def _rest(self, speak: set[int], nanos: int, timeout: int) -> Iterator[Outputs]:
        """Release what inputs hold back that have been silent for too long; ``speak`` are those with rows now."""
        self._heard = self._heard or [nanos] * len(self.plan.members)
        for which in speak:
            self._heard[which] = nanos
        before, self._silent = self._silent, {i for i, t in enumerate(self._heard) if nanos - t >= timeout}
        if not self._silent <= before:
            yield self._idle(nanos)

    def _wake(self, speak: set[int], nanos: int) -> Iterator[Outputs]:
        """Wait again for inputs that were silent and bring rows now, before any of these is taken."""
        if len(self.plan.members) > 1 and self._silent & speak:
            self._silent -= speak
            yield self._idle(nanos)

    def _idle(self, nanos: int) -> Outputs:
        """Tell the operator which inputs are silent."""
        with clock_at(nanos):
            if self._scout is not None:
                self._scout.idle(sorted(self._silent))
            return self._operator.idle(sorted(self._silent))

    def _since_last(self, n: int, now: int) -> Int64s:
        """Return when the rows of a micro-batch came: one after the other since the one before was taken."""
        before, self._taken = self._taken or now, now
        return before + (now - before) * np.arange(1, n + 1) // max(1, n)

    def _gather(self, rows: Iterable[Packed]) -> tuple[list[pa.RecordBatch], list[int | None] | None]:
        """Return one batch per input, what waited first, and the marks if there are any."""
        marks = None
        blobs: list[list[tuple[int, bytes]]] = [[] for _ in self.plan.inputs]
        notes: list[list[tuple[int, Note]]] = [[] for _ in self.plan.inputs]
        for which, place, blob in rows:
            if which == MARKS:
                marks = read_marks(blob)
            elif which >= 0:
                blobs[which].append((place, blob))
            elif which <= NOTE:
                notes[NOTE - which].append((place, read_note(blob)))
        batches = []
        for i, name in enumerate(self.plan.inputs):
            reached = Reached([(place, note.reached) for place, note in notes[i]], self._reached[i])
            self._reached[i] = reached.last
            for _, note in notes[i]:
                self.read[i] += note.rows, note.left
            ordered = sorted(blobs[i], key=lambda pair: pair[0])
            parts = [self._after(i, from_blob(blob), reached.before(place)) for place, blob in ordered]
            waited = self._waiting[i]
            if waited is not None:
                parts.insert(0, waited)
            if not parts:
                schema = self.plan.schemas[name].append(pa.field(ARRIVAL, pa.int64()))
                parts = [pa.RecordBatch.from_pylist([], schema=schema)]
            batches.append(parts[0] if len(parts) == 1 else pa.concat_batches(parts))
        if marks is not None:
            # Rows that do not say when they come have the number that their input has reached.
            pairs = zip(marks, self._reached, strict=True)
            marks = [None if mark is None else min(mark, reached) for mark, reached in pairs]
        return batches, marks

    def _after(self, which: int, batch: pa.RecordBatch, reached: int) -> pa.RecordBatch:
        """Return rows with their numbers of arrival, given what those before them have reached."""
        follows = None if reached == NEVER else followers(self.plan, which, batch)
        if follows is None:
            return batch
        column = batch.schema.get_field_index(ARRIVAL)
        numbers = Numbers(int64s(batch.column(column)), follows).after(reached)
        return batch.set_column(column, ARRIVAL, pa.array(numbers))

    def _hold(self, batches: list[pa.RecordBatch], marks: Sequence[int | None]) -> list[pa.RecordBatch]:
        """Return the rows that come before all that is outstanding; keep the others."""
        first, behind = min((mark, i) for i, mark in enumerate(marks) if mark is not None)
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


def _progress(rows: Iterable[Packed], members: int) -> Int64s:
    """Return the largest event time that beats tell of each member, or NEVER."""
    progress = np.full(members, NEVER, np.int64)
    for which, member, blob in rows:
        if which == BEAT:
            progress[member] = max(progress[member], read_beat(blob))
    return progress


def _samples(rows: Iterable[Packed], members: int) -> list[list[Sample]]:
    """Return the samples of each member, in order."""
    found: list[list[Packed]] = [[] for _ in range(members)]
    for row in rows:
        if NOTE < row.input <= SAMPLE:
            found[SAMPLE - row.input].append(row)
    return [[read_sample(row.blob) for row in sorted(of, key=lambda row: row.place)] for of in found]


def _steps(chunk: Chunk) -> Iterator[Chunk]:
    """Cut a chunk into smaller ones."""
    taken = np.zeros(len(chunk.batches), np.int64)
    for start in range(0, chunk.input.size, STEP_ROWS):
        part = slice(start, start + STEP_ROWS)
        counts = np.bincount(chunk.input[part], minlength=len(taken))
        batches = [b.slice(int(a), int(n)) for b, a, n in zip(chunk.batches, taken, counts, strict=True)]
        taken += counts
        came = None if chunk.came is None else chunk.came[part]
        yield Chunk(chunk.input[part], chunk.arrival[part], batches, came, chunk.bounded)
