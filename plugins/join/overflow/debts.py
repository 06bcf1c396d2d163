"""Tuples of a join of two inputs on disk, and the results that are owed for them.

XJoin (its three stages are in MJoin, sec. 5.2) keeps every pair apart by when its members came to memory and left
it. Here *writes* to disk are numbered 1, 2, …. ``left`` of a tuple is the number of the write that took it from
memory, its ``epoch`` the number of the last write before it came.

*Exactly once.* Let two tuples match, and let y be the one that came later; the pair is a result unless y was
late. If x was in memory when y came, y's probe gave the pair. Else x had left: ``x.left <= y.epoch``, and y
*owes* the pair. One excludes the other, and nothing that happens later changes either number.

*Settling.* All that y owes lies in the other input's part of y's partition, and was there when y came. So one
look at this part, at any time, gives all of it, and y owes nothing from then on: its epoch becomes ``PAID``. For
tuples on disk the number of the last write that has been settled is kept for each partition instead.

A tuple that can match nothing new but owes something is written with ``-left``: it is a debtor, never a partner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np

from slackwater.plugins.contract import Bools, Int8s, Int64s, Setting, Settled, Snapshot, UInt64s
from slackwater.plugins.contract.disk import Disk, DiskReader, Stored
from slackwater.transforms.kernels.join import owed_pairs as kernel

PAID: Final = -1
"""Epoch of a tuple that owes nothing."""
NO_PARTITION: Final = -1
"""Partition of a tuple that matches nothing, as its key is null."""
_TS, _EPOCH, _LEFT = range(3)
_PAIRS_AT_ONCE: Final = 1 << 16
_DEBTORS_AT_ONCE: Final = 1 << 15


class Debtors(NamedTuple):
    """Tuples of one input and partition that are in memory and owe something."""

    seq: Int64s
    ts: Int64s
    epoch: Int64s


class Overflow:
    """The disk side of one shard's join.

    Args:
        setting: the join, of two inputs with a key in common.
        disk: where tuples are kept.
        partitions: parts that an input is split into.
        classes: the key classes whose values decide on the part.
        snapshot: what ``snapshot`` returned, or None.
    """

    def __init__(
        self, setting: Setting, disk: Disk, partitions: int, classes: tuple[int, ...], snapshot: Snapshot | None
    ) -> None:
        self._condition, self._counts_only = setting.condition, setting.counts_only
        self.disk = disk
        self._keys = [[members[i] for members in setting.condition.classes] for i in range(2)]
        self._placing = [[setting.condition.classes[c][i] for c in classes] for i in range(2)]
        self.writes = 0
        self.spilled = 0
        self.partners = np.zeros((2, partitions), np.int64)
        """Tuples in each part that later ones may match."""
        self._records = np.zeros((2, partitions), np.int64)
        self._settled = np.zeros((2, partitions), np.int64)
        if snapshot:
            self.writes, self.spilled = int(snapshot["writes"]), int(snapshot["spilled"])
            self.partners[:], self._records[:] = snapshot["partners"], snapshot["records"]
            self._settled[:] = snapshot["settled"]
            disk.restore(snapshot["disk"])

    def partitions_of(self, inputs: Int8s, cells: Int64s, nulls: UInt64s) -> Int64s:
        """Return the partition of each tuple."""
        out = np.full(len(inputs), NO_PARTITION, np.int64)
        for which in range(2):
            mine = np.flatnonzero((inputs == which) & (nulls & _mask(self._keys[which]) == 0))
            out[mine] = self.partitions_of_values(which, cells[mine][:, self._placing[which]])
        return out

    def partitions_of_values(self, which: int, values: Int64s) -> Int64s:
        """Return the partition of values ``[n, classes]`` of the deciding key classes, as cells of an input."""
        out = np.empty(len(values), np.int64)
        cells = np.zeros((len(values), self._condition.width), np.int64)
        cells[:, self._placing[which]] = values
        kernel.partition(self.disk.lasting(which, cells, self._placing[which]), self.partners.shape[1], out)
        return out

    def epochs(self, inputs: Int8s, partitions: Int64s, late: Bools) -> Int64s:
        """Return the epoch of tuples that come now, PAID for those that owe nothing."""
        owing = ~late & (partitions != NO_PARTITION)
        owing &= self.partners[1 - inputs, partitions] > 0
        return np.where(owing, self.writes, PAID)

    def empty(self, partition: int | Int64s) -> Bools:
        """Say of which partitions nothing is on disk."""
        return np.asarray(self._records[:, partition].sum(axis=0) == 0)

    def write(
        self, inputs: Int8s, partitions: Int64s, seqs: Int64s, ts: Int64s, epochs: Int64s, partners: bool
    ) -> None:
        """Take tuples, which are in memory, to disk: as partners of later ones, or only for what they owe."""
        if not len(seqs):
            return
        self.writes += 1
        left = np.full(len(seqs), self.writes if partners else -self.writes)
        notes = np.column_stack([ts, epochs, left])
        for which in range(2):
            mine = inputs == which
            self.disk.write(which, partitions[mine], seqs[mine], notes[mine])
            added = np.bincount(partitions[mine], minlength=self.partners.shape[1])
            self._records[which] += added
            self.partners[which] += added * partners
        self.spilled += len(seqs)

    def settle(
        self, which: int, partition: int, size: int, debtors: Debtors | None, from_disk: bool
    ) -> Iterator[Settled]:
        """Yield what tuples of an input owe.

        Args:
            which: the input of the debtors.
            partition: theirs.
            size: partners to hold in memory at a time; if there are more, debtors are looked at several times.
            debtors: those in memory; the caller notes that they have paid.
            from_disk: whether those on disk are to pay, too.
        """
        other = 1 - which
        owing = from_disk and self._records[which, partition] > 0
        if self.partners[other, partition] and (owing or debtors is not None):
            reader = self.disk.reader()
            for block in reader.blocks(other, partition, size):
                partners = _Partners(block, self._keys[other])
                if debtors is not None:
                    notes = np.column_stack(
                        [debtors.ts, debtors.epoch, np.full(len(debtors.ts), self.writes + 1)]
                    )
                    found = reader.in_memory(which, debtors.seq, notes)
                    yield from self._pay(which, partition, found, partners)
                for found in reader.blocks(which, partition, _DEBTORS_AT_ONCE) if owing else ():
                    yield from self._pay(which, partition, found, partners)
                    reader.keep(other, block.cells)
        if from_disk:
            self._settled[which, partition] = self.writes

    def clean(self, which: int, partition: int, useless: Callable[[DiskReader, Stored], Bools]) -> None:
        """Write a part, of which everything is settled, anew without the tuples that match nothing any more."""
        kept = 0

        def useful() -> Iterator[Stored]:
            nonlocal kept
            reader = self.disk.reader()
            for part in reader.blocks(which, partition, _DEBTORS_AT_ONCE):
                at = np.flatnonzero((part.notes[:, _LEFT] > 0) & ~useless(reader, part))
                notes = part.notes[at]
                notes[:, _EPOCH] = PAID
                kept += len(at)
                if len(at):
                    yield Stored(part.rows.take(at), notes, part.cells[at], part.nulls[at])

        self.disk.rewrite(which, partition, useful())
        self.partners[which, partition] = self._records[which, partition] = kept

    def snapshot(self) -> Snapshot:
        """Everything needed to go on."""
        return {
            "writes": self.writes,
            "spilled": self.spilled,
            "partners": self.partners.copy(),
            "records": self._records.copy(),
            "settled": self._settled.copy(),
            "disk": self.disk.snapshot(),
        }

    def _pay(self, which: int, partition: int, debtors: Stored, partners: _Partners) -> Iterator[Settled]:
        """Yield the results that tuples owe with some of their partners."""
        keys = np.ascontiguousarray(debtors.cells[:, self._keys[which]])
        epoch = np.ascontiguousarray(debtors.notes[:, _EPOCH])
        owing = (epoch != PAID) & (np.abs(debtors.notes[:, _LEFT]) > self._settled[which, partition])
        position = np.array([0, kernel.NONE])
        found = np.empty((_PAIRS_AT_ONCE, 2), np.int64)
        while position[0] < len(epoch):
            n = kernel.pairs(
                partners.keys,
                partners.left,
                partners.table,
                partners.following,
                keys,
                epoch,
                owing,
                position,
                found,
            )
            yield from self._results(which, debtors, partners.block, found[:n].copy())

    def _results(self, which: int, debtors: Stored, block: Stored, found: Int64s) -> Iterator[Settled]:
        members = [(debtors, found[:, 1]), (block, found[:, 0])]
        if which == 1:
            members.reverse()
        if self._condition.predicates and len(found):
            cells = [part.cells[at] for part, at in members]
            nulls = [part.nulls[at] for part, at in members]
            passed = self._condition.test(cells, nulls)
            members, found = [(part, at[passed]) for part, at in members], found[passed]
        if len(found):
            rows = None if self._counts_only else tuple(part.rows.take(at) for part, at in members)
            yield Settled(debtors.notes[found[:, 1], _TS], rows)


class _Partners:
    """Tuples of a part that can be looked up by key."""

    def __init__(self, block: Stored, keys: list[int]) -> None:
        n = len(block.nulls)
        self.block = block
        self.keys = np.ascontiguousarray(block.cells[:, keys])
        self.left = np.ascontiguousarray(block.notes[:, _LEFT])
        self.table = np.full(1 << (2 * n + 1).bit_length(), kernel.NONE, np.int64)
        self.following = np.empty(n, np.int64)
        kernel.chain(self.keys, self.left > 0, self.table, self.following)


def _mask(cells: list[int]) -> np.uint64:
    return np.uint64(sum(1 << c for c in cells))
