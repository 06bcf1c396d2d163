"""The operator: guard, reorder buffer, join and shedding of one shard, chunk by chunk.

Engines feed it arrivals, keep its snapshot and write what it returns; it knows nothing of them. Where chunks
are cut changes no result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import (
    NEVER,
    Arrivals,
    Bools,
    Evicted,
    Finished,
    Float64s,
    Held,
    Int8s,
    Int64s,
    Matches,
    Punctuations,
    Released,
    Snapshot,
)
from slackwater.plugins.contract.disk import OverflowingJoinLogic
from slackwater.plugins.guard.calls import guarded
from slackwater.transforms.arrival.intake import Chunk, Intake, Refused
from slackwater.transforms.arrival.queue import InputQueue
from slackwater.transforms.disorder.buffer import Emitted, ReorderBuffer
from slackwater.transforms.disorder.pace import Pacing
from slackwater.transforms.output.accounting import Accounting, partners_gone
from slackwater.transforms.output.archive import Archive
from slackwater.transforms.output.delivery import RESULTS_AT_ONCE, Delivery
from slackwater.transforms.output.late_rows import LateRows, refuse
from slackwater.transforms.output.outputs import Counts, Outputs
from slackwater.transforms.output.step import Joined, naming_condition, spread
from slackwater.transforms.punctuation.promises import DROPPED, JOINS, MARKED, VIOLATES, Promises
from slackwater.transforms.rows.encoder import CellEncoder
from slackwater.transforms.rows.shard_rows import ShardRows
from slackwater.transforms.settings.plan import JoinPlan
from slackwater.transforms.shedding.disk import RowDisk
from slackwater.transforms.shedding.shadow import Shadow
from slackwater.transforms.shedding.shedder import Shedder

__all__ = ["Chunk", "Operator", "Outputs"]


class Operator:
    """One shard of a sliding window join."""

    def __init__(self, plan: JoinPlan, snapshot: Snapshot | None = None, shard: int = 0) -> None:
        self._plan, setting = plan, plan.setting
        state: dict[str, Any] = dict(snapshot or {})
        self._intake = Intake(plan, state.get("intake"))
        self._disorder = guarded(plan.disorder, setting, state.get("disorder"))
        self._join = guarded(plan.join, setting, state.get("join"))
        self._encoder = CellEncoder(plan.condition, state.get("texts"))
        shed = state.get("shedding")
        shedding = guarded(plan.shedding, setting, shed["logic"] if shed else None)
        capacity = None if shedding.memory is None else 1
        self._buffer = ReorderBuffer(len(plan.members), state.get("buffer"), capacity)
        self._counts = Counts(plan, state.get("counts"))
        self._rows = ShardRows(plan, self._encoder, state.get("rows", ()))
        kept = (plan, shard, self._rows.stores, state.get("archive"))
        self._archive = None if plan.config.archive is None else Archive(*kept)
        self._shedder = Shedder(plan, shedding, self._join, self._rows, self._buffer, self._encoder, shed)
        # Where others ask which tuples contradict, it has to be known before they are joined.
        asked = plan.derived or self._shedder.limited or self._archive is not None
        promised = (plan, self._encoder, None if asked else getattr(self._join, "judges", None))
        self._promises = Promises(*promised, state.get("promises")) if setting.patterns else None
        self._shows_cells = getattr(self._disorder, "needs_cells", False)
        self._overflowing: OverflowingJoinLogic | None = self._join if hasattr(self._join, "use_disk") else None
        if self._overflowing is not None:
            self._disk = RowDisk(plan, self._rows.stores, self._encoder, self._overflowing.directory)
            self._overflowing.use_disk(self._disk)
        self.accounting = Accounting(plan.inputs, state.get("accounting"))
        self.queue = InputQueue.of(plan, self._encoder, self.accounting, state.get("queue"))
        self.seconds = {"kernel": 0.0, "materialise": 0.0, "adapt": 0.0}
        """Time spent buffering and joining, making result rows of what was found, and adapting."""
        self._pacing = Pacing(plan, self._disorder, self.accounting, self._buffer.__len__, self.seconds, state)
        shadow = (plan, self._shedder, self._encoder, self._rows, self.accounting, state.get("shadow"))
        self._shadow = Shadow(*shadow) if self._shedder.limited and not plan.setting.rows else None
        parts: Any = dict(promises=self._promises, archive=self._archive, queue=self.queue, shadow=self._shadow)
        self._optional: dict[str, Any] = {name: part for name, part in parts.items() if part is not None}
        self._on_t = int(state.get("on_t", NEVER))
        self._late = LateRows(plan, self._rows.stores, self.accounting)
        self.delivery = Delivery(plan, self._rows.stores, shard)
        self._rows.check(self._buffer.held(), self._join.held())
        self._finished: list[Finished] = []
        """What the join has proved finished in this step."""

    def push(self, chunk: Chunk) -> Outputs:
        """Take arrivals; return the results they complete and the rows they prove late."""
        out = Outputs.empty()
        self.accounting.receive(chunk.at_home)
        queue, (chunk, bad) = self.queue, self._intake.without_bad(chunk)
        for turn in [(chunk, bad)] if queue is None else queue.serve(chunk, self._join, lambda: self._on_t, bad):
            self._take(out, *turn)
        self._close_step(out)
        return out

    def _take(self, out: Outputs, chunk: Chunk | None, shed: Sequence[Refused] = ()) -> None:
        """Let rows in whose turn has come, but for those that the guard refuses; None for the last of them."""
        taken = self._intake.rest() if chunk is None else self._intake.take(chunk)
        refused = (*shed, *taken.refused)
        refuse(self._plan, self.accounting, refused, out)
        for which, reason, ts, _, rows, _ in refused:
            if self._archive is not None and reason in ("too_late", "shed") and ts is not None:
                self._archive.missed(which, rows, ts)
        arrivals = self._rows.add(taken, self._shows_cells)
        codes = taken.seq * 8 + taken.source
        self._shedder.arrive(taken)
        newest = self._pacing.follow(arrivals.progress)
        for interval in self._pacing.intervals(out, newest):
            for part in self._shedder.spans(interval, newest):
                self._give_up(out, newest[part])
                self._arrive(out, arrivals.part(part), codes[part], newest[part])

    def _arrive(self, out: Outputs, arrivals: Arrivals, codes: Int64s, newest: Int64s) -> None:
        bounds = self._disorder.bounds(arrivals)
        self._pacing.hold(arrivals, bounds)
        started = time.perf_counter()
        before = len(self._buffer)
        emitted = self._buffer.push(arrivals.input, arrivals.ts, codes, bounds)
        self.seconds["kernel"] += time.perf_counter() - started
        self._pacing.release(newest[emitted.at] - emitted.ts)
        self._process(out, emitted, before + emitted.at - np.arange(emitted.at.size))

    def _give_up(self, out: Outputs, newest: Int64s) -> None:
        """Let rows go that the buffer has no room for any more, since there is less memory."""
        emitted = self._buffer.give_up()
        if emitted.ts.size or self._shedder.shrunk:
            self._pacing.release(newest[:1] - emitted.ts)
            self._process(out, emitted, np.full(emitted.ts.size, len(self._buffer)))

    def _close_step(self, out: Outputs) -> None:
        self._deliver(out)
        self._counts.emit(out, self._overflowing is not None and self._overflowing.owes())
        self._write_rest(out)
        if self._shedder.compacts_first:
            self._compact()
        self.accounting.waited.hold(len(self._buffer), self._intake.progress)
        self.accounting.state(len(self._buffer) + self._join.live(), self.nbytes)
        if self._overflowing is not None:
            self.accounting.spill(self._overflowing.spilled, self._disk.nbytes)
        self._compact()

    def idle(self, members: Sequence[int]) -> Outputs:
        """Hold nothing back for ``members``, which are all that bring no rows (``ReorderBuffer.idle``)."""
        out, all_of_them = Outputs.empty(), len(members) == len(self._plan.members)
        if self.queue is not None and all_of_them:
            self._take(out, self.queue.drain())
        emitted = self._buffer.idle(members)
        self.accounting.waited.idled += emitted.ts.size
        self._let_go(out, emitted)
        if all_of_them:
            self._pacing.finish(out)
        self._close_step(out)
        return out

    def advance(self, progress: Int64s) -> Outputs:
        """Go on to where rows of other shards have brought each input, unless rows wait in the queue."""
        out = Outputs.empty()
        if not self.queue:
            bounds = self._pacing.advance(out, self._intake.advance(progress))
            self._let_go(out, self._buffer.advance(bounds))
        self._close_step(out)
        return out

    def _let_go(self, out: Outputs, emitted: Emitted) -> None:
        """Join rows that leave the buffer without an arrival."""
        self._pacing.release(self._pacing.newest - emitted.ts)
        self._process(out, emitted, len(self._buffer) + np.arange(emitted.ts.size)[::-1])

    def finish(self) -> Outputs:
        """Release everything that is held, in timestamp order: the inputs have ended."""
        return Outputs.together(self.finishing())

    def finishing(self) -> Iterator[Outputs]:
        """As ``finish``, in parts: what a join has on disk may be more than fits into memory."""
        out = Outputs.empty()
        if self.queue is not None:
            self._take(out, self.queue.drain())
        if self._intake.holds:
            self._take(out, None)
        emitted = self._buffer.drain()
        self._process(out, emitted, np.arange(emitted.ts.size)[::-1])
        if self._promises is not None:
            none = Released.none(self._plan.condition.width)
            self._join_rows(out, none, self._promises.finish(), np.zeros(1, np.int64), self._on_t)
            if self._plan.config.window is None and self._plan.foreign_keys:
                held = self._join.held()
                self._join.blaming("held", self._recall, held, self._promises.unmatched(held))
        self._close_step(out)
        if self._shadow is not None:
            self._shadow.close_run(self._join)
        if self._archive is not None:
            self._archive.close()
        for matches in () if self._overflowing is None else self._overflowing.finish():
            self._take_late(out, matches)
            if sum(batch.num_rows for batch in out.results) >= RESULTS_AT_ONCE:
                yield out
                out = Outputs.empty()
        self._write_rest(out)
        self._counts.finish(out)
        self._pacing.finish(out)
        yield out

    def hand_over(self, take: Callable[[pa.RecordBatch], None]) -> None:
        """Let results go before their step is over, where they are many bytes."""
        self.delivery.takes = take

    def drop_late(self) -> None:
        """Count late rows and make none: nobody reads them."""
        self._late.wanted = False

    @property
    def warnings(self) -> list[str]:
        """What the user should know of the data, at most one line of each kind."""
        return self._intake.warnings

    @property
    def nbytes(self) -> int:
        """Bytes of everything held."""
        parts = (self._buffer, self._rows, self._shedder, *self._optional.values())
        return int(self._join.nbytes + sum(part.nbytes for part in parts))

    def snapshot(self) -> Snapshot:
        """Everything needed to go on in another process, as ``transforms.state.snapshot`` writes it."""
        self._compact(force=True)
        return {
            "intake": self._intake.snapshot(),
            "disorder": self._disorder.snapshot(),
            "join": self._join.snapshot(),
            "shedding": self._shedder.snapshot(),
            "texts": self._encoder.dictionary.snapshot(),
            "buffer": self._buffer.snapshot(),
            "counts": self._counts.pending,
            "rows": self._rows.snapshot(),
            "accounting": self.accounting.snapshot(),
            "on_t": self._on_t,
            **{name: part.snapshot() for name, part in self._optional.items()},
            **self._pacing.snapshot(),
        }

    def close(self) -> None:
        """Remove what is on disk; the operator is of no use any more."""
        if self._overflowing is not None:
            self._disk.close()

    def _process(self, out: Outputs, emitted: Emitted, level: Int64s) -> None:
        """Join what the reorder buffer emitted; ``level`` is what it still held when each row had left."""
        if not self._shedder.limited:
            self._run(out, emitted, level)
            return
        peak = np.append(level, len(self._buffer))
        peak[1:] = np.maximum(level, peak[1:])
        if not emitted.ts.size:
            self._run(out, emitted, peak)
        for part in self._shedder.parts(level):
            self._run(out, Emitted._make(array[part] for array in emitted), peak[part.start : part.stop + 1])

    def _run(self, out: Outputs, emitted: Emitted, level: Int64s) -> None:
        if not emitted.ts.size:
            if self._shedder.memory is not None:
                self._join_rows(out, Released.none(self._plan.condition.width), None, level, self._on_t)
            return
        released, source, delay = self._rows.released(emitted)
        on_t = self._on_t
        gone, self._on_t = partners_gone(released, self._plan.setting, on_t)
        if self._promises is None:
            self._report(released, released.late, "too_late")
            sizes, _ = self._join_rows(out, released, None, level, on_t)
        else:
            seen, sizes = self._sort(out, released, source, gone, level, on_t)
            released, gone, delay = released.part(seen), gone[seen[released.late]], delay[seen]
        self.accounting.join(released.input, released.late, gone, sizes[0], self._rows.copies(released))
        self._pacing.learn(released.input, released.ts, delay, released.late, *sizes)

    def _sort(
        self, out: Outputs, released: Released, source: Int8s, gone: Float64s, level: Int64s, on_t: int
    ) -> tuple[Bools, list[Any]]:
        """Join what punctuations allow; ``source`` is the input by which each row came.

        Returns which rows are tuples that contradict none in order, and of these what ``_join_rows`` returns;
        the late ones among them that match a punctuation miss all their partners.
        """
        assert self._promises is not None
        mark = self._rows.marks(released, source)
        judged = self._promises.judge(released, mark, self._rows.stores)
        joins, dropped, tuples = judged.verdict == JOINS, judged.verdict == DROPPED, released
        # Before the join: of what it sheds, late rows are in the late output already.
        self._report(released, released.late & (joins | dropped), "too_late")
        if self._archive is not None:
            self._archive.pass_over(released.part(dropped))
        if not joins.all():
            tuples = released.part(joins)
            level = level if self._shedder.memory is None else self._shedder.levels(level, joins)
        joined, contradicts = self._join_rows(out, tuples, judged.punctuations, level, on_t)
        verdict = judged.verdict if not contradicts.size else judged.but(contradicts, released.late)
        dropped, violates = verdict == DROPPED, verdict == VIOLATES
        seen = dropped | (verdict == JOINS)
        self.accounting.punctuate(source[verdict == MARKED])
        self.accounting.reject_each(np.bincount(released.input[violates]), "punctuation_violated")
        self._report(released, violates, "punctuation_violated")
        gone[dropped[released.late]] = 1.0
        return seen, [spread(size, joins)[seen] for size in joined]

    def _report(self, released: Released, which: Bools, reason: str) -> None:
        self._late.add(released.input[which], released.seq[which], reason)

    def _recall(self, held: Held, which: Bools) -> None:
        """Let tuples that seemed right when they came go to the late output as contradictions after all."""
        reason = "punctuation_violated"
        self.accounting.recall_each(self._late.add(held.input[which], held.seq[which], reason), reason)

    @naming_condition
    def _join_rows(
        self, out: Outputs, released: Released, punctuations: Punctuations | None, level: Int64s, on_t: int
    ) -> tuple[list[Any], Int64s]:
        """Step the join within its memory; return sizes and losses of the tuples, and those that contradict."""
        joined, unordered = Joined(), list[tuple[Int64s, Int64s]]()
        started = time.perf_counter()
        if self._shadow is not None and released.ts.size and self._shedder.begins_run:
            self._shadow.begin(self._join)
        step = None if punctuations is None else getattr(self._join, "punctuated_step", None)
        found = self._join.step(released) if step is None else step(released, punctuations)
        if self._shedder.memory is not None:
            found = self._shedder.step(released, level, on_t, found)
        if self._archive is not None:
            self._archive.release(released)
        for matches in found:
            if not self._shedder.limited:
                self.accounting.state(len(self._buffer) + self._join.live(), 0)
            if matches.evicted is not None:
                self._evict(matches.evicted)
            joined.add(matches)
            self._take_late(out, matches)
            if self._plan.config.output == "counts":
                self._counts.add(released.ts[matches.start : matches.stop], matches.join_size)
            elif len(matches.rows) and self._join.reorders:
                unordered.append((matches.rows, matches.probe))
            elif len(matches.rows):
                self.delivery.add(matches.rows, released.ts[matches.probe])
                if self.delivery.full:
                    self.seconds["kernel"] += time.perf_counter() - started
                    self._deliver(out)
                    started = time.perf_counter()
        self.accounting.state(self._shedder.most, 0)
        self.delivery.add_in_order(unordered, released.ts)
        self.seconds["kernel"] += time.perf_counter() - started
        sizes = joined.sizes
        if self._shadow is not None:
            sizes.append(self._shadow.step(self._join, released, sizes[0], joined.evicted))
        return sizes, joined.contradicts

    def _take_late(self, out: Outputs, matches: Matches) -> None:
        """Take what a run brings besides the results of its tuples."""
        if matches.finished is not None and len(matches.finished.ts):
            self._finished.append(matches.finished)
        if matches.settled is None:
            return
        ts, rows = matches.settled
        self.accounting.results += len(ts)
        if rows is None:
            self._counts.add(ts, np.ones(len(ts), np.int64))
        else:
            self.delivery.write_stored(out, rows, ts)

    def _deliver(self, out: Outputs) -> None:
        """Turn what was found into output rows."""
        started = time.perf_counter()
        self._join.blaming("step", self.delivery.deliver, out)
        self.seconds["materialise"] += time.perf_counter() - started

    def _evict(self, evicted: Evicted) -> None:
        """Let tuples that went for lack of memory go to the late output."""
        late = (self._late.add, *evicted[:2], "shed")
        self.accounting.reject_each(self._join.blaming(self._join.sheds_by, *late), "shed")
        if self._archive is not None:
            self._archive.evict(evicted)

    def _write_rest(self, out: Outputs) -> None:
        """Write late rows and punctuations of this step, at once: they may be few in each of many runs."""
        self._late.write(out)
        if self._finished:
            out.punctuations.append(self._plan.punctuation_batch(self._encoder, self._finished))
            self.accounting.finished += out.punctuations[-1].num_rows
            self._finished.clear()

    def _compact(self, force: bool = False) -> None:
        """Forget rows that nothing refers to, once they are the larger part of what is stored."""
        live = len(self._buffer) + self._join.live()
        if not force and sum(map(len, self._rows.stores)) < live + self._shedder.spare(live):
            return
        self._join.blaming("held", self._rows.keep, self._buffer.held(), self._join.held(), self._archive)
        holders: list[Any] = [self._disorder] if self._shows_cells else []
        holders += [self._shadow, *([] if self._promises is None else [self._promises, self._join])]
        self._rows.forget_texts(part.held_cells() for part in holders if hasattr(part, "held_cells"))
