"""Keeping a join within its memory: how many tuples may stay, and which (SAJ, fast CPU)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from slackwater.plugins.contract import (
    Bools,
    Evicted,
    Held,
    Int64s,
    JoinLogic,
    Keep,
    Matches,
    Released,
    Snapshot,
)
from slackwater.plugins.guard.calls import JoinGuard, SheddingGuard
from slackwater.transforms.arrival.intake import Taken
from slackwater.transforms.disorder.buffer import ReorderBuffer
from slackwater.transforms.rows.shard_rows import ShardRows
from slackwater.transforms.settings.plan import JoinPlan
from slackwater.transforms.shedding.byte_budget import ByteBudget
from slackwater.transforms.shedding.memory import SOME, SPARE, TupleLimit
from slackwater.transforms.shedding.scores import Scores

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
        snapshot: Snapshot | None = None,
    ) -> None:
        self._logic, self._join, self._buffer = logic, join, buffer
        self._windows = np.asarray(plan.windows, np.int64)
        self._heaps = 1 if logic.allocation == "variable" else len(self._windows)
        """Rankings of tuples: of all together, or of each input."""
        state: Snapshot = snapshot or {}
        self._until = int(state.get("until", 0))
        self._joined = int(state.get("joined", 0))
        self._began = bool(state.get("began", False))
        self._allowed: Int64s | None = None
        self.scores = Scores(plan, logic, rows.encoder, int(state.get("now", 0)))
        self._budget = ByteBudget(plan, logic, join, rows, buffer, self._heaps, state)
        self.most = 0
        """The most tuples that have been held at any instant."""
        nanos = plan.setting.nanos_per_tick
        self.limit = TupleLimit(logic, nanos, self._budget.fitting, self._hold_to, state.get("limit"))
        """The ``Occasion`` at which there is more memory, or less."""
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
        """Whether there is a limit, in bytes at any time; what is not needed then counts as held only if it
        stays."""
        return self.limited and self.limit.in_bytes

    @property
    def limited(self) -> bool:
        """Whether there is a limit."""
        return self.limit.limited

    @property
    def nbytes(self) -> int:
        """Bytes of what the strategy has learnt; with memory in bytes, also of the room to score tuples in."""
        working = self._budget.working(self._join.live()) if self.in_bytes else 0
        return int(self._logic.nbytes) + working

    def spare(self, live: int) -> int:
        """Return how many rows that are not needed may be kept beside ``live`` ones that are."""
        return live // SPARE + SOME if self.in_bytes else live + 4096

    def snapshot(self) -> Snapshot:
        return {
            "logic": self._logic.snapshot(),
            "until": self._until,
            "joined": self._joined,
            "began": self._began,
            "now": self.scores.now,
            "limit": self.limit.snapshot(),
            **self._budget.snapshot(),
        }

    @property
    def begins_run(self) -> bool:
        """Whether the next tuple that is joined is the first of a run."""
        return self._until == 0

    def arrive(self, taken: Taken) -> None:
        """Take note of the rows of a chunk."""
        if self.in_bytes:
            self._budget.arrive(taken)

    def deepen(self, level: Int64s) -> None:
        """Take note of what the buffer held when each of some tuples had left it."""
        self._budget.deepen(level)

    def meet(self, time: Int64s, start: int) -> int:
        """Return the tuple before which scores are due to be renewed; ``step`` does so."""
        return start + (self._until or self._run())

    def count(self, rows: int) -> None:
        """Runs are counted in tuples that are joined (``step``)."""

    def _hold_to(self, before: int | None, tuples: int) -> None:
        """Hold everything to the limit, which may have been another before."""
        self.shrunk = before is not None and tuples < before
        self._apply(tuples)

    def _apply(self, tuples: int) -> None:
        """Hold the buffer and the join to a number of tuples."""
        self._buffer.capacity = tuples // 2
        self._until = min(self._until, self._run())
        self._join.fit(tuples, self._heaps)

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
            self.scores.now = max(on_t, int(released.ts[0]))
            held = self.scores.of_all(join)
        scores = self.scores.of_arriving(released)
        keep = Keep(scores, held, limit[1:], np.empty(released.ts.size, np.int64))
        yield from join.limited_step(released, keep)
        self.most = max(self.most, int((keep.live + level[1:]).max()))

    def _make_room(self, join: JoinLogic, released: Released, room: int, on_t: int) -> Iterable[Matches]:
        """Evict the lowest scores but ``room`` of them; what windows will drop goes first, as expired."""
        if join.live() <= room:
            return
        now = self.scores.now = max(on_t, int(released.ts[0])) if released.ts.size else on_t
        held = join.held()
        leave = held.ts + self._windows[held.input] < now
        kept = np.flatnonzero(~leave)
        scores = self.scores.of_held(Held._make(array[kept] for array in held))
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
