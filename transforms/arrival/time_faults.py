"""What is wrong with event times as a whole: units that were mixed up, clocks that went back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import NEVER, Arrivals, Int8s, Int64s, Snapshot
from slackwater.transforms.arrival.guard import YEAR_NANOS
from slackwater.transforms.arrival.jumps import Jumps, limit_below, rounded
from slackwater.transforms.settings.plan import Plan
from slackwater.transforms.settings.time_unit import NANOS
from slackwater.transforms.settings.time_zones import zone_warnings

_EARLIEST, _LATEST = 10**18, 4 * 10**18
"""Nanoseconds from 1970 to 2001 and to 2096: what times of day are taken to lie between."""
_WORDS: Final = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_LONGEST: Final = np.iinfo(np.int64).max


class TimeFaults:
    """Gathers what times look like, and says what is likely to be wrong with them.

    Args:
        plan: what the operator does.
        snapshot: what ``snapshot`` returned, or None.
    """

    def __init__(self, plan: Plan, snapshot: Snapshot | None = None) -> None:
        self._plan = plan
        self._jumps = Jumps(plan, snapshot["jumps"] if snapshot else None)
        self._year = YEAR_NANOS // plan.setting.nanos_per_tick
        m = len(plan.inputs)
        self._least, self._most = np.full(m, _LONGEST, np.int64), np.full(m, NEVER, np.int64)
        """Smallest and largest time of each input, of those that were believed."""
        self._rows, self._old, self._refused, self._delay = np.zeros((4, m), np.int64)
        """Rows of each input, those more than a year behind it, those refused for that, and the largest delay."""
        if snapshot:
            for name, array in self._arrays().items():
                array[:] = snapshot[name]

    def follow(self, arrivals: Arrivals, source: Int8s, of_input: Sequence[Int64s]) -> None:
        """Take rows that were believed."""
        ts, delay = arrivals.ts, arrivals.delay
        if not ts.size:
            return
        some_old = int(delay.max()) >= self._year
        for i, at in enumerate(of_input):
            if at.size:
                of = ts if at.size == ts.size else ts[at]
                self._least[i] = min(self._least[i], of.min())
                self._most[i] = max(self._most[i], of.max())
                self._rows[i] += at.size
                self._jumps.follow(i, of, delay, at)
                if some_old:
                    self._old[i] += np.count_nonzero(delay[at] >= self._year)
                    self._delay[i] = max(self._delay[i], delay[at].max())

    def refuse(self, inputs: Int8s) -> None:
        """Take rows of these inputs that were refused as years too old."""
        self._refused += np.bincount(inputs, minlength=self._refused.size)

    def warnings(self) -> list[str]:
        """Return what the user should know."""
        return [*zone_warnings(self._plan), *self._units(), *self._old_times(), *self._odd_jumps()]

    def snapshot(self) -> Snapshot:
        return {name: array.copy() for name, array in self._arrays().items()} | {"jumps": self._jumps.snapshot()}

    def _arrays(self) -> dict[str, Int64s]:
        return {
            "least": self._least,
            "most": self._most,
            "rows": self._rows,
            "old": self._old,
            "refused": self._refused,
            "delay": self._delay,
        }

    def _looks_like(self, i: int) -> str | None:
        """Return the unit in which all times of an input are times of day, None if there is none."""
        least, most = int(self._least[i]), int(self._most[i])
        for unit, nanos in NANOS.items():
            if least * nanos >= _EARLIEST and most * nanos <= _LATEST:
                return unit
        return None

    def _units(self) -> Iterator[str]:
        """Times that are times of day in another unit than they are read in, or than those of other inputs."""
        plan = self._plan
        looks = {i: self._looks_like(i) for i in range(len(plan.inputs)) if self._rows[i]}
        known = [unit for unit in looks.values() if unit is not None]
        if all(unit == plan.unit for unit in known):
            return
        finest = min(known, key=lambda unit: NANOS[unit])
        for i, unit in looks.items():
            if unit is None or (unit == plan.unit and len(set(known)) == 1):
                continue
            said = f"times of input {plan.inputs[i]!r} look like {_WORDS[unit]}"
            if unit != plan.unit:
                said += f", and are read as {_WORDS[plan.unit]}"
            said += self._remedy(i, unit, finest, len(set(looks.values())) == 1)
            if unit != plan.unit or unit != finest:
                yield said

    def _remedy(self, i: int, unit: str, finest: str, all_alike: bool) -> str:
        """Return what to do about times that look like ``unit``."""
        plan, column = self._plan, self._plan.time_columns[i]
        type_ = plan.schemas[plan.inputs[i]].field(column).type
        if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
            return f"; store column {column!r} anew as timestamps of the right unit"
        if all_alike:
            return f"; set time_unit: {unit}"
        other = "" if finest == plan.unit else f"set time_unit: {finest}"
        if unit == finest:
            return f", unlike those of other inputs; {other or 'store all in one unit'}"
        by = f"use {column} * {NANOS[unit] // NANOS[finest]} instead, by MapToFields"
        return f", unlike those of other inputs; {by}{other and f', and {other}'}"

    def _odd_jumps(self) -> Iterator[str]:
        """Jumps that a limit would have refused; one that refuses all of them."""
        found = self._jumps.distances()
        for i, distance in found.items():
            yield (
                f"time of input {self._plan.inputs[i]!r} jumps ahead by {rounded(distance)}, and most rows after "
                "that are as far behind, so they come too late or slack grows; if the few rows ahead are errors, "
                f"set guard: {{future: {limit_below(min(found.values()))}}} to send them to the late output"
            )

    def _old_times(self) -> Iterator[str]:
        for i, name in enumerate(self._plan.inputs):
            years = self._delay[i] / self._year
            if self._refused[i]:
                yield (
                    f"rows of input {name!r} are more than five years older than the others, and in the late "
                    "output as too_late; if their times are right, set guard: {past: none}"
                )
            if not self._old[i]:
                continue
            if 2 * self._old[i] <= self._rows[i]:
                yield (
                    f"time of input {name!r} goes back {years:.1f} years; if such rows are errors, set guard: "
                    "{past: 1d} to send them to the late output"
                )
            else:
                yield (
                    f"time of input {name!r} goes back {years:.1f} years in most of its rows; if the few ahead "
                    f"are errors, leave them out with Filter, by {self._plan.time_columns[i]}"
                )
