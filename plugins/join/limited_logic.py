"""Windows in arrays that can be held to a number of tuples, driven by ``kernels.shedding``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from slackwater.plugins.contract import (
    Bools,
    Evicted,
    Float64s,
    Int64s,
    Keep,
    Matches,
    Released,
    Setting,
    Snapshot,
)
from slackwater.plugins.join.mswj_logic import RUN, SlidingWindowJoinLogic
from slackwater.transforms.kernels import score_heap
from slackwater.transforms.kernels import shedding as kernel
from slackwater.transforms.kernels import slots as layout


class LimitedWindowJoinLogic(SlidingWindowJoinLogic):
    """State of one shard's m-way sliding window join, with or without a memory limit.

    Under a limit every tuple has a score, and the lowest leaves whenever there is one too many: logarithmic time
    in the tuples held. The limit may change from tuple to tuple.
    """

    def __init__(self, setting: Setting, snapshot: Snapshot | None = None) -> None:
        self._dead = np.zeros(1, np.int64)
        self._heaps = _heaps(0, 0, 0)
        self._previous = np.empty(0, np.int64)
        self._listed = np.empty(0, np.int64)
        """The slots of the tuples that ``held`` returned last."""
        super().__init__(setting, snapshot)
        if snapshot and "scores" in snapshot:
            self._list()
            self._score(snapshot["scores"], int(snapshot["heaps"]))

    def limited_step(self, released: Released, keep: Keep) -> Iterator[Matches]:
        n = released.ts.size
        if keep.held is not None:
            self._score(keep.held, keep.limit.shape[1])
        ranks = score_heap.ranks(keep.scores)
        most = int(keep.limit.sum(axis=1).max()) + 1
        start = 0
        while start < n or start == n == 0:
            end = min(n, start + max(RUN, self.live()))
            # Windows never have more than the limit and a newcomer; late ones that were evicted take slots, too.
            self._reserve(min(end - start, most + int(released.late[start:end].sum())))
            shed = self._shed(keep, ranks, min(end - start, most), self.live() + end - start)
            if not n:
                kernel.shrink(self._w, self._plan.inputs, shed, 0, -1)
            room = 0 if self._counts_only else self._results
            m = len(self._w.control) - 1
            rows, probe = np.empty((room, m), np.int64), np.empty(max(1, room), np.int64)
            join_size, cross_size = np.zeros(end - start, np.int64), np.zeros(end - start)
            stop, found, self._now = kernel.step(
                self._w, self._plan, shed, tuple(released), start, end, self._now, self._search, self._scratch,
                rows, probe, join_size, cross_size,
            )  # fmt: skip
            sizes = join_size[: stop - start], cross_size[: stop - start]
            evicted = _evicted(shed)
            if stop > start or evicted is not None:
                yield Matches(start, stop, rows[:found], probe[:found], *sizes, evicted=evicted)
            if not n:
                return
            if stop == start:
                self._results *= 2
            start = stop

    def evict(self, victims: Bools) -> None:
        scored = self._heaps.size.sum() == self.live()
        heaps, scores = self._heaps.size.size, self._scores()
        super().evict(victims)
        self._dead[0] = 0
        self._heaps = _heaps(0, 0, 0)
        if scored:
            self._list()
            self._score(scores[~victims], heaps)

    def snapshot(self) -> Snapshot:
        scores = {"scores": self._scores(), "heaps": self._heaps.size.size} if self._heaps.size.size else {}
        return {**super().snapshot(), **scores}

    @property
    def nbytes(self) -> int:
        """Bytes of the windows, their indexes and the heaps."""
        return super().nbytes + self._previous.nbytes + sum(array.nbytes for array in self._heaps)

    def _occupied(self) -> int:
        return self.live() + int(self._dead[0])

    def _list(self) -> tuple[Any, Bools]:
        self._listed, late = super()._list()
        return self._listed, late

    def _score(self, scores: Float64s, heaps: int) -> None:
        """Make the heaps anew from the scores of the tuples that were listed last, which are all there are."""
        size = len(self._w.slots)
        if not self._heaps.size.sum():
            self._previous = np.empty(size, np.int64)
            kernel.link_back(self._w.slots, self._w.late_slot, self._w.control, self._previous)
        self._heaps = _heaps(heaps, self._listed.size, size)
        ranks = score_heap.ranks(scores)
        score_heap.fill(self._heaps, ranks, self._listed, self._w.slots, layout.TS, layout.SEQ, layout.OWNER)

    def _scores(self) -> Float64s:
        """Scores of the tuples held, in the order of ``held``."""
        slots = self._list()[0]
        if self._heaps.size.size == 0:
            return np.empty(0)
        heap = 0 if self._heaps.size.size == 1 else self._w.slots[slots, layout.OWNER]
        entries = self._heaps.entries[heap, self._heaps.place[slots]]
        return np.asarray(score_heap.scores(entries[:, score_heap.RANK].copy()), np.float64)

    def _shed(self, keep: Keep, ranks: Int64s, n: int, gone: int) -> kernel.Shed:
        """Return what the kernel works with: room for ``n`` more tuples in every heap, and for ``gone`` to go."""
        size = len(self._w.slots)
        if size > len(self._previous):
            self._previous = np.concatenate([self._previous, np.empty(size - len(self._previous), np.int64)])
            place = np.empty(size, np.int64)
            place[: len(self._heaps.place)] = self._heaps.place
            self._heaps = self._heaps._replace(place=place)
        room = self._heaps.entries.shape[1]
        wanted = int(self._heaps.size.max()) + n
        if wanted > room:
            larger = _heaps(self._heaps.size.size, max(wanted, 2 * room), 0)
            larger.entries[:, :room] = self._heaps.entries
            self._heaps = self._heaps._replace(entries=larger.entries)
        return kernel.Shed(
            self._heaps, self._previous, self._dead, ranks, keep.limit, keep.live,
            np.empty((gone, 2), np.int64), np.zeros(1, np.int64),
        )  # fmt: skip


def _heaps(heaps: int, room: int, slots: int) -> score_heap.ScoreHeaps:
    entries = np.empty((heaps, room, score_heap.COLUMNS), np.int64)
    return score_heap.ScoreHeaps(entries, np.empty(slots, np.int64), np.zeros(heaps, np.int64))


def _evicted(shed: kernel.Shed) -> Evicted | None:
    gone = shed.gone[: int(shed.n_gone[0])]
    return Evicted((gone[:, 0] & 7).astype(np.int8), gone[:, 0] >> 3, gone[:, 1]) if len(gone) else None
