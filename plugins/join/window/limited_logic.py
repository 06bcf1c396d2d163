"""Windows in arrays that can be held to a number of tuples, driven by ``kernels.shedding.limited_windows``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from slackwater.plugins.arrays import opened, opened_all
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
from slackwater.plugins.join.window.logic import SlidingWindowJoinLogic
from slackwater.transforms.kernels.join import slots as layout
from slackwater.transforms.kernels.shedding import limited_windows as kernel
from slackwater.transforms.kernels.shedding import score_heap

AT_ONCE = 1 << 15
"""Tuples at a time; the limit, not they, says how large the windows get."""


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
        m = len(setting.inputs)
        self._ordinal, self._arrived = np.empty(0, np.int64), np.zeros(m, np.int64)
        self._rows = np.asarray(setting.rows, np.int64)
        self._most: int | None = None
        """Tuples that will be held at most, if known."""
        super().__init__(setting, snapshot)
        if snapshot and "scores" in snapshot:
            self._arrived[:] = snapshot["arrived"]
            self._restore(snapshot, int(snapshot["heaps"]))

    def limited_step(self, released: Released, keep: Keep) -> Iterator[Matches]:
        n, tuples, keep = released.ts.size, opened_all(released), Keep._make(map(opened, keep))
        if keep.held is not None:
            self._score(keep.held, keep.limit.shape[1])
        ranks = score_heap.ranks(keep.scores)
        most = sum(int(limit.max()) for limit in keep.limit.T) + 1
        start = 0
        while start < n or start == n == 0:
            end = min(n, start + max(AT_ONCE, self.live()))
            # Windows never have more than the limit and a newcomer; late ones that were evicted take slots, too.
            self._reserve(min(end - start, most + int(np.count_nonzero(released.late[start:end]))))
            shed = self._shed(keep, ranks, min(end - start, most), self.live() + end - start)
            if not n:
                kernel.shrink(self._w, self._plan.inputs, shed, 0, -1)
            room = 0 if self._counts_only else self._results
            m = len(self._w.control) - 1
            rows, probe = np.empty((room, m), np.int64), np.empty(max(1, room), np.int64)
            join_size, cross_size = np.zeros(end - start, np.int64), np.zeros(end - start)
            stop, found, self._now = kernel.step(
                self._w, self._plan, shed, tuples, start, end, self._now, self._search, self._scratch,
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

    def fit(self, tuples: int, heaps: int) -> None:
        self._most = tuples

    def bytes_for(self, tuples: int, heaps: int) -> int:
        size = _slots_for(tuples)
        n_indexes = self._plan.indexes.shape[1]
        own = self._plan.first_cell + self._width + 4 + (self._rows.size > 0)
        words = size * (own + (layout.COUNT + 1) * n_indexes)
        words += 1 << (2 * size * n_indexes - 1).bit_length()
        return 8 * (words + 4 * heaps * _heap_for(tuples, heaps))

    def lifetimes(self) -> Int64s:
        slots = self._list()[0]
        owner = self._w.slots[slots, layout.OWNER]
        return np.asarray(self._ordinal[slots] + self._rows[owner] - self._arrived[owner], np.int64)

    def evict(self, victims: Bools) -> None:
        ranks = self._ranks()
        super().evict(victims)
        self._dead[0] = 0
        self._restore({name: rank[~victims] for name, rank in ranks.items()}, self._heaps.size.size)

    def snapshot(self) -> Snapshot:
        if not self._heaps.size.size:
            return super().snapshot()
        return {**super().snapshot(), **self._ranks(), "heaps": self._heaps.size.size, "arrived": self._arrived}

    @property
    def nbytes(self) -> int:
        """Bytes of the windows, their indexes and the heaps."""
        return (
            super().nbytes
            + self._previous.nbytes
            + self._ordinal.nbytes
            + sum(array.nbytes for array in self._heaps)
        )

    def _occupied(self) -> int:
        return self.live() + int(self._dead[0])

    def _list(self) -> tuple[Any, Bools]:
        self._listed, late = super()._list()
        return self._listed, late

    def _reserve(self, n: int) -> None:
        """Make room for ``n`` more tuples, of which no more than are wanted stay.

        Under a limit sizes are halves, quarters, … of what the limit takes, so that none is larger and growing,
        which has to copy, is over while there is room for both.
        """
        if self._most is None:
            super()._reserve(n)
            return
        size, wanted, largest = len(self._w.slots), self._occupied() + n, _slots_for(self._most)
        if wanted > size < largest or (size > largest + largest // 16 and self.live() <= self._most):
            wanted = min(wanted, largest)
            new = largest
            while new // 2 > wanted:
                new //= 2
            self._resize(max(new, min(size, largest)))

    def _resize(self, size: int) -> None:
        if size > len(self._w.slots):
            self._enlarge(size)
            return
        held, late = self.held(), self._list()[1]
        ranks, heaps = self._ranks(), self._heaps.size.size
        self._w = self._empty(size)
        self._dead[0] = 0
        self._fill(held, late)
        self._heaps = _heaps(0, 0, 0)
        self._restore(ranks, heaps)

    def _ranks(self) -> dict[str, Any]:
        """Return what windows filled anew do not know of the tuples held, in the order of ``held``."""
        slots = self._list()[0]
        if not self._heaps.size.size:
            return {}
        heap = 0 if self._heaps.size.size == 1 else self._w.slots[slots, layout.OWNER]
        entries = self._heaps.entries[heap, self._heaps.place[slots]]
        ordinals = self._ordinal[slots if self._rows.size else slice(0)]
        return {"scores": score_heap.scores(entries[:, score_heap.RANK].copy()), "ordinals": ordinals}

    def _restore(self, ranks: Snapshot, heaps: int) -> None:
        """Rank the tuples of windows that have just been filled, which lie in the order of ``held``."""
        if heaps:
            self._heaps.size[:] = 0
            self._listed = np.arange(self.live())
            self._score(np.asarray(ranks["scores"], np.float64), heaps)
            self._ordinal[: len(ranks["ordinals"])] = ranks["ordinals"]

    def _score(self, scores: Float64s, heaps: int) -> None:
        """Make the heaps anew from the scores of the tuples that were listed last, which are all there are."""
        held = self._listed
        owner = self._w.slots[held, layout.OWNER] if heaps > 1 else np.zeros(0, np.int64)
        fullest = int(np.bincount(owner).max(initial=0)) if heaps > 1 else held.size
        if self._heaps.size.size != heaps or self._heaps.entries.shape[1] < fullest:
            room = fullest if self._most is None else max(fullest, _heap_for(self._most, heaps))
            self._heaps = _heaps(heaps, room, 0)
        self._room_for_slots()
        if not self._heaps.size.sum():
            kernel.link_back(self._w.slots, self._w.late_slot, self._w.control, self._previous)
        self._heaps.size[:] = 0
        ranks = score_heap.ranks(scores)
        score_heap.fill(self._heaps, ranks, held, self._w.slots, layout.TS, layout.SEQ, layout.OWNER)

    def _room_for_slots(self) -> None:
        size = len(self._w.slots)
        if self._heaps.place.size != size:
            self._heaps = self._heaps._replace(place=_resized(self._heaps.place, size))
            self._previous = _resized(self._previous, size)
        if self._rows.size and self._ordinal.size != size:
            self._ordinal = _resized(self._ordinal, size)

    def _shed(self, keep: Keep, ranks: Int64s, n: int, gone: int) -> kernel.Shed:
        """Return what the kernel works with: room for ``n`` more tuples in every heap, and for ``gone`` to go."""
        self._room_for_slots()
        count, size = self._heaps.entries.shape[:2]
        fullest = int(self._heaps.size.max())
        most = fullest + n if self._most is None else max(fullest, _heap_for(self._most, count))
        if min(fullest + n, most) > size:
            larger = _heaps(count, max(most, 2 * size) if self._most is None else most, 0)
            larger.entries[:, :size] = self._heaps.entries
            self._heaps = self._heaps._replace(entries=larger.entries)
        seq, at = np.empty((2, gone), np.int64)
        return kernel.Shed(
            self._heaps, self._previous, self._ordinal, self._arrived, self._dead, ranks, keep.limit, keep.live,
            kernel.Gone(np.empty(gone, np.int8), seq, at, np.zeros(1, np.int64)),
        )  # fmt: skip


def _slots_for(tuples: int) -> int:
    """Slots for so many tuples, for one that is on its way in, and for late ones that were evicted."""
    return tuples + tuples // 8 + 65


def _heap_for(tuples: int, heaps: int) -> int:
    return tuples if heaps == 1 else -(-tuples // heaps)


def _resized(array: Int64s, size: int) -> Int64s:
    kept = min(size, array.size)
    out = np.empty(size, np.int64)
    out[:kept] = array[:kept]
    return out


def _heaps(heaps: int, room: int, slots: int) -> score_heap.ScoreHeaps:
    entries = np.empty((heaps, room, score_heap.COLUMNS), np.int64)
    return score_heap.ScoreHeaps(entries, np.empty(slots, np.int64), np.zeros(heaps, np.int64))


def _evicted(shed: kernel.Shed) -> Evicted | None:
    n = int(shed.gone.size[0])
    return Evicted(shed.gone.input[:n], shed.gone.seq[:n], shed.gone.at[:n]) if n else None
