"""Punctuations from an estimate of the latencies, for a share of rows that may come too late."""

from typing import Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from slackwater.plugins.contract import DisorderLogic, Setting, Snapshot
from slackwater.plugins.disorder.clocks import ClockedStrategy
from slackwater.plugins.disorder.none import ConstantSlackLogic
from slackwater.plugins.registry.options import Duration


class DropRatio(ClockedStrategy):
    """Hold every row as long as it takes to have at most a share ``drop_ratio`` of the rows come too late.

    Adaptive disorder control (ADC sec. 4 and 5), for each input on its own. The latest rows are kept in a list,
    VSeq: θ is their mean distance in times of arrival (5.4), µ and σ are mean and standard deviation of their
    latencies. If intervals are exponential and latencies normal, the next row is older than the n-th latest
    with the wanted probability for n = (c + √(c² + 8cσ²/θ²)) / 2, rounded down, c being the square of its
    z-value (5.6, 5.7); so τ = t - µ - n·θ is the punctuation at time t of an arrival (5.8). Everything up to τ
    is released; a row that comes with an event time at or before it is too late. Punctuations never go back.

    The list then holds the n latest rows. Here it has at least 30 and at most 4,096, and no more than doubles
    at a time; while it fills, the punctuation stands, and nothing is released before the first 30 rows. A slow
    row is forgotten once it has left the list. A ratio of 0.5 or more waits for the mean latency only.

    ``buffer_limit`` (BSIZE) has priority: when an input holds more rows than that, its punctuation moves up to
    the oldest of them. Rows that wait for another input are not counted. ``slack`` in place of ``drop_ratio``
    is the strategy ``fixed``, with that limit.

    Times of arrival are read from the ``arrival`` column, in the unit of the event times unless ``arrival_unit``
    says otherwise; a constant difference of the clocks does no harm. ``clock: wall`` takes the time at which
    the join runs instead: for live inputs, and never twice the same.
    """

    name: ClassVar[str] = "drop_ratio"
    has_target: ClassVar[bool] = True
    drop_ratio: float | None = Field(default=None, gt=0, lt=1)
    """share of the rows that may come too late, between 0 and 1"""
    slack: Duration | None = Field(default=None, ge=0)
    """how long to hold each row, in event time, in place of drop_ratio"""
    buffer_limit: int | None = Field(default=None, ge=1)
    """rows that an input may hold; default: no limit"""

    @field_validator("drop_ratio", mode="before")
    @classmethod
    def _share(cls, value: Any) -> Any:
        if value is not None and not (isinstance(value, int | float) and 0 < value < 1):
            raise ValueError(f"must be a share between 0 and 1, such as 0.01, got {value!r}")
        return value

    @field_validator("buffer_limit", mode="before")
    @classmethod
    def _rows(cls, value: Any) -> Any:
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ValueError(f"must be a whole number of rows, at least 1, got {value!r}")
        return value

    @model_validator(mode="after")
    def _one_criterion(self) -> Self:
        if (self.drop_ratio is None) == (self.slack is None):
            got = "neither" if self.slack is None else "both"
            raise ValueError(f"must have one of the options drop_ratio and slack, got {got}")
        return self

    @property
    def shares(self) -> bool:  # type: ignore[override]
        """Not with a limit, which is each shard's own."""
        return self.drop_ratio is not None and self.buffer_limit is None

    @property
    def stated_late_share(self) -> float | None:
        return self.drop_ratio

    @property
    def reads_clock(self) -> bool:
        return self.drop_ratio is not None and super().reads_clock

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> DisorderLogic:
        from slackwater.plugins.disorder.drop_ratio.logic import DropRatioLogic, LimitedLogic

        inputs = len(setting.inputs)
        inner: DisorderLogic
        if self.drop_ratio is not None:
            saved = snapshot if snapshot is None or self.buffer_limit is None else snapshot["inner"]
            inner = DropRatioLogic(self.system_clock(setting), self.drop_ratio, inputs, saved)
        else:
            inner = ConstantSlackLogic(setting.ticks(self.slack or Duration(0)))
        return inner if self.buffer_limit is None else LimitedLogic(inner, self.buffer_limit, inputs, snapshot)
