"""Inputs without rows for ``idle_timeout``: others do not wait for them until rows come again (QDDH sec. V)."""

from __future__ import annotations

from collections.abc import Iterable


class Silence:
    """When each member last brought rows, and which are silent.

    The members are heard from first when the first rows come: an input that never spoke is silent after the
    timeout, too.

    Args:
        members: how many there are.
        timeout: ``idle_timeout`` in nanoseconds; None if none ever falls silent.
        heard: when each last brought rows, in nanoseconds; empty if none was asked yet.
        silent: those that are.
    """

    def __init__(
        self, members: int, timeout: int | None, heard: Iterable[int] = (), silent: Iterable[int] = ()
    ) -> None:
        self._members, self._timeout = members, timeout
        self._heard = list(heard)
        self._silent = set(silent)

    @property
    def heard(self) -> list[int]:
        """When each member last brought rows, in nanoseconds; empty before the first rows."""
        return self._heard

    @property
    def members(self) -> list[int]:
        """Those that are silent."""
        return sorted(self._silent)

    def wake(self, speaking: set[int]) -> bool:
        """Take members for silent no more that bring rows; return whether an operator has to be told.

        One with a single input needs not be: rows that it brings wake it.
        """
        if self._members < 2 or not self._silent & speaking:
            return False
        self._silent -= speaking
        return True

    def rest(self, speaking: Iterable[int], nanos: int) -> bool:
        """Look at the clock once rows have been taken; return whether further members are silent.

        Args:
            speaking: members that have brought rows since the last time.
            nanos: the time of day.
        """
        if self._timeout is None:
            return False
        self._heard = self._heard or [nanos] * self._members
        for which in speaking:
            self._heard[which] = nanos
        before, timeout = self._silent, self._timeout
        self._silent = {which for which, heard in enumerate(self._heard) if nanos - heard >= timeout}
        return not self._silent <= before

    def due(self) -> int | None:
        """Return when the next member falls silent unless it brings rows, in nanoseconds; None if none does."""
        heard = [nanos for which, nanos in enumerate(self._heard) if which not in self._silent]
        return None if self._timeout is None or not heard else min(heard) + self._timeout
