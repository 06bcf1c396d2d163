"""The way in: event times, the guard, row numbers and the progress of every input."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import NEVER, Arrivals, Bools, Int8s, Int64s, Snapshot
from slackwater.transforms.copies import COPY, without_copies
from slackwater.transforms.kernels import reorder as kernel
from slackwater.transforms.plan import JoinPlan
from slackwater.transforms.times import event_times

_REASON_OF = {kernel.TOO_OLD: "too_late", kernel.IN_FUTURE: "future_time"}
_YEAR_NANOS = 365 * 86_400 * 10**9


class Chunk(NamedTuple):
    """Arrivals in order: arrival k is the next row of batch ``input[k]``."""

    input: Int8s
    arrival: Int64s
    batches: list[pa.RecordBatch]
    came: Int64s | None = None
    """Of a live input, when each came by the engine's clock, in microseconds; None in a replay."""

    @property
    def at_home(self) -> Int8s:
        """The inputs of the arrivals that this shard accounts for: all but copies."""
        if not any(COPY in batch.schema.names for batch in self.batches):
            return self.input
        own = [
            np.full(len(copy), i, np.int8)[~copy] for i, (_, copy) in enumerate(map(without_copies, self.batches))
        ]
        return np.concatenate(own)


class Refused(NamedTuple):
    """Rows of one input that never reach the join."""

    which: int
    reason: str
    ts: Int64s | None
    arrival: Int64s
    rows: pa.RecordBatch


class Taken(NamedTuple):
    """A chunk sorted into rows to join and rows to refuse."""

    arrivals: Arrivals
    source: Int8s
    """The input that each came in by; ``arrivals.input`` is the one that it counts as an arrival of."""
    seq: Int64s
    rows: list[pa.RecordBatch]
    """The accepted rows of each input."""
    of_input: list[Int64s]
    """Where in ``arrivals`` they are."""
    copies: list[Bools]
    """Which of them another shard accounts for."""
    refused: list[Refused]


class Intake:
    """Judges arrivals one after the other; knows how far each input has come.

    A source of punctuations has no progress of its own: its rows are arrivals of the input they speak of, so that
    a join never waits for them.
    """

    def __init__(self, plan: JoinPlan, snapshot: Snapshot | None = None) -> None:
        m = len(plan.members)
        self._plan = plan
        self._counts_as = np.asarray(plan.counts_as, np.int8)
        guard, setting = plan.config.guard, plan.setting
        self._past = -1 if guard.past is None else setting.ticks(guard.past)
        self._future = -1 if guard.future is None else setting.ticks(guard.future)
        self.warnings: list[str] = []
        self._progress = np.full(m, NEVER, np.int64)
        self._jumped = np.full(m, NEVER, np.int64)
        self._jumped_elsewhere = np.full(m, NEVER, np.int64)
        self._next_seq = np.zeros(len(plan.inputs), np.int64)
        if snapshot:
            self._progress[:] = snapshot["progress"]
            self._jumped[:] = snapshot["jumped"]
            self._jumped_elsewhere[:] = snapshot.get("jumped_elsewhere", NEVER)
            self._next_seq[:] = snapshot["next_seq"]

    @property
    def progress(self) -> Int64s:
        """Largest event time seen on each input, or NEVER."""
        return self._progress

    def take(self, chunk: Chunk) -> Taken:
        """Number the rows, read their times and apply the guard."""
        n = chunk.input.size
        ts, seq, known = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.bool_)
        of_input = [np.flatnonzero(chunk.input == i) for i in range(len(chunk.batches))]
        rows, copies = map(list, zip(*map(without_copies, chunk.batches), strict=True))
        for i, (batch, at) in enumerate(zip(chunk.batches, of_input, strict=True)):
            if at.size:
                ts[at], known[at] = event_times(batch.column(self._plan.time_columns[i]), self._plan.unit)
                seq[at] = self._next_seq[i] + np.arange(at.size)
                self._next_seq[i] += at.size
        verdict, progress, frontier = np.zeros(n, np.int8), np.zeros(n, np.int64), np.zeros(n, np.int64)
        inputs = self._counts_as[chunk.input]
        kernel.track(
            inputs, ts, known, self._progress, self._past, self._future, self._jumped,
            verdict, progress, frontier,
        )  # fmt: skip
        said = self._watermarks(chunk, of_input)
        arrivals = Arrivals(inputs, ts, chunk.arrival, progress, progress - ts, frontier, said)
        source, refused = chunk.input, []
        if verdict.any():
            refused = _refused(chunk, of_input, ts, verdict)
            accepted = verdict == kernel.KEEP
            rows = [batch.filter(pa.array(accepted[at])) for batch, at in zip(rows, of_input, strict=True)]
            copies = [copy[accepted[at]] for copy, at in zip(copies, of_input, strict=True)]
            arrivals, source, seq = arrivals.part(accepted), source[accepted], seq[accepted]
            of_input = [np.flatnonzero(source == i) for i in range(len(rows))]
        self._warn_of_old_times(arrivals, source)
        return Taken(arrivals, source, seq, rows, of_input, copies, refused)

    def advance(self, progress: Int64s) -> Int64s:
        """Follow rows of other shards; return how far each input has come, NEVER where there is nothing new.

        The guard judges the times as it does those of rows.

        Args:
            progress: largest event time of each input's rows, or NEVER if there were none.
        """
        m = progress.size
        verdict, seen, frontier = np.zeros(m, np.int8), np.zeros(m, np.int64), np.zeros(m, np.int64)
        kernel.track(
            np.arange(m, dtype=np.int8), progress, progress != NEVER, self._progress, -1, self._future,
            self._jumped_elsewhere, verdict, seen, frontier,
        )  # fmt: skip
        return np.where(verdict == kernel.KEEP, self._progress, NEVER)

    def snapshot(self) -> Snapshot:
        return {
            "progress": self._progress.copy(),
            "jumped": self._jumped.copy(),
            "jumped_elsewhere": self._jumped_elsewhere.copy(),
            "next_seq": self._next_seq.copy(),
        }

    def _watermarks(self, chunk: Chunk, of_input: list[Int64s]) -> Int64s | None:
        """What the rows say of their input's progress, where the disorder strategy reads it."""
        columns = self._plan.watermark_columns
        if columns is None:
            return None
        said = np.full(chunk.input.size, NEVER, np.int64)
        for batch, at, column in zip(chunk.batches, of_input, columns, strict=True):
            if at.size:
                ticks, known = event_times(batch.column(column), self._plan.unit)
                said[at[known]] = ticks[known]
        return said

    def _warn_of_old_times(self, arrivals: Arrivals, source: Int8s) -> None:
        nanos = self._plan.setting.nanos_per_tick
        if self.warnings or not arrivals.delay.size or int(arrivals.delay.max()) * nanos < _YEAR_NANOS:
            return
        k = int(arrivals.delay.argmax())
        years = int(arrivals.delay[k]) * nanos / _YEAR_NANOS
        self.warnings.append(
            f"time of input {self._plan.inputs[source[k]]!r} goes back {years:.1f} years; if such rows "
            "are errors, set guard: {past: 1d} to send them to the late output"
        )


class PartProgress:
    """How far some rows of one input bring it: the largest time among them, as far as the guard allows.

    What the shards know is not known here. A time counts unless it is more than ``guard.future`` ahead of the
    others: of half of the rows that are seen first, and of those that came before it.
    """

    def __init__(self, plan: JoinPlan, which: int) -> None:
        self._column, self._unit = plan.time_columns[which], plan.unit
        guard = plan.config.guard
        self._future = -1 if guard.future is None else plan.setting.ticks(guard.future)
        self._progress, self._jumped = np.full((2, 1), NEVER, np.int64)

    @property
    def reached(self) -> int:
        """The largest time, or NEVER."""
        return int(self._progress[0])

    def follow(self, batch: pa.RecordBatch) -> Bools:
        """Take more rows; return which of them count."""
        ticks, known = event_times(batch.column(self._column), self._unit)
        ticks = ticks[known]
        if self._future < 0 or not ticks.size:
            self._progress[0] = ticks.max(initial=self.reached)
            return known
        if self.reached == NEVER:
            self._progress[0] = np.partition(ticks, ticks.size // 2)[ticks.size // 2]
        verdict, *out = np.zeros(ticks.size, np.int8), *np.zeros((2, ticks.size), np.int64)
        kernel.track(
            np.zeros(ticks.size, np.int8), ticks, known[known], self._progress, -1, self._future, self._jumped,
            verdict, *out,
        )  # fmt: skip
        counts = known.copy()
        counts[known] = verdict == kernel.KEEP
        return counts


def _refused(chunk: Chunk, of_input: list[Int64s], ts: Int64s, verdict: Int8s) -> list[Refused]:
    """Return the rows that the guard refuses, but for copies, which their homes refuse or take."""
    refused = []
    for i, (marked, at) in enumerate(zip(chunk.batches, of_input, strict=True)):
        batch, copy = without_copies(marked)
        for code, reason in ((kernel.NO_TIME, "bad_record"), *_REASON_OF.items()):
            mask = (verdict[at] == code) & ~copy
            if mask.any():
                times = None if code == kernel.NO_TIME else ts[at[mask]]
                rows = batch.filter(pa.array(mask))
                refused.append(Refused(i, reason, times, chunk.arrival[at[mask]], rows))
    return refused
