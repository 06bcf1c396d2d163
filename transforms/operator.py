"""The operator: guard, reorder buffer, join and shedding of one shard, chunk by chunk.

Engines feed it arrivals, keep its snapshot and write what it returns; it knows nothing of them. Where chunks
are cut changes no result.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import NEVER, Arrivals, Feedback, Float64s, Int8s, Int64s, Matches, Released, Snapshot, Tuples
from slackwater.transforms.accounting import Accounting
from slackwater.transforms.encode import CellEncoder
from slackwater.transforms.jsonrows import rows_to_json
from slackwater.transforms.kernels import reorder as kernel
from slackwater.transforms.kernels import rows as row_kernel
from slackwater.transforms.plan import LATE_SCHEMA, JoinPlan
from slackwater.transforms.reorder import Emitted, ReorderBuffer
from slackwater.transforms.rowstore import RowStore
from slackwater.transforms.times import event_times

_RESULTS_AT_ONCE = 1 << 17
_YEAR_NANOS = 365 * 86_400 * 10**9
_REASON_OF = {kernel.TOO_OLD: "too_late", kernel.IN_FUTURE: "future_time"}


class Chunk(NamedTuple):
    """Arrivals in order: arrival k is the next row of batch ``input[k]``."""

    input: Int8s
    arrival: Int64s
    batches: list[pa.RecordBatch]


class Outputs(NamedTuple):
    """What a step of the operator gave, as lists of batches."""

    results: list[pa.RecordBatch]
    late: list[pa.RecordBatch]


class Operator:
    """One shard of a sliding window join."""

    def __init__(self, plan: JoinPlan, snapshot: Snapshot | None = None) -> None:
        setting = plan.setting
        m = len(plan.inputs)
        state: dict[str, Any] = dict(snapshot) if snapshot else {}
        self._plan = plan
        self._disorder = plan.disorder.build(setting, state.get("disorder"))
        self._join = plan.join.build(setting, state.get("join"))
        self._shedding = plan.shedding.build(setting, state.get("shedding"))
        self._encoder = CellEncoder(plan.condition, list(plan.schemas.values()), state.get("texts"))
        self._buffer = ReorderBuffer(m, state.get("buffer"))
        self._stores = [RowStore(schema, plan.condition.width) for schema in plan.schemas.values()]
        self.accounting = Accounting(plan.inputs, state.get("accounting"))
        self.warnings: list[str] = []
        self.seconds = {"kernel": 0.0, "materialise": 0.0}
        """Time spent buffering and joining, and making result rows of what was found."""
        self._progress = np.array(state.get("progress", np.full(m, NEVER)), np.int64)
        self._jumped = np.array(state.get("jumped", np.full(m, NEVER)), np.int64)
        self._next_seq = np.array(state.get("next_seq", np.zeros(m)), np.int64)
        self._arrivals = int(state.get("arrivals", 0))
        self._released = int(state.get("released", 0))
        self._on_t = int(state.get("on_t", NEVER))
        self._next_adapt: int | None = state.get("next_adapt")
        self._pending_count: list[int] = list(state.get("pending_count", []))
        self._feedback: list[tuple[Any, ...]] = []
        if state.get("feedback"):
            self._feedback.append(tuple(state["feedback"]))
        guard = plan.config.guard
        self._past = -1 if guard.past is None else setting.ticks(guard.past)
        self._future = -1 if guard.future is None else setting.ticks(guard.future)
        for i, rows in enumerate(state.get("rows", [])):
            self._load(i, rows)

    def push(self, chunk: Chunk) -> Outputs:
        """Take arrivals; return the results they complete and the rows they prove late."""
        out = Outputs([], [])
        inputs, arrival, batches = chunk
        n = inputs.size
        self.accounting.receive(inputs)
        ts, seq = np.zeros(n, np.int64), np.zeros(n, np.int64)
        known = np.zeros(n, np.bool_)
        of_input = [np.flatnonzero(inputs == i) for i in range(len(batches))]
        for i, (batch, at) in enumerate(zip(batches, of_input, strict=True)):
            if at.size:
                times, valid = event_times(batch.column(self._plan.time_columns[i]), self._plan.unit)
                ts[at], known[at] = times, valid
                seq[at] = self._next_seq[i] + np.arange(at.size)
                self._next_seq[i] += at.size
        verdict = np.zeros(n, np.int8)
        progress, frontier = np.empty(n, np.int64), np.empty(n, np.int64)
        good = np.flatnonzero(known) if not known.all() else slice(None)
        tracked = (np.zeros(ts[good].size, np.int8), np.empty(ts[good].size, np.int64), np.empty(ts[good].size, np.int64))
        kernel.track(inputs[good], ts[good], self._progress, self._past, self._future, self._jumped, *tracked)
        verdict[good], progress[good], frontier[good] = tracked
        accepted = known & (verdict == kernel.KEEP)
        if not accepted.all():
            self._reject(out, chunk, of_input, ts, seq, known, verdict)
        delay = progress - ts
        for i, (batch, at) in enumerate(zip(batches, of_input, strict=True)):
            if at.size:
                keep = accepted[at]
                batch = batch if keep.all() else batch.filter(pa.array(keep))
                at = at[keep]
                self._stores[i].append(batch, seq[at], *self._encoder.encode(i, batch), delay[at])
        if not accepted.all():
            inputs, ts, seq, arrival = inputs[accepted], ts[accepted], seq[accepted], arrival[accepted]
            progress, frontier, delay = progress[accepted], frontier[accepted], delay[accepted]
        self._warn_of_old_times(inputs, delay)
        arrivals = Arrivals(inputs, ts, arrival, progress, delay, frontier)
        codes = seq * kernel.MAX_INPUTS + inputs
        for part in self._intervals(progress):
            cut = Arrivals(*(array[part] for array in arrivals))
            bounds = np.asarray(self._disorder.bounds(cut), np.int64)
            self.accounting.hold(cut.progress - bounds)
            started = time.perf_counter()
            emitted = self._buffer.push(cut.input, cut.ts, codes[part], bounds)
            self.seconds["kernel"] += time.perf_counter() - started
            self._process(out, emitted)
        self._arrivals += n
        self.accounting.state(len(self._buffer) + self._join.live(), self.nbytes)
        self._compact()
        return out

    def finish(self) -> Outputs:
        """Release everything that is held, in timestamp order: the inputs have ended."""
        out = Outputs([], [])
        self._process(out, self._buffer.drain())
        if self._pending_count:
            out.results.append(self._count_batch([self._pending_count[0]], [self._pending_count[1]]))
            self._pending_count = []
        self._compact()
        return out

    @property
    def nbytes(self) -> int:
        """Bytes of everything held."""
        windows = int(getattr(self._join, "nbytes", 0))
        return windows + self._buffer.nbytes + self._encoder.dictionary.nbytes + sum(s.nbytes for s in self._stores)

    def snapshot(self) -> Snapshot:
        """Everything needed to go on in another process, as ``transforms.snapshot`` writes it."""
        self._compact(force=True)
        return {
            "disorder": self._disorder.snapshot(),
            "join": self._join.snapshot(),
            "shedding": self._shedding.snapshot(),
            "texts": self._encoder.dictionary.snapshot(),
            "buffer": self._buffer.snapshot(),
            "accounting": self.accounting.snapshot(),
            "progress": self._progress.copy(),
            "jumped": self._jumped.copy(),
            "next_seq": self._next_seq.copy(),
            "arrivals": self._arrivals,
            "released": self._released,
            "on_t": self._on_t,
            "next_adapt": self._next_adapt,
            "pending_count": self._pending_count,
            "feedback": list(self._gathered_feedback()) if self._feedback else None,
            "rows": [self._save(store) for store in self._stores],
        }

    def _intervals(self, progress: Int64s) -> Iterator[slice]:
        """Cut a chunk before each arrival that moves stream time into the next adaptation interval."""
        interval = self._disorder.interval
        if interval is None or not progress.size:
            yield slice(0, progress.size)
            return
        newest = np.maximum.accumulate(progress)
        if self._next_adapt is None:
            self._next_adapt = int(newest[0]) + interval
        start = 0
        while start < progress.size:
            stop = int(np.searchsorted(newest, self._next_adapt))
            if stop > start:
                yield slice(start, stop)
                start = stop
            if start < progress.size:
                now = int(newest[start])
                self._disorder.adapt(Feedback(now, *self._gathered_feedback()))
                self._feedback.clear()
                self._next_adapt += -(-(now + 1 - self._next_adapt) // interval) * interval

    def _process(self, out: Outputs, emitted: Emitted) -> None:
        """Join what the reorder buffer emitted, in runs that the memory limit allows.

        Shedding comes at multiples of a run, counted over all chunks, so that chunks do not show.
        """
        memory = self._shedding.memory
        if memory is None:
            self._run(out, emitted)
            return
        run = max(1, memory // 16)
        start = 0
        while start < emitted.ts.size:
            stop = min(start + run - self._released % run, emitted.ts.size)
            if self._released % run == 0:
                self._shed(out, max(0, memory - run), max(self._on_t, int(emitted.ts[start])))
            self._run(out, Emitted(*(array[start:stop] for array in emitted)))
            start = stop

    def _run(self, out: Outputs, emitted: Emitted) -> None:
        n = emitted.ts.size
        self._released += n
        if not n:
            return
        cells = np.empty((n, self._plan.condition.width), np.int64)
        nulls, delay = np.empty(n, np.uint64), np.empty(n, np.int64)
        for i, store in enumerate(self._stores):
            row_kernel.scatter(
                emitted.code, i, store.seq, store.cells, store.nulls, store.delay, cells, nulls, delay
            )
        inputs = (emitted.code & 7).astype(np.int8)
        seq = emitted.code >> 3
        released = Released(inputs, seq, emitted.ts, emitted.late, cells, nulls)
        if emitted.late.any():
            self._report_late(out, released)
        found: list[Matches] = []
        started = time.perf_counter()
        for matches in self._join.step(released):
            self._account(released, delay, matches)
            found.append(matches)
            if sum(len(m.rows) for m in found) >= _RESULTS_AT_ONCE:
                started = self._deliver(out, released, found, started)
        self._deliver(out, released, found, started)

    def _account(self, released: Released, delay: Int64s, matches: Matches) -> None:
        part = slice(matches.start, matches.stop)
        seen = (released.input[part], released.ts[part], delay[part], released.late[part])
        self.accounting.join(seen[0], seen[3], self._gone(released, part), matches.join_size)
        self.accounting.state(len(self._buffer) + self._join.live(), 0)
        if self._disorder.interval is not None:
            self._feedback.append((*seen, matches.join_size, matches.cross_size))

    def _gone(self, released: Released, part: slice) -> Float64s:
        """For the late tuples of a run, the share of their partners' time span that the join has passed."""
        late = released.late[part]
        newest = np.maximum(np.maximum.accumulate(released.ts[part]), self._on_t)
        self._on_t = int(newest[-1])
        own = np.asarray(self._plan.windows, np.float64)
        others = (own.sum() - own) / (len(own) - 1)
        which = released.input[part][late]
        lateness = newest[late] - released.ts[part][late]
        share = (others[which] + lateness) / np.maximum(own[which] + others[which], 1.0)
        return np.asarray(np.minimum(1.0, share), np.float64)

    def _deliver(self, out: Outputs, released: Released, found: list[Matches], started: float) -> float:
        """Turn what was found into output rows; ``started`` is when the search for it began."""
        joined = time.perf_counter()
        if self._plan.config.output == "counts":
            for matches in found:
                self._count(out, released.ts[matches.start : matches.stop], matches.join_size)
        elif any(len(matches.rows) for matches in found):
            rows = np.concatenate([matches.rows for matches in found])
            probe = np.concatenate([matches.probe for matches in found])
            columns = [column for i, store in enumerate(self._stores) for column in store.take(rows[:, i])]
            ts = pa.array(released.ts[probe]).cast(self._plan.time_type)
            out.results.append(pa.RecordBatch.from_arrays([*columns, ts], schema=self._plan.result_schema))
        found.clear()
        done = time.perf_counter()
        self.seconds["kernel"] += joined - started
        self.seconds["materialise"] += done - joined
        return done

    def _count(self, out: Outputs, ts: Int64s, sizes: Int64s) -> None:
        """Add up counts per timestamp; the newest one stays open, more results may come for it."""
        found = sizes > 0
        ts, sizes = ts[found], sizes[found]
        if not ts.size:
            return
        if self._pending_count:
            ts = np.concatenate([[self._pending_count[0]], ts])
            sizes = np.concatenate([[self._pending_count[1]], sizes])
        first = np.flatnonzero(np.concatenate([[True], ts[1:] != ts[:-1]]))
        totals = np.add.reduceat(sizes, first)
        self._pending_count = [int(ts[-1]), int(totals[-1])]
        if len(first) > 1:
            out.results.append(self._count_batch(ts[first[:-1]], totals[:-1]))

    def _count_batch(self, ts: Any, counts: Any) -> pa.RecordBatch:
        columns = [pa.array(ts, pa.int64()).cast(self._plan.time_type), pa.array(counts, pa.int64())]
        return pa.RecordBatch.from_arrays(columns, schema=self._plan.result_schema)

    def _shed(self, out: Outputs, room: int, now: int) -> None:
        """Evict the tuples with the lowest scores until no more than ``room`` are left.

        Tuples that the windows will drop at ``now`` go first; they have expired and are not shed.
        """
        if self._join.live() <= room:
            return
        held = self._join.held()
        lifetime = held.ts + np.asarray(self._plan.windows, np.int64)[held.input] - now
        expired = lifetime < 0
        alive = np.flatnonzero(~expired)
        victims = np.zeros(len(held.ts), np.bool_)
        if alive.size > room:
            tuples = Tuples(*(a[alive] for a in (held.input, held.ts, lifetime, held.cells, held.nulls)))
            scores = self._shedding.scores(tuples)
            if self._shedding.decays:
                scores = scores * tuples.lifetime
            order = np.lexsort((held.seq[alive], tuples.input, tuples.ts, scores))
            victims[alive[order[: alive.size - room]]] = True
        for i, store in enumerate(self._stores):
            seqs = np.sort(held.seq[victims & (held.input == i)])
            at = store.locate(seqs)
            fresh = ~store.reported[at]
            store.reported[at] = True
            seqs = seqs[fresh]
            if seqs.size:
                self.accounting.reject(i, "shed", seqs.size)
                batch = store.batch(seqs)
                ts = event_times(batch.column(self._plan.time_columns[i]), self._plan.unit)[0]
                out.late.append(self._late_batch(i, "shed", ts, self._arrival_of(i, batch, seqs), batch))
        self._join.evict(victims | expired)

    def _report_late(self, out: Outputs, released: Released) -> None:
        for i, store in enumerate(self._stores):
            late = released.late & (released.input == i)
            seqs = released.seq[late]
            if seqs.size:
                store.reported[store.locate(seqs)] = True
                batch = store.batch(seqs)
                arrival = self._arrival_of(i, batch, seqs)
                out.late.append(self._late_batch(i, "too_late", released.ts[late], arrival, batch))

    def _arrival_of(self, which: int, batch: pa.RecordBatch, seqs: Int64s) -> Any:
        """The arrival column where there is one, else the row number within the input."""
        if self._plan.arrival_columns is None:
            return seqs
        return batch.column(self._plan.arrival_columns[which]).cast(pa.int64(), safe=False)

    def _reject(
        self,
        out: Outputs,
        chunk: Chunk,
        of_input: list[Int64s],
        ts: Int64s,
        seq: Int64s,
        known: Any,
        verdict: Any,
    ) -> None:
        """Send rows without a time, and rows that the guard refuses, to the late output."""
        arrival = seq if self._plan.arrival_columns is None else chunk.arrival
        for i, (batch, at) in enumerate(zip(chunk.batches, of_input, strict=True)):
            faults = [("bad_record", ~known[at])]
            faults += [(reason, known[at] & (verdict[at] == code)) for code, reason in _REASON_OF.items()]
            for reason, mask in faults:
                n = int(np.count_nonzero(mask))
                if n:
                    self.accounting.refuse(i, reason, n)
                    rows = batch.filter(pa.array(mask))
                    times = None if reason == "bad_record" else ts[at[mask]]
                    out.late.append(self._late_batch(i, reason, times, arrival[at[mask]], rows))

    def _late_batch(self, which: int, reason: str, ts: Any, arrival: Any, batch: pa.RecordBatch) -> pa.RecordBatch:
        n = batch.num_rows
        return pa.RecordBatch.from_arrays(
            [
                pa.array([self._plan.inputs[which]] * n, pa.string()),
                pa.array([reason] * n, pa.string()),
                pa.nulls(n, pa.int64()) if ts is None else pa.array(ts, pa.int64()),
                arrival if isinstance(arrival, pa.Array) else pa.array(arrival, pa.int64()),
                rows_to_json(batch),
            ],
            schema=LATE_SCHEMA,
        )

    def _warn_of_old_times(self, inputs: Int8s, delay: Int64s) -> None:
        nanos = self._plan.setting.nanos_per_tick
        if self.warnings or not delay.size or int(delay.max()) * nanos < _YEAR_NANOS:
            return
        k = int(delay.argmax())
        years = int(delay[k]) * nanos / _YEAR_NANOS
        self.warnings.append(
            f"time of input {self._plan.inputs[inputs[k]]!r} goes back {years:.1f} years; if such rows are "
            "errors, set guard: {past: 1d} to send them to the late output"
        )

    def _compact(self, force: bool = False) -> None:
        """Forget rows that nothing refers to, once they are the larger part of what is stored."""
        stored = sum(map(len, self._stores))
        live = len(self._buffer) + self._join.live()
        if not force and stored < 2 * live + 4096:
            return
        codes = self._buffer.held()
        held = self._join.held()
        for i, store in enumerate(self._stores):
            store.keep(np.concatenate([codes[codes & 7 == i] >> 3, held.seq[held.input == i]]))
        if self._encoder.dictionary.size:
            used = [
                store.cells[:, c] for i, store in enumerate(self._stores) for c in self._encoder.text_cells(i)
            ]
            self._encoder.dictionary.forget(np.concatenate(used) if used else np.empty(0, np.int64))

    def _gathered_feedback(self) -> tuple[Any, ...]:
        if not self._feedback:
            empty = np.empty(0, np.int64)
            return empty.astype(np.int8), empty, empty, empty.astype(np.bool_), empty, empty.astype(np.float64)
        return tuple(np.concatenate(arrays) for arrays in zip(*self._feedback, strict=True))

    @staticmethod
    def _save(store: RowStore) -> Snapshot:
        batch = store.batch(store.seq)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        rows = sink.getvalue().to_pybytes()
        return {"seq": store.seq, "delay": store.delay, "reported": store.reported, "rows": rows}

    def _load(self, which: int, saved: Snapshot) -> None:
        table = pa.ipc.open_stream(saved["rows"]).read_all().combine_chunks()
        for batch in table.to_batches():
            cells, nulls = self._encoder.encode(which, batch)
            self._stores[which].append(batch, saved["seq"], cells, nulls, saved["delay"])
            self._stores[which].reported = np.array(saved["reported"], np.bool_)
