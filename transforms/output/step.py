"""What the runs of one step of a join gave, put together."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from slackwater.plugins.contract import Bools, Evicted, Float64s, Int8s, Int64s, Matches, Released
from slackwater.transforms.errors import SlackwaterError


class Outcome(NamedTuple):
    """What became of rows that have reached the join: of the tuples among them, and of the others."""

    tuples: Released
    """All but those that contradict a punctuation."""
    delay: Int64s
    gone: Float64s
    """Of the late ones, the share of their partners that had been joined before."""
    sizes: list[Any]
    """Join size and cross size of each; where shedding may cost results, also how many of them."""
    marked: Int8s | None = None
    """The input by which each punctuation came; None where there are no promises."""
    violating: Released | None = None
    """Tuples that contradict a punctuation."""


class Joined:
    """Sizes of every tuple of a step, and the tuples that left or should not have come."""

    def __init__(self) -> None:
        self.lost: Float64s | None = None
        """Results that each tuple missed because of shedding, where that is counted."""
        self._join_size: list[Int64s] = [np.empty(0, np.int64)]
        self._cross_size: list[Float64s] = [np.empty(0)]
        self._contradicts: list[Int64s] = [np.empty(0, np.int64)]
        self.evicted: list[Evicted] = []

    def add(self, matches: Matches) -> None:
        """Take one run more."""
        self._join_size.append(matches.join_size)
        self._cross_size.append(matches.cross_size)
        if matches.contradicts is not None:
            self._contradicts.append(matches.start + np.flatnonzero(matches.contradicts))
        if matches.evicted is not None:
            self.evicted.append(matches.evicted)

    @property
    def sizes(self) -> list[Any]:
        """Join size and cross size of each tuple, and what it lost if that is known."""
        lost = [] if self.lost is None else [self.lost]
        return [np.concatenate(self._join_size), np.concatenate(self._cross_size), *lost]

    @property
    def contradicts(self) -> Int64s:
        """The tuples that contradict punctuations, as the join has found."""
        return np.concatenate(self._contradicts)


def spread(size: Any, joins: Bools) -> Any:
    """Return sizes of tuples that were joined as sizes of all, 0 for the others."""
    sizes = np.zeros(joins.size, size.dtype)
    sizes[joins] = size
    return sizes


def does_not_fit(condition: str | None) -> SlackwaterError:
    """Return the error of a condition whose verdict depends on a number that does not fit."""
    return SlackwaterError(
        f"where: {condition} computes a whole number that does not fit into 64 bits; keep the numbers smaller, "
        "or divide them"
    )
