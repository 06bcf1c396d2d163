"""OPT-offline: the most results that any choice of tuples to keep could have given (SAJ 4.1, 6.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slackwater.pipelines.bench.offline.arrivals import Memory, Side, Timeline, Window
from slackwater.pipelines.bench.offline.network import Chains, Meetings, solve
from slackwater.pipelines.bench.offline.pairs import (
    Choice,
    Pairs,
    chosen,
    key_codes,
    pairs_in_window,
    seen,
    weights_of,
)
from slackwater.plugins.contract import Int64s

RESOLUTION = 30
"""Fractional weights are rounded to the largest value at a node, over two to this power."""


@dataclass(frozen=True)
class Optimum:
    """One best schedule; others of the same value may exist."""

    kept: float
    """Number of results produced, or their summed weight; whole where weights are."""
    exact: float
    """The same with unlimited memory."""
    r_until: NDArray[Any]
    s_until: NDArray[Any]
    """Time until which each tuple stays in memory, from its arrival on: when it last produces a result.
    Equal to its arrival where it is never stored."""
    _timeline: Timeline
    _until: tuple[Side, Side]
    _results: Callable[[], Pairs]

    def produced(self) -> Int64s:
        """Return the results produced as rows of two tuple numbers, of R and of S, in ascending order."""
        return self._rows(True)

    def missed(self) -> Int64s:
        """Return the results missed, in the same form."""
        return self._rows(False)

    def stored(self) -> tuple[NDArray[Any], Int64s]:
        """Return all arrival times, and how many tuples of R and of S are in memory from each to the next."""
        changes = np.zeros((len(self._timeline.times) + 1, 2), np.int64)
        for column, side in enumerate(self._until):
            np.add.at(changes[:, column], side.rank, 1)
            np.add.at(changes[:, column], side.last, -1)
        return self._timeline.times, np.cumsum(changes[:-1], axis=0)

    def _rows(self, wanted: bool) -> Int64s:
        pairs = self._results()
        rows = np.stack(pairs, axis=1)[seen(self._until, pairs) == wanted]
        return rows[np.lexsort((rows[:, 1], rows[:, 0]))]


def optimum(
    r_time: ArrayLike,
    s_time: ArrayLike,
    *,
    window: Window | tuple[Window, Window],
    memory: Memory | tuple[Memory, Memory],
    allocation: Literal["fixed", "variable"] = "fixed",
    closed: Literal["both", "right"] = "both",
    keys: tuple[ArrayLike, ArrayLike] | None = None,
    condition: Choice | None = None,
    weight: Choice | None = None,
    count_from: float | None = None,
) -> Optimum:
    """Find a schedule of keeping and dropping tuples that gives the most results, knowing all arrivals.

    The model is SAJ's fast CPU (2.3): a tuple that arrives joins what memory holds of the other stream, and
    everything of the other stream that arrives at the same time, whether or not it is stored itself. Then
    memory is cut to its size; what is dropped never comes back. Results of simultaneous arrivals are hence
    never missed. A join that handles tuples one by one can do no better.

    An equi-join without weights takes a network in proportion to the tuples. A condition, weights, or windows
    that let a later tuple expire first need a node for every tuple and time at which it has partners, so
    time and space in proportion to the results.

    Args:
        r_time: Arrival times of R, in any order; any number of tuples at a time (6.1.1).
        s_time: Arrival times of S.
        window: How long a tuple can have partners: a length, lengths by the time from which on they hold (the
            one in force at a tuple's arrival is the tuple's), an array with one for each tuple, or None for
            ever; a pair for R and S where they differ.
        memory: Tuples that can be stored, as one number, or numbers by the time from which on they hold. What
            memory holds at a time is cut after the arrivals of that time have been joined. With fixed
            allocation also a pair, the shares of R and of S; one number is split evenly.
        allocation: ``fixed``, each stream has its own share, or ``variable``, tuples of both compete.
        closed: ``both`` for windows that hold tuples exactly one window old, ``right`` for SAJ's that do not.
        keys: Join keys of R and of S. Without, every pair in a window is a candidate.
        condition: Which candidates join (6.1.2): a function that is given tuple numbers of R and of S and
            returns true or false for each, or a Boolean matrix [R, S].
        weight: What each result is worth (6.1.3), in the same two forms; 1 by default. Whole numbers are added
            up exactly. Others are rounded to one part in 2**30 of the most that a tuple gains at a time, and
            the schedule is best for the rounded ones. A result of negative worth is produced all the same if
            its members meet.
        count_from: Leave out results that are complete before this time, as SAJ 5.2 does for warm-up.

    Raises:
        SlackwaterError: A setting cannot be used, or OR-tools is not installed.
    """
    timeline = Timeline.of((r_time, s_time), window, closed)
    shares = timeline.shares(memory, allocation)
    codes = key_codes(keys, timeline.sides)
    first = 0 if count_from is None else int(np.searchsorted(timeline.times, count_from))
    plain = condition is None and weight is None
    joined: _ByKey | _ByTuple
    if plain and all(side.first_in_first_out for side in timeline.sides):
        joined = _ByKey(timeline, codes, first)
    else:
        joined = _ByTuple(timeline, codes, first, condition, weight)
    chains = joined.chains
    if allocation == "variable":
        held = solve(chains, shares[0])
    else:
        held = [solve([own], share)[0] for own, share in zip(chains, shares, strict=True)]
    r, s = (
        Side(side.rank, own.until(side, count))
        for side, own, count in zip(timeline.sides, chains, held, strict=True)
    )
    return Optimum(
        kept=joined.worth((r, s), held),
        exact=joined.exact,
        r_until=timeline.times[r.last],
        s_until=timeline.times[s.last],
        _timeline=timeline,
        _until=(r, s),
        _results=joined.results,
    )


class _ByKey:
    """An unweighted equi-join: tuples of equal key share a chain, results are only counted."""

    def __init__(self, timeline: Timeline, codes: Pairs, first: int) -> None:
        self._timeline, self._codes, self._first = timeline, codes, first
        ranks = len(timeline.times) or 1
        at = [
            np.unique((code * ranks + side.rank)[side.rank >= first], return_counts=True)
            for code, side in zip(codes, timeline.sides, strict=True)
        ]
        self.chains = [
            Chains.of(side, code, Meetings(*np.divmod(places, ranks), counts))
            for side, code, (places, counts) in zip(timeline.sides, codes, reversed(at), strict=True)
        ]
        _, i, j = np.intersect1d(at[0][0], at[1][0], assume_unique=True, return_indices=True)
        self._simultaneous = int(at[0][1][i] @ at[1][1][j])
        self.exact = self._total([own.alive for own in self.chains])

    def results(self) -> Pairs:
        return chosen(pairs_in_window(self._timeline.sides, self._codes, self._first))

    def worth(self, until: tuple[Side, Side], held: list[Int64s]) -> int:
        return self._total(held)

    def _total(self, held: list[Int64s]) -> int:
        met = sum(int(count @ own.value) for own, count in zip(self.chains, held, strict=True))
        return self._simultaneous + met


class _ByTuple:
    """Any join: every tuple has a chain of its own, and results are listed."""

    def __init__(
        self, timeline: Timeline, codes: Pairs, first: int, condition: Choice | None, weight: Choice | None
    ) -> None:
        r, s = timeline.sides
        shape = (len(r.rank), len(s.rank))
        self._pairs = chosen(pairs_in_window(timeline.sides, codes, first), condition, shape)
        self._weights = weights_of(weight, self._pairs, shape)
        self.exact = self._weights.sum().item()
        i, j = self._pairs
        values = []
        for side, own, other in ((r, i, s.rank[j]), (s, j, r.rank[i])):
            older = side.rank[own] < other
            place, at = np.unique(own[older] * len(timeline.times) + other[older], return_inverse=True)
            value = np.zeros(len(place), self._weights.dtype)
            np.add.at(value, at, self._weights[older])
            values.append((side, *np.divmod(place, len(timeline.times) or 1), value))
        most = max((np.abs(value).max(initial=0) for *_, value in values), default=0)
        self.chains = [
            Chains.of(side, np.arange(len(side.rank)), Meetings(own, rank, _whole(value, most)))
            for side, own, rank, value in values
        ]

    def results(self) -> Pairs:
        return self._pairs

    def worth(self, until: tuple[Side, Side], held: list[Int64s]) -> float:
        worth: float = self._weights[seen(until, self._pairs)].sum().item()
        return worth


def _whole(value: NDArray[Any], most: float) -> Int64s:
    """Return the values as whole numbers: as they are, or fractions scaled so that ``most`` is about 2**30."""
    if value.dtype.kind == "i":
        return value
    return np.rint(np.ldexp(value, RESOLUTION - np.frexp(most)[1])).astype(np.int64)
