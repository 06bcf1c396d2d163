"""The operator: guard, reorder buffer, join and shedding of one shard, chunk by chunk.

Engines feed it arrivals, keep its snapshot and write what it returns; it knows nothing of them. Where chunks
are cut changes no result.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from slackwater.plugins.contract import (
    NEVER,
    Arrivals,
    Bools,
    Finished,
    Float64s,
    Held,
    Int8s,
    Int64s,
    Matches,
    Punctuations,
    Released,
    Snapshot,
    Tuples,
)
from slackwater.plugins.contract_disk import OverflowingJoinLogic
from slackwater.transforms.accounting import Accounting, partners_gone
from slackwater.transforms.delivery import RESULTS_AT_ONCE, Delivery
from slackwater.transforms.disk import RowDisk
from slackwater.transforms.encode import CellEncoder
from slackwater.transforms.finished import finished_batch
from slackwater.transforms.intake import Chunk, Intake, Taken
from slackwater.transforms.kernels import rows as row_kernel
from slackwater.transforms.late_rows import LateRows
from slackwater.transforms.outputs import Counts, Outputs, late_batch
from slackwater.transforms.pacing import Pacing
from slackwater.transforms.plan import JoinPlan
from slackwater.transforms.promises import DROPPED, JOINS, MARKED, VIOLATES, Promises
from slackwater.transforms.punctuating import marked
from slackwater.transforms.reorder import Emitted, ReorderBuffer
from slackwater.transforms.rowstore import Beside, RowStore

__all__ = ["Chunk", "Operator", "Outputs"]


class Operator:
    """One shard of a sliding window join."""

    def __init__(self, plan: JoinPlan, snapshot: Snapshot | None = None) -> None:
        setting = plan.setting
        state: dict[str, Any] = dict(snapshot) if snapshot else {}
        self._plan = plan
        self._counts_as = np.asarray(plan.counts_as, np.int8)
        self._intake = Intake(plan, state.get("intake"))
        self._disorder = plan.disorder.build(setting, state.get("disorder"))
        self._join = plan.join.build(setting, state.get("join"))
        self._shedding = plan.shedding.build(setting, state.get("shedding"))
        self._encoder = CellEncoder(plan.condition, list(plan.member_schemas.values()), state.get("texts"))
        self._promises = Promises(plan, self._encoder, state.get("promises")) if setting.patterns else None
        self._buffer = ReorderBuffer(len(plan.members), state.get("buffer"))
        self._counts = Counts(plan, state.get("counts"))
        self._stores = [RowStore(schema, plan.condition.width) for schema in plan.schemas.values()]
        for store, rows in zip(self._stores, state.get("rows", []), strict=False):
            store.restore(rows)
        join: Any = self._join
        self._overflowing: OverflowingJoinLogic | None = join if hasattr(join, "use_disk") else None
        if self._overflowing is not None:
            self._disk = RowDisk(plan, self._stores, self._encoder, self._overflowing.directory)
            self._overflowing.use_disk(self._disk)
        self.accounting = Accounting(plan.inputs, state.get("accounting"))
        self.seconds = {"kernel": 0.0, "materialise": 0.0, "adapt": 0.0}
        """Time spent buffering and joining, making result rows of what was found, and adapting."""
        self._pacing = Pacing(
            plan, self._disorder, self.accounting, lambda: len(self._buffer), self.seconds, state
        )
        self._released = int(state.get("released", 0))
        self._on_t = int(state.get("on_t", NEVER))
        self._late = LateRows(plan, self._stores)
        self._delivery = Delivery(plan, self._stores)
        self._finished: list[Finished] = []
        """What the join has proved finished in this step."""

    def push(self, chunk: Chunk) -> Outputs:
        """Take arrivals; return the results they complete and the rows they prove late."""
        out = Outputs.empty()
        self.accounting.receive(chunk.input)
        taken = self._intake.take(chunk)
        for which, reason, ts, arrival, rows in taken.refused:
            self.accounting.refuse(which, reason, rows.num_rows)
            out.late.append(late_batch(self._plan.inputs[which], reason, ts, arrival, rows))
        arrivals = self._store(taken)
        codes = taken.seq * 8 + taken.source
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
        self._write_rest(out)
        self._note_state()
        self._compact()
        return out

    def finish(self) -> Outputs:
        """Release everything that is held, in timestamp order: the inputs have ended."""
        whole = Outputs.empty()
        for out in self.finishing():
            whole = Outputs._make(gathered + batches for gathered, batches in zip(whole, out, strict=True))
        return whole

    def finishing(self) -> Iterator[Outputs]:
        """As ``finish``, in parts: what a join has on disk may be more than fits into memory."""
        out = Outputs.empty()
        self._process(out, self._buffer.drain())
        if self._promises is not None:
            self._join_rows(out, self._nothing(), self._promises.finish())
            if self._plan.config.window is None and self._plan.foreign_keys:
                held = self._join.held()
                self._recall(held, self._promises.unmatched(held))
        self._deliver(out)
        self._write_rest(out)
        self._note_state()
        self._compact()
        for matches in () if self._overflowing is None else self._overflowing.finish():
            self._take_late(out, matches)
            if sum(batch.num_rows for batch in out.results) >= RESULTS_AT_ONCE:
                yield out
                out = Outputs.empty()
        self._write_rest(out)
        self._counts.finish(out)
        self._pacing.finish(out)
        yield out

    @property
    def warnings(self) -> list[str]:
        """What the user should know of the data, at most one line of each kind."""
        return self._intake.warnings

    @property
    def nbytes(self) -> int:
        """Bytes of everything held."""
        windows = int(getattr(self._join, "nbytes", 0))
        texts = self._encoder.dictionary.nbytes
        windows += 0 if self._promises is None else self._promises.nbytes
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
            **({} if self._promises is None else {"promises": self._promises.snapshot()}),
            **self._pacing.snapshot(),
        }

    def close(self) -> None:
        """Remove what is on disk; the operator is of no use any more."""
        if self._overflowing is not None:
            self._disk.close()

    def _store(self, taken: Taken) -> Arrivals:
        """Keep the accepted rows, with the cells that keys and predicates read; return the arrivals.

        A disorder strategy that wants to see the cells gets them with the arrivals; those of punctuations are
        null, so that they match nothing.
        """
        arrivals = taken.arrivals
        if getattr(self._disorder, "needs_cells", False):
            n = arrivals.ts.size
            shown = np.empty((n, self._plan.condition.width), np.int64), np.empty(n, np.uint64)
            arrivals = arrivals._replace(cells=shown[0], nulls=shown[1])
        for i, (batch, at) in enumerate(zip(taken.rows, taken.of_input, strict=True)):
            if at.size:
                cells, nulls = self._encoder.encode(self._counts_as[i], batch, self._plan.source_columns(i))
                known = (taken.seq[at], arrivals.ts[at], arrivals.clock[at], arrivals.delay[at])
                mark = marked(self._plan.marks, i, batch)
                self._stores[i].append(batch, Beside(*known, np.zeros(at.size, np.bool_), mark, cells, nulls))
                if arrivals.cells is not None and arrivals.nulls is not None:
                    row_kernel.spread(at, cells, nulls, arrivals.cells, arrivals.nulls)
                    arrivals.nulls[at[mark >= 0]] = ~np.uint64(0)
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
                self._shed(max(0, memory - run), max(self._on_t, int(emitted.ts[start])))
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
        source = (emitted.code & 7).astype(np.int8)
        released = Released(self._counts_as[source], emitted.code >> 3, emitted.ts, emitted.late, cells, nulls)
        gone, self._on_t = partners_gone(released, self._plan.windows, self._on_t)
        if self._promises is None:
            self._report(released, released.late, "too_late")
            sizes = self._join_rows(out, released, None)
        else:
            seen, sizes = self._sort(out, released, source, gone)
            released, gone, delay = released.part(seen), gone[seen[released.late]], delay[seen]
        self.accounting.join(released.input, released.late, gone, sizes[0])
        self._pacing.learn(released.input, released.ts, delay, released.late, *sizes)

    def _sort(
        self, out: Outputs, released: Released, source: Int8s, gone: Float64s
    ) -> tuple[Bools, tuple[Int64s, Float64s]]:
        """Join what punctuations allow; ``source`` is the input by which each row came.

        Returns which rows are tuples that contradict none in order, and the join and cross sizes of these; the
        late ones among them that match a punctuation miss all their partners.
        """
        assert self._promises is not None
        mark = np.full(released.ts.size, -1, np.int8)
        for i, store in enumerate(self._stores):
            mine = source == i
            mark[mine] = store.beside.mark[store.locate(released.seq[mine])]
        verdict, punctuations = self._promises.judge(released, mark, self._stores)
        self.accounting.punctuate(source[verdict == MARKED])
        violates, seen = verdict == VIOLATES, (verdict == JOINS) | (verdict == DROPPED)
        for i, n in enumerate(np.bincount(released.input[violates], minlength=len(self._stores))):
            self.accounting.reject(i, "punctuation_violated", int(n))
        self._report(released, violates, "punctuation_violated")
        self._report(released, released.late & seen, "too_late")
        gone[(verdict == DROPPED)[released.late]] = 1.0
        joins = verdict == JOINS
        joined = self._join_rows(out, released if joins.all() else released.part(joins), punctuations)
        join_size, cross_size = np.zeros(released.ts.size, np.int64), np.zeros(released.ts.size)
        join_size[joins], cross_size[joins] = joined
        return seen, (join_size[seen], cross_size[seen])

    def _report(self, released: Released, which: Bools, reason: str) -> None:
        self._late.add(released.input[which], released.seq[which], reason)

    def _recall(self, held: Held, which: Bools) -> None:
        """Let tuples that seemed right when they came go to the late output as contradictions after all."""
        fresh = self._late.add(held.input[which], held.seq[which], "punctuation_violated")
        for i, n in enumerate(fresh):
            self.accounting.recall(i, "punctuation_violated", int(n))

    def _join_rows(
        self, out: Outputs, released: Released, punctuations: Punctuations | None
    ) -> tuple[Int64s, Float64s]:
        """Step the join; return the join and cross size of each tuple."""
        sizes: list[tuple[Int64s, Float64s]] = [(np.empty(0, np.int64), np.empty(0))]
        unordered: list[tuple[Int64s, Int64s]] = []
        reorders = getattr(self._join, "reorders", False)
        started = time.perf_counter()
        step = None if punctuations is None else getattr(self._join, "punctuated_step", None)
        for matches in self._join.step(released) if step is None else step(released, punctuations):
            self.accounting.state(len(self._buffer) + self._join.live(), 0)
            sizes.append((matches.join_size, matches.cross_size))
            self._take_late(out, matches)
            if self._plan.config.output == "counts":
                self._counts.add(out, released.ts[matches.start : matches.stop], matches.join_size, self._owes())
            elif len(matches.rows) and reorders:
                unordered.append((matches.rows, matches.probe))
            elif len(matches.rows):
                self._delivery.add(matches.rows, released.ts[matches.probe])
                if self._delivery.full:
                    self.seconds["kernel"] += time.perf_counter() - started
                    self._deliver(out)
                    started = time.perf_counter()
        if unordered:
            rows, probe = map(np.concatenate, zip(*unordered, strict=True))
            order = np.argsort(probe, kind="stable")
            self._delivery.add(rows[order], released.ts[probe[order]])
        self.seconds["kernel"] += time.perf_counter() - started
        join_size, cross_size = map(np.concatenate, zip(*sizes, strict=True))
        return join_size, cross_size

    def _take_late(self, out: Outputs, matches: Matches) -> None:
        """Take what a run brings besides the results of its tuples."""
        if matches.finished is not None and len(matches.finished.ts):
            self._finished.append(matches.finished)
        if matches.settled is None:
            return
        ts, rows = matches.settled
        self.accounting.results += len(ts)
        if rows is None:
            self._counts.add(out, ts, np.ones(len(ts), np.int64), self._owes())
        else:
            self._delivery.write(out, [batch.columns for batch in rows], ts)

    def _owes(self) -> bool:
        """Whether results with times before the present may still come."""
        return self._overflowing is not None and self._overflowing.owes()

    def _note_state(self) -> None:
        self.accounting.state(len(self._buffer) + self._join.live(), self.nbytes)
        if self._overflowing is not None:
            self.accounting.spill(self._overflowing.spilled, self._disk.nbytes)

    def _nothing(self) -> Released:
        none = np.empty(0, np.int64)
        cells = np.empty((0, self._plan.condition.width), np.int64)
        return Released(none.astype(np.int8), none, none, none.astype(np.bool_), cells, none.astype(np.uint64))

    def _deliver(self, out: Outputs) -> None:
        """Turn what was found into output rows."""
        started = time.perf_counter()
        self._delivery.deliver(out)
        self.seconds["materialise"] += time.perf_counter() - started

    def _shed(self, room: int, now: int) -> None:
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
        for i, n in enumerate(self._late.add(held.input[victims], held.seq[victims], "shed")):
            self.accounting.reject(i, "shed", int(n))
        self._join.evict(victims | expired)

    def _write_rest(self, out: Outputs) -> None:
        """Write late rows and punctuations of this step, at once: they may be few in each of many runs."""
        self._late.write(out)
        if self._finished:
            out.punctuations.append(finished_batch(self._plan, self._encoder, self._finished))
            self.accounting.finished += out.punctuations[-1].num_rows
            self._finished.clear()

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
            filled = zip(self._counts_as, self._stores, strict=True)
            held_by = [(np.full(len(store), i), store.beside.cells) for i, store in filled]
            if getattr(self._disorder, "needs_cells", False):
                held_by.append(self._disorder.held_cells())  # type: ignore[attr-defined]
            if self._promises is not None:
                held_by.append(self._promises.held_cells())
                if hasattr(self._join, "held_cells"):
                    held_by.append(self._join.held_cells())
            used = [
                cells[inputs == i, c]
                for inputs, cells in held_by
                for i in range(len(self._plan.members))
                for c in self._encoder.text_cells(i)
            ]
            self._encoder.dictionary.forget(np.concatenate(used) if used else np.empty(0, np.int64))
