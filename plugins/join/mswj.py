"""The m-way sliding window join."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from slackwater.plugins.contract import Bools, Held, JoinStrategy, Matches, Released, Setting, Snapshot
from slackwater.plugins.join.planning import probe_plan
from slackwater.transforms.kernels import windows as kernel
from slackwater.transforms.kernels.predicate import BLOCK

RESULTS_AT_ONCE = 1 << 18


class SlidingWindowJoinStrategy(JoinStrategy):
    """Join every tuple with the windows of the other inputs as it comes, for 2 to 8 inputs.

    MSWJ (QDDH Alg. 2) over hash indexes: a tuple in order expires, probes and is inserted; a late one is only
    inserted, if its window still reaches it. Time is constant per tuple plus its matches; memory is the tuples
    of the windows. ``output: counts`` multiplies group sizes and never enumerates results of pure key joins.
    """

    name: ClassVar[str] = "mswj"

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> SlidingWindowJoinLogic:
        return SlidingWindowJoinLogic(setting, snapshot)


class SlidingWindowJoinLogic:
    """Windows in arrays, driven by ``kernels.windows``."""

    def __init__(self, setting: Setting, snapshot: Snapshot | None = None) -> None:
        m = len(setting.inputs)
        self._plan = probe_plan(setting)
        self._width = setting.condition.width
        self._counts_only = setting.counts_only
        n_keys = self._plan.index_columns.shape[2]
        registers = int(self._plan.program[:, 1].max(initial=0)) + 1
        ints = np.zeros((registers, BLOCK), np.int64)
        self._scratch = (
            np.zeros((m, BLOCK), np.int64),
            ints,
            ints.view(np.float64),
            np.zeros((registers, BLOCK), np.uint8),
        )
        self._search = (
            np.zeros(m, np.int64),
            np.zeros((m, BLOCK), np.int64),
            np.zeros(m, np.int64),
            np.zeros(m, np.int64),
            np.zeros(m, np.int64),
            np.zeros(n_keys, np.int64),
        )
        self._results = RESULTS_AT_ONCE
        self._w = self._empty(1024)
        if snapshot:
            self._restore(snapshot)

    def step(self, released: Released) -> Iterator[Matches]:
        n = released.ts.size
        self._reserve(n)
        start = 0
        while start < n:
            room = 0 if self._counts_only else self._results
            rows = np.empty((room, len(self._w.head)), np.int64)
            probe = np.empty(room, np.int64)
            join_size, cross_size = np.zeros(n, np.int64), np.zeros(n)
            stop, found = kernel.step(
                self._w, self._plan, tuple(released), start, self._search, self._scratch,
                rows, probe, join_size, cross_size,
            )  # fmt: skip
            if stop == start:
                self._results *= 2
                continue
            yield Matches(
                start, stop, rows[:found], probe[:found], join_size[start:stop], cross_size[start:stop]
            )
            start = stop

    def live(self) -> int:
        return int(self._w.live.sum())

    def held(self) -> Held:
        slots, _ = self._slots()
        w = self._w
        return Held(w.owner[slots], w.seq[slots], w.ts[slots], w.cells[slots], w.nulls[slots])

    def evict(self, victims: Bools) -> None:
        slots, in_order = self._slots()
        late = np.arange(len(slots)) >= in_order
        held = self.held()
        now = int(self._w.meta[kernel.ON_T])
        self._w = self._empty(len(self._w.ts))
        self._fill(Held(*(array[~victims] for array in held)), late[~victims], now)

    def snapshot(self) -> Snapshot:
        slots, in_order = self._slots()
        held = self.held()._asdict()
        return {**held, "late": np.arange(len(slots)) >= in_order, "now": int(self._w.meta[kernel.ON_T])}

    @property
    def nbytes(self) -> int:
        """Bytes of the windows and their indexes."""
        return sum(array.nbytes for array in self._w)

    def _slots(self) -> tuple[Any, int]:
        out = np.empty(self.live(), np.int64)
        _, in_order = kernel.list_slots(self._w, out)
        return out, in_order

    def _restore(self, snapshot: Snapshot) -> None:
        held = Held(*(np.ascontiguousarray(snapshot[name]) for name in Held._fields))
        self._fill(held, np.asarray(snapshot["late"], np.bool_), int(snapshot["now"]))

    def _fill(self, held: Held, late: Bools, now: int) -> None:
        self._reserve(len(held.ts))
        self._w.meta[kernel.ON_T] = now
        kernel.restore(self._w, self._plan, tuple(held), late, self._search, self._scratch)

    def _reserve(self, n: int) -> None:
        """Make room for ``n`` more tuples, at least doubling, so that the kernel never has to."""
        old = self._w
        if n <= old.meta[kernel.FREE]:
            return
        used = len(old.ts)
        new = self._empty(max(2 * used, used + n))
        for name in kernel.Windows._fields:
            if name not in ("free", "group_free", "table"):
                getattr(new, name)[: len(getattr(old, name))] = getattr(old, name)
        for stack, count, before in ((new.free, kernel.FREE, old.free), (new.group_free, kernel.FREE_GROUPS, old.group_free)):
            added = np.arange(len(stack) - 1, len(before) - 1, -1)
            stack[: len(added)] = added
            stack[len(added) : len(added) + old.meta[count]] = before[: old.meta[count]]
            new.meta[count] = old.meta[count] + len(added)
        kernel.rebuild_table(new)
        self._w = new

    def _empty(self, slots: int) -> kernel.Windows:
        m, x = self._plan.index_keys.shape
        groups = slots * x
        return kernel.Windows(
            ts=np.zeros(slots, np.int64),
            seq=np.zeros(slots, np.int64),
            owner=np.full(slots, kernel.NONE, np.int8),
            cells=np.zeros((slots, self._width), np.int64),
            nulls=np.zeros(slots, np.uint64),
            after=np.full(slots, kernel.NONE, np.int64),
            nxt=np.zeros((slots, x), np.int64),
            prv=np.zeros((slots, x), np.int64),
            grp=np.full((slots, x), kernel.NONE, np.int64),
            free=np.arange(slots - 1, -1, -1),
            group_hash=np.zeros(groups, np.uint64),
            group_index=np.zeros(groups, np.int64),
            group_head=np.zeros(groups, np.int64),
            group_tail=np.zeros(groups, np.int64),
            group_count=np.zeros(groups, np.int64),
            group_free=np.arange(groups - 1, -1, -1),
            table=np.full(1 << (2 * groups).bit_length(), kernel.NONE, np.int64),
            late_due=np.zeros(slots, np.int64),
            late_slot=np.zeros(slots, np.int64),
            head=np.full(m, kernel.NONE, np.int64),
            tail=np.full(m, kernel.NONE, np.int64),
            live=np.zeros(m, np.int64),
            meta=np.array([slots, groups, 0, np.iinfo(np.int64).min // 2], np.int64),
        )
