"""What shedding costs: the results that a join did not find because it had to let go of their members.

Results, not rows, are what disorder and shedding are compared by. To count those that shedding costs, something
must remember what the join has forgotten: a sample of it, of bounded size, drawn by hashes, so that neither
chunks nor restarts change it. With two inputs, or a key that links all, what is counted estimates the loss
without bias, whatever the strategy and the skew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from slackwater.plugins.contract import (
    Bools,
    Evicted,
    Float64s,
    Held,
    Int8s,
    Int64s,
    JoinLogic,
    Released,
    Setting,
    Snapshot,
    UInt64s,
)
from slackwater.plugins.join.window.counting import CountingWindows
from slackwater.transforms.kernels.disorder import sample as sampling
from slackwater.transforms.kernels.rows.dictionary import spread
from slackwater.transforms.kernels.shedding import visits
from slackwater.transforms.output.accounting import MORE_MEMORY, Accounting
from slackwater.transforms.rows.encoder import CellEncoder
from slackwater.transforms.rows.shard_rows import ShardRows
from slackwater.transforms.settings.plan import JoinPlan
from slackwater.transforms.shedding.shedder import Shedder

MOST = 4096
"""Tuples remembered at most; where memory is in bytes, as many as fit into ``byte_budget.ASIDE`` of it."""
FEW = 512


class Stage(NamedTuple):
    """From which eviction, or tuple that looks for evicted ones, on one in ``2 ** level`` of them will do."""

    start: int
    evicted: int
    looking: int


STAGES = (Stage(0, 0, 0), Stage(1 << 14, 2, 1), Stage(1 << 16, 4, 3))
"""The more there are, the fewer of them tell as much."""


class _Sample:
    """One in ``2 ** level`` of the tuples that it is given, at most ``room``, in windows of their own."""

    def __init__(
        self, setting: Setting, encoder: CellEncoder, room: int, snapshot: Snapshot | None, visiting: bool = False
    ) -> None:
        self._windows = CountingWindows(setting, snapshot, visiting)
        self._spans = np.asarray(setting.windows, np.int64)
        self._encoder, self._room = encoder, room
        self.level, self._left = (int(n) for n in snapshot["sample"]) if snapshot else (0, room)

    def live(self) -> int:
        """How many tuples there are."""
        return self._windows.live()

    def held(self) -> Held:
        """The tuples."""
        return self._windows.held()

    def alive(self) -> Held:
        """Return the tuples that the windows still reach."""
        held = self.held()
        reached = held.ts + self._spans[held.input] >= self._windows.now
        return Held._make(array[reached] for array in held)

    @property
    def nbytes(self) -> int:
        return self._windows.nbytes

    def begin_run(self, join: JoinLogic, shedder: Shedder) -> None:
        """Take note of new scores; called where they are given, which chunks do not show."""

    @property
    def _least_level(self) -> int:
        return 0

    def snapshot(self) -> Snapshot:
        return {**self._windows.snapshot(), "sample": [self.level, self._left]}

    def _drawn(self, tuples: Any) -> Bools:
        """Say which tuples are in the sample; of those that are, about half still are at the next level."""
        raise NotImplementedError

    def _check(self) -> None:
        """Halve the sample until there is room: when as many were added as there was, wherever chunks end."""
        held = self.held()
        stay = held.ts + self._spans[held.input] >= self._windows.now
        crowded = 4 * np.count_nonzero(stay) > 3 * self._room
        while self.level < self._least_level or (crowded and 2 * np.count_nonzero(stay) > self._room):
            self.level += 1
            stay &= self._drawn(held)
        self._left = self._room - int(np.count_nonzero(stay))
        if not stay.all():
            self._windows.evict(~stay)


class Evictions(_Sample):
    """Remembers tuples of two inputs that were evicted, until their windows would have dropped them.

    Every pair of a tuple in order and an evicted one that it matches is a result that shedding cost, for any
    condition. As long as nothing is evicted, it costs nothing. The sample has one of every ``2 ** level`` evicted
    in a row, by the dice; SEQ of a slot is the number of the eviction.
    """

    found_by = "evicted rows"

    def __init__(self, setting: Setting, encoder: CellEncoder, room: int, snapshot: Snapshot | None) -> None:
        super().__init__(setting, encoder, room, snapshot, visiting=True)
        self._evicted, self._looked = (int(n) for n in snapshot["counted"]) if snapshot else (0, 0)
        self._drawn_until = 0
        """Number of the last eviction that was looked at."""

    def snapshot(self) -> Snapshot:
        return {**super().snapshot(), "counted": [self._evicted, self._looked]}

    @property
    def _least_level(self) -> int:
        return max(stage.evicted for stage in STAGES if stage.start <= self._drawn_until)

    def lost(self, released: Released, join_size: Int64s, evicted: Evicted, rows: ShardRows) -> Float64s:
        """Return how many results each released tuple missed, given what it found and what was evicted."""
        lost = np.zeros(released.ts.size)
        drawn = one_of_each(self.level, self._evicted, evicted.seq.size)
        at, gone = evicted.at[drawn], rows.held(Evicted._make(array[drawn] for array in evicted))
        gone = gone._replace(seq=self._evicted + drawn)
        self._evicted += evicted.seq.size
        start = 0
        while True:
            n = min(at.size, self._left)
            full = n == self._left
            stop = int(at[n - 1]) + 1 if full else released.ts.size
            if n or self.live():
                part, ghosts = released.part(slice(start, stop)), Held._make(array[:n] for array in gone)
                self._visit(part, ghosts, at[:n] - start, lost[start:stop])
            self._left -= n
            start = stop
            if not full:
                return lost
            self._drawn_until = int(gone.seq[n - 1])
            self._check()
            stay = n + np.flatnonzero(self._are_drawn(gone.seq[n:]))
            at, gone = at[stay], Held._make(array[stay] for array in gone)

    def kept(self, join: JoinLogic) -> int:
        """How many of the sample the join itself holds."""
        return 0

    def _drawn(self, tuples: Any) -> Bools:
        return self._are_drawn(tuples.seq)

    def _are_drawn(self, numbers: Int64s) -> Bools:
        drawn = np.empty(numbers.size, np.bool_)
        sampling.is_drawn(self.level, numbers, drawn)
        return drawn

    def _visit(self, released: Released, ghosts: Held, at: Int64s, lost: Float64s) -> None:
        """Let released tuples in order look at the ghosts, each of which appears after tuple ``at``; write what
        they find."""
        looking, behalf = self._looking(released.late)
        size = looking.size + at.size
        seq, ts = np.empty((2, size), np.int64)
        late, cells = np.empty(size, np.bool_), np.empty((size, ghosts.cells.shape[1]), np.int64)
        line = Released(np.empty(size, np.int8), seq, ts, late, cells, np.empty(size, np.uint64))
        place = np.empty(looking.size, np.int64)
        visits.line_up(tuple(released), looking, tuple(ghosts), at, tuple(line), place)
        lost[looking] = self._windows.sizes(line, at.size + 1)[place] * behalf * 2.0**self.level

    def _looking(self, late: Bools) -> tuple[Int64s, Int64s]:
        """Return which tuples look, and on behalf of how many each."""
        in_order = late.size - int(np.count_nonzero(late))
        first, self._looked = self._looked, self._looked + in_order
        ends = [*(stage.start for stage in STAGES[1:]), self._looked]
        looking, behalf = [], []
        for stage, end in zip(STAGES, ends, strict=True):
            start = max(first, stage.start)
            drawn = one_of_each(stage.looking, start, max(0, min(end, self._looked) - start))
            looking.append(start - first + drawn)
            behalf.append(np.full(drawn.size, 1 << stage.looking))
        at = np.concatenate(looking)
        return at if in_order == late.size else np.flatnonzero(~late)[at], np.concatenate(behalf)


class ExpectedShares(Evictions):
    """Goes by what strategies expect of the tuples that were evicted, compared with those that are held.

    For several inputs without a key that links them all. If the others hold some shares of all that is to be
    expected of their tuples, a tuple is taken to find the product of these shares. That is so where evictions of
    one input have nothing to do with those of another; else the loss is overrated.
    """

    found_by = "scores"

    def __init__(self, setting: Setting, encoder: CellEncoder, room: int, snapshot: Snapshot | None) -> None:
        super().__init__(setting, encoder, room, snapshot)
        m = len(setting.inputs)
        self._more = np.array(snapshot["more"] if snapshot else np.zeros(m), np.float64)
        """What a tuple of each input misses for every result that it finds."""

    def begin_run(self, join: JoinLogic, shedder: Shedder) -> None:
        here, gone = (
            np.bincount(held.input, shedder.scores.expected(held), self._more.size)
            for held in (join.held(), self.alive())
        )
        missing = np.divide(gone * 2.0**self.level, here, out=np.zeros(here.size), where=here > 0)
        self._more = np.prod(1 + missing) / (1 + missing) - 1

    def lost(self, released: Released, join_size: Int64s, evicted: Evicted, rows: ShardRows) -> Float64s:
        super().lost(released, join_size, evicted, rows)
        # Rounded, so that sums are exact whatever the chunks.
        return np.asarray(np.rint(join_size * self._more[released.input] * 1024) / 1024, np.float64)

    def snapshot(self) -> Snapshot:
        return {**super().snapshot(), "more": self._more.copy()}

    def _visit(self, released: Released, ghosts: Held, at: Int64s, lost: Float64s) -> None:
        self._windows.put(ghosts, int(released.ts[~released.late].max(initial=self._windows.now)))


class SampledKeys(_Sample):
    """Joins all tuples of some values of a key that links all inputs, with no other limit.

    What it finds, and the join does not, is what shedding cost these values.
    """

    found_by = "sampled keys"

    def __init__(self, setting: Setting, encoder: CellEncoder, room: int, snapshot: Snapshot | None) -> None:
        super().__init__(setting, encoder, room, snapshot)
        link = linking_class(setting)
        assert link is not None
        self._cells = np.array([link[i] for i in range(len(setting.inputs))])

    def lost(self, released: Released, join_size: Int64s, evicted: Evicted, rows: ShardRows) -> Float64s:
        """Return how many results each released tuple missed, of those that are in the sample."""
        lost = np.zeros(released.ts.size)
        chosen = np.flatnonzero(self._drawn(released))
        while chosen.size:
            now, chosen = chosen[: self._left], chosen[self._left :]
            size = self._windows.sizes(Released._make(array[now] for array in released), now.size)
            lost[now] = (size - join_size[now]) * 2.0**self.level
            self._left -= now.size
            if not self._left:
                self._check()
                chosen = chosen[self._drawn(Released._make(array[chosen] for array in released))]
        return lost

    def kept(self, join: JoinLogic) -> int:
        """How many of the sample the join itself holds."""
        return join.live() >> self.level

    def _drawn(self, tuples: Any) -> Bools:
        column = self._cells[tuples.input]
        values = self._encoder.lasting(tuples.input, tuples.cells)[np.arange(column.size), column]
        known = tuples.nulls >> column.astype(np.uint64) & np.uint64(1) == 0
        return np.asarray(known & (_mixed(values) & np.uint64((1 << self.level) - 1) == 0))


class Shadow:
    """Counts what shedding costs one shard. What was shed ages by time, so windows of rows have none.

    Its memory is no part of a limit in tuples: it holds keys, not rows, and no more of them than ``MOST``.
    """

    def __init__(
        self,
        plan: JoinPlan,
        shedder: Shedder,
        rows: ShardRows,
        accounting: Accounting,
        snapshot: Snapshot | None = None,
    ) -> None:
        self._shedder, self._rows, self._accounting = shedder, rows, accounting
        setting = plan.setting
        kind: type[Evictions | SampledKeys]
        if len(setting.inputs) == 2:
            kind = Evictions
        else:
            kind = ExpectedShares if linking_class(setting) is None else SampledKeys
        room = FEW if shedder.in_bytes else MOST
        self._sample = kind(setting, rows.encoder, room, snapshot["sample"] if snapshot else None)
        self._lost = float(snapshot["lost"]) if snapshot else 0.0
        """Results lost since the last run began."""
        accounting.shed_by = kind.found_by

    @property
    def nbytes(self) -> int:
        return self._sample.nbytes

    def snapshot(self) -> Snapshot:
        return {"sample": self._sample.snapshot(), "lost": self._lost}

    def held_cells(self) -> tuple[Int8s, Int64s]:
        """Input and cells of every tuple remembered: texts in them must stay known."""
        held = self._sample.held()
        return held.input, held.cells

    def begin(self, join: JoinLogic) -> None:
        """Close the last run, and begin one: to be called where scores are renewed, before the join goes on."""
        self.close_run(join)
        self._sample.begin_run(join, self._shedder)

    def step(
        self, join: JoinLogic, released: Released, join_size: Int64s, evicted: Sequence[Evicted]
    ) -> Float64s:
        """Return how many results each tuple missed, given what the join found and gave up meanwhile."""
        none = np.empty(0, np.int64)
        several = evicted if len(evicted) == 1 else [Evicted(none.astype(np.int8), none, none), *evicted]
        gone = several[0] if len(several) == 1 else Evicted(*map(np.concatenate, zip(*several, strict=True)))
        lost = self._sample.lost(released, join_size, gone, self._rows)
        total = float(lost.sum())
        self._lost += total
        self._accounting.shed += total
        return lost

    def close_run(self, join: JoinLogic) -> None:
        """Book what would have been lost since the run began with more memory.

        That would have kept those of the tuples remembered of which most was to be expected.
        """
        if self._lost:
            self._accounting.still_shed += self._lost * self._still(join)
            self._lost = 0.0

    def _still(self, join: JoinLogic) -> Float64s:
        """Return the share of the loss that there would be with each of ``MORE_MEMORY``."""
        assert self._shedder.memory is not None
        worth = -np.sort(-self._shedder.scores.expected(self._sample.alive()))
        kept = min(self._sample.kept(join), worth.size)
        beyond = np.append(np.cumsum(worth[::-1])[::-1], 0.0)
        if beyond[kept] <= 0:
            return np.where(MORE_MEMORY > 0, 0.0, 1.0)
        at = kept + MORE_MEMORY * self._shedder.memory / 2.0**self._sample.level
        return np.asarray(np.interp(at, np.arange(beyond.size), beyond) / beyond[kept], np.float64)


def linking_class(setting: Setting) -> dict[int, int] | None:
    """Return the cell of each input of a key that all share, or None if there is none."""
    return next((members for members in setting.condition.classes if len(members) == len(setting.inputs)), None)


def one_of_each(level: int, first: int, n: int) -> Int64s:
    """Draw one of every ``2 ** level`` numbers; return those of the ``n`` from ``first`` on, less ``first``."""
    out = np.empty((n >> level) + 2, np.int64)
    return out[: sampling.draw(level, first, n, out)]


def _mixed(numbers: Int64s) -> UInt64s:
    """Spread numbers over 64 bits."""
    return np.asarray(spread(numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)), np.uint64)
