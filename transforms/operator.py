"""The operator: guard, reorder buffer, join and shedding of one shard, chunk by chunk.

Engines feed it arrivals, keep its snapshot and write what it returns; it knows nothing of them. Where chunks
are cut changes no result.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import (
    NEVER,
    Arrivals,
    Float64s,
    Int64s,
    Released,
    Snapshot,
    Tuples,
)
from slackwater.transforms.accounting import Accounting
from slackwater.transforms.encode import CellEncoder
from slackwater.transforms.intake import Chunk, Intake, Taken
from slackwater.transforms.kernels import rows as row_kernel
from slackwater.transforms.outputs import Counts, Outputs, late_batch
from slackwater.transforms.pacing import Pacing
from slackwater.transforms.plan import JoinPlan
from slackwater.transforms.reorder import Emitted, ReorderBuffer
from slackwater.transforms.rowstore import Beside, RowStore

__all__ = ["Chunk", "Operator", "Outputs"]

_RESULTS_AT_ONCE = 1 << 17


class Operator:
    """One shard of a sliding window join."""

    def __init__(self, plan: JoinPlan, snapshot: Snapshot | None = None) -> None:
        setting = plan.setting
        state: dict[str, Any] = dict(snapshot) if snapshot else {}
        self._plan = plan
        self._intake = Intake(plan, state.get("intake"))
        self._disorder = plan.disorder.build(setting, state.get("disorder"))
        self._join = plan.join.build(setting, state.get("join"))
        self._shedding = plan.shedding.build(setting, state.get("shedding"))
        self._encoder = CellEncoder(plan.condition, list(plan.schemas.values()), state.get("texts"))
        self._buffer = ReorderBuffer(len(plan.inputs), state.get("buffer"))
        self._counts = Counts(plan, state.get("counts"))
        self._stores = [RowStore(schema, plan.condition.width) for schema in plan.schemas.values()]
        for store, rows in zip(self._stores, state.get("rows", []), strict=False):
            store.restore(rows)
        self.accounting = Accounting(plan.inputs, state.get("accounting"))
        self.seconds = {"kernel": 0.0, "materialise": 0.0, "adapt": 0.0}
        """Time spent buffering and joining, making result rows of what was found, and adapting."""
        self._pacing = Pacing(
            plan, self._disorder, self.accounting, lambda: len(self._buffer), self.seconds, state
        )
        self._released = int(state.get("released", 0))
        self._on_t = int(state.get("on_t", NEVER))
        self._due: list[list[Int64s]] = [[] for _ in self._stores]
        """Where the rows of each input stand that go to the late output at the end of this step."""
        self._found: list[tuple[Int64s, Int64s]] = []
        """Results of this step that are still row numbers, ``[results, inputs]``, and their times."""

    def push(self, chunk: Chunk) -> Outputs:
        """Take arrivals; return the results they complete and the rows they prove late."""
        out = Outputs([], [], [], [])
        self.accounting.receive(chunk.input)
        taken = self._intake.take(chunk)
        for which, reason, ts, arrival, rows in taken.refused:
            self.accounting.refuse(which, reason, rows.num_rows)
            out.late.append(late_batch(self._plan.inputs[which], reason, ts, arrival, rows))
        arrivals = self._store(taken)
        codes = taken.seq * 8 + arrivals.input
        newest = self._pacing.follow(arrivals.progress)
        for part in self._pacing.intervals(out, newest):
            cut = arrivals.part(part)
            bounds = np.asarray(self._disorder.bounds(cut), np.int64)
            self._pacing.hold(cut.progress, bounds)
            started = time.perf_counter()
            emitted = self._buffer.push(cut.input, cut.ts, codes[part], bounds)
            self.seconds["kernel"] += time.perf_counter() - started
            if self._pacing.measured:
                self._pacing.release(newest[part][emitted.at] - emitted.ts)
            self._process(out, emitted)
        self._deliver(out)
        self._write_late(out)
        self.accounting.state(len(self._buffer) + self._join.live(), self.nbytes)
        self._compact()
        return out

    def finish(self) -> Outputs:
        """Release everything that is held, in timestamp order: the inputs have ended."""
        out = Outputs([], [], [], [])
        self._process(out, self._buffer.drain())
        self._counts.finish(out)
        self._pacing.finish(out)
        self._deliver(out)
        self._write_late(out)
        self._compact()
        return out

    @property
    def warnings(self) -> list[str]:
        """What the user should know of the data, at most one line of each kind."""
        return self._intake.warnings

    @property
    def nbytes(self) -> int:
        """Bytes of everything held."""
        windows = int(getattr(self._join, "nbytes", 0))
        texts = self._encoder.dictionary.nbytes
        return windows + self._buffer.nbytes + texts + sum(store.nbytes for store in self._stores)

    def snapshot(self) -> Snapshot:
        """Everything needed to go on in another process, as ``transforms.snapshot`` writes it."""
        self._compact(force=True)
        return {
            "intake": self._intake.snapshot(),
            "disorder": self._disorder.snapshot(),
            "join": self._join.snapshot(),
            "shedding": self._shedding.snapshot(),
            "texts": self._encoder.dictionary.snapshot(),
            "buffer": self._buffer.snapshot(),
            "counts": self._counts.pending,
            "rows": [store.snapshot() for store in self._stores],
            "accounting": self.accounting.snapshot(),
            "released": self._released,
            "on_t": self._on_t,
            **self._pacing.snapshot(),
        }

    def _store(self, taken: Taken) -> Arrivals:
        """Keep the accepted rows, with the cells that keys and predicates read; return the arrivals.

        A disorder strategy that wants to see the cells gets them with the arrivals.
        """
        arrivals = taken.arrivals
        if getattr(self._disorder, "needs_cells", False):
            n = arrivals.ts.size
            shown = np.empty((n, self._plan.condition.width), np.int64), np.empty(n, np.uint64)
            arrivals = arrivals._replace(cells=shown[0], nulls=shown[1])
        for i, (batch, at) in enumerate(zip(taken.rows, taken.of_input, strict=True)):
            if at.size:
                cells, nulls = self._encoder.encode(i, batch)
                known = (taken.seq[at], arrivals.ts[at], arrivals.clock[at], arrivals.delay[at])
                self._stores[i].append(batch, Beside(*known, np.zeros(at.size, np.bool_), cells, nulls))
                if arrivals.cells is not None and arrivals.nulls is not None:
                    row_kernel.spread(at, cells, nulls, arrivals.cells, arrivals.nulls)
        return arrivals

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
            self._run(out, Emitted._make(array[start:stop] for array in emitted))
            start = stop

    def _run(self, out: Outputs, emitted: Emitted) -> None:
        n = emitted.ts.size
        self._released += n
        if not n:
            return
        cells = np.empty((n, self._plan.condition.width), np.int64)
        nulls, delay = np.empty(n, np.uint64), np.empty(n, np.int64)
        for i, store in enumerate(self._stores):
            rows = store.beside
            row_kernel.scatter(emitted.code, i, rows.seq, rows.cells, rows.nulls, rows.delay, cells, nulls, delay)
        inputs = (emitted.code & 7).astype(np.int8)
        released = Released(inputs, emitted.code >> 3, emitted.ts, emitted.late, cells, nulls)
        if emitted.late.any():
            for i in range(len(self._stores)):
                self._due[i].append(self._stores[i].report(released.seq[released.late & (inputs == i)]))
        sizes: list[tuple[Int64s, Float64s]] = []
        started = time.perf_counter()
        for matches in self._join.step(released):
            self.accounting.state(len(self._buffer) + self._join.live(), 0)
            sizes.append((matches.join_size, matches.cross_size))
            if self._plan.config.output == "counts":
                self._counts.add(out, released.ts[matches.start : matches.stop], matches.join_size)
            elif len(matches.rows):
                self._found.append((matches.rows, released.ts[matches.probe]))
                if sum(len(ts) for _, ts in self._found) >= _RESULTS_AT_ONCE:
                    self.seconds["kernel"] += time.perf_counter() - started
                    self._deliver(out)
                    started = time.perf_counter()
        self.seconds["kernel"] += time.perf_counter() - started
        join_size, cross_size = map(np.concatenate, zip(*sizes, strict=True))
        self.accounting.join(released.input, released.late, self._gone(released), join_size)
        self._pacing.learn(released.input, released.ts, delay, released.late, join_size, cross_size)

    def _gone(self, released: Released) -> Float64s:
        """For the late tuples of a run, the share of their partners' time span that the join has passed."""
        late, ts = released.late, released.ts
        if not late.any():
            self._on_t = int(ts[-1])
            return np.empty(0)
        newest = np.maximum(np.maximum.accumulate(ts), self._on_t)
        self._on_t = int(newest[-1])
        own = np.asarray(self._plan.windows, np.float64)
        others = (own.sum() - own) / max(1, len(own) - 1)
        which = released.input[late]
        share = (others[which] + newest[late] - ts[late]) / np.maximum(own[which] + others[which], 1.0)
        return np.asarray(np.minimum(1.0, share), np.float64)

    def _deliver(self, out: Outputs) -> None:
        """Turn what was found into output rows."""
        if not self._found:
            return
        started = time.perf_counter()
        rows, ts = map(np.concatenate, zip(*self._found, strict=True))
        self._found.clear()
        columns = [
            column for i, store in enumerate(self._stores) for column in store.take(store.locate(rows[:, i]))
        ]
        out.results.append(self._plan.result_batch(columns, pa.array(ts).cast(self._plan.time_type)))
        self.seconds["materialise"] += time.perf_counter() - started

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
            tuples = Tuples._make(a[alive] for a in (held.input, held.ts, lifetime, held.cells, held.nulls))
            scores = self._shedding.scores(tuples)
            if self._shedding.decays:
                scores = scores * tuples.lifetime
            order = np.lexsort((held.seq[alive], tuples.input, tuples.ts, scores))
            victims[alive[order[: alive.size - room]]] = True
        for i in range(len(self._stores)):
            at = self._stores[i].report(np.sort(held.seq[victims & (held.input == i)]))
            self._write(out, i, "shed", at)
            self.accounting.reject(i, "shed", int(at.size))
        self._join.evict(victims | expired)

    def _write_late(self, out: Outputs) -> None:
        """Write the rows that came too late in this step, at once: they may be few in each of many intervals."""
        for i, places in enumerate(self._due):
            if places:
                self._write(out, i, "too_late", np.concatenate(places))
                places.clear()

    def _write(self, out: Outputs, which: int, reason: str, at: Int64s) -> None:
        if at.size:
            store = self._stores[which]
            ts, arrival = store.beside.ts[at], store.beside.arrival[at]
            out.late.append(late_batch(self._plan.inputs[which], reason, ts, arrival, store.batch(at)))

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
            held_by = [(np.full(len(s), i), s.beside.cells) for i, s in enumerate(self._stores)]
            if getattr(self._disorder, "needs_cells", False):
                held_by.append(self._disorder.held_cells())  # type: ignore[attr-defined]
            used = [
                cells[inputs == i, c]
                for inputs, cells in held_by
                for i in range(len(self._stores))
                for c in self._encoder.text_cells(i)
            ]
            self._encoder.dictionary.forget(np.concatenate(used) if used else np.empty(0, np.int64))
