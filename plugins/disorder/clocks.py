"""System times, when rows arrived in the unit of the event times, and punctuations that never go back."""

from typing import Final, Literal

import numpy as np

from slackwater.plugins.clock import now_nanos
from slackwater.plugins.contract import DisorderStrategy, Int8s, Int64s, Setting

_NANOS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_FARTHEST: Final = 1 << 61


class ClockedStrategy(DisorderStrategy):
    """Base of the strategies that compare event times with times of arrival."""

    clock: Literal["arrival", "wall"] = "arrival"
    """where times of arrival come from: the arrival column, or the wall clock, which differs in every run"""
    arrival_unit: Literal["s", "ms", "us", "ns"] | None = None
    """unit of an arrival column of integers; default: the unit of the event times"""

    @property
    def reads_clock(self) -> bool:
        return self.clock == "arrival"

    @property
    def clock_nanos(self) -> int | None:
        return None if self.arrival_unit is None else _NANOS[self.arrival_unit]

    def system_clock(self, setting: Setting) -> "SystemClock":
        unit = setting.arrival_nanos or self.clock_nanos or setting.nanos_per_tick
        return SystemClock(None if self.clock == "wall" else unit, setting.nanos_per_tick)


class SystemClock:
    """Tells when rows arrived. With ``unit`` None that is now, the same for all rows of a chunk."""

    def __init__(self, unit: int | None, nanos_per_tick: int) -> None:
        self._unit = unit
        self._nanos_per_tick = nanos_per_tick

    def ticks(self, clock: Int64s) -> Int64s:
        """Return the time of each arrival in ticks, rounded down, given ``Arrivals.clock``."""
        if self._unit is None:
            return np.full(clock.size, now_nanos() // self._nanos_per_tick, np.int64)
        ticks = clock
        if self._unit < self._nanos_per_tick:
            ticks = ticks // (self._nanos_per_tick // self._unit)
        elif self._unit > self._nanos_per_tick:
            scale = self._unit // self._nanos_per_tick
            ticks = np.clip(ticks, -_FARTHEST // scale, _FARTHEST // scale) * scale
        return np.clip(ticks, -_FARTHEST, _FARTHEST)


def running_max(inputs: Int8s, values: Int64s, largest: Int64s) -> Int64s:
    """For each arrival, the largest value of its input so far; ``largest`` keeps it between calls."""
    out = np.empty(values.size, np.int64)
    for i in range(largest.size):
        at = np.flatnonzero(inputs == i)
        if at.size:
            out[at] = np.maximum(np.maximum.accumulate(values[at]), largest[i])
            largest[i] = out[at[-1]]
    return out
