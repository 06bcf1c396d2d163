"""What punctuations have promised: which rows are tuples for the join, and which contradict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow.compute as pc

from slackwater.plugins.contract import (
    NEVER,
    REMEMBERED,
    Bools,
    Held,
    Int8s,
    Int64s,
    Pattern,
    Punctuations,
    Released,
    Setting,
    Snapshot,
)
from slackwater.transforms.expressions.condition import Condition
from slackwater.transforms.kernels.join.slots import NONE
from slackwater.transforms.kernels.punctuation import promises as kernel
from slackwater.transforms.kernels.punctuation.promises import DROPPED, JOINS, MARKED, VIOLATES
from slackwater.transforms.punctuation.marks import Mark
from slackwater.transforms.punctuation.metadata import ForeignKey
from slackwater.transforms.rows.encoder import CellEncoder, grown
from slackwater.transforms.rows.store import RowStore

__all__ = ["DROPPED", "JOINS", "MARKED", "VIOLATES", "Promises", "Verdicts"]

RANGES: Final = 1 << 10
"""Separate ranges of one kind at most; those that touch are one."""
_DERIVED: Final = {
    "unique": kernel.UNIQUE,
    "clustered": kernel.CLUSTERED,
    "ascending": kernel.ASCENDING,
    "descending": kernel.DESCENDING,
}


class Promising(Protocol):
    """A plan whose inputs bring punctuations, or of which something is promised."""

    @property
    def condition(self) -> Condition: ...

    @property
    def setting(self) -> Setting: ...

    @property
    def marks(self) -> tuple[Mark, ...]: ...

    @property
    def derived(self) -> list[tuple[str, Pattern]]: ...

    @property
    def foreign_keys(self) -> tuple[ForeignKey, ...]: ...


class Verdicts(NamedTuple):
    """Rows in the order in which they reached the join, sorted by what they are."""

    verdict: Int8s
    """One of JOINS, MARKED, VIOLATES, DROPPED per row."""
    punctuations: Punctuations
    """Those that took effect, counted in rows that are JOINS."""


class Promises:
    """Holds the inputs of one shard to their punctuations, and to what is promised of them.

    A punctuation takes effect once the join's time is past it; one that comes too late for that takes effect
    once the time at which it came is past, which is as if its source had sent it then. From there on, no tuple
    that matches is joined or kept: one in order contradicts it, a late one is too late. So what a join concludes
    from it stays true. Time is constant per row and kind; memory is bounded by ``REMEMBERED`` values.

    What follows from static promises (``punctuation.metadata``) is found in the tuples that join; one that
    contradicts says nothing.

    Args:
        plan: the join.
        encoder: of its cells.
        elsewhere: of each pattern, whether the join itself finds what contradicts it; by default none.
        snapshot: what ``snapshot`` returned, or None.
    """

    def __init__(
        self,
        plan: Promising,
        encoder: CellEncoder,
        elsewhere: Bools | None = None,
        snapshot: Snapshot | None = None,
    ) -> None:
        self._marks, self._encoder = plan.marks, encoder
        self._layout = plan.condition.columns
        self._foreign_keys = plan.foreign_keys
        patterns = plan.setting.patterns
        kinds = [kernel.GIVEN] * len(self._marks) + [_DERIVED[kind] for kind, _ in plan.derived]
        if elsewhere is not None:
            kinds = [kernel.ELSEWHERE if other else kind for kind, other in zip(kinds, elsewhere, strict=True)]
        self._width = max(len(pattern.cells) for pattern in patterns)
        self._patterns = np.zeros((len(patterns), kernel.FIRST_CELL + self._width), np.int64)
        for row, (which, cells, is_range), kind in zip(self._patterns, patterns, kinds, strict=True):
            is_float = self._layout[which][cells[0]].kind == "float"
            row[: kernel.FIRST_CELL] = (which, is_range, len(cells), is_float, kind)
            row[kernel.FIRST_CELL : kernel.FIRST_CELL + len(cells)] = cells
        self._key = np.zeros((1, self._width), np.int64)
        self._state = kernel.Promises(
            entries=np.empty((0, kernel.ENTRY_VALUES + self._width), np.int64),
            table=np.full(16, NONE, np.int64),
            ranges=np.empty((len(patterns), RANGES, 2), np.int64),
            n_ranges=np.zeros(len(patterns), np.int64),
            pending=np.empty((0, kernel.PENDING_VALUES + self._width), np.int64),
            last=np.zeros((len(patterns), kernel.LAST_VALUES + self._width), np.int64),
            control=np.array([NEVER, 0, 0, 0, 0], np.int64),
        )
        if snapshot:
            self._restore(snapshot)

    def judge(self, released: Released, mark: Int8s, stores: Sequence[RowStore]) -> Verdicts:
        """Sort rows that have reached the join; ``mark`` is the kind of punctuation that each is, or -1."""
        n = released.ts.size
        given, marks = self._read(released, mark, stores)
        derived = self._patterns[self._patterns[:, kernel.DERIVED] > kernel.ELSEWHERE, kernel.INPUT]
        coming = len(marks) + sum(int(np.count_nonzero(released.input == i)) for i in derived)
        self._reserve(coming)
        verdict = np.empty(n, np.int8)
        out = self._room(coming)
        size = kernel.judge(
            self._state, self._patterns, released.input, released.ts, released.late, released.cells,
            released.nulls, given, marks, verdict, self._key, *out,
        )  # fmt: skip
        return Verdicts(verdict, Punctuations._make(array[:size] for array in out))

    def finish(self) -> Punctuations:
        """Put what is pending in force: the inputs have ended."""
        self._reserve(0)
        out = self._room(0)
        size = kernel.apply_pending(self._state, self._patterns, *out[2:], 0)
        out.at[:size], out.ts[:size] = 0, self._state.control[kernel.ON_T]
        return Punctuations._make(array[:size] for array in out)

    def unmatched(self, held: Held) -> Bools:
        """Say which tuples refer to what never came; the inputs have ended, and the join has no window.

        Where values have been forgotten, nothing is said.
        """
        out = np.zeros(held.ts.size, np.bool_)
        for which, cell, pattern in () if self._state.control[kernel.FORGOTTEN] else self._foreign_keys:
            refers = np.flatnonzero((held.input == which) & ((held.nulls >> np.uint64(cell)) & np.uint64(1) == 0))
            known = np.empty(refers.size, np.bool_)
            kernel.in_force(
                self._state, pattern, np.ascontiguousarray(held.cells[refers, cell : cell + 1]), known
            )
            out[refers[~known]] = True
        return out

    def held_cells(self) -> tuple[Int8s, Int64s]:
        """Input and cells of every value that is remembered or pending, laid out as tuples are."""
        control, entries, pending = self._state.control, self._state.entries, self._state.pending
        kept = entries[(control[kernel.OLDEST] + np.arange(control[kernel.ENTRIES])) % max(1, len(entries))]
        waiting = pending[: control[kernel.PENDING]]
        seen = np.flatnonzero(self._state.last[:, kernel.SEEN])
        last = self._state.last[seen, kernel.LAST_VALUES :]
        pattern = np.concatenate([kept[:, kernel.PATTERN], waiting[:, 0], seen])
        values = np.concatenate([kept[:, kernel.ENTRY_VALUES :], waiting[:, kernel.PENDING_VALUES :], last])
        cells = np.zeros((len(pattern), max(1, *(len(layout) for layout in self._layout))), np.int64)
        for n, row in enumerate(self._patterns):
            mine = np.flatnonzero(pattern == n)
            own = row[kernel.FIRST_CELL : kernel.FIRST_CELL + row[kernel.CELLS]]
            cells[np.ix_(mine, own)] = values[mine, : len(own)]
        return self._patterns[pattern, kernel.INPUT].astype(np.int8), cells

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self._state)

    def snapshot(self) -> Snapshot:
        control, entries = self._state.control, self._state.entries
        order = (control[kernel.OLDEST] + np.arange(control[kernel.ENTRIES])) % max(1, len(entries))
        return {
            "on_t": int(control[kernel.ON_T]),
            "entries": entries[order],
            "pending": self._state.pending[: control[kernel.PENDING]].copy(),
            "last": self._state.last.copy(),
            "forgotten": int(control[kernel.FORGOTTEN]),
            "ranges": [self._state.ranges[n, :size].copy() for n, size in enumerate(self._state.n_ranges)],
        }

    def _restore(self, snapshot: Snapshot) -> None:
        entries, pending = np.array(snapshot["entries"]), np.array(snapshot["pending"])
        self._state = self._state._replace(entries=entries, pending=pending)
        self._state.last[:] = snapshot["last"]
        self._state.control[:] = (snapshot["on_t"], len(entries), 0, len(pending), snapshot["forgotten"])
        for n, ranges in enumerate(snapshot["ranges"]):
            self._state.ranges[n, : len(ranges)] = ranges
            self._state.n_ranges[n] = len(ranges)
        self._rehash()

    def _room(self, n: int) -> Punctuations:
        size = n + int(self._state.control[kernel.PENDING])
        return Punctuations(
            np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int8),
            np.zeros((size, self._width), np.int64), np.zeros(size, np.int64),
        )  # fmt: skip

    def _reserve(self, n: int) -> None:
        """Make room for ``n`` more, so that the kernel never has to."""
        s = self._state
        pending = grown(s.pending, int(s.control[kernel.PENDING]) + n)
        wanted = min(REMEMBERED, int(s.control[kernel.ENTRIES] + s.control[kernel.PENDING]) + n)
        entries = s.entries
        if wanted > len(entries):
            # Until there are as many as may be remembered, the ring has not wrapped.
            entries = grown(entries, wanted)[:REMEMBERED]
        self._state = s._replace(pending=pending, entries=entries)
        if 2 * len(entries) > s.table.size:
            self._rehash()

    def _rehash(self) -> None:
        size = 1 << max(4, (2 * len(self._state.entries)).bit_length())
        self._state = self._state._replace(table=np.full(size, NONE, np.int64))
        kernel.rebuild(self._state.entries, self._state.table, self._state.control)

    def _read(self, released: Released, mark: Int8s, stores: Sequence[RowStore]) -> tuple[Int64s, Int64s]:
        """Return the punctuations as (places of those of each row, table of pattern, upper end and values)."""
        sizes = (mark >= 0).astype(np.int64)
        parts: list[tuple[Int64s, Any]] = []
        for n, spec in enumerate(self._marks):
            at = np.flatnonzero(mark == n)
            if at.size:
                of, table = self._patterns_of(n, spec, released, at, stores[spec.source])
                sizes[at] = np.maximum(1, np.bincount(of, minlength=at.size))
                parts.append((at[of], table))
        given = np.concatenate([[0], np.cumsum(sizes)])
        marks = np.full((int(given[-1]), kernel.PENDING_VALUES + self._width), NONE, np.int64)
        for rows, table in parts:
            first = np.concatenate([[True], rows[1:] != rows[:-1]]) if rows.size else np.empty(0, np.bool_)
            start = np.maximum.accumulate(np.where(first, np.arange(rows.size), 0))
            marks[given[rows] + np.arange(rows.size) - start] = table
        return given, marks

    def _patterns_of(
        self, n: int, spec: Mark, released: Released, at: Int64s, store: RowStore
    ) -> tuple[Int64s, Int64s]:
        """Return the punctuations of the marked rows ``at``: index into ``at`` of each, and the table."""
        which, cells, is_range = spec.pattern
        own = cells[: len(cells) - 1] if is_range or spec.lists is not None else cells
        bits = np.uint64(sum(1 << cell for cell in own))
        known = (released.nulls[at] & bits) == 0
        of = np.flatnonzero(known)
        table = np.zeros((of.size, kernel.PENDING_VALUES + self._width), np.int64)
        table[:, kernel.PENDING_VALUES : kernel.PENDING_VALUES + len(own)] = released.cells[at[of]][:, own]
        if is_range or spec.lists is not None:
            rows = store.batch(store.locate(released.seq[at[of]]))
            cell = self._layout[which][cells[-1]]
            if spec.lists is not None:
                lists = rows.column(spec.lists)
                picked = np.asarray(pc.list_parent_indices(lists), np.int64)
                values = pc.list_flatten(lists)
                valid = np.asarray(values.is_valid(), np.bool_)
                words, has_word = self._encoder.words(cell, values)
                valid = valid if has_word is None else valid & has_word
                of, table = of[picked[valid]], table[picked[valid]]
                table[:, kernel.PENDING_VALUES + len(own)] = words[valid]
            else:
                is_float = cell.kind == "float"
                ends = (kernel.LOWEST, kernel.HIGHEST)
                open_ends = (kernel.LOWEST_FLOAT, kernel.HIGHEST_FLOAT) if is_float else ends
                fits = np.ones(of.size, np.bool_)
                for column, open_end, place in zip(spec.ends, open_ends, (kernel.PENDING_VALUES, 1), strict=True):
                    table[:, place] = open_end
                    if column is not None:
                        values = rows.column(column)
                        fits &= np.asarray(values.is_valid(), np.bool_)
                        table[:, place], has_word = self._encoder.words(cell, values)
                        fits = fits if has_word is None else fits & has_word
                of, table = of[fits], table[fits]
        table[:, 0] = n
        return of, table
