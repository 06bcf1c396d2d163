"""Keeping a join within its memory: how many tuples may stay, and which (SAJ, fast CPU)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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
    SheddingLogic,
    Snapshot,
    Tuples,
)
from slackwater.transforms.encode import CellEncoder

FIRST_RUN = 64
"""Tuples after which scores are renewed for the first time."""


class Shedder:
    """Holds the tuples of one shard, in the windows and in the reorder buffer together, to the strategy's memory.

    The buffer has the first claim, up to half; windows have the rest. Tuples get new scores once per *run*,
    counted in tuples that have reached the join, so that chunks do not show: a fraction of the memory, or as many
    as the strategy's ``renewal`` says, and fewer at first. A join with ``limited_step`` uses all that it may;
    from others, room for a run is taken before it starts.
    """

    def __init__(
        self,
        logic: SheddingLogic,
        windows: tuple[int, ...],
        encoder: CellEncoder,
        snapshot: Snapshot | None = None,
    ) -> None:
        self._logic, self._windows, self._encoder = logic, np.asarray(windows, np.int64), encoder
        self._released = int(snapshot["released"]) if snapshot else 0
        self._now = int(snapshot["now"]) if snapshot else 0
        self._allowed: Int64s | None = None
        self.most = 0
        """The most tuples that have been held at any instant."""

    @property
    def memory(self) -> int | None:
        """Tuples that may be held, or None."""
        return self._logic.memory

    @property
    def buffered(self) -> int | None:
        """Rows that the reorder buffer may hold, or None."""
        return None if self.memory is None else self.memory // 2

    def snapshot(self) -> Snapshot:
        return {"logic": self._logic.snapshot(), "released": self._released, "now": self._now}

    def begins_run(self, join: JoinLogic) -> bool:
        """Whether the part of ``parts`` that is being joined is the first of a run."""
        return self._released % self._run(join) == 0

    def expected(self, held: Held) -> Float64s:
        """Return the results to expect of tuples, to scale; all the same if the strategy does not know."""
        if not getattr(self._logic, "scores_are_chances", False):
            return np.ones(held.ts.size)
        return np.maximum(self._worth(self._logic.scores, held), 0.0)

    def parts(self, join: JoinLogic, n: int) -> Iterator[slice]:
        """Cut ``n`` tuples that reach the join where runs end."""
        start = 0
        while start < n:
            run = self._run(join)
            stop = min(start + run - self._released % run, n)
            yield slice(start, stop)
            self._released += stop - start
            start = stop

    @staticmethod
    def levels(level: Int64s, which: Bools) -> Int64s:
        """Return the levels before, between and after some of the tuples of a part."""
        return np.maximum.reduceat(level, np.concatenate([[0], np.flatnonzero(which) + 1]))

    def step(
        self,
        join: JoinLogic,
        released: Released,
        level: Int64s,
        on_t: int,
        unlimited: Iterable[Matches],
    ) -> Iterable[Matches]:
        """Join one part.

        Args:
            join: the join.
            released: the tuples.
            level: the most that the buffer holds before the first of them, and from each to the next.
            on_t: the join's time before them.
            unlimited: the join's own step, which has not begun; not used where the join keeps to limits itself.
        """
        assert self.memory is not None
        room = np.maximum(0, self.memory - level)
        if hasattr(join, "limited_step"):
            yield from self._limited(join, released, level, room, on_t)
            return
        yield from self._make_room(join, released, int(room.min()), on_t)
        for matches in unlimited:
            self.most = max(self.most, join.live() + int(level.max()))
            yield matches

    def _run(self, join: JoinLogic) -> int:
        """Tuples from one renewal of scores to the next, a power of two; at first as many as have been seen."""
        assert self.memory is not None
        run = self.memory // 16
        if hasattr(join, "limited_step"):
            run = max(self.memory // 4, getattr(self._logic, "renewal", 0))
        known = max(FIRST_RUN, self._released)
        return 1 << (max(1, min(run, known)).bit_length() - 1)

    def _limited(
        self, join: Any, released: Released, level: Int64s, room: Int64s, on_t: int
    ) -> Iterable[Matches]:
        limit = self._shares(room)
        if self._allowed is None or (limit[0] < self._allowed).any():
            none = np.empty(0) if not self._released else None
            yield from join.limited_step(
                released.part(slice(0)), Keep(np.empty(0), none, limit[:1], np.empty(0, np.int64))
            )
        self._allowed = limit[-1]
        self.most = max(self.most, join.live() + int(level[0]))
        if not released.ts.size:
            return
        held = None
        if self.begins_run(join):
            self._now = max(on_t, int(released.ts[0]))
            held = self._worth(self._logic.scores, join.held())
        arriving = Held(*(getattr(released, name) for name in Held._fields))
        scores = self._worth(getattr(self._logic, "observe", self._logic.scores), arriving)
        keep = Keep(scores, held, limit[1:], np.zeros(released.ts.size, np.int64))
        yield from join.limited_step(released, keep)
        self.most = max(self.most, int((keep.live + level[1:]).max()))

    def _make_room(self, join: JoinLogic, released: Released, room: int, on_t: int) -> Iterable[Matches]:
        """Evict the lowest scores until all of the tuples fit; what windows will drop goes first, as expired."""
        n = released.ts.size
        room = max(0, room - n)
        if join.live() <= room:
            return
        self._now = max(on_t, int(released.ts[0])) if n else on_t
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
        if getattr(self._logic, "allocation", "variable") == "variable":
            return room[:, None]
        m = len(self._windows)
        return np.asarray(room[:, None] // m + (np.arange(m) < room[:, None] % m), np.int64)

    def _worth(self, scores: Callable[[Tuples], Float64s], held: Held) -> Float64s:
        """Score tuples; those that windows will drop, worth nothing, are not asked about."""
        lifetime = held.ts + self._windows[held.input] - self._now
        alive = lifetime >= 0
        cells = self._encoder.lasting(held.input, held.cells)
        asked = Tuples(held.input, held.ts, lifetime, cells, held.nulls, held.seq)
        if not alive.all():
            asked = Tuples._make(array[alive] for array in asked)
        worth = np.full(lifetime.size, -np.inf)
        found = scores(asked)
        worth[alive] = found * asked.lifetime if self._logic.decays else found
        return worth
