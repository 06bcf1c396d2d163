"""Keeping a join within its memory: how many tuples may stay, and which (SAJ, fast CPU)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from slackwater.plugins.contract import (
    Bools,
    Evicted,
    Float64s,
    Held,
    Int64s,
    JoinLogic,
    Keep,
    Matches,
    Released,
    Snapshot,
    Tuples,
)
from slackwater.plugins.guard.calls import JoinGuard, SheddingGuard
from slackwater.transforms.arrival.intake import Taken
from slackwater.transforms.disorder.buffer import ReorderBuffer
from slackwater.transforms.kernels.rows.lookup import remaining
from slackwater.transforms.rows.encoder import CellEncoder
from slackwater.transforms.rows.shard_rows import ShardRows
from slackwater.transforms.settings.plan import JoinPlan
from slackwater.transforms.shedding.allocator import trim_unused
from slackwater.transforms.shedding.memory import MARGIN, SOME, SPARE, TupleLimit, Weights

UNUSED = 8
"""The part of a memory in bytes that may be freed and not given back."""
ASIDE = 1 << 17
"""Bytes for the sample of what was shed, where memory is in bytes."""
FIRST_RUN = 64
"""Tuples after which scores are renewed for the first time."""


class Shedder:
    """Holds the tuples of one shard, in the windows and in the reorder buffer together, to the strategy's memory.

    The buffer has the first claim, up to half; windows have the rest. Tuples get new scores once per *run* (the
    shedder is the ``Occasion``), counted in tuples that have reached the join, so that chunks do not show: a
    fraction of the memory, or as many as the strategy's ``renewal`` says, and fewer at first. A join with
    ``limited_step`` uses all that it may; others have half of the memory, less what a run may bring.
    """

    def __init__(
        self,
        plan: JoinPlan,
        logic: SheddingGuard,
        join: JoinGuard,
        rows: ShardRows,
        buffer: ReorderBuffer,
        encoder: CellEncoder,
        snapshot: Snapshot | None = None,
    ) -> None:
        self._logic, self._join, self._rows, self._buffer = logic, join, rows, buffer
        self._windows, self._encoder = np.asarray(plan.windows, np.int64), encoder
        self._by_rows = np.asarray(plan.setting.rows, np.int64)
        state: Snapshot = snapshot or {}
        self._until = int(state.get("until", 0))
        self._joined = int(state.get("joined", 0))
        self._began = bool(state.get("began", False))
        self._allowed: Int64s | None = None
        self._now = int(state.get("now", 0))
        self._bytes = 0
        """The memory, if it is in bytes."""
        self._deepest = int(state.get("deepest", 0))
        """The most rows that have waited in the buffer."""
        self.most = 0
        """The most tuples that have been held at any instant."""
        self.limit = TupleLimit(
            logic, plan.setting.nanos_per_tick, self._fitting, self._renew, state.get("limit")
        )
        width = plan.condition.width
        beside = 8 * (5 + width) + 2
        self._weights = Weights(list(plan.schemas.values()), beside, state.get("weights"))
        texts = any(encoder.text_cells(i) for i in range(len(plan.members)))
        self._working = 80 + 8 * width * (2 if texts else 1)
        """Bytes per tuple that it takes to give all of them new scores."""
        self.shrunk = False
        """Whether there is less memory than there was, so that tuples must leave before the next comes."""
        if self.limit.tuples is not None:
            self._apply(self.limit.tuples)

    @property
    def memory(self) -> int | None:
        """Tuples that may be held, or None."""
        return self.limit.tuples

    @property
    def in_bytes(self) -> bool:
        """Whether the limit is in bytes at any time."""
        return self.limit.in_bytes

    @property
    def limited(self) -> bool:
        """Whether there is a limit."""
        return self.limit.limited

    @property
    def nbytes(self) -> int:
        """Bytes of what the strategy has learnt; with memory in bytes, also of the room to score tuples in."""
        working = self._working * self._join.live() if self.limited and self.limit.in_bytes else 0
        return int(self._logic.nbytes) + working

    def spare(self, live: int) -> int:
        """Return how many rows that are not needed may be kept beside ``live`` ones that are."""
        return live // SPARE + SOME if self.limited and self.limit.in_bytes else live + 4096

    @property
    def compacts_first(self) -> bool:
        """Whether what is not needed any more counts as held only if it stays."""
        return self.limited and self.limit.in_bytes

    def snapshot(self) -> Snapshot:
        return {
            "logic": self._logic.snapshot(),
            "until": self._until,
            "joined": self._joined,
            "began": self._began,
            "now": self._now,
            "deepest": self._deepest,
            "limit": self.limit.snapshot(),
            "weights": self._weights.snapshot(),
        }

    @property
    def begins_run(self) -> bool:
        """Whether the next tuple that is joined is the first of a run."""
        return self._until == 0

    def expected(self, held: Held) -> Float64s:
        """Return the results to expect of tuples, to scale; all the same if the strategy does not know."""
        if not self._logic.scores_are_chances:
            return np.ones(held.ts.size)
        return np.maximum(self._worth(self._logic.scores, held), 0.0)

    def arrive(self, taken: Taken) -> None:
        """Take note of the rows of a chunk."""
        if self.compacts_first:
            trim_unused(self._bytes // UNUSED)
            self._weights.arrive(taken.source, taken.rows, taken.of_input)

    def deepen(self, level: Int64s) -> None:
        """Take note of what the buffer held when each of some tuples had left it."""
        self._deepest = max(self._deepest, int(level.max(initial=-1)) + 1)

    def meet(self, time: Int64s, start: int) -> int:
        """Return the tuple before which scores are due to be renewed; ``step`` does so."""
        return start + (self._until or self._run())

    def count(self, rows: int) -> None:
        """Runs are counted in tuples that are joined (``step``)."""

    def _renew(self, before: int | None, tuples: int) -> None:
        """Hold everything to the limit, which may have been another before."""
        self.shrunk = before is not None and tuples < before
        self._apply(tuples)

    def _apply(self, tuples: int) -> None:
        """Hold the buffer and the join to a number of tuples."""
        self._buffer.capacity = tuples // 2
        self._until = min(self._until, self._run())
        self._join.fit(tuples, self._heaps)

    @property
    def _heaps(self) -> int:
        return 1 if self._logic.allocation == "variable" else len(self._windows)

    def _fitting(self, amount: int, arrived: int) -> int:
        """Return how many tuples fit into ``amount`` bytes, once so many rows of the chunk at hand have come."""
        self._bytes = amount
        join: Any = self._join
        row, run = self._weights.row(arrived), (self.limit.tuples or 0) // 4
        self._deepest = max(self._deepest, len(self._buffer))
        amount -= self._logic.bytes_after(run) + self._buffer.bytes_for(self._deepest) + ASIDE
        if self._weights.varies:
            held, codes = join.held(), self._buffer.held()
            sizes, texts = join.blaming("held", self._rows.weigh, self._rows.needed(codes, held))
            row = max(row, sizes / max(1, held.ts.size + codes.size))
            amount -= amount // MARGIN + texts + texts // SPARE

        def taken(tuples: int) -> int:
            rows = int(self._weights.rows(tuples, row))
            return int(join.bytes_for(tuples, self._heaps)) + rows + self._working * tuples

        return max(1, bisect_right(range(1, max(2, amount // 64)), amount, key=taken))

    @staticmethod
    def levels(level: Int64s, which: Bools) -> Int64s:
        """Return the levels before, between and after some of the tuples of a part."""
        return np.maximum.reduceat(level, np.concatenate([[0], np.flatnonzero(which) + 1]))

    def step(
        self, released: Released, level: Int64s, on_t: int, unlimited: Iterable[Matches]
    ) -> Iterable[Matches]:
        """Join one part.

        Args:
            released: the tuples.
            level: the most that the buffer holds before the first of them, and from each to the next.
            on_t: the join's time before them.
            unlimited: the join's own step, which has not begun; not used where the join keeps to limits itself.
        """
        assert self.memory is not None
        n, starts, shrunk = released.ts.size, self._until == 0, self.shrunk
        self.shrunk = False
        if n:
            self._until = (self._until or self._run()) - n
            self._joined += n
        if self._join.keeps_limit:
            room = np.maximum(0, self.memory - level)
            yield from self._limited(self._join, released, level, room, on_t, starts)
            return
        if (starts and n) or shrunk:
            # Also of what the buffer may come to hold: how much that is shows only when it is too late.
            most = max(0, self.memory - self.memory // 2 - self._run())
            yield from self._make_room(self._join, released, most, on_t)
        for matches in unlimited:
            self.most = max(self.most, self._join.live() + int(level.max()))
            yield matches

    def _run(self) -> int:
        """Tuples from one renewal of scores to the next; at first no more than have been seen."""
        assert self.memory is not None
        run = self.memory // 16
        if self._join.keeps_limit:
            renewal = self._logic.renewal
            run = max(2 * self.memory, renewal) if renewal else self.memory // 4
        return max(1, min(run, max(FIRST_RUN, self._joined)))

    def _limited(
        self, join: Any, released: Released, level: Int64s, room: Int64s, on_t: int, starts: bool
    ) -> Iterable[Matches]:
        limit = self._shares(room)
        if self._allowed is None or (limit[0] < self._allowed).any():
            none = None if self._began else np.empty(0)
            self._began = True
            yield from join.limited_step(
                released.part(slice(0)), Keep(np.empty(0), none, limit[:1], np.empty(0, np.int64))
            )
        self._allowed = limit[-1]
        self.most = max(self.most, join.live() + int(level[0]))
        if not released.ts.size:
            return
        held = None
        if starts:
            self._now = max(on_t, int(released.ts[0]))
            tuples = join.held()
            held = self._worth(self._logic.scores, tuples, join.lifetimes() if self._by_rows.size else None)
        arriving = Held(*(getattr(released, name) for name in Held._fields))
        lifetime = self._by_rows[arriving.input] if self._by_rows.size else None
        scores = self._worth(self._logic.observe, arriving, lifetime)
        keep = Keep(scores, held, limit[1:], np.empty(released.ts.size, np.int64))
        yield from join.limited_step(released, keep)
        self.most = max(self.most, int((keep.live + level[1:]).max()))

    def _make_room(self, join: JoinLogic, released: Released, room: int, on_t: int) -> Iterable[Matches]:
        """Evict the lowest scores but ``room`` of them; what windows will drop goes first, as expired."""
        if join.live() <= room:
            return
        self._now = max(on_t, int(released.ts[0])) if released.ts.size else on_t
        held = join.held()
        leave = held.ts + self._windows[held.input] < self._now
        kept = np.flatnonzero(~leave)
        scores = self._worth(self._logic.scores, Held._make(array[kept] for array in held))
        order = kept[np.lexsort((held.seq[kept], held.input[kept], held.ts[kept], scores))]
        victims = order[: max(0, order.size - room)]
        leave[victims] = True
        join.evict(leave)
        none = np.empty(0, np.int64)
        gone = Evicted(held.input[victims], held.seq[victims], np.full(victims.size, -1))
        yield Matches(0, 0, np.empty((0, len(self._windows)), np.int64), none, none, np.empty(0), evicted=gone)

    def _shares(self, room: Int64s) -> Int64s:
        """Split what windows may hold among the inputs, where each has its own share."""
        m = self._heaps
        if m == 1:
            return room[:, None]
        return np.asarray(room[:, None] // m + (np.arange(m) < room[:, None] % m), np.int64)

    def _worth(
        self, scores: Callable[[Tuples], Float64s], held: Held, lifetime: Int64s | None = None
    ) -> Float64s:
        """Score tuples; those that windows will drop, worth nothing, are not asked about."""
        if lifetime is None:
            lifetime = np.empty(held.ts.size, np.int64)
            remaining(held.ts, held.input, self._windows, self._now, lifetime)
        cells = self._encoder.lasting(held.input, held.cells)
        asked = Tuples(held.input, held.ts, lifetime, cells, held.nulls, held.seq)
        if lifetime.min(initial=0) >= 0:
            return self._asked(scores, asked)
        alive = lifetime >= 0
        worth = np.full(lifetime.size, -np.inf)
        worth[alive] = self._asked(scores, Tuples._make(array[alive] for array in asked))
        return worth

    def _asked(self, scores: Callable[[Tuples], Float64s], tuples: Tuples) -> Float64s:
        found = scores(tuples)
        return found * tuples.lifetime if self._logic.decays else found
