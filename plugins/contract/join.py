"""Join strategies: how do released tuples become results?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from slackwater.plugins.contract.arrays import (
    Bools,
    Held,
    Int8s,
    Int64s,
    Keep,
    Matches,
    Punctuations,
    Released,
)
from slackwater.plugins.contract.logic import Logic, declared, derived
from slackwater.plugins.contract.setting import Setting, Snapshot
from slackwater.plugins.contract.strategy import Strategy

if TYPE_CHECKING:
    from slackwater.plugins.contract.disk import Disk

REMEMBERED: Final = 1 << 20
"""Punctuated values that tuples are held to. Of more, the oldest are forgotten: what contradicts them joins."""


class JoinLogic(Logic):
    """Owns the windows of one shard. It must have ``step``, ``live``, ``held``, ``evict`` and ``snapshot``.

    A logic that overrides ``punctuated_step`` makes use of punctuations, one that overrides ``limited_step``
    keeps to a memory limit tuple by tuple, and one that overrides ``use_disk`` has state larger than memory.
    """

    __slots__ = ()

    reorders: bool = False
    """True where a step's tuples are processed in an order of its own; the operator sorts the results."""

    @declared
    def nbytes(self) -> int:
        """Bytes of the windows and what goes with them, part of the state in summaries."""
        return 0

    def step(self, released: Released) -> Iterable[Matches]:
        """Probe and insert the tuples one after the other; yield runs that cover all of them in order."""
        raise NotImplementedError

    def live(self) -> int:
        """Return how many tuples the windows hold."""
        raise NotImplementedError

    def held(self) -> Held:
        """Return the tuples in the windows, in any order: exactly those that a later result may contain."""
        raise NotImplementedError

    def evict(self, victims: Bools) -> None:
        """Forget the marked ones of the tuples that ``held`` has just returned."""
        raise NotImplementedError

    # Punctuations

    @derived
    def uses_punctuations(self) -> bool:
        """Whether ``punctuated_step`` is overridden."""
        return type(self).punctuated_step is not JoinLogic.punctuated_step

    def punctuated_step(self, released: Released, punctuations: Punctuations) -> Iterable[Matches]:
        """As ``step``, with punctuations between the tuples; with no tuples there may be a run of none."""
        return self.step(released)

    def held_cells(self) -> tuple[Int8s, Int64s]:
        """Return input and cells of every punctuated value remembered, so that texts among them are kept."""
        return np.empty(0, np.int8), np.empty((0, 0), np.int64)

    @declared
    def judges(self) -> Bools | None:
        """Of each of ``Setting.patterns``, whether the join itself finds the tuples that contradict it.

        It then remembers ``REMEMBERED`` punctuated values, and tells in ``Matches.contradicts`` which tuples come
        nevertheless; it may be given such tuples. None: of no pattern.
        """
        return None

    # Memory

    @derived
    def keeps_limit(self) -> bool:
        """Whether ``limited_step`` is overridden; others are cut back between steps, by ``evict``."""
        return type(self).limited_step is not JoinLogic.limited_step

    def limited_step(self, released: Released, keep: Keep) -> Iterable[Matches]:
        """As ``step``; after each tuple, the lowest scores leave until no more are held than may be.

        The newcomer is one of them. Of equal scores, the older leaves first.
        """
        raise NotImplementedError

    def fit(self, tuples: int, heaps: int) -> None:
        """Be told that no more than so many tuples will be held until told otherwise.

        They are ranked all together or each input apart (``heaps`` is 1, or the number of inputs). Arrays need
        not be larger.
        """

    def bytes_for(self, tuples: int, heaps: int) -> int:
        """Return the bytes that so many tuples take at most, once ``fit`` was told that there are no more.

        It is asked only where the strategy says ``knows_bytes``.
        """
        raise NotImplementedError

    def lifetimes(self) -> Int64s:
        """Return for how many more rows of its input each of the tuples that ``held`` has just returned stays.

        It is asked only with ``limited_step``, in a join whose windows are of rows.
        """
        raise NotImplementedError

    # Disk

    @derived
    def uses_disk(self) -> bool:
        """Whether ``use_disk`` is overridden. What is on disk is no part of ``live`` and ``held``."""
        return type(self).use_disk is not JoinLogic.use_disk

    def use_disk(self, disk: Disk) -> None:
        """Take the disk; called once, before the first step."""

    @declared
    def directory(self) -> str | None:
        """Where files may be made, or None for the system's temporary directory."""
        return None

    @declared
    def spilled(self) -> int:
        """Tuples that have been written to disk so far."""
        return 0

    def owes(self) -> bool:
        """Return whether results with times before the present may still come."""
        return False

    def finish(self) -> Iterable[Matches]:
        """The inputs have ended: yield what is owed, in parts that fit into memory, as runs of no tuples."""
        return ()


class JoinStrategy(Strategy):
    """Base of join strategies."""

    stage: ClassVar[str] = "join"

    @property
    def needs_window(self) -> bool:
        """False where a join may have no window; its windows are ``UNBOUNDED`` then."""
        return True

    @property
    def takes_window(self) -> bool:
        """False where a join has no window, so that one that is set is refused."""
        return True

    @property
    def takes_rows(self) -> bool:
        """True where windows may be of rows (``Setting.rows``)."""
        return False

    @property
    def knows_bytes(self) -> bool:
        """True where the logic has ``fit`` and ``bytes_for``, so that memory to shed within may be in bytes."""
        return False

    @property
    def keeps_all(self) -> bool:
        """True where the join has a memory of its own and loses nothing: shedding is refused then."""
        return False

    def check(self, setting: Setting) -> None:
        """Raise ValueError with fault and remedy if this join cannot be served; called before data is read."""

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> JoinLogic:
        """Return the logic for one shard, new or as it was when the snapshot was taken."""
        raise NotImplementedError
