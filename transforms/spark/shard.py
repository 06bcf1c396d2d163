"""One shard between micro-batches: the operator, and the rows whose turn to arrive has not come."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from slackwater.plugins.clock import clock_at
from slackwater.plugins.contract import NEVER, Int64s, Snapshot
from slackwater.transforms.arrival.order import Numbers, Reached, followers
from slackwater.transforms.disorder.sample import Sample
from slackwater.transforms.disorder.scout import LedOperator, Scout, scout_plan
from slackwater.transforms.engine.driver import STEP_ROWS, ShardDriver, since_last
from slackwater.transforms.engine.frontier import ENDED, EVERYTHING, Reach, WaitingRows
from slackwater.transforms.engine.silence import Silence
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.output.outputs import Outputs
from slackwater.transforms.rows.encoder import int64s
from slackwater.transforms.settings.plan import ARRIVAL, JoinPlan, Plan
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
        self, plan: Plan, snapshot: Snapshot | None = None, number: int = 0, scouts: bool = False
    ) -> None:
        self.plan = plan
        state: dict[str, Any] = dict(snapshot or {})
        scouting = scout_plan(plan) if scouts else None
        self._scout = None if scouting is None else Scout(scouting, state.get("scout"))
        before = state.get("operator")
        led = None
        if self._scout is not None:
            assert isinstance(plan, JoinPlan)
            led = LedOperator(plan, self._scout, before, number)
        self._driver = ShardDriver(plan, number, before, led)
        if "given" in state:
            self._driver.given[:] = state["given"]
        self._waiting = WaitingRows(plan, state.get("waiting"))
        self._numbered = int(state.get("numbered", 0))
        self._taken = int(state.get("taken", 0))
        self._reached: list[int] = list(state.get("reached", [NEVER] * len(plan.inputs)))
        """The largest number of arrival that each bounded input has come to, over all shards."""
        self.read = np.array(state.get("read", [[0, 0]] * len(plan.inputs)), np.int64)
        """Of each input, rows that tasks have read for all shards, and those that Filter left of them."""
        received = np.where(self.read[:, 0] == 0, self.accounting.received, 0)
        self.uncounted: Int64s = np.array(state.get("uncounted", received), np.int64)
        """Rows of each input that came without a word of how many tasks had read, as in earlier versions."""
        timeout, silent = plan.idle_timeout, state.get("silent", ())
        self._silence = Silence(len(plan.members), timeout, state.get("heard", ()), silent)

    def take(self, given: Given, last: bool = False) -> Iterator[Outputs]:
        """Process a micro-batch; the shard is in its new state once the iterator is exhausted.

        Args:
            given: packed rows in any order, and the time of day.
            last: whether every input ends with these rows; marks may say so too.
        """
        started = time.perf_counter()
        members, first, before = len(self.plan.members), self._numbered, self._driver.given.copy()
        read = self.read[:, 0].copy()
        progress, speaking, marks = _progress(given.rows, members), *self._gather(given.rows)
        last = last or (marks is not None and all(mark is None for mark in marks))
        live = marks is None and not last
        speaking |= set(np.flatnonzero(progress != NEVER).tolist())
        if live and self._silence.wake(speaking):
            yield self._idle(given.nanos)
        if self._scout is not None:
            with clock_at(given.nanos):
                numbered = marks is None and self.plan.arrival_columns is None
                self._scout.take(_samples(given.rows, members), first if numbered else 0)
        reach = EVERYTHING
        if marks is not None and not last:
            reach = Reach.of([ENDED if mark is None else mark for mark in marks])
        rows = self._waiting.take(reach, settle_ties=marks is None)
        came = self._since_last(rows.size, given.nanos // 1000) if live else None
        yield from self._driver.take(rows.steps(STEP_ROWS, came, bounded=not live), given.nanos)
        if live:
            self.uncounted += np.where(self.read[:, 0] == read, self._driver.given - before, 0)
        if live and (progress != NEVER).any():
            yield self._advance(progress, given.nanos)
        if self._scout is not None:
            self._scout.settle()
        if live:
            self._driver.measure(time.perf_counter() - started)
            if self._silence.rest(speaking, given.nanos):
                yield self._idle(given.nanos)
        if last:
            yield from self._driver.finish()

    @property
    def accounting(self) -> Accounting:
        """What became of the rows."""
        return self._driver.accounting

    @property
    def ended(self) -> bool:
        """Whether the inputs have ended."""
        return self._driver.ended

    @property
    def repeats(self) -> bool:
        """Whether it would do the same again: not if it measures its own pace, or writes files."""
        archives = isinstance(self.plan, JoinPlan) and self.plan.config.archive is not None
        return not self._driver.measures and not archives and not self.on_disk

    @property
    def on_disk(self) -> bool:
        """Whether part of it is in files, which nobody would remove if it went on in another process."""
        return self.accounting.spilled_tuples > 0

    @property
    def warnings(self) -> list[str]:
        """What the user should know of the data."""
        return self._driver.warnings

    @property
    def nbytes(self) -> int:
        """Bytes of everything held."""
        scout = 0 if self._scout is None else self._scout.nbytes
        return self._driver.nbytes + self._waiting.nbytes + scout

    def next_silence(self) -> int | None:
        """When an input falls idle unless it brings rows, in nanoseconds; None if none does."""
        return self._silence.due()

    def snapshot(self) -> Snapshot:
        """Everything needed to go on in another process."""
        return {
            "operator": self._driver.operator.snapshot(),
            "scout": None if self._scout is None else self._scout.snapshot(),
            "waiting": self._waiting.snapshot(),
            "numbered": self._numbered,
            "taken": self._taken,
            "reached": self._reached,
            "read": self.read.copy(),
            "uncounted": self.uncounted.copy(),
            "given": self._driver.given.copy(),
            "heard": self._silence.heard,
            "silent": self._silence.members,
        }

    def close(self) -> None:
        """Remove what is on disk; the shard is of no use any more."""
        self._driver.close()

    def _idle(self, nanos: int) -> Outputs:
        """Tell the operator which inputs are silent."""
        members = self._silence.members
        if self._scout is not None:
            with clock_at(nanos):
                self._scout.idle(members)
        return self._driver.idle(members, nanos)

    def _advance(self, progress: Int64s, nanos: int) -> Outputs:
        """Go on to where rows of other shards have brought the inputs."""
        if self._scout is not None:
            with clock_at(nanos):
                self._scout.advance(progress)
        return self._driver.advance(progress, nanos)

    def _since_last(self, n: int, now: int) -> Int64s:
        """Return when the rows of a micro-batch came: one after the other since the one before was taken."""
        before, self._taken = self._taken or now, now
        return since_last(before, now, n)

    def _gather(self, rows: Iterable[Packed]) -> tuple[set[int], list[int | None] | None]:
        """Let rows wait for their turn; return the members that brought some, and the marks if there are any."""
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
        first = self._numbered if marks is None and self.plan.arrival_columns is None else None
        for i in range(len(blobs)):
            reached = Reached([(place, note.reached) for place, note in notes[i]], self._reached[i])
            self._reached[i] = reached.last
            for _, note in notes[i]:
                self.read[i] += note.rows, note.left
            for place, blob in sorted(blobs[i], key=lambda pair: pair[0]):
                self._wait(i, from_blob(blob), reached.before(place), first)
        if marks is not None:
            # Rows that do not say when they come have the number that their input has reached.
            pairs = zip(marks, self._reached, strict=True)
            marks = [None if mark is None else min(mark, reached) for mark, reached in pairs]
        return {self.plan.counts_as[i] for i, found in enumerate(blobs) if found}, marks

    def _wait(self, which: int, batch: pa.RecordBatch, reached: int, first: int | None) -> None:
        """Let rows wait, given what those before them have reached.

        Args:
            which: their input.
            batch: the rows.
            reached: the largest number of those before them.
            first: where rows are numbered as they come, the number that those of the micro-batch begin with.
        """
        numbers = int64s(batch.column(ARRIVAL))
        if reached != NEVER:
            numbers = Numbers(numbers, followers(self.plan, which, batch)).after(reached)
        if first is not None:
            numbers = numbers + first
            self._numbered = max(self._numbered, int(numbers.max(initial=NEVER)) + 1)
        self._waiting.add(which, numbers, batch)


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
