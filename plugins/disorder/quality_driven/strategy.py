"""K-slack with the smallest K that a model of the recall says is enough (QDDH)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import field_validator, model_validator

from slackwater.plugins.contract import DisorderStrategy, Setting, Snapshot
from slackwater.plugins.registry.options import Duration

if TYPE_CHECKING:
    from slackwater.plugins.disorder.quality_driven.logic import QualityDrivenLogic


class QualityDriven(DisorderStrategy):
    """Hold rows as briefly as the recall you state allows, by a model of delays, windows and productivity.

    QDDH sec. III and IV, complete. Every ``interval`` of stream time one K for all inputs (the Same-K policy)
    is chosen: the smallest multiple of ``granularity``, up to the largest delay of the recent past, at which
    the model expects the recall that the next interval needs so that the last ``period`` as a whole meets
    ``recall``. The model is fed by the delays of each input, how far it leads the slowest, and what the tuples
    of each delay gave. Until the first interval ends K is 0. An interval without true results teaches nothing:
    K stays. Memory is bounded by the different delays (in steps of ``granularity``) of the recent past.

    ``surplus: spend`` is the paper to the letter: an interval may aim at anything from 0 to 1. Low aims leave
    the period in need of full recall as soon as its good intervals pass out of it, and full recall means the
    largest delay: K swings between nothing and everything, with the length of the period, and a rise in
    selectivity finds it low. ``keep``, the default, never aims below ``recall``; on the paper's synthetic
    streams it missed 0.99 of the recall in fewer periods, with smaller slacks.

    Where rows are shed for lack of memory, what shedding costs is taken from the results that may be missed.
    """

    name: ClassVar[str] = "quality_driven"
    shares: ClassVar[bool] = True
    has_target: ClassVar[bool] = True
    may_change: ClassVar[tuple[str, ...]] = ("recall",)
    recall: float
    """share of the true results to produce in every period, above 0 and up to 1 (Γ)"""
    period: Duration = Duration.parse("1m")
    """event time over which the recall is to hold (P)"""
    interval: Duration = Duration.parse("1s")
    """event time between two adaptations of the slack (L)"""
    granularity: Duration = Duration.parse("10ms")
    """step of slacks and delays (g)"""
    basic_window: Duration = Duration.parse("10ms")
    """length of the parts of a window whose completeness is estimated one by one (b)"""
    selectivity: Literal["eq", "noneq"] = "noneq"
    """noneq: learn how productive the rows of each delay are; eq: take them to be alike"""
    surplus: Literal["keep", "spend"] = "keep"
    """what to do when the period so far is above the recall: keep aiming at the recall, or aim below it"""

    @field_validator("recall")
    @classmethod
    def _is_a_share(cls, value: float) -> float:
        if not 0 < value <= 1:
            raise ValueError(f"must be above 0 and at most 1, got {value:g}")
        return value

    @field_validator("period", "interval", "granularity", "basic_window")
    @classmethod
    def _is_some_time(cls, value: Duration) -> Duration:
        if value <= 0:
            raise ValueError(f"must be longer than 0, got {value}")
        return value

    @model_validator(mode="after")
    def _period_has_room_for_an_interval(self) -> Self:
        if self.period < self.interval:
            raise ValueError(f"period must be at least the interval, {self.interval}, got {self.period}")
        return self

    @property
    def models_windows(self) -> bool:
        return True

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> QualityDrivenLogic:
        from slackwater.plugins.disorder.quality_driven.logic import QualityDrivenLogic

        return QualityDrivenLogic(self, setting, snapshot)
