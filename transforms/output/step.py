"""What the runs of one step of a join gave, put together."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from slackwater.plugins.contract import Bools, Evicted, Float64s, Int64s, Matches
from slackwater.transforms.errors import SlackwaterError
from slackwater.transforms.expressions.opcodes import Lost

P = ParamSpec("P")
T = TypeVar("T")


class Joined:
    """Sizes of every tuple of a step, and the tuples that left or should not have come."""

    def __init__(self) -> None:
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
        """Join size and cross size of each tuple."""
        return [np.concatenate(self._join_size), np.concatenate(self._cross_size)]

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


def naming_condition(method: Callable[P, T]) -> Callable[P, T]:
    """Let a method of an operator name the join's condition where a number of it does not fit."""

    @wraps(method)
    def named(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except Lost:
            operator: Any = args[0]
            raise does_not_fit(operator._plan.config.where) from None

    return named
