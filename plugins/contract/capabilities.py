"""What joins may have besides ``contract.JoinLogic``: to make use of punctuations, to keep to a memory limit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol, runtime_checkable

from slackwater.plugins.contract import Bools, Float64s, Int8s, Int64s, JoinLogic, Matches, Punctuations, Released

REMEMBERED: Final = 1 << 20
"""Punctuated values that tuples are held to. Of more, the oldest are forgotten: what contradicts them joins."""


@runtime_checkable
class PunctuatedJoinLogic(JoinLogic, Protocol):
    """A join that makes use of punctuations; others are given the tuples only."""

    def punctuated_step(self, released: Released, punctuations: Punctuations) -> Iterable[Matches]:
        """As ``step``, with punctuations between the tuples; with no tuples there may be a run of none."""

    def held_cells(self) -> tuple[Int8s, Int64s]:
        """Input and cells of every value that is remembered, so that texts among them are kept."""


@runtime_checkable
class JudgingJoinLogic(PunctuatedJoinLogic, Protocol):
    """A join that finds tuples which contradict punctuations by itself, as it looks their values up anyway."""

    @property
    def judges(self) -> Bools:
        """Of each of ``Setting.patterns``, whether the join remembers ``REMEMBERED`` values that were punctuated
        and tells in ``Matches.contradicts`` which tuples come nevertheless. It may be given such tuples then."""


class Keep(NamedTuple):
    """How much a join may hold, and what is worth how much."""

    scores: Float64s
    """Of each released tuple: higher means keep."""
    held: Float64s | None
    """New scores of the tuples that ``held`` has just returned; None where the old ones stay."""
    limit: Int64s
    """``[released, 1]``: how many tuples may be held once each has been processed; or ``[released, inputs]``: of
    each input. Without released tuples it has one row, how many may be held now."""
    live: Int64s
    """To be written: how many tuples were held once each had been processed."""


@runtime_checkable
class LimitedJoinLogic(JoinLogic, Protocol):
    """A join that keeps to a memory limit by itself, tuple by tuple; others are cut short between steps."""

    def limited_step(self, released: Released, keep: Keep) -> Iterable[Matches]:
        """As ``step``; after each tuple, the lowest scores leave until no more are held than may be.

        The newcomer is one of them. Of equal scores, the older leaves first.
        """

    def fit(self, tuples: int, heaps: int) -> None:
        """Be told that no more than so many tuples will be held until told otherwise, ranked all together or each
        input apart (``heaps`` is 1, or the number of inputs): arrays need not be larger."""

    def bytes_for(self, tuples: int, heaps: int) -> int:
        """Bytes that so many tuples take at most, once told that there will be no more."""

    def lifetimes(self) -> Int64s:
        """Of the tuples that ``held`` has just returned, in how many rows of their input each leaves, in a join
        whose windows are of rows."""
