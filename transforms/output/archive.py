"""The archive of a join: every row that results were missed of, and the rows that it could have met (SAJ 2.2).

The exact join is that of all tuples in order of time, with complete windows. Its tuples are the rows that came,
but for those without a time (``bad_record``), those that were taken for a wrong clock (``future_time``) and those
that contradict what the inputs themselves have promised (``punctuation_violated``). Rows that came too late, also
for the guard, and rows that were shed are part of it.

A row is written when nothing can happen to it any more, with three numbers beside it. ``pos`` is its place in
the order in which rows reached the join. ``gone`` is the place of the last row that could have met it, of one
that was evicted; it is null of one that stayed as long as its window. ``late`` says that it came too late to look
for partners itself.

A result of the exact join was produced if and only if its member with the largest ``pos`` was not late and not
after the ``gone`` of any other member: it looked for the others when it came, and nobody could have later. So
what was missed can be told from the archive alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Bools, Evicted, Int64s, Released, Snapshot
from slackwater.transforms.output.archive_files import GONE, LATE, POS, ShardFiles
from slackwater.transforms.punctuation.marks import marked
from slackwater.transforms.rows import ipc
from slackwater.transforms.rows.sorted_rows import SortedRows
from slackwater.transforms.rows.store import RowStore
from slackwater.transforms.settings.plan import JoinPlan

STAYS: Final = 1 << 62
"""``gone`` of a row that stayed as long as its window."""
NOT_YET: Final = -2
"""``pos`` of a row that has not reached the join."""
NEVER_CAME: Final = -1
"""``pos`` and ``gone`` of a row that never reached the join."""
WAITING_ROWS: Final = 1 << 12
"""Rows that never reached the join to gather before they are written."""
_POS, _GONE, _LATE = range(3)


def produced(members: Sequence[tuple[Int64s, Int64s, Bools]]) -> Bools:
    """Say which results were produced; ``members`` are ``pos``, ``gone`` and ``late`` of each input's member."""
    pos = np.stack([member[0] for member in members])
    last = pos.argmax(axis=0)
    at = np.arange(pos.shape[1])
    out = ~np.stack([member[2] for member in members])[last, at]
    for i, (_, gone, _) in enumerate(members):
        out &= (last == i) | (gone >= pos[last, at])
    return np.asarray(out, np.bool_)


class Archive:
    """What one shard has to keep for later.

    Holds three numbers per row of the stores, and WAITING_ROWS rows at most; the rest is on disk.

    Args:
        plan: the join; its setting ``archive`` names the directory.
        shard: number of the shard: it has files of its own.
        stores: the rows of each input, which this is told of before it forgets them.
        snapshot: what ``snapshot`` returned, or None.
    """

    def __init__(
        self, plan: JoinPlan, shard: int, stores: Sequence[RowStore], snapshot: Snapshot | None = None
    ) -> None:
        assert plan.config.archive is not None
        self._plan = plan
        self._stores = stores[: len(plan.members)]
        self._files = ShardFiles(plan, Path(plan.config.archive), shard, snapshot["files"] if snapshot else None)
        self._position = int(snapshot["position"]) if snapshot else 0
        self._first = self._position
        self._fates = [np.empty((0, 3), np.int64) for _ in self._stores]
        """Of each row in the stores: pos, gone, late."""
        self._waiting: list[list[tuple[pa.RecordBatch, Int64s]]] = [[] for _ in self._stores]
        """Rows that never reached the join, with their times."""
        if snapshot:
            self._fates = [np.array(fates, np.int64) for fates in snapshot["fates"]]
            for waiting, (rows, times) in zip(self._waiting, snapshot["waiting"], strict=True):
                first = 0
                for batch in ipc.from_bytes(rows) if rows else ():
                    waiting.append((batch, np.array(times[first : first + batch.num_rows])))
                    first += batch.num_rows

    def release(self, released: Released) -> None:
        """Note tuples in the order in which they reach the join."""
        n = released.ts.size
        self._first = self._position
        self._position += n
        for i, store in enumerate(self._stores):
            mine = np.flatnonzero(released.input == i)
            if mine.size:
                late = released.late[mine].astype(np.int64)
                noted = np.column_stack([self._first + mine, np.full(mine.size, STAYS), late])
                self._known(i)[store.locate(released.seq[mine])] = noted

    def evict(self, evicted: Evicted) -> None:
        """Note tuples of those released just now, or before, that went for lack of memory."""
        for i, store in enumerate(self._stores):
            mine = np.flatnonzero(evicted.input == i)
            if mine.size:
                self._known(i)[store.locate(evicted.seq[mine]), _GONE] = self._first + evicted.at[mine]

    def missed(self, which: int, rows: pa.RecordBatch, ts: Int64s) -> None:
        """Keep rows of an input that never reached the join, for whatever reason: all their results were missed.

        They may be in the stores or not. Punctuations among them are nothing to be joined.

        Args:
            which: the input.
            rows: the rows.
            ts: their event times.
        """
        if which >= len(self._stores):
            return
        tuples = marked(self._plan.marks, which, rows) < 0
        rows = rows.select(self._plan.schemas[self._plan.inputs[which]].names)
        if not tuples.all():
            rows, ts = rows.filter(pa.array(tuples)), ts[tuples]
        if rows.num_rows:
            self._waiting[which].append((rows, ts))
            if sum(len(times) for _, times in self._waiting[which]) >= WAITING_ROWS:
                self._write(which, np.empty(0, np.int64))

    def pass_over(self, released: Released) -> None:
        """Keep tuples that were kept from the join when they were about to reach it."""
        for i, store in enumerate(self._stores):
            mine = np.flatnonzero(released.input == i)
            if mine.size:
                self.missed(i, store.batch(store.locate(released.seq[mine])), released.ts[mine])

    def keep(self, which: int, seqs: Int64s) -> None:
        """Write the rows that a store is about to forget, all but these, as far as the join should see them."""
        if which >= len(self._stores):
            return
        fates = self._known(which)
        kept = self._stores[which].locate(np.sort(seqs))
        leaving = fates[:, _POS] != NOT_YET
        leaving[kept] = False
        self._write(which, np.flatnonzero(leaving))
        self._fates[which] = fates[kept]

    def close(self) -> None:
        """Write all rows that are left, and complete the shard's part of the archive."""
        for which in range(len(self._stores)):
            self.keep(which, np.empty(0, np.int64))
        self._files.complete()

    @property
    def nbytes(self) -> int:
        """Bytes of what is known of rows, and of the rows that wait to be written."""
        waiting = (rows.nbytes + ts.nbytes for parts in self._waiting for rows, ts in parts)
        return sum(fates.nbytes for fates in self._fates) + sum(waiting)

    def snapshot(self) -> Snapshot:
        waiting: list[tuple[bytes, Any]] = []
        for parts in self._waiting:
            times = np.concatenate([np.empty(0, np.int64), *(times for _, times in parts)])
            waiting.append((ipc.to_bytes(*(rows for rows, _ in parts)) if parts else b"", times))
        fates = [self._known(i).copy() for i in range(len(self._stores))]
        return {
            "position": self._position,
            "files": self._files.snapshot(),
            "fates": fates,
            "waiting": waiting,
        }

    def _known(self, which: int) -> Int64s:
        """Return what is known of each row in a store; of new ones nothing."""
        fates, new = self._fates[which], len(self._stores[which]) - len(self._fates[which])
        if new:
            fates = self._fates[which] = np.concatenate([fates, np.full((new, 3), NOT_YET)])
        return fates

    def _write(self, which: int, places: Int64s) -> None:
        """Write rows of a store, and those that wait, by bucket of time."""
        store, waiting = self._stores[which], self._waiting[which]
        batches = [store.batch(places[part]) for part in store.cuts(places)]
        batches += [rows for rows, _ in waiting]
        ts = np.concatenate([store.beside.ts[places], *(times for _, times in waiting)])
        if not ts.size:
            return
        never = np.repeat([[NEVER_CAME, NEVER_CAME, 1]], ts.size - places.size, axis=0)
        fates = np.concatenate([self._known(which)[places], never])
        waiting.clear()
        order = np.argsort(ts, kind="stable")
        rows = SortedRows(self._plan.schemas[self._plan.inputs[which]], batches, order)
        ts, fates = ts[order], fates[order]
        buckets = self._files.buckets(ts)
        edges = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist(), len(ts)]
        for start, stop in pairwise(edges):
            for part in rows.cuts(stop - start, start, stop):
                batch = _with_fates(rows.take(part.start, part.stop - part.start), fates[part])
                self._files.append(which, int(buckets[start]), batch)


def _with_fates(rows: pa.RecordBatch, fates: Int64s) -> pa.RecordBatch:
    """Return rows with what is known of them beside."""
    rows = rows.append_column(POS, pa.array(fates[:, _POS]))
    rows = rows.append_column(GONE, pa.array(fates[:, _GONE], mask=fates[:, _GONE] == STAYS))
    return rows.append_column(LATE, pa.array(fates[:, _LATE] != 0))
