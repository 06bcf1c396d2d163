"""The slack that results need, learnt from the results themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import Field, model_validator

from slackwater.plugins.contract import DisorderStrategy, Setting, Snapshot
from slackwater.plugins.registry.options import Duration

if TYPE_CHECKING:
    from slackwater.plugins.disorder.result_slack.logic import ResultSlackLogic


class ResultSlack(DisorderStrategy):
    """Hold rows just long enough that nearly every period has the recall you ask for.

    With the same slack K on every input, a result is produced iff its last member arrives while the slowest
    input, less K, has not passed the result's timestamp. So each result has a slack of its own that it needs,
    and the recall of a period is the share of its results that need at most K. Arrivals are looked up once, in
    arrival order, against tuples kept for ``horizon`` past their windows; no model of delays, rates or
    selectivities is needed, and any condition and any number of inputs works. K is the smallest that would have
    given nearly all of the recent periods their recall. Results count once the frontier has moved so far past
    them that no more of the kind are to be expected: the newest ones look better than they are. Until a first
    period is complete, K only grows, with what the results so far needed.

    A period counts as met at 0.99 of the recall, the measure by which QDDH judges itself, Φ(.99Γ); one in forty
    may be missed. Where the last per cent matters, ask for that much more.

    Where rows are shed for lack of memory, what shedding costs is taken from the results that may be missed.

    Memory is bounded by ``memory`` tuples per input, the cost of an interval by sampling.
    """

    name: ClassVar[str] = "result_slack"
    shares: ClassVar[bool] = True
    has_target: ClassVar[bool] = True
    needs_feedback: ClassVar[bool] = False
    may_change: ClassVar[tuple[str, ...]] = ("recall",)
    recall: float = Field(gt=0, le=1)
    """share of the true results to be produced in every period"""
    period: Duration = Field(default=Duration.parse("1m"), gt=0)
    """stream time over which the recall is measured"""
    interval: Duration = Field(default=Duration.parse("1s"), gt=0)
    """stream time between two adaptations"""
    granularity: Duration = Field(default=Duration.parse("10ms"), gt=0)
    """step in which slacks are told apart"""
    horizon: Duration | None = Field(default=None, gt=0)
    """largest slack that can be learnt; default: the period"""
    memory: int = Field(default=200_000, gt=0)
    """tuples of each input kept to learn from, at most"""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.period < self.interval:
            raise ValueError(f"period must be at least as long as interval ({self.interval}), got {self.period}")
        return self

    @property
    def longest_wait(self) -> Duration:
        return self.horizon or self.period

    @property
    def learns_from_results(self) -> bool:
        return True

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> ResultSlackLogic:
        from slackwater.plugins.disorder.result_slack.logic import ResultSlackLogic

        return ResultSlackLogic(self, setting, snapshot)
