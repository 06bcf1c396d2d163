"""Disorder strategies: up to which event time may an input be released?"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from slackwater.plugins.contract.arrays import Arrivals, Feedback, Int8s, Int64s
from slackwater.plugins.contract.logic import Logic, declared
from slackwater.plugins.contract.setting import Setting, Snapshot
from slackwater.plugins.contract.strategy import Strategy

if TYPE_CHECKING:
    from slackwater.plugins.registry.options import Duration


class DisorderLogic(Logic):
    """Turns arrivals into release bounds. ``bounds`` and ``snapshot`` are all that it must have."""

    __slots__ = ()

    @declared
    def interval(self) -> int | None:
        """Stream time in ticks between calls of ``adapt``, or None for no calls."""
        return None

    @declared
    def needs_cells(self) -> bool:
        """True where ``bounds`` looks at ``Arrivals.cells``, which are not laid out for others."""
        return False

    def bounds(self, arrivals: Arrivals) -> Int64s:
        """Return for each arrival the event time up to which its input is released once it has arrived."""
        raise NotImplementedError

    def bounds_at(self, progress: Int64s) -> Int64s | None:
        """Return the bound of each input once rows of other shards have brought it so far.

        Without arrivals here, the largest event time of an input may still grow. NEVER in ``progress`` is an
        input of which there is nothing new; its bound is ignored. None keeps every bound as far behind progress
        as at the last arrival of its input, or where it is if the strategy goes by watermarks.
        """
        return None

    def slacks(self, arrivals: Arrivals) -> Int64s | None:
        """Return the slack that each arrival met, for metrics; None takes it from the bounds.

        It is asked after ``bounds``, for the same arrivals.
        """
        return None

    def adapt(self, feedback: Feedback) -> None:
        """Learn from the interval that ended; what changes takes effect at the next arrival."""

    def report(self) -> dict[str, float]:
        """Return what the strategy knows, for metrics.

        ``slack`` is in ticks; ``required_recall`` is what it aims at, ``recall`` what it expects, and ``true``
        how many results there were in the interval. What it leaves out is measured by the operator, if it can be.
        """
        return {}

    def held_cells(self) -> tuple[Int8s, Int64s]:
        """Return input and cells of every tuple that is remembered, so that texts among them are kept."""
        return np.empty(0, np.int8), np.empty((0, 0), np.int64)


class Clock(Protocol):
    """Tells the time at which rows arrived."""

    def ticks(self, clock: Int64s) -> Int64s:
        """Return the time of each arrival in ticks, rounded down, given ``Arrivals.clock``."""


class DisorderStrategy(Strategy):
    """Base of disorder strategies."""

    stage: ClassVar[str] = "disorder"
    may_change: ClassVar[tuple[str, ...]] = ()
    """Options that may have other values when a logic is built from a snapshot: live queries may change them."""
    shares: ClassVar[bool] = False
    """Whether bounds may be learnt from a sample of all rows: all shards of a live join then follow the same."""
    needs_feedback: ClassVar[bool] = True
    """False if ``adapt`` reads only ``Feedback.shed_size``; a scout then skips joining, its main cost."""

    has_target: ClassVar[bool] = False
    """Whether slack follows the data, by a recall or a share of late rows that the user states."""

    @property
    def reads_clock(self) -> bool:
        """True where ``Arrivals.clock`` must be times: a join without an arrival column is refused then."""
        return False

    @property
    def learns_from_results(self) -> bool:
        """True where arrivals are looked up among those of other inputs: one input is refused then."""
        return False

    @property
    def models_windows(self) -> bool:
        """True where windows of time are reckoned with: a join with windows of rows is refused then."""
        return self.learns_from_results

    @property
    def watermark_columns(self) -> str | dict[str, str] | None:
        """Columns to be handed over as ``Arrivals.watermark``: one name for all inputs, or {input: column}."""
        return None

    @property
    def stated_recall(self) -> float | None:
        """The recall that the user states, by which metrics and summary judge a run: the option ``recall``."""
        recall: float | None = self._stated("recall")
        return recall

    @property
    def stated_period(self) -> Duration | None:
        """The event time over which that recall is to hold: the option ``period``."""
        period: Duration | None = self._stated("period")
        return period

    @property
    def stated_interval(self) -> Duration | None:
        """Event time between two adaptations, for which a scout takes its sample: the option ``interval``."""
        interval: Duration | None = self._stated("interval")
        return interval

    @property
    def longest_wait(self) -> Duration | None:
        """The longest that a row is ever held, which the summary names as a cap on the recall."""
        return None

    @property
    def stated_late_share(self) -> float | None:
        """The share of rows that may come too late, as the user states it, by which the summary judges a run."""
        return None

    @property
    def stated_buffer(self) -> int | None:
        """Rows that an input may hold, which the summary names as a cap: the option ``buffer_limit``."""
        rows: int | None = self._stated("buffer_limit")
        return rows

    @property
    def clock_nanos(self) -> int | None:
        """Nanoseconds in a unit of the arrival column, if they are not those of a unit of event time."""
        return None

    def system_clock(self, setting: Setting) -> Clock | None:
        """Return what tells times of arrival, of which a scout's sample has the extremes; None if unused."""
        return None

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> DisorderLogic:
        """Return the logic for one shard, new or as it was when the snapshot was taken."""
        raise NotImplementedError
