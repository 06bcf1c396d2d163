"""The queue in front of a join: rows wait while it is busy, and the least valuable are shed (SAJ 2.3, slow CPU).

How busy the join is follows from when rows arrive and how many it can serve per second, which is given or, of a
live input, measured. Given the rate, nothing but the arrivals decides who waits and who is shed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from slackwater.plugins.contract import NEVER, Bools, Float64s, Held, Int64s, Snapshot, Tuples
from slackwater.plugins.guard.calls import guarded
from slackwater.plugins.shedding.partners import Partners
from slackwater.transforms.arrival.event_times import event_times
from slackwater.transforms.arrival.intake import Chunk, Refused
from slackwater.transforms.arrival.service_rate import ServiceRate
from slackwater.transforms.kernels.arrival import queue as kernel
from slackwater.transforms.kernels.shedding.score_heap import COLUMNS, RANK, ScoreHeaps, ranks
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.punctuation.marks import marked
from slackwater.transforms.rows import row_code
from slackwater.transforms.rows.encoder import CellEncoder, grown
from slackwater.transforms.rows.store import Beside, RowStore
from slackwater.transforms.settings.columns import clock_nanos
from slackwater.transforms.settings.plan import SheddingPlan
from slackwater.transforms.sharding.copies import with_copies, without_copies

LIVE_NANOS: Final = 1_000
"""A tick of the clock by which the rows of a live input come, if they do not say when they did."""
_FARTHEST = 1 << 62
"""Times of arrival beyond this many ticks are taken as this, so that differences stay within 64 bits."""
_SPARE: Final = 4096
"""Rows that are kept beyond those that wait before they are thrown away together."""


class Arrived(NamedTuple):
    """Arrivals in order."""

    code: Int64s
    """``rows.row_code`` of each, by a numbering of the queue's own."""
    ts: Int64s
    clock: Int64s
    known: Bools
    """Whether it has an event time; what has none is no work."""
    rank: Int64s
    """Of its score."""

    def part(self, which: slice) -> Arrived:
        return Arrived._make(array[which] for array in self)


class Holder(Protocol):
    """What rows wait for: it holds tuples that they may meet."""

    def live(self) -> int:
        """Return how many there are."""

    def held(self) -> Held:
        """Return them, in any order."""


class InputQueue:
    """Rows of a shard that wait to be served, in the order of their arrival, never more than ``Queue.rows``.

    Chunks are cut where the queue looks at what the join holds, counted in arrivals over the whole stream.

    Args:
        plan: the join, whose shedding strategy has a queue.
        encoder: of the join's tuples.
        accounting: where it is noted how many wait and for how long.
        snapshot: what ``snapshot`` returned, or None.
    """

    def __init__(
        self, plan: SheddingPlan, encoder: CellEncoder, accounting: Accounting, snapshot: Snapshot | None = None
    ) -> None:
        assert plan.queue is not None
        options = plan.queue
        state: dict[str, Any] = dict(snapshot) if snapshot else {}
        self._plan, self._encoder, self._accounting, self._options = plan, encoder, accounting, options
        self._windows = np.asarray(plan.setting.windows, np.int64)
        self._counts_as = np.asarray(plan.counts_as, np.int8)
        self._logic = guarded(plan.shedding, plan.setting, state.get("logic"))
        self._by_partners = self._logic.scores_are_chances
        self._partners = Partners(plan.setting, state.get("partners"))
        self._nanos = LIVE_NANOS
        if plan.arrival_columns is not None:
            self._nanos = clock_nanos(options, plan.arrival_columns, plan.schemas, plan.unit)
        self._service = ServiceRate(options, self._nanos, state.get("measured", (0.0, 0.0)))
        self._next_seq = np.array(state.get("next_seq", [0] * len(plan.inputs)), np.int64)
        self._arrived = np.array(state.get("arrived", [0.0] * len(plan.members)))
        self._until_look = int(state.get("until_look", 0))
        self._now = int(state.get("now", NEVER))
        self._stores = [RowStore(schema, plan.condition.width) for schema in plan.schemas.values()]
        for store, rows in zip(self._stores, state.get("rows", ()), strict=False):
            store.restore(rows)
        self._q = _empty()
        if snapshot:
            self._reserve(len(state["rank"]))
            kernel.restore(self._q, *(np.array(state[name]) for name in ("code", "ts", "came", "rank")))
            self._q.state[[kernel.CLOCK, kernel.DEBT]] = state["clock"]

    def __len__(self) -> int:
        return int(self._q.heaps.size[0])

    @property
    def nbytes(self) -> int:
        """Bytes of all rows and arrays."""
        arrays = (self._q.slots, *self._q.heaps)
        return sum(store.nbytes for store in self._stores) + sum(int(array.nbytes) for array in arrays)

    @property
    def rate(self) -> float | None:
        """Rows per second that are served; None as long as nobody knows, which is for ever in a replay."""
        return self._service.rate

    def serve(
        self, chunk: Chunk, join: Holder, on_t: Callable[[], int], bad: list[Refused] | None = None
    ) -> Iterator[tuple[Chunk, list[Refused]]]:
        """Yield rows whose turn has come, with those that were shed; the next are found once these are joined.

        Args:
            chunk: arrivals.
            join: the join that is served.
            on_t: tells its time.
            bad: rows that have been refused already; they do not wait.
        """
        if bad:
            yield self._chunk(np.empty(0, np.int64)), bad
        clock = chunk.came if self._plan.arrival_columns is None else chunk.arrival
        replay = chunk.came is None and self._options.service_rate is None
        if clock is None or self.rate is None or replay:
            if len(self):
                yield self.drain(), []
            self._service.serve(chunk.input.size)
            yield chunk, []
            return
        # What is shed depends on what the join has seen, so no row may wait behind the queue.
        chunk = chunk._replace(bounded=False)
        rows = self._take_in(chunk, np.clip(clock, -_FARTHEST, _FARTHEST - 1))
        start = 0
        while start < rows.ts.size:
            if not self._until_look:
                self._look(join, on_t())
            stop = min(rows.ts.size, start + self._until_look)
            self._until_look -= stop - start
            yield self._serve(rows.part(slice(start, stop)), chunk if stop - start == rows.ts.size else None)
            start = stop
        self._forget()

    def drain(self) -> Chunk:
        """Serve all that wait: no more rows come."""
        code, wait = np.empty(len(self), np.int64), np.empty(len(self), np.int64)
        kernel.advance(self._q, -1, *self._service.parts(), code, wait, 0)
        self._accounting.wait(wait * self._nanos)
        out = self._chunk(code)
        self._forget()
        return out

    def measure(self, seconds: float) -> None:
        """Note how long an engine was busy with what has been served since the last call."""
        self._service.measure(seconds)

    def snapshot(self) -> Snapshot:
        self._forget(force=True)
        slots, rank = self._waiting()
        row = self._q.slots[slots]
        return {
            "logic": self._logic.snapshot(),
            "partners": self._partners.snapshot(),
            "measured": self._service.snapshot(),
            "next_seq": self._next_seq.copy(),
            "arrived": self._arrived.copy(),
            "until_look": self._until_look,
            "now": self._now,
            "rows": [store.snapshot() for store in self._stores],
            "code": row_code.pack(row[:, kernel.SEQ], row[:, kernel.OWNER]),
            "ts": row[:, kernel.TS].copy(),
            "came": row[:, kernel.CAME].copy(),
            "rank": rank,
            "clock": self._q.state[[kernel.CLOCK, kernel.DEBT]].copy(),
        }

    def _take_in(self, chunk: Chunk, clock: Int64s) -> Arrived:
        """Number arrivals and keep them; scores are still to be given."""
        n = chunk.input.size
        code, ts, known = np.empty(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.bool_)
        for i, (marked_rows, store) in enumerate(zip(chunk.batches, self._stores, strict=True)):
            at = np.flatnonzero(chunk.input == i)
            if not at.size:
                continue
            batch, copy = without_copies(marked_rows)
            ts[at], known[at] = event_times(batch.column(self._plan.time_columns[i]), self._plan.unit)
            seq = self._next_seq[i] + np.arange(at.size)
            self._next_seq[i] += at.size
            code[at] = row_code.pack(seq, i)
            cells, nulls = self._encoder.encode_lasting(self._counts_as[i], batch, self._plan.source_columns(i))
            none = np.zeros(at.size, np.int64)
            mark = marked(self._plan.marks, i, batch)
            beside = Beside(seq, ts[at], chunk.arrival[at], none, none != 0, copy, mark, cells, nulls)
            store.append(batch, beside)
        return Arrived(code, ts, np.ascontiguousarray(clock), known, np.empty(n, np.int64))

    def _serve(self, rows: Arrived, whole: Chunk | None) -> tuple[Chunk, list[Refused]]:
        """Serve and shed what is due with some arrivals; ``whole`` is a chunk that has nothing but these."""
        n = rows.ts.size
        self._arrived += np.bincount(self._counts_as[row_code.input_of(rows.code)], minlength=self._arrived.size)
        rows.rank[:] = ranks(self._scores(rows.code, rows.ts, rows.known, learn=True))
        self._reserve(min(len(self) + n, self._options.rows))
        size = len(self) + n
        code, wait, gone = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(n, np.int64)
        n_out, n_gone = kernel.serve(
            self._q, self._options.rows, *self._service.parts(), rows.code, rows.ts, rows.clock, rows.rank,
            self._works(rows), code, wait, gone,
        )  # fmt: skip
        code, wait, gone = code[:n_out], wait[:n_out], gone[:n_gone]
        self._service.serve(n_out)
        self._accounting.wait(wait[wait >= 0] * self._nanos)
        self._accounting.queue_up(int(self._q.state[kernel.PEAK]))
        if whole is None or not np.array_equal(code, rows.code):
            whole = self._chunk(code)
        return whole, list(self._shed(gone))

    def _works(self, rows: Arrived) -> Bools:
        """Say which rows are work; others pass at once."""
        return rows.known

    def _scores(self, code: Int64s, ts: Int64s, known: Bools, learn: bool) -> Float64s:
        """Say what rows are worth: punctuations more than any tuple, what no window would take nothing."""
        inputs, seq = row_code.input_of(code), row_code.seq_of(code)
        n = ts.size
        mark, nulls = np.full(n, -1, np.int8), np.zeros(n, np.uint64)
        cells = np.zeros((n, self._plan.condition.width), np.int64)
        for i, store in enumerate(self._stores):
            at = np.flatnonzero(inputs == i)
            if at.size:
                beside, places = store.beside, store.locate(seq[at])
                mark[at], cells[at], nulls[at] = beside.mark[places], beside.cells[places], beside.nulls[places]
        lifetime = self._windows[self._counts_as[inputs]]
        if self._now != NEVER:
            lifetime = lifetime + ts - self._now
        tuples = known & (mark < 0) & (lifetime >= 0)
        scores = np.where(mark < 0, -np.inf, np.inf)
        scores[tuples] = self._worth(Tuples._make(
            array[tuples] for array in (inputs, ts, lifetime, cells, nulls, seq)
        ), learn)  # fmt: skip
        return scores

    def _worth(self, tuples: Tuples, learn: bool) -> Float64s:
        """Score tuples: by the results to expect of them, if that is what the strategy goes by."""
        if self._by_partners and self._options.mode == "modular":
            return self._met(tuples)
        worth = (self._logic.observe if learn else self._logic.scores)(tuples)
        if not self._by_partners:
            return np.asarray(worth * tuples.lifetime if self._logic.decays else worth, np.float64)
        to_come = worth * self._partners.to_come(tuples)
        if self._logic.decays:
            to_come = to_come * (tuples.lifetime / np.maximum(1, self._windows[tuples.input]))
        return np.asarray(self._met(tuples) + to_come, np.float64)

    def _met(self, tuples: Tuples) -> Float64s:
        """Return the results that tuples would find now; those that come too late do not look for any."""
        return np.where(tuples.ts >= self._now, self._partners.matching(tuples), 0.0)

    def _look(self, join: Holder, on_t: int) -> None:
        """See what the join holds, and score all that wait anew."""
        self._now = on_t
        self._until_look = max(self._options.refresh, join.live() // 2)
        if self._by_partners:
            held = join.held()
            cells = self._encoder.lasting(held.input, held.cells)
            seen = Tuples(held.input, held.ts, held.ts, cells, held.nulls, held.seq)
            self._partners.look(seen, self._arrived)
        if len(self):
            slots, _ = self._waiting()
            row = self._q.slots[slots]
            code, known = row_code.pack(row[:, kernel.SEQ], row[:, kernel.OWNER]), np.ones(slots.size, np.bool_)
            kernel.renew(self._q, slots, ranks(self._scores(code, row[:, kernel.TS], known, learn=False)))

    def _chunk(self, code: Int64s) -> Chunk:
        """Return rows as arrivals in this order."""
        inputs, seq = row_code.input_of(code), row_code.seq_of(code)
        arrival = np.empty(code.size, np.int64)
        batches = []
        for i, store in enumerate(self._stores):
            at = np.flatnonzero(inputs == i)
            places = store.locate(seq[at])
            arrival[at] = store.beside.arrival[places]
            rows, copy = store.batch(places), store.beside.copy[places]
            batches.append(with_copies(rows, copy) if copy.any() else rows)
        return Chunk(inputs, arrival, batches)

    def _shed(self, code: Int64s) -> Iterator[Refused]:
        for i, store in enumerate(self._stores):
            at = store.locate(np.sort(row_code.seqs_of(code, i)))
            copy = store.beside.copy[at]
            for places, copies in ((at[~copy], False), (at[copy], True)):
                if places.size:
                    ts, arrival = store.beside.ts[places], store.beside.arrival[places]
                    yield Refused(i, "shed", ts, arrival, store.batch(places), copies)

    def _waiting(self) -> tuple[Int64s, Int64s]:
        """Return the slots of all that wait, in their order, and the ranks of their scores."""
        slots = np.empty(len(self), np.int64)
        kernel.waiting(self._q, slots)
        heaps = self._q.heaps
        return slots, heaps.entries[0, heaps.place[slots], RANK]

    def _reserve(self, size: int) -> None:
        """Make room for ``size`` waiting rows."""
        slots, heaps, state = self._q
        if slots.shape[0] < size:
            heaps = heaps._replace(place=grown(heaps.place, size), entries=grown(heaps.entries[0], size)[None])
            self._q = kernel.Queue(grown(slots, size), heaps, state)

    def _forget(self, force: bool = False) -> None:
        """Throw away rows that do not wait any more, once they are the larger part."""
        if not force and sum(map(len, self._stores)) < 2 * len(self) + _SPARE:
            return
        row = self._q.slots[self._waiting()[0]]
        for i, store in enumerate(self._stores):
            store.keep(row[row[:, kernel.OWNER] == i, kernel.SEQ])


def _empty() -> kernel.Queue:
    heaps = ScoreHeaps(
        entries=np.empty((1, 0, COLUMNS), np.int64), place=np.empty(0, np.int64), size=np.zeros(1, np.int64)
    )
    state = np.zeros(kernel.STATES, np.int64)
    state[[kernel.FIRST, kernel.LAST, kernel.FREE]] = kernel.NONE
    state[kernel.CLOCK] = NEVER
    return kernel.Queue(np.empty((0, kernel.COLUMNS), np.int64), heaps, state)
