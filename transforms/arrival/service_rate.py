"""How many rows per second a join serves: what the setting says, or what was measured while it was busy."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from slackwater.plugins.shedding.queue_options import Queue

_HALF_LIFE: Final = 5.0
"""Seconds of work after which a measurement counts half."""
_HEADROOM: Final = 0.8
"""Share of the measured speed that is counted on. An engine needs time between batches; if the join took all of
the rest, every batch would be longer than the one before."""


class ServiceRate:
    """The speed of one join.

    Args:
        options: of its queue.
        nanos: a tick of the clock by which rows come, in nanoseconds.
        measured: what ``snapshot`` returned, or nothing.
    """

    def __init__(self, options: Queue, nanos: int, measured: Sequence[float] = (0.0, 0.0)) -> None:
        self._given, self._nanos = options.service_rate, nanos
        self._work, self._worked = measured
        self._served = 0
        self._cold = True

    @property
    def rate(self) -> float | None:
        """Rows per second that are served; None as long as nobody knows, which is for ever in a replay."""
        if self._given is not None:
            return self._given
        return _HEADROOM * self._work / self._worked if self._work else None

    def parts(self) -> tuple[int, int]:
        """Return the parts of work that are done per tick of the clock, and those that a row takes, as whole
        numbers: time is counted exactly, so a given rate makes the same choices everywhere."""
        rate = self.rate or 1.0
        exact = Fraction(max(1, round(rate))) if self._given is None else Fraction(rate).limit_denominator(100)
        return exact.numerator, exact.denominator * (10**9 // self._nanos)

    def serve(self, rows: int) -> None:
        """Take note of rows that were served."""
        self._served += rows

    def measure(self, seconds: float) -> None:
        """Note how long an engine was busy with what has been served since the last call.

        The first time does not count: whatever is compiled or loaded then is not again.
        """
        if not self._cold and self._served and seconds > 0:
            fade = 0.5 ** (seconds / _HALF_LIFE)
            self._work, self._worked = self._work * fade + self._served, self._worked * fade + seconds
        self._cold, self._served = False, 0

    def snapshot(self) -> list[float]:
        return [self._work, self._worked]
