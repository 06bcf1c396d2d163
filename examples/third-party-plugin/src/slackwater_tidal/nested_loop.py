"""A join without an index."""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from slackwater.plugins import Held, JoinLogic, JoinStrategy, Matches, Released, Setting, Snapshot


class NestedLoopJoin(JoinStrategy):
    """Test every combination of a row with the windows of the other inputs.

    Plain NumPy, any condition, 2 to 8 inputs; time and memory per row grow with the product of the windows'
    sizes. To compare with, and to copy from.
    """

    name: ClassVar[str] = "nested_loop"

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> "NestedLoopLogic":
        return NestedLoopLogic(setting, snapshot)


class NestedLoopLogic(JoinLogic):
    """The tuples of all windows in one table, oldest arrival first."""

    def __init__(self, setting: Setting, snapshot: Snapshot | None) -> None:
        self._setting = setting
        self._windows = np.array(setting.windows, np.int64)
        self._now = snapshot["now"] if snapshot else np.iinfo(np.int64).min
        width = setting.condition.width
        if snapshot:
            self._held = Held(*(np.array(snapshot[name]) for name in Held._fields))
        else:
            empty = np.empty(0, np.int64)
            cells = np.empty((0, width), np.int64)
            self._held = Held(empty.astype(np.int8), empty, empty, cells, empty.astype(np.uint64))

    def step(self, released: Released) -> Iterator[Matches]:
        n, m = released.ts.size, len(self._setting.inputs)
        if not n:
            return
        join_size, cross_size = np.zeros(n, np.int64), np.zeros(n)
        rows, probe = [np.empty((0, m), np.int64)], [np.empty(0, np.int64)]
        for k in range(n):
            row = Held(*(getattr(released, name)[k : k + 1] for name in Held._fields))
            which, ts = int(row.input[0]), int(row.ts[0])
            if not released.late[k]:
                self._now = ts
                self._filter(self._held.ts >= ts - self._windows[self._held.input])
                found, cross_size[k] = self._probe(row, which)
                join_size[k] = len(found)
                if not self._setting.counts_only:
                    rows.append(found)
                    probe.append(np.full(len(found), k))
            if ts >= self._now - self._windows[which]:
                self._held = Held(*map(np.concatenate, zip(self._held, row, strict=True)))
        yield Matches(0, n, np.concatenate(rows), np.concatenate(probe), join_size, cross_size)

    def live(self) -> int:
        return len(self._held.ts)

    def held(self) -> Held:
        return self._held

    def evict(self, victims: np.ndarray) -> None:
        self._filter(~victims)

    def snapshot(self) -> Snapshot:
        return {**self._held._asdict(), "now": self._now}

    def _filter(self, keep: np.ndarray) -> None:
        if not keep.all():
            self._held = Held(*(array[keep] for array in self._held))

    def _probe(self, row: Held, which: int) -> tuple[np.ndarray, float]:
        """Return the results of a tuple, one column of row numbers per input, and how many were tested."""
        sources = [row if i == which else self._held for i in range(len(self._setting.inputs))]
        choices = [
            np.flatnonzero(source.input == i) if source is self._held else np.zeros(1, np.int64)
            for i, source in enumerate(sources)
        ]
        picks = [axis.ravel() for axis in np.meshgrid(*choices, indexing="ij")]
        passed = self._setting.condition.test(
            [source.cells[pick] for source, pick in zip(sources, picks, strict=True)],
            [source.nulls[pick] for source, pick in zip(sources, picks, strict=True)],
        )
        columns = [source.seq[pick][passed] for source, pick in zip(sources, picks, strict=True)]
        return np.column_stack(columns), float(passed.size)
