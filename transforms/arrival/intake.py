"""The way in: event times, the guard, row numbers and the progress of every input."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import NEVER, Arrivals, Bools, Int8s, Int64s, Snapshot
from slackwater.transforms.arrival.bad_rows import BAD, bad_ones, fault_of, has_bad, without_bad_column
from slackwater.transforms.arrival.event_times import event_times
from slackwater.transforms.arrival.guard import Guard
from slackwater.transforms.arrival.time_faults import TimeFaults
from slackwater.transforms.kernels.arrival import guard as kernel
from slackwater.transforms.rows import ipc, row_code
from slackwater.transforms.settings.plan import Plan
from slackwater.transforms.sharding.copies import COPY, without_copies

_REASON_OF = {kernel.TOO_OLD: "too_late", kernel.IN_FUTURE: "future_time"}
_NO_CLOCK = np.empty(0, np.int64)


class Chunk(NamedTuple):
    """Arrivals in order: arrival k is the next row of batch ``input[k]``."""

    input: Int8s
    arrival: Int64s
    batches: list[pa.RecordBatch]
    came: Int64s | None = None
    """Of a live input, when each came by the engine's clock, in microseconds; None in a replay."""
    bounded: bool = False
    """Whether the end of the inputs will be told, so that a row may have to wait for those after it."""

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
    copies: bool = False
    """Whether other shards account for them."""


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

    @property
    def codes(self) -> Int64s:
        """``rows.row_code`` of each accepted row."""
        return row_code.pack(self.seq, self.source)


class Intake:
    """Judges arrivals one after the other; knows how far each input has come.

    A source of punctuations has no progress of its own: its rows are arrivals of the input they speak of, so that
    a join never waits for them.
    """

    def __init__(self, plan: Plan, snapshot: Snapshot | None = None) -> None:
        self._plan = plan
        self._counts_as = np.asarray(plan.counts_as, np.int8)
        self._guard = Guard(plan, len(plan.members), snapshot)
        self._faults = TimeFaults(plan, snapshot["faults"] if snapshot and "faults" in snapshot else None)
        self._unread: dict[int, str] = {}
        """Of inputs with rows that could not be read, what is wrong with the first."""
        self._next_seq = np.zeros(len(plan.inputs), np.int64)
        self._held: Chunk | None = None
        """Rows that wait for those after them, to be judged."""
        if snapshot:
            self._next_seq[:] = snapshot["next_seq"]
            self._held = _restored(plan, snapshot["held"]) if "held" in snapshot else None

    @property
    def progress(self) -> Int64s:
        """Largest event time believed of each input, or NEVER."""
        return self._guard.progress

    @property
    def holds(self) -> bool:
        """Whether rows wait to be judged."""
        return self._held is not None

    @property
    def warnings(self) -> list[str]:
        """What the user should know of the rows, at most one line of each kind and input."""
        unread = [
            f"input {self._plan.inputs[i]!r} has rows that cannot be read, which are bad_record: {fault}"
            for i, fault in self._unread.items()
        ]
        return [*unread, *self._faults.warnings()]

    def take(self, chunk: Chunk) -> Taken:
        """Number the rows, read their times and apply the guard.

        Of bounded inputs, an odd row waits for the rows that decide about it, and those behind it wait too, so
        that where chunks are cut changes nothing.
        """
        chunk, unread = self.without_bad(chunk)
        taken = self._take(chunk if self._held is None else _joined(self._held, chunk), ended=False)
        return taken._replace(refused=unread + taken.refused) if unread else taken

    def rest(self) -> Taken:
        """Take the rows that wait: the inputs have ended."""
        assert self._held is not None
        return self._take(self._held, ended=True)

    def _take(self, chunk: Chunk, ended: bool) -> Taken:
        of_input, ts, known = self._times(chunk)
        clock = self._clock(chunk, of_input) if self._guard.doubts(ts) else None
        inputs = self._counts_as[chunk.input]
        verdict, progress, frontier = self._guard.judge(inputs, ts, known, clock, chunk.bounded, ended)
        n, self._held = verdict.size, None
        if n < ts.size:
            chunk, self._held = _cut(chunk, n)
            ts, inputs, of_input = ts[:n], inputs[:n], [at[at < n] for at in of_input]
        seq = np.zeros(n, np.int64)
        for i, at in enumerate(of_input):
            seq[at] = self._next_seq[i] + np.arange(at.size)
            self._next_seq[i] += at.size
        rows, copies = map(list, zip(*map(without_copies, chunk.batches), strict=True))
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
            if self._guard.limits.behind >= 0:
                self._faults.refuse(chunk.input[verdict == kernel.TOO_OLD])
        self._faults.follow(arrivals, source, of_input)
        return Taken(arrivals, source, seq, rows, of_input, copies, refused)

    def without_bad(self, chunk: Chunk) -> tuple[Chunk, list[Refused]]:
        """Return the rows that their source could read, and the others; only of these the text is left."""
        if not any(map(has_bad, chunk.batches)):
            return chunk, []
        refused, kept, batches = [], np.ones(chunk.input.size, np.bool_), []
        for i, batch in enumerate(chunk.batches):
            bad = bad_ones(batch)
            if bad is not None:
                at = np.flatnonzero(chunk.input == i)[bad]
                _, copy = without_copies(batch)
                kept[at] = False
                said = batch.select([BAD]).filter(pa.array(bad & ~copy))
                if said.num_rows:
                    refused.append(Refused(i, "bad_record", None, chunk.arrival[at[~copy[bad]]], said))
                    self._unread.setdefault(i, fault_of(said.column(0)[0].as_py()))
                batch = batch.filter(pa.array(~bad))
            batches.append(without_bad_column(batch))
        came = None if chunk.came is None else chunk.came[kept]
        rest = chunk._replace(input=chunk.input[kept], arrival=chunk.arrival[kept], batches=batches, came=came)
        return rest, refused

    def advance(self, progress: Int64s) -> Int64s:
        """Follow rows of other shards; return how far each input has come, NEVER where there is nothing new.

        The guard judges the times as it does those of rows.

        Args:
            progress: largest event time of each input's rows, or NEVER if there were none.
        """
        return self._guard.advance(progress)

    def snapshot(self) -> Snapshot:
        held = {} if self._held is None else {"held": _kept(self._held)}
        faults = self._faults.snapshot()
        return {**self._guard.snapshot(), "next_seq": self._next_seq.copy(), "faults": faults, **held}

    def _times(self, chunk: Chunk) -> tuple[list[Int64s], Int64s, Bools]:
        """Return where the rows of each input are, the times of all and which are known."""
        ts, known = np.zeros(chunk.input.size, np.int64), np.zeros(chunk.input.size, np.bool_)
        of_input = [np.flatnonzero(chunk.input == i) for i in range(len(chunk.batches))]
        for batch, at, column in zip(chunk.batches, of_input, self._plan.time_columns, strict=True):
            if at.size:
                ts[at], known[at] = event_times(batch.column(column), self._plan.unit)
        return of_input, ts, known

    def _clock(self, chunk: Chunk, of_input: list[Int64s]) -> Int64s:
        """Return the time of day when each row came: now in live runs, else what a column of timestamps says."""
        if not chunk.bounded:
            return self._guard.now(chunk.input.size)
        columns, schemas = self._plan.arrival_columns, self._plan.schemas.values()
        if columns is None or self._plan.by_time:
            return _NO_CLOCK
        clock = np.full(chunk.input.size, NEVER, np.int64)
        for batch, at, column, schema in zip(chunk.batches, of_input, columns, schemas, strict=True):
            if at.size and pa.types.is_timestamp(schema.field(column).type):
                ticks, known = event_times(batch.column(column), self._plan.unit)
                clock[at[known]] = ticks[known]
        return clock

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


class PartProgress:
    """How far some rows of one input bring it: the largest time among them, as far as the guard allows.

    What the shards know is not known here, so the rows of the part that come after a row judge it.
    """

    def __init__(self, plan: Plan, which: int) -> None:
        self._column, self._unit = plan.time_columns[which], plan.unit
        self._guard = Guard(plan, 1)

    @property
    def reached(self) -> int:
        """The largest time, or NEVER."""
        return int(self._guard.progress[0])

    def follow(self, batch: pa.RecordBatch) -> Bools:
        """Take more rows; return which of them count."""
        ticks, known = event_times(batch.column(self._column), self._unit)
        clock = self._guard.now(ticks.size) if self._guard.doubts(ticks) else None
        judged = self._guard.judge(np.zeros(ticks.size, np.int8), ticks, known, clock)
        return np.asarray(judged.verdict == kernel.KEEP)


def _refused(chunk: Chunk, of_input: list[Int64s], ts: Int64s, verdict: Int8s) -> list[Refused]:
    """Return the rows that the guard refuses, copies apart; those without a time are their homes' business."""
    refused = []
    for i, (marked, at) in enumerate(zip(chunk.batches, of_input, strict=True)):
        batch, copy = without_copies(marked)
        for code, reason in ((kernel.NO_TIME, "bad_record"), *_REASON_OF.items()):
            for copies in (False, True) if code != kernel.NO_TIME else (False,):
                mask = (verdict[at] == code) & (copy == copies)
                if mask.any():
                    times = None if code == kernel.NO_TIME else ts[at[mask]]
                    rows = batch.filter(pa.array(mask))
                    refused.append(Refused(i, reason, times, chunk.arrival[at[mask]], rows, copies))
    return refused


def _joined(first: Chunk, second: Chunk) -> Chunk:
    """Return the rows of two chunks as one."""
    batches = [
        b if not a.num_rows else a if not b.num_rows else pa.concat_batches([a, b])
        for a, b in zip(first.batches, second.batches, strict=True)
    ]
    came = None if first.came is None or second.came is None else np.concatenate([first.came, second.came])
    inputs, arrival = (np.concatenate([a, b]) for a, b in zip(first[:2], second[:2], strict=True))
    return Chunk(inputs, arrival, batches, came, second.bounded)


def _cut(chunk: Chunk, n: int) -> tuple[Chunk, Chunk]:
    """Return the first ``n`` rows of a chunk and the others."""
    counts = np.bincount(chunk.input[:n], minlength=len(chunk.batches)).tolist()
    parts = []
    for part, batches in (
        (slice(0, n), [batch.slice(0, c) for batch, c in zip(chunk.batches, counts, strict=True)]),
        (slice(n, None), [batch.slice(c) for batch, c in zip(chunk.batches, counts, strict=True)]),
    ):
        came = None if chunk.came is None else chunk.came[part]
        parts.append(Chunk(chunk.input[part], chunk.arrival[part], batches, came, chunk.bounded))
    return parts[0], parts[1]


def _kept(chunk: Chunk) -> Snapshot:
    batches = [ipc.to_bytes(batch) if batch.num_rows else b"" for batch in chunk.batches]
    came = {} if chunk.came is None else {"came": chunk.came}
    return {"input": chunk.input, "arrival": chunk.arrival, "batches": batches, **came}


def _restored(plan: Plan, held: Snapshot) -> Chunk:
    batches = [
        ipc.from_bytes(data)[0] if data else pa.RecordBatch.from_pylist([], schema=schema)
        for data, schema in zip(held["batches"], plan.schemas.values(), strict=True)
    ]
    return Chunk(held["input"], held["arrival"], batches, held.get("came"), True)
