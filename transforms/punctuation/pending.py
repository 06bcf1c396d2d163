"""Punctuations that wait until rows have gone past their time."""

from __future__ import annotations

import numpy as np

from slackwater.plugins.contract import Int64s, Snapshot
from slackwater.transforms.kernels.operators.open_groups import NONE, Due

_COLUMNS = ("ts", "row", "value", "kind")


class Waiting:
    """Holds punctuations in the order in which they came, and gives them out in the order of their time.

    Args:
        width: group columns.
        snapshot: what ``snapshot`` returned.
    """

    def __init__(self, width: int, snapshot: Snapshot | None = None) -> None:
        self._entries = np.empty((0, len(_COLUMNS)), np.int64)
        """For each the time, the row of the chunk at work that it came before, what it names, and its kind."""
        self._ranges = np.empty((0, 1 + 2 * width), np.int64)
        if snapshot:
            self._entries, self._ranges = np.array(snapshot["entries"]), np.array(snapshot["ranges"])

    @property
    def values(self) -> Int64s:
        """Numbers that they name."""
        return self._entries[self._entries[:, 2] != NONE, 2]

    @property
    def nbytes(self) -> int:
        return int(self._entries.nbytes + self._ranges.nbytes)

    def add(self, ts: Int64s, row: Int64s, value: Int64s, kind: Int64s, ranges: Int64s) -> None:
        """Take more of them."""
        self._entries = np.concatenate([self._entries, np.column_stack([ts, row, value, kind])])
        self._ranges = np.concatenate([self._ranges, ranges])

    def take(self, progress: Int64s) -> Due:
        """Give out those whose time rows have passed, each before the row that did, or where it came if later.

        Args:
            progress: the largest time of a row before the chunk and after each of its rows.
        """
        ts, came = self._entries[:, 0], self._entries[:, 1]
        row = np.maximum(np.searchsorted(progress[1:], ts, side="right"), came)
        due = ts < progress[-1]
        order = np.lexsort((ts, row))
        order = order[due[order]]
        taken = self._entries[order]
        found = Due(row[order], taken[:, 0].copy(), taken[:, 2].copy(), taken[:, 3].copy(), self._ranges[order])
        self._entries, self._ranges = self._entries[~due], self._ranges[~due]
        self._entries[:, 1] = 0
        return found

    def renumber(self, numbers: Int64s | None) -> None:
        """Name values by their new numbers, if there are any."""
        if numbers is not None:
            named = self._entries[:, 2] != NONE
            self._entries[named, 2] = numbers[self._entries[named, 2]]

    def snapshot(self) -> Snapshot:
        return {"entries": self._entries.copy(), "ranges": self._ranges.copy()}
