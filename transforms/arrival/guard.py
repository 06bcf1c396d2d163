"""The guard: refuses rows whose event time nothing confirms; they advance no input.

The limits are those of the setting ``guard``. Where it names none, rows are refused that stand alone a year ahead
of every input or five years behind their own, or twice the largest window if that is more.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from slackwater.plugins.clock import now_nanos
from slackwater.plugins.contract import NEVER, Bools, Int8s, Int64s, Snapshot
from slackwater.transforms.arrival.event_times import LIMIT
from slackwater.transforms.kernels.arrival import guard as kernel
from slackwater.transforms.settings.plan import Plan

YEAR_NANOS: Final = 365 * 86_400 * 10**9
_AHEAD_NANOS: Final = YEAR_NANOS
_BEHIND_NANOS: Final = 5 * YEAR_NANOS
_NONE: Final = -1


class Limits(NamedTuple):
    """Limits in ticks, -1 for none."""

    past: int
    """Every row that is older than its input by more than this is refused."""
    ahead: int
    """A row is odd if it is ahead of all inputs by more than this."""
    behind: int
    """A row is odd if it is behind its input by more than this."""
    widens: bool
    """Whether gaps and delays that were believed are odd no more: not where the setting has a limit."""

    @classmethod
    def of(cls, plan: Plan) -> Limits:
        """Return the limits of a plan."""
        guard, setting = plan.guard, plan.setting
        windows = [2 * ticks for ticks in setting.windows if ticks < LIMIT]
        own_ahead, own_behind = (
            max(nanos // setting.nanos_per_tick, *windows, 0) for nanos in (_AHEAD_NANOS, _BEHIND_NANOS)
        )
        given = [
            _NONE if limit == "none" else None if limit is None else min(setting.ticks(limit), LIMIT)
            for limit in (guard.past, guard.future)
        ]
        past, future = given
        return cls(
            past=_NONE if past is None else past,
            ahead=min(own_ahead, LIMIT) if future is None else future,
            behind=min(own_behind, LIMIT) if past is None else _NONE,
            widens=future is None,
        )


class Judged(NamedTuple):
    """What the guard says of the first rows of a chunk; the others have to wait for rows after them."""

    verdict: Int8s
    progress: Int64s
    """Largest time believed of the row's input so far."""
    frontier: Int64s
    """The smallest of these over all inputs."""


class Guard:
    """Judges event times one after the other; knows how far each input has come.

    Args:
        plan: what the operator does.
        inputs: how many there are.
        snapshot: what ``snapshot`` returned, or None.
    """

    def __init__(self, plan: Plan, inputs: int, snapshot: Snapshot | None = None) -> None:
        self.limits = Limits.of(plan)
        self._limits = np.array(self.limits, np.int64)
        self._nanos = plan.setting.nanos_per_tick
        progress, jumped, self._elsewhere = np.full((3, inputs), NEVER, np.int64)
        self._state = kernel.GuardState(progress, jumped, np.zeros(inputs, np.int64), np.zeros(3, np.int64))
        for name, array in self._arrays().items():
            if snapshot and name in snapshot:
                array[:] = snapshot[name]

    @property
    def progress(self) -> Int64s:
        """Largest time believed of each input, or NEVER."""
        progress: Int64s = self._state.progress
        return progress

    def doubts(self, ts: Int64s) -> bool:
        """Whether any of these times may be odd."""
        ahead, behind = self.limits.ahead, self.limits.behind
        if not ts.size or max(ahead, behind) < 0:
            return False
        newest, first, last = int(self.progress.max()), int(ts.min()), int(ts.max())
        if newest == NEVER or last - newest > ahead >= 0:
            return True
        return max(newest, last) - first > behind >= 0

    def now(self, n: int) -> Int64s:
        """Return the time of day, in ticks, for so many rows."""
        return np.full(n, min(now_nanos() // self._nanos, LIMIT), np.int64)

    def judge(
        self,
        inputs: Int8s,
        ts: Int64s,
        known: Bools,
        clock: Int64s | None,
        foresees: bool = False,
        ended: bool = True,
    ) -> Judged:
        """Judge rows in order of arrival.

        Args:
            inputs: the input of each.
            ts: its event time.
            known: whether it has one.
            clock: the time of day when it arrived, NEVER if nobody knows; may be empty. None if no time can be
                odd (``doubts``).
            foresees: whether rows may have to wait for others.
            ended: whether there are none after these.
        """
        n = ts.size
        verdict, progress, frontier = np.zeros(n, np.int8), np.zeros(n, np.int64), np.zeros(n, np.int64)
        if clock is None:
            kernel.follow(inputs, ts, known, self.limits.past, self._state, verdict, progress, frontier)
            return Judged(verdict, progress, frontier)
        done = kernel.track(
            inputs, ts, known, clock, self._limits, foresees, ended or not foresees, self._state, verdict,
            progress, frontier,
        )  # fmt: skip
        return Judged(verdict[:done], progress[:done], frontier[:done])

    def advance(self, progress: Int64s) -> Int64s:
        """Follow rows of other shards; return how far each input has come, NEVER where there is nothing new.

        A time that is ahead of all inputs by more than the limit counts if the clock or the one told before
        agrees with it.
        """
        ahead, now = self.limits.ahead, int(self.now(1)[0])
        moved = np.full(progress.size, NEVER, np.int64)
        newest = int(self.progress.max())
        for i, t in enumerate(progress.tolist()):
            if t == NEVER:
                continue
            odd = ahead >= 0 and newest != NEVER and t - newest > ahead and abs(t - now) > ahead
            before, self._elsewhere[i] = int(self._elsewhere[i]), t if odd else NEVER
            if not odd or (before != NEVER and abs(t - before) <= ahead):
                self.progress[i] = moved[i] = max(t, int(self.progress[i]))
        return moved

    def snapshot(self) -> Snapshot:
        return {name: array.copy() for name, array in self._arrays().items()}

    def _arrays(self) -> dict[str, Int64s]:
        state = self._state
        return {
            "progress": state.progress,
            "jumped": state.jumped,
            "jumped_elsewhere": self._elsewhere,
            "runs": state.runs,
            "believed": state.seen,
        }
