"""The open groups of a shard: room for the kernels, what they closed, and the numbers of groups and values."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import NEVER, Float64s, Int8s, Int64s, Snapshot
from slackwater.transforms.kernels.operators import open_groups as kernel
from slackwater.transforms.kernels.operators.record_store import WORDS
from slackwater.transforms.operators.group_close.plan import GroupClosePlan
from slackwater.transforms.operators.group_columns import MAX_NAMED
from slackwater.transforms.operators.group_index import GroupIndex
from slackwater.transforms.punctuation.patterns import Patterns
from slackwater.transforms.rows.encoder import grown

_RUN: Final = 1 << 14
"""Rows at a time: room is made for what they may open and close."""
_LEAST: Final = 1 << 12
"""Numbers and places in the queue below which none is forgotten."""


class Closed(NamedTuple):
    """Groups that were closed, in the order in which that happened."""

    keys: list[Any]
    whole: Int64s
    real: Float64s
    ts: Int64s
    by: Int64s


class GroupStore:
    """Adds rows to their groups, and closes those that are over.

    Args:
        plan: what to compute.
        snapshot: what ``snapshot`` returned.
    """

    def __init__(self, plan: GroupClosePlan, snapshot: Snapshot | None = None) -> None:
        self._plan = plan
        self._index = GroupIndex(plan.group_cells, plan.key_schema, snapshot["index"] if snapshot else None)
        ops = plan.layout.ops
        words = np.concatenate([np.zeros(WORDS, np.int64), *ops])
        is_float = np.array([cell.kind == "float" for cell in plan.group_cells])
        window = kernel.NONE if plan.window is None else plan.window
        self._spec = kernel.Spec(window, words, WORDS + ops[0].size, is_float)
        self._kinds: list[int] = list(snapshot["kinds"]) if snapshot else []
        """Choices of columns that punctuations name, each as the bits of those that they leave open."""
        self._groups = self._empty(0)
        self._groups.control[kernel.CLOCK] = NEVER
        self._known = 0
        """Numbers that there is room for and that are linked."""
        if snapshot:
            self._restore(snapshot)

    @property
    def open(self) -> int:
        """Groups that are open."""
        return int(self._groups.control[kernel.N_OPEN])

    @property
    def most(self) -> int:
        """Groups that were open at a time, at most."""
        return int(self._groups.control[kernel.MOST_OPEN])

    @property
    def nbytes(self) -> int:
        """Bytes of everything held."""
        arrays = sum(array.nbytes for array in self._groups) - self._groups.reals.nbytes
        return int(arrays + self._index.nbytes)

    def name(self, patterns: Patterns) -> tuple[Int64s, Int64s, Int64s]:
        """Return what patterns name: a number or NONE, the kind of it or NONE, and the ends of ranges."""
        n = patterns.of.size
        value, kind = np.full(n, kernel.NONE), np.full(n, kernel.NONE)
        ranges = np.zeros((n, 1 + 2 * len(self._plan.by)), np.int64)
        if not n:
            return value, kind, ranges
        plain = np.ones(n, np.bool_)
        for k, ends in patterns.ranges.items():
            ranges[k], plain[k] = ends, False
        at = np.flatnonzero(plain)
        unnamed = patterns.unnamed[at]
        for bits in np.unique(unnamed).tolist():
            if bits:
                if bits not in self._kinds:
                    self._add_kind(bits)
                kind[at[unnamed == np.uint64(bits)]] = self._kinds.index(bits)
        value[at] = self._index.assign(patterns.values.take(pa.array(at)), unnamed)
        self._meet()
        return value, kind, ranges

    def advance(self, ts: Int64s, rows: pa.RecordBatch, due: kernel.Due, verdict: Int8s) -> Closed:
        """Add rows and apply punctuations between them; ``verdict`` gets what became of each row."""
        group = self._index.assign(rows)
        self._meet()
        whole, real = self._plan.layout.rows(rows)
        parts = []
        for start in range(0, max(1, ts.size), _RUN):
            stop = min(start + _RUN, ts.size)
            last = stop == ts.size
            due_from, due_to = np.searchsorted(due.row, [start, stop])
            due_from, due_to = (0 if start == 0 else due_from), (due.row.size if last else due_to)
            part = kernel.Due._make(array[due_from:due_to] for array in due)
            laid = np.zeros((stop - start, self._spec.ops.size), np.int64)
            laid[:, WORDS : self._spec.floating] = whole[start:stop]
            laid[:, self._spec.floating :] = real[start:stop].view(np.int64)
            out = self._room(stop - start)
            kernel.advance(
                self._groups, *self._index.cells(), self._index.size, ts[start:stop], group[start:stop], laid,
                laid.view(np.float64), part._replace(row=part.row - start), self._spec, verdict[start:stop], out,
            )  # fmt: skip
            parts.append(self._taken(out))
        return self._closed(parts)

    def apply(self, due: kernel.Due) -> Closed:
        """Apply punctuations, with no row after them."""
        return self._closed([self._applied(due)])

    def finish(self, due: kernel.Due) -> Closed:
        """Apply punctuations, and close every group that is open."""
        applied = self._applied(due)
        out = self._room(0)
        kernel.close_all(self._groups, self._index.size, out)
        return self._closed([applied, self._taken(out)])

    def _applied(self, due: kernel.Due) -> tuple[Int64s, Int64s]:
        none = np.empty(0, np.int64)
        laid = np.empty((0, self._spec.ops.size), np.int64)
        out = self._room(0)
        kernel.advance(
            self._groups, *self._index.cells(), self._index.size, none, none, laid, laid.view(np.float64),
            due, self._spec, none.astype(np.int8), out,
        )  # fmt: skip
        return self._taken(out)

    def forget(self, waiting: Int64s, force: bool = False) -> Int64s | None:
        """Forget numbers that nothing refers to, once they are the larger part; return the new number of each.

        Args:
            waiting: numbers that are needed besides.
            force: whether to do it in any case.
        """
        g, size = self._groups, self._index.size
        control = g.control
        queued = int(control[kernel.QUEUE_END] - control[kernel.QUEUED])
        remembered = int(min(control[kernel.N_OVER], kernel.REMEMBERED))
        needed = self.open + remembered + waiting.size
        if not force and size <= _LEAST + 2 * needed and queued <= _LEAST + 2 * self.open:
            return None
        by = g.over[:size, kernel.BY]
        used = (g.records[:size, kernel.OPENED] > 0) | (
            by > max(0, int(control[kernel.N_OVER]) - kernel.REMEMBERED)
        )
        used[waiting] = True
        whole = self._whole(np.arange(size))
        for q in range(len(self._kinds)):
            members = whole[used[whole]]
            used[g.links[members, 2 * q]] = True
        numbers = self._index.keep(used)
        self._lay(np.flatnonzero(used), numbers)
        return numbers

    def snapshot(self) -> Snapshot:
        """Everything needed to go on; ``forget`` with force comes before."""
        g, size, control = self._groups, self._index.size, self._groups.control
        return {
            "index": self._index.snapshot(),
            "kinds": list(self._kinds),
            "records": g.records[:size].copy(),
            "over": g.over[:size].copy(),
            "queue": g.queue[control[kernel.QUEUED] : control[kernel.QUEUE_END]].copy(),
            "ranges": g.ranges[: control[kernel.N_RANGES]].copy(),
            "control": control.copy(),
        }

    def _restore(self, snapshot: Snapshot) -> None:
        queue, control = np.array(snapshot["queue"]), np.array(snapshot["control"])
        control[kernel.QUEUED], control[kernel.QUEUE_END] = 0, len(queue)
        self._groups.control[:] = control
        self._groups.ranges[: control[kernel.N_RANGES]] = snapshot["ranges"]
        self._groups = self._groups._replace(queue=queue)
        self._meet()
        self._groups.records[: self._known] = snapshot["records"]
        self._groups.over[: self._known] = snapshot["over"]

    def _empty(self, size: int) -> kernel.Groups:
        records = np.zeros((size, self._spec.ops.size), np.int64)
        return kernel.Groups(
            records=records,
            reals=records.view(np.float64),
            over=np.zeros((size, 2), np.int64),
            links=np.full((size, 2 * len(self._kinds)), kernel.NONE, np.int64),
            heads=np.full(size, kernel.NONE, np.int64),
            queue=np.empty((0, 2), np.int64),
            ranges=np.empty((kernel.RANGES, 3 + 2 * len(self._plan.by)), np.int64),
            control=np.zeros(kernel.CONTROLS, np.int64),
        )

    def _whole(self, numbers: Int64s) -> Int64s:
        """Return those of the numbers that name every column: groups, or what may become one."""
        return numbers[self._index.cells()[1][numbers] >> np.uint64(MAX_NAMED) == 0]

    def _add_kind(self, bits: int) -> None:
        self._kinds.append(bits)
        more = np.full((len(self._groups.heads), 2), kernel.NONE, np.int64)
        self._groups = self._groups._replace(links=np.concatenate([self._groups.links, more], axis=1))
        self._link(len(self._kinds) - 1, self._whole(np.arange(self._known)))

    def _link(self, kind: int, members: Int64s) -> None:
        values = self._index.project(members, self._kinds[kind])
        self._grow()
        kernel.link(self._groups, kind, members, values)

    def _meet(self) -> None:
        """Make room for new numbers, and link the groups among them to the values that they have."""
        self._grow()
        if self._known < self._index.size:
            members = self._whole(np.arange(self._known, self._index.size))
            for kind in range(len(self._kinds)):
                self._link(kind, members)
            self._known = self._index.size

    def _grow(self) -> None:
        g, size = self._groups, self._index.size
        have = len(g.heads)
        if size <= have:
            return
        records, over, links, heads = (grown(a, size) for a in (g.records, g.over, g.links, g.heads))
        for array, empty in ((records, 0), (over, 0), (links, kernel.NONE), (heads, kernel.NONE)):
            array[have:] = empty
        self._groups = g._replace(
            records=records, reals=records.view(np.float64), over=over, links=links, heads=heads
        )

    def _lay(self, kept: Int64s, numbers: Int64s) -> None:
        """Keep the state of some numbers, under their new ones."""
        old, control = self._groups, self._groups.control
        self._groups = self._empty(0)._replace(ranges=old.ranges, control=control)
        queue = old.queue[control[kernel.QUEUED] : control[kernel.QUEUE_END]]
        queue = queue[old.records[queue[:, 0], kernel.OPENED] == queue[:, 1]]
        queue = np.column_stack([numbers[queue[:, 0]], queue[:, 1]])
        control[kernel.QUEUED], control[kernel.QUEUE_END] = 0, len(queue)
        self._groups = self._groups._replace(queue=queue)
        self._known = 0
        self._meet()
        self._groups.records[: kept.size], self._groups.over[: kept.size] = old.records[kept], old.over[kept]

    def _room(self, rows: int) -> kernel.Closed:
        """Make room for what some rows may open and close."""
        if self._spec.window != kernel.NONE:
            control = self._groups.control
            queue = grown(self._groups.queue, int(control[kernel.QUEUE_END]) + rows)
            self._groups = self._groups._replace(queue=queue)
        most = self.open + rows
        marks, records = np.empty((most, 4), np.int64), np.empty((most, self._spec.ops.size), np.int64)
        return kernel.Closed(marks, records, np.zeros(1, np.int64))

    def _taken(self, out: kernel.Closed) -> tuple[Int64s, Int64s]:
        n = int(out.size[0])
        return out.marks[:n], out.records[:n]

    def _closed(self, parts: list[tuple[Int64s, Int64s]]) -> Closed:
        marks, records = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        # What closed together leaves in the order of opening.
        step = np.cumsum((np.diff(marks[:, 1:3], axis=0, prepend=marks[:1, 1:3]) != 0).any(axis=1))
        order = np.lexsort((marks[:, 3], step))
        records = records[order]
        group, ts, by, _ = np.ascontiguousarray(marks[order].T)
        whole = np.ascontiguousarray(records[:, WORDS : self._spec.floating])
        real = np.ascontiguousarray(records[:, self._spec.floating :]).view(np.float64)
        return Closed(self._index.keys(group), whole, real, ts, by)
