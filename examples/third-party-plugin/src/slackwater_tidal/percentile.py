"""K-slack with a percentile of recent delays."""

from typing import ClassVar

import numpy as np
from pydantic import Field

from slackwater.plugins import Arrivals, DisorderLogic, DisorderStrategy, Duration, Feedback, Setting, Snapshot


class PercentileSlack(DisorderStrategy):
    """Hold every row as long as most rows of the last interval were late.

    The slack is a percentile of the delays of the rows that reached the join in the last interval; before
    the first one has ended it is 0. An interval without rows keeps the slack.
    """

    name: ClassVar[str] = "percentile"
    level: float = Field(default=0.95, gt=0, le=1)
    """share of the rows whose delay the slack covers"""
    interval: Duration = Field(default=Duration.parse("10s"), gt=0)
    """stream time after which the slack is chosen anew"""

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> "PercentileLogic":
        return PercentileLogic(self.level, setting.ticks(self.interval), snapshot["slack"] if snapshot else 0)


class PercentileLogic(DisorderLogic):
    """The slack of one shard: a number, replaced at the end of each interval."""

    def __init__(self, level: float, interval: int, slack: int) -> None:
        self.interval: int | None = interval
        self._level = level
        self._slack = slack

    def bounds(self, arrivals: Arrivals) -> np.ndarray:
        return arrivals.progress - self._slack

    def adapt(self, feedback: Feedback) -> None:
        if feedback.delay.size:
            self._slack = int(np.quantile(feedback.delay, self._level, method="higher"))

    def snapshot(self) -> Snapshot:
        return {"slack": self._slack}
