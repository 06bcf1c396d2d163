"""Windows in arrays, driven by ``kernels.join.windows``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from slackwater.plugins.arrays import opened_all
from slackwater.plugins.contract import Bools, Held, JoinLogic, Matches, Released, Setting, Snapshot
from slackwater.plugins.join.window.probe_plan import probe_plan
from slackwater.transforms.kernels.expressions.predicate import BLOCK
from slackwater.transforms.kernels.join import slots as layout
from slackwater.transforms.kernels.join import windows as kernel
from slackwater.transforms.kernels.join.probe import CANDIDATES, ProbePlan

RESULTS_AT_ONCE = 1 << 16
RUN = 1 << 15
"""Tuples of a run at most: how many are held is looked at between runs."""
ROOM = 1 << 13
"""Tuples that there is room for at least, if as many come: few collide in a table that is nearly empty."""
_LONG_AGO = np.iinfo(np.int64).min // 2


class SlidingWindowJoinLogic(JoinLogic):
    """State of one shard's m-way sliding window join."""

    visiting = False
    """True where tuples in order only look at the windows, and those that are late fill them."""

    def __init__(self, setting: Setting, snapshot: Snapshot | None = None) -> None:
        m = len(setting.inputs)
        self._plan = self._probe_plan(setting)
        self._width = setting.condition.width
        self._counts_only = setting.counts_only
        registers = int(self._plan.program[:, 1].max(initial=0)) + 1
        self._scratch = np.zeros((3, max(m, registers), BLOCK), np.int64)
        self._search = np.zeros((m + 1, CANDIDATES + BLOCK), np.int64)
        self._results = RESULTS_AT_ONCE
        self._now = _LONG_AGO
        self._w = self._empty(1024)
        if snapshot:
            self._now = int(snapshot["now"])
            self._fill(Held(*(np.ascontiguousarray(snapshot[name]) for name in Held._fields)), snapshot["late"])

    def step(self, released: Released) -> Iterator[Matches]:
        n = released.ts.size
        start = 0
        while start < n:
            end = min(n, start + max(RUN, self.live()))
            self._have_room(n - start)
            room = 0 if self._counts_only else self._results
            rows, probe = (
                np.empty((room, len(self._w.control) - 1), np.int64),
                np.empty(max(1, room), np.int64),
            )
            stop, found, join_size, cross_size = self._run(released, start, end, rows, probe)
            if stop > start:
                yield Matches(start, stop, rows[:found], probe[:found], join_size, cross_size)
            elif self._has_room:
                self._results *= 2
            start = stop

    def live(self) -> int:
        return int(self._w.control[:-1, layout.LIVE].sum())

    def held(self) -> Held:
        at, _ = self._list()
        n = len(at)
        seq, ts = np.empty((2, n), np.int64)
        held = Held(np.empty(n, np.int8), seq, ts, np.empty((n, self._width), np.int64), np.empty(n, np.uint64))
        layout.read_slots(self._w.slots, at, self._plan.first_cell, *held)
        return held

    def evict(self, victims: Bools) -> None:
        held = self.held()
        _, late = self._list()
        self._w = self._empty(len(self._w.slots))
        self._fill(Held._make(array[~victims] for array in held), late[~victims])

    def snapshot(self) -> Snapshot:
        return {**self.held()._asdict(), "late": self._list()[1], "now": self._now}

    @property
    def nbytes(self) -> int:
        """Bytes of the windows and their indexes."""
        return sum(array.nbytes for array in self._w)

    def _run(self, released: Released, start: int, end: int, rows: Any, probe: Any) -> tuple[int, int, Any, Any]:
        join_size, cross_size = np.zeros(end - start, np.int64), np.zeros(end - start)
        stop, found, self._now = kernel.step(
            self._w, self._plan, opened_all(released), start, end, self._now, self._search, self._scratch,
            rows, probe, join_size, cross_size, self.visiting,
        )  # fmt: skip
        return stop, found, join_size[: stop - start], cross_size[: stop - start]

    def _probe_plan(self, setting: Setting) -> ProbePlan:
        return probe_plan(setting)

    def _occupied(self) -> int:
        """How many slots are in use."""
        return self.live()

    def _list(self) -> tuple[Any, Bools]:
        """Return the live slots, and which of them came late."""
        out = np.empty(self.live(), np.int64)
        in_order = layout.list_slots(self._w.slots, self._w.late_slot, self._w.control, out)
        return out, np.arange(out.size) >= in_order

    def _fill(self, held: Held, late: Any) -> None:
        """Put tuples into empty windows without probing; they lie in this order in the slots."""
        n = len(held.ts)
        if n > len(self._w.slots):
            self._w = self._empty(n)
        released = Released(held.input, held.seq, held.ts, np.asarray(late, np.bool_), held.cells, held.nulls)
        self._run(released, 0, n, np.empty((0, len(self._w.control) - 1), np.int64), np.empty(0, np.int64))

    @property
    def _has_room(self) -> bool:
        """Whether a slot is free."""
        return bool(self._w.control[-1, layout.FREE_SLOT] != layout.NONE)

    def _have_room(self, coming: int) -> None:
        """See to it that a slot is free; ``coming`` tuples are still to come.

        Windows get room for what they hold and as much again: sized for a run, they would not fit the cache.
        """
        if not self._has_room or len(self._w.slots) < ROOM:
            self._reserve(max(1, min(coming, ROOM)))

    def _reserve(self, n: int) -> None:
        """Make room for ``n`` more tuples, at least doubling."""
        size = len(self._w.slots)
        if self._occupied() + n > size:
            self._enlarge(max(2 * size, self._occupied() + n))

    def _enlarge(self, to: int) -> None:
        """Lay the windows out in larger arrays."""
        old, new = self._w, self._empty(to)
        size = len(old.slots)
        new.slots[:size] = old.slots
        new.groups[: len(old.groups)] = old.groups
        new.late_due[:size], new.late_slot[:size] = old.late_due, old.late_slot
        new.control[:] = old.control
        _chain(new.slots, layout.AFTER, size, new.control, layout.FREE_SLOT)
        _chain(new.groups, layout.HEAD, len(old.groups), new.control, layout.FREE_GROUP)
        layout.rebuild_table(new.groups, new.table)
        self._w = new

    def _empty(self, size: int) -> kernel.Windows:
        m, n_indexes = self._plan.indexes.shape[:2]
        n_groups = size * n_indexes
        w = kernel.Windows(
            slots=np.zeros((size, self._plan.first_cell + self._width), np.int64),
            groups=np.zeros((n_groups, layout.COUNT + 1), np.int64),
            table=np.full(1 << (2 * n_groups - 1).bit_length(), layout.NONE, np.int64),
            late_due=np.zeros(size, np.int64),
            late_slot=np.zeros(size, np.int64),
            control=np.full((m + 1, 3), layout.NONE, np.int64),
        )
        w.control[:, layout.LIVE] = 0
        _chain(w.slots, layout.AFTER, 0, w.control, layout.FREE_SLOT)
        _chain(w.groups, layout.HEAD, 0, w.control, layout.FREE_GROUP)
        return w


def _chain(records: Any, column: int, start: int, control: Any, head: int) -> None:
    """Put the records from ``start`` on before the free chain that begins at ``control[-1, head]``."""
    records[start:, column] = np.arange(start + 1, len(records) + 1)
    if len(records) > start:
        records[-1, column] = control[-1, head]
        control[-1, head] = start
