"""A join in memory and its overflow on disk, put together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from slackwater.plugins.contract import (
    UNBOUNDED,
    Bools,
    Held,
    Int64s,
    JoinLogic,
    Matches,
    Released,
    Setting,
    Settled,
    Snapshot,
)
from slackwater.plugins.contract.disk import Disk
from slackwater.plugins.join.overflow.debts import NO_PARTITION, PAID, Debtors, Overflow
from slackwater.plugins.registry.options import Memory

_NONE = np.empty(0, np.int64)


class Limits(NamedTuple):
    """How much a join may keep in memory, and what it does with the rest."""

    memory: Memory
    partitions: int
    reread: float
    directory: str | None


class Ledger(NamedTuple):
    """What is known of each tuple in memory beside its values."""

    code: Int64s
    """``seq * 8 + input``."""
    ts: Int64s
    epoch: Int64s
    partition: Int64s

    def part(self, which: Any) -> Ledger:
        """Return some of the entries."""
        return Ledger._make(array[which] for array in self)


class OverflowLogic(JoinLogic):
    """A join of two inputs without a window that keeps at most a number of tuples in memory.

    The join in memory is any ``JoinLogic``; it may forget tuples by itself. Three stages (XJoin): each tuple
    probes what is in memory (1). When that is full, the largest parts of the inputs go to disk until half of it
    is free, so that a tuple is moved a constant number of times. For every tuple that comes, ``reread`` tuples
    may be read from disk, to be joined with those in memory (2). At the end of the input everything that is owed
    is settled, part by part (3). ``Overflow`` keeps the stages from giving a pair twice.

    Without a disk, which the operator provides, there is no limit.

    Args:
        make: makes the join in memory, from nothing or from a snapshot.
        setting: the join.
        limits: what may be in memory.
        classes: the key classes by whose values the inputs are split, by default all.
        snapshot: what ``snapshot`` returned, or None.
    """

    def __init__(
        self,
        make: Callable[[Snapshot | None], JoinLogic],
        setting: Setting,
        limits: Limits,
        classes: tuple[int, ...] = (),
        snapshot: Snapshot | None = None,
    ) -> None:
        state: dict[str, Any] = dict(snapshot) if snapshot else {}
        self._make, self._setting, self._limits = make, setting, limits
        self._inner = make(state.get("inner"))
        self.reorders: bool = self._inner.reorders
        self._classes = classes or tuple(range(len(setting.condition.classes)))
        self._overflow: Overflow | None = None
        self._restored = state.get("overflow")
        self._ledger = Ledger._make(np.array(state.get(name, _NONE)) for name in Ledger._fields)
        self._coming: list[Ledger] = []
        """Entries that are not in the ledger yet."""
        self._credit, self._turn = float(state.get("credit", 0.0)), int(state.get("turn", 0))
        # What a tuple takes in the windows, whose arrays double, and in the ledger.
        self._window_bytes = 350 + 24 * setting.condition.width
        self._limit = UNBOUNDED

    @property
    def directory(self) -> str | None:
        """Where files may be made."""
        return self._limits.directory

    @property
    def spilled(self) -> int:
        """Tuples that have been written to disk so far."""
        return 0 if self._overflow is None else self._overflow.spilled

    @property
    def nbytes(self) -> int:
        """Bytes of the join in memory and of the ledger."""
        return self._inner.nbytes + sum(array.nbytes for array in self._ledger)

    def use_disk(self, disk: Disk) -> None:
        self._overflow = Overflow(self._setting, disk, self._limits.partitions, self._classes, self._restored)

    def owes(self) -> bool:
        return self._overflow is not None and bool(self._overflow.partners.any())

    def step(self, released: Released) -> Iterator[Matches]:
        for start, stop in self._parts(released.ts.size):
            part = released.part(slice(start, stop))
            self._enter(part)
            for run in self._inner.step(part):
                yield moved(run, start)
            yield from self._go_back(start, stop)

    def finish(self) -> Iterator[Matches]:
        if self._overflow is None or not self._overflow.writes:
            return
        self._reconcile()
        self._forget(self._ledger)
        self._inner, self._ledger = self._make(None), self._ledger.part(slice(0, 0))
        for partition in range(self._limits.partitions):
            yield from self._settle_partition(partition, 0)
        self._overflow.partners[:] = 0
        self._overflow.disk.close()

    def live(self) -> int:
        return self._inner.live()

    def held(self) -> Held:
        return self._reconcile()

    def evict(self, victims: Bools) -> None:
        if self._overflow is not None:
            self._forget(self._ledger.part(victims))
            self._ledger = self._ledger.part(~victims)
        self._inner.evict(victims)

    def snapshot(self) -> Snapshot:
        self._reconcile()
        state = {"inner": self._inner.snapshot(), "credit": self._credit, "turn": self._turn}
        if self._overflow is not None:
            state["overflow"] = self._overflow.snapshot()
        return {**state, **self._ledger._asdict()}

    def _parts(self, n: int) -> Iterator[tuple[int, int]]:
        """Cut a chunk where memory is full; make room before each part."""
        if self._overflow is not None:
            row = 2.5 * self._overflow.disk.row_bytes() if self._limits.memory.in_bytes else 0.0
            self._limit = self._limits.memory.tuples(self._window_bytes + row)
        start = 0
        while start < n:
            if self.live() >= self._limit:
                self._flush()
            stop = min(n, start + max(1, self._limit - self.live()))
            yield start, stop
            start = stop

    def _enter(self, part: Released) -> None:
        """Note what tuples that come now will owe."""
        if self._overflow is None:
            return
        partitions = self._overflow.partitions_of(part.input, part.cells, part.nulls)
        epochs = self._overflow.epochs(part.input, partitions, part.late)
        self._coming.append(Ledger(part.seq * 8 + part.input, part.ts, epochs, partitions))

    def _go_back(self, start: int, stop: int) -> Iterator[Matches]:
        """Read from disk what the credit allows."""
        if self._overflow is None:
            return
        self._credit += self._limits.reread * (stop - start)
        for settled in self._reread():
            yield late_run(stop, settled)

    def _flush(self) -> None:
        """Take the largest parts to disk until half of the memory is free; what matches nothing just goes."""
        assert self._overflow is not None
        held = self._reconcile()
        ledger, n = self._ledger, self._limits.partitions
        keyed = ledger.partition != NO_PARTITION
        group = held.input.astype(np.int64) * n + ledger.partition
        sizes = np.bincount(group[keyed], minlength=2 * n)
        largest = np.argsort(-sizes, kind="stable")
        wanted = np.count_nonzero(keyed) - self._limit // 2
        chosen = np.zeros(2 * n, np.bool_)
        chosen[largest[: 1 + np.searchsorted(np.cumsum(sizes[largest]), wanted)]] = True
        leaving = keyed & chosen[group]
        self._overflow.write(
            held.input[leaving], ledger.partition[leaving], held.seq[leaving], held.ts[leaving],
            ledger.epoch[leaving], partners=True,
        )  # fmt: skip
        leaving |= ~keyed
        self._inner.evict(leaving)
        self._ledger = ledger.part(~leaving)

    def _reread(self) -> Iterator[Settled]:
        """Settle what tuples in memory owe, one part after the other, as far as the credit goes (stage 2)."""
        assert self._overflow is not None
        n = self._limits.partitions
        for _ in range(2 * n):
            which, partition = divmod(self._turn, n)
            size = int(self._overflow.partners[1 - which, partition])
            if size > self._credit:
                return
            self._turn = (self._turn + 1) % (2 * n)
            owing = self._owing(which, partition) if size else _NONE
            if len(owing):
                self._credit -= size
                yield from self._overflow.settle(which, partition, self._block, self._debtors(owing), False)
                self._ledger.epoch[owing] = PAID
        self._credit = min(self._credit, float(self._limit))

    def _settle_partition(self, partition: int, at: int) -> Iterator[Matches]:
        """Settle all that is owed in a partition, by tuples in memory and on disk (stage 3)."""
        assert self._overflow is not None
        for which in range(2):
            owing = self._owing(which, partition)
            debtors = self._debtors(owing) if len(owing) else None
            for settled in self._overflow.settle(which, partition, self._block, debtors, True):
                yield late_run(at, settled)
            self._ledger.epoch[owing] = PAID

    @property
    def _block(self) -> int:
        return max(1, self._limit // 4)

    def _entries(self) -> Ledger:
        """Return the ledger with all that has come."""
        if self._coming:
            self._ledger = Ledger._make(map(np.concatenate, zip(self._ledger, *self._coming, strict=True)))
            self._coming.clear()
        return self._ledger

    def _owing(self, which: int, partition: int) -> Int64s:
        """Return the places in the ledger of tuples that owe something."""
        ledger = self._entries()
        mine = (ledger.partition == partition) & (ledger.epoch != PAID)
        return np.flatnonzero(mine & (ledger.code & 7 == which))

    def _debtors(self, at: Int64s) -> Debtors:
        ledger = self._ledger.part(at)
        return Debtors(ledger.code >> 3, ledger.ts, ledger.epoch)

    def _reconcile(self) -> Held:
        """Put the ledger in the order of the tuples that are held, which are returned.

        What the join in memory has forgotten by itself goes to disk for what it owes. Its row is still there: the
        operator asks what is held before it forgets any.
        """
        held: Held = self._inner.held()
        if self._overflow is None:
            return held
        ledger = self._entries()
        order = np.argsort(ledger.code)
        at = order[np.searchsorted(ledger.code[order], held.seq * 8 + held.input)]
        if len(at) < len(order):
            gone = np.ones(len(order), np.bool_)
            gone[at] = False
            self._forget(ledger.part(gone))
        self._ledger = ledger.part(at)
        return held

    def _forget(self, ledger: Ledger) -> None:
        """Keep, of tuples that leave for good, what they owe."""
        assert self._overflow is not None
        owing = ledger.part(ledger.epoch != PAID)
        inputs = (owing.code & 7).astype(np.int8)
        self._overflow.write(inputs, owing.partition, owing.code >> 3, owing.ts, owing.epoch, partners=False)


def moved(run: Matches, by: int) -> Matches:
    """Return a run of a part of a chunk as a run of the chunk."""
    finished = run.finished if run.finished is None else run.finished._replace(at=run.finished.at + by)
    return run._replace(start=run.start + by, stop=run.stop + by, probe=run.probe + by, finished=finished)


def late_run(at: int, settled: Settled | None) -> Matches:
    """Return results that come late as a run of no tuples."""
    rows = np.empty((0, 2), np.int64)
    return Matches(at, at, rows, _NONE, _NONE, np.empty(0), None, settled)
