"""Windows that count the results of each tuple instead of listing them."""

from __future__ import annotations

import numpy as np

from slackwater.plugins.contract import Held, Int64s, Released, Setting, Snapshot
from slackwater.plugins.join.window.logic import SlidingWindowJoinLogic


class CountingWindows(SlidingWindowJoinLogic):
    """The windows of one shard's join, for whoever asks what tuples would find in them.

    Args:
        setting: of the join.
        snapshot: what ``snapshot`` returned, or None.
        visiting: whether tuples in order only look at the windows, and those that are late fill them.
    """

    def __init__(self, setting: Setting, snapshot: Snapshot | None = None, visiting: bool = False) -> None:
        super().__init__(setting._replace(counts_only=True), snapshot)
        self.visiting = visiting

    @property
    def now(self) -> int:
        """The largest event time of a tuple in order."""
        return self._now

    def sizes(self, released: Released, staying: int) -> Int64s:
        """Let tuples look and stay in the windows, ``staying`` of them at most; return what each finds."""
        self._reserve(staying)
        n = released.ts.size
        if not n:
            return np.empty(0, np.int64)
        none = np.empty((0, len(self._w.control) - 1), np.int64)
        _, _, join_size, _ = self._run(released, 0, n, none, np.empty(1, np.int64))
        return np.asarray(join_size, np.int64)

    def put(self, held: Held, now: int) -> None:
        """Put tuples into the windows, whose time goes on to ``now``; nobody looks."""
        self._reserve(held.ts.size)
        self._fill(held, np.ones(held.ts.size, np.bool_))
        self._now = max(self._now, now)
