"""Two streams on one time line: what was given is checked and put in terms of ranks.

The *rank* of a time is its place among the distinct arrival times of both streams. The flow network needs the
order of arrivals and nothing else of time (SAJ 6.1.1), so whole numbers and fractions do alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slackwater.plugins.contract import Int64s
from slackwater.transforms.errors import SlackwaterError

Window = float | Mapping[float, float] | NDArray[Any] | None
"""A length; lengths by the time from which on they hold; one for each arrival; or None: tuples never expire."""
Memory = int | Mapping[float, int]
"""A number of tuples; or numbers by the time from which on they hold."""
STREAMS = ("R", "S")


@dataclass(frozen=True)
class Side:
    """The arrivals of one stream, in the order given."""

    rank: Int64s
    last: Int64s
    """Rank of the last time at which the tuple is still in the window; never before its arrival."""

    @property
    def first_in_first_out(self) -> bool:
        """Whether no tuple leaves the window before one that arrived earlier."""
        order = np.lexsort((self.last, self.rank))
        rank, last = self.rank[order], self.last[order]
        tied = (np.diff(rank) == 0) & (np.diff(last) != 0)
        return not tied.any() and bool((np.diff(last) >= 0).all())


@dataclass(frozen=True)
class Timeline:
    """The distinct arrival times, ascending, and both streams on them."""

    times: NDArray[Any]
    sides: tuple[Side, Side]

    @classmethod
    def of(
        cls, arrivals: tuple[ArrayLike, ArrayLike], window: Window | tuple[Window, Window], closed: str
    ) -> Timeline:
        """Rank all times and find when each tuple expires.

        The window in force when a tuple arrives is its lifetime, as in the example of SAJ 6.1.1.
        """
        if closed not in ("both", "right"):
            raise SlackwaterError(f"closed: must be 'both' or 'right', got {closed!r}")
        at = [_numbers(f"{name}: arrival times", values) for name, values in zip(STREAMS, arrivals, strict=True)]
        times = np.unique(np.concatenate(at))
        windows = _pair(window)
        sides = [
            Side(np.searchsorted(times, own), _last_ranks(times, own, lifetime, closed, name))
            for name, own, lifetime in zip(STREAMS, at, windows, strict=True)
        ]
        return cls(times, (sides[0], sides[1]))

    def capacities(self, memory: Memory, place: str = "memory") -> Int64s:
        """Return the tuples that memory holds from each time to the next, the least where it changes between."""
        if not isinstance(memory, Mapping):
            return np.full(len(self.times), _tuples(place, memory))
        sizes = {at: _tuples(place, size) for at, size in memory.items()}
        held = _in_force(place, sizes, self.times)
        steps = np.array(sorted(sizes))
        before = np.searchsorted(self.times, steps, side="right") - 1
        inside = before >= 0
        np.minimum.at(held, before[inside], np.array([sizes[at] for at in sorted(sizes)])[inside])
        return held

    def shares(self, memory: Memory | tuple[Memory, Memory], allocation: str) -> list[Int64s]:
        """Return the capacities of each stream where allocation is ``fixed``, else those of both together."""
        if allocation not in ("fixed", "variable"):
            raise SlackwaterError(f"allocation: must be 'fixed' or 'variable', got {allocation!r}")
        if isinstance(memory, tuple):
            if allocation == "variable" or len(memory) != 2:
                raise SlackwaterError(
                    "memory: two shares, of R and of S, are for fixed allocation; give one number for variable"
                )
            return [self.capacities(own, f"memory of {name}") for name, own in zip(STREAMS, memory, strict=True)]
        held = self.capacities(memory)
        if allocation == "variable":
            return [held]
        sizes = memory.values() if isinstance(memory, Mapping) else [memory]
        if odd := [size for size in sizes if size % 2]:
            raise SlackwaterError(
                f"memory: {odd[0]} cannot be split evenly; give a pair, the shares of R and of S"
            )
        return [held // 2, held // 2]


def _pair(window: Window | tuple[Window, Window]) -> tuple[Window, Window]:
    if not isinstance(window, tuple):
        return window, window
    if len(window) != 2:
        raise SlackwaterError(f"window: must be one, or a pair for R and S, got {len(window)}")
    return window


def _numbers(place: str, values: ArrayLike) -> NDArray[Any]:
    found = np.asarray(values)
    found = found.astype(np.int64) if not found.size else found
    if found.ndim != 1 or found.dtype.kind not in "iuf" or not np.isfinite(found).all():
        raise SlackwaterError(f"{place} must be finite numbers, one for each tuple")
    return found.astype(np.float64 if found.dtype.kind == "f" else np.int64)


def _tuples(place: str, size: int) -> int:
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 0:
        raise SlackwaterError(f"{place}: must be a whole number of tuples, 0 or more, got {size!r}")
    return int(size)


def _in_force(place: str, steps: Mapping[float, Any], times: NDArray[Any]) -> NDArray[Any]:
    """Return the value that holds at each of the times."""
    starts = np.array(sorted(steps))
    step = np.searchsorted(starts, times, side="right") - 1
    if len(times) and (not len(starts) or step.min() < 0):
        raise SlackwaterError(f"{place}: no value holds at time {times.min()}; give one from there on")
    return np.array([steps[at] for at in sorted(steps)])[step] if len(times) else np.empty(0, np.int64)


def _last_ranks(times: NDArray[Any], own: NDArray[Any], window: Window, closed: str, name: str) -> Int64s:
    if window is None:
        return np.full(len(own), len(times) - 1)
    place = f"window of {name}"
    if isinstance(window, Mapping):
        lifetime = _in_force(place, window, own)
    elif np.ndim(cast("ArrayLike", window)):
        lifetime = np.asarray(window)
        if lifetime.shape != own.shape:
            raise SlackwaterError(f"{place}: {len(lifetime)} lengths for {len(own)} arrivals; give one for each")
    else:
        lifetime = np.full(len(own), window)
    lifetime = _numbers(place, lifetime)
    if not (lifetime > 0 if closed == "right" else lifetime >= 0).all():
        least = "more than 0 where closed is 'right'" if closed == "right" else "0 or more"
        raise SlackwaterError(f"{place}: must be {least}, got {lifetime.min()}")
    if not len(own):
        return np.empty(0, np.int64)
    start = times[0]
    lifetime = np.minimum(lifetime, times[-1] - start + 1)
    side: Literal["left", "right"] = "left" if closed == "right" else "right"
    last = np.searchsorted(times - start, own - start + lifetime, side=side) - 1
    return np.maximum(last, np.searchsorted(times, own))
