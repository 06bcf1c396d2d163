"""Jumps of event time that the rows after them do not follow: likely wrong clocks that the guard let pass."""

from __future__ import annotations

from typing import Final

import numpy as np

from slackwater.plugins.contract import NEVER, Bools, Int64s, Snapshot
from slackwater.plugins.registry.options import Duration
from slackwater.transforms.arrival.event_times import LIMIT
from slackwater.transforms.kernels.arrival.guard import AFTER, ENOUGH, SEVERAL
from slackwater.transforms.settings.plan import Plan

_LEAST_NANOS: Final = 60 * 10**9
"""Jumps of less than a minute, or two windows, are taken for ordinary disorder."""
_LARGEST: Final = np.iinfo(np.int64).max
_UNITS: Final = tuple(seconds * 10**9 for seconds in (86_400, 3_600, 60, 1))


class Jumps:
    """Looks at the rows that follow each jump of an input's progress, as the guard would with a smaller limit.

    A jump is *odd* if of the next AFTER rows of the input at least half, and SEVERAL, are nearer to where the
    input was than to the jump, and too few are with the jump. What is found does not depend on where chunks are
    cut.

    Args:
        plan: what the operator does.
        snapshot: what ``snapshot`` returned, or None.
    """

    def __init__(self, plan: Plan, snapshot: Snapshot | None = None) -> None:
        setting = plan.setting
        windows = [2 * ticks for ticks in setting.windows if ticks < LIMIT]
        self._nanos = setting.nanos_per_tick
        self._least = max(_LEAST_NANOS // self._nanos, 2, *windows)
        m = len(plan.inputs)
        self._progress, self._top, self._newest = np.full((3, m), NEVER, np.int64)
        """Progress of each input, progress right after its last jump, and the newest row behind that."""
        self._below, self._after, self._behind = np.zeros((3, m), np.int64)
        """By how much rows are behind the last jump, how many rows came after it, and how many are behind."""
        self._distance = np.full(m, _LARGEST, np.int64)
        """The smallest distance of an odd jump from the rows after it."""
        if snapshot:
            for name, array in self._arrays().items():
                array[:] = snapshot[name]

    def follow(self, i: int, ts: Int64s, delay: Int64s, at: Int64s) -> None:
        """Take rows of an input; ``delay`` has at ``at`` by how much each is behind the input's progress."""
        before, reached = int(self._progress[i]), int(ts[-1]) + int(delay[at[-1]])
        self._progress[i] = reached
        first = before == NEVER
        if not first and reached - before < self._least and self._after[i] >= AFTER:
            return
        progress = ts + delay[at]
        rises = np.diff(progress, prepend=progress[0] if first else before)
        starts = np.flatnonzero(rises >= self._least)
        top, below = progress[starts], rises[starts] // 2
        if first:
            starts, top = np.append(0, starts), np.append(progress[0], top)
            below = np.append(self._least // 2, below)
        # The rows before the first jump belong to the last one before.
        begin = np.append(-1 - self._after[i], starts)
        top, below = np.append(self._top[i], top), np.append(self._below[i], below)
        of = np.searchsorted(begin, np.arange(ts.size), side="right") - 1
        rank = np.arange(ts.size) - begin[of]
        asked = np.flatnonzero((rank > 0) & (rank <= AFTER))
        of, asked_ts = of[asked], ts[asked]
        is_behind = asked_ts < top[of] - below[of]
        after, behind = np.bincount(of, minlength=top.size), np.bincount(of[is_behind], minlength=top.size)
        newest = np.full(top.size, NEVER, np.int64)
        np.maximum.at(newest, of[is_behind], asked_ts[is_behind])
        after[0] += self._after[i]
        behind[0] += self._behind[i]
        newest[0] = max(newest[0], self._newest[i])
        odd = np.flatnonzero(_odd(after, behind))
        odd = odd[odd < top.size - 1]
        self._distance[i] = min(self._distance[i], (top[odd] - newest[odd]).min(initial=_LARGEST))
        self._top[i], self._below[i], self._newest[i] = top[-1], below[-1], newest[-1]
        self._after[i], self._behind[i] = after[-1], behind[-1]

    def distances(self) -> dict[int, Duration]:
        """Return how far odd jumps go, at least, of the inputs that have some."""
        found = self._distance.copy()
        last = np.flatnonzero(_odd(self._after, self._behind))
        found[last] = np.minimum(found[last], self._top[last] - self._newest[last])
        return {i: Duration(ticks * self._nanos) for i, ticks in enumerate(found.tolist()) if ticks < _LARGEST}

    def snapshot(self) -> Snapshot:
        return {name: array.copy() for name, array in self._arrays().items()}

    def _arrays(self) -> dict[str, Int64s]:
        return {
            "progress": self._progress,
            "top": self._top,
            "newest": self._newest,
            "below": self._below,
            "after": self._after,
            "behind": self._behind,
            "distance": self._distance,
        }


def limit_below(distance: Duration) -> Duration:
    """Return a limit for the guard that refuses jumps of this distance: about half of it."""
    return rounded(Duration(int(distance) // 2))


def rounded(length: Duration) -> Duration:
    """Return a length of time in whole days, hours, minutes or seconds."""
    unit = next((unit for unit in _UNITS if 2 * unit <= length), 1)
    return Duration((length + unit // 2) // unit * unit)


def _odd(after: Int64s, behind: Int64s) -> Bools:
    """Whether the guard would refuse jumps: rows after them, up to AFTER, and those of them that are behind."""
    near = after - behind
    confirmed = (near >= ENOUGH) | ((near >= SEVERAL - 1) & (4 * near >= after))
    odd: Bools = (behind >= SEVERAL) & (2 * behind >= after) & ~confirmed
    return odd
