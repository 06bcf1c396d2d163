"""The record store and the extents of one shard: room for the kernels, and what they produced."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import Any, Final, NamedTuple

import numpy as np

from slackwater.plugins.contract import NEVER, Bools, Float64s, Int64s, Snapshot
from slackwater.transforms.kernels.operators import extents
from slackwater.transforms.kernels.operators import record_store as kernel

_RUN: Final = 1 << 13
"""Arrivals at a time: room is made for these, so that the records stay in cache."""
_ROOM: Final = 1 << 14
"""Groups, and ends of extents, that are produced at a time unless one extent has more."""
_LEAST_NODES: Final = 8
"""The smallest i-node (ADC sec. 3)."""


class Complete(NamedTuple):
    """Extents that are complete, in order: their groups, and where each of them ends."""

    extent: Int64s
    group: Int64s
    whole: Int64s
    """``[groups, words]``: integer parts of the aggregates, as ``AggregateLayout`` lays them out."""
    real: Float64s
    ends: Int64s
    """``[ends, 3]``: an extent, the arrival that completed it (-1 for the end of the input), its groups. Of a
    run of extents without rows only the last is here."""


class RecordStore:
    """Places rows by time and produces extents as the punctuation passes them.

    Holds the rows that the punctuation has not passed and, for every pane that an open extent needs, a record
    for each group. Neither where arrivals are cut nor when records are folded changes what is produced.

    Args:
        range_ticks: length of an extent.
        slide_ticks: distance between extents.
        ops: how the integer and the floating words of two partial aggregates merge.
        snapshot: what ``snapshot`` returned.
    """

    def __init__(
        self, range_ticks: int, slide_ticks: int, ops: tuple[Int64s, Int64s], snapshot: Snapshot | None = None
    ) -> None:
        self._pane = gcd(range_ticks, slide_ticks)
        self._spec = (slide_ticks, slide_ticks // self._pane, range_ticks // self._pane)
        self._floating = kernel.WORDS + ops[0].size
        self._ops = np.concatenate([np.zeros(kernel.WORDS, np.int64), *ops])
        self._state = _empty(_LEAST_NODES, _RUN, 1, self._ops.size)
        self._out = _room(_ROOM, self._ops.size)
        if snapshot:
            self._restore(snapshot)

    def __len__(self) -> int:
        return int(self._state.control[kernel.N_RECORDS])

    @property
    def waiting(self) -> int:
        """Rows that are in no extent that has been produced."""
        return int(self._state.control[kernel.N_WAITING])

    @property
    def most(self) -> int:
        """Records that were held at a time, at most."""
        return int(self._state.control[kernel.MOST_RECORDS])

    @property
    def nbytes(self) -> int:
        """Bytes of the store."""
        return sum(array.nbytes for array in self._state) - self._state.reals.nbytes

    def advance(
        self,
        ts: Int64s,
        groups: Int64s,
        words: tuple[Int64s, Float64s],
        bounds: Int64s,
        late: Bools,
        gone: Float64s,
    ) -> Iterator[Complete]:
        """Take arrivals; yield the extents that they complete.

        Args:
            ts: event times.
            groups: group of each row.
            words: partial aggregate of each row, integer and floating words.
            bounds: punctuation after each arrival; one that goes back is ignored.
            late: set where an extent that should hold the row had been produced.
            gone: there, the share of its extents.
        """
        pane = ts // self._pane
        self._know(int(groups.max(initial=0)) + 1)
        start = 0
        while start < ts.size:
            stop = min(start + _RUN, ts.size)
            self._reserve(stop - start)
            yield from self._advance((pane, groups, *words, bounds), start, stop, late, gone)
            start = stop
        yield from self._produced()

    def pass_over(self, tau: int) -> Iterator[Complete]:
        """Yield the extents that a punctuation completes without an arrival."""
        control, none = self._state.control, np.empty(0, np.int64)
        control[kernel.TAU] = max(control[kernel.TAU], tau)
        words = np.empty((0, self._floating - kernel.WORDS), np.int64)
        reals = np.empty((0, self._ops.size - self._floating))
        arrivals = (none, none, words, reals, none)
        yield from self._advance(arrivals, 0, 0, none.astype(np.bool_), none.astype(np.float64))
        yield from self._produced()

    def flush(self) -> Iterator[Complete]:
        """Yield every extent that holds a row and has not been produced: the input has ended."""
        why = extents.NO_ROOM
        while why != extents.DONE:
            why = extents.flush(self._spec, self._ops, self._floating, self._state, -1, self._out)
            yield from self._produced(why == extents.NO_ROOM)

    def groups(self) -> Int64s:
        """Group of every record."""
        return np.asarray(self._state.records[self._listed()[2], kernel.GROUP])

    def renumber(self, groups: Int64s) -> None:
        """Call group g ``groups[g]`` from now on."""
        records = self._listed()[2]
        stored = self._state.records
        stored[records, kernel.GROUP] = groups[stored[records, kernel.GROUP]]

    def snapshot(self) -> Snapshot:
        """Everything needed to go on in another process."""
        s = self._state
        kernel.fold_all(s, self._ops, self._floating)
        pane, waiting, record = self._listed()
        return {
            "pane": pane,
            "waiting": waiting,
            "group": s.records[record, kernel.GROUP],
            "whole": s.records[record, kernel.WORDS : self._floating],
            "real": s.reals[record, self._floating :],
            "tau": int(s.control[kernel.TAU]),
            "produced": int(s.control[kernel.PRODUCED]),
        }

    def _restore(self, snapshot: Snapshot) -> None:
        pane, groups = np.array(snapshot["pane"]), np.array(snapshot["group"])
        nodes = np.unique(pane // kernel.PLACES).size
        room = max(_RUN, 2 * pane.size)
        self._state = s = _empty(max(_LEAST_NODES, nodes), room, int(groups.max(initial=0)) + 1, self._ops.size)
        waiting, words = np.array(snapshot["waiting"]), (np.array(snapshot["whole"]), np.array(snapshot["real"]))
        kernel.restore(s, pane, waiting, groups, *words)
        s.control[kernel.TAU], s.control[kernel.PRODUCED] = snapshot["tau"], snapshot["produced"]

    def _listed(self) -> list[Int64s]:
        arrays = [np.empty(len(self), np.int64) for _ in range(3)]
        kernel.listed(self._state, *arrays)
        return arrays

    def _advance(
        self, arrivals: tuple[Any, ...], start: int, stop: int, late: Bools, gone: Float64s
    ) -> Iterator[Complete]:
        """Take some of the arrivals, for which there is room; yield extents when there is none for more."""
        spec = (self._spec, self._ops, self._floating)
        why = extents.NO_ROOM
        while why != extents.DONE:
            start, why = extents.advance(*arrivals, start, stop, *spec, self._state, self._out, late, gone)
            if why == extents.NO_NODE:
                self._grow_nodes()
            elif why == extents.NO_ROOM:
                yield from self._produced(full=True)

    def _produced(self, full: bool = False) -> Iterator[Complete]:
        """Yield what is in the room, and empty it; make more if not even one extent fits in."""
        out = self._out
        n, ends = (int(k) for k in out.n)
        if n or ends:
            out.n[:] = 0
            words = out.records[:n, kernel.WORDS : self._floating].copy()
            groups, real = out.records[:n, kernel.GROUP].copy(), out.reals[:n, self._floating :].copy()
            yield Complete(out.extent[:n].copy(), groups, words, real, out.sync[:ends].copy())
        elif full:
            size = 2 * max(out.extent.size, min(len(self), len(self._state.seen)))
            self._out = _room(size, self._ops.size)

    def _know(self, groups: int) -> None:
        """Make room for marks on this many groups."""
        seen = self._state.seen
        if groups > len(seen):
            more = np.zeros((max(groups, 2 * len(seen)) - len(seen), 2), np.int64)
            self._state = self._state._replace(seen=np.concatenate([seen, more]))

    def _reserve(self, n: int) -> None:
        """Make room for ``n`` more records: fold first, and grow unless that has freed the larger part."""
        room = len(self._state.records)
        if len(self) + n <= room:
            return
        kernel.fold_all(self._state, self._ops, self._floating)
        if len(self) + max(n, room // 2) > room:
            size = max(2 * room, len(self) + n)
            s = self._state
            records = _larger(s.records, size)
            records[room:, kernel.NEXT] = np.arange(room + 1, size + 1)
            records[-1, kernel.NEXT] = s.control[kernel.FREE_RECORD]
            s.control[kernel.FREE_RECORD] = room
            self._state = s._replace(records=records, reals=records.view(np.float64))

    def _grow_nodes(self) -> None:
        """Double the p-nodes there may be; there is none that is free."""
        s = self._state
        size = len(s.nodes)
        nodes = _larger(s.nodes, 2 * size)
        _chain(nodes, size)
        s.control[kernel.FREE_NODE] = size
        self._state = s._replace(nodes=nodes, inode=_larger(s.inode, 2 * size))


def _larger(array: Any, size: int) -> Any:
    larger = np.empty((size, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger


def _chain(nodes: Any, first: int) -> None:
    """Chain the p-nodes from ``first`` on as free ones."""
    nodes[first:, 0, kernel.LAST] = np.arange(first + 1, len(nodes) + 1)
    nodes[-1, 0, kernel.LAST] = kernel.NONE


def _empty(nodes: int, room: int, groups: int, width: int) -> kernel.StoreState:
    records = np.empty((room, width), np.int64)
    records[:, kernel.NEXT] = np.arange(1, room + 1)
    records[-1, kernel.NEXT] = kernel.NONE
    control = np.zeros(kernel.CONTROLS, np.int64)
    control[[kernel.TAU, kernel.PRODUCED]] = NEVER
    places = np.empty((nodes, kernel.PLACES, 2), np.int32)
    _chain(places, 0)
    return kernel.StoreState(
        inode=np.empty((nodes, 2), np.int64),
        nodes=places,
        records=records,
        reals=records.view(np.float64),
        seen=np.zeros((groups, 2), np.int64),
        control=control,
    )


def _room(size: int, width: int) -> extents.Produced:
    records = np.empty((size, width), np.int64)
    return extents.Produced(
        extent=np.empty(size, np.int64),
        records=records,
        reals=records.view(np.float64),
        sync=np.empty((size, 3), np.int64),
        n=np.zeros(2, np.int64),
    )
