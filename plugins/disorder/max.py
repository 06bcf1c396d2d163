"""K-slack with the largest delay seen."""

from typing import ClassVar

import numpy as np

from slackwater.plugins.contract import (
    Arrivals,
    DisorderLogic,
    DisorderStrategy,
    Int64s,
    Setting,
    Snapshot,
)


class MaxSlack(DisorderStrategy):
    """Hold every row for the largest delay seen so far on any input.

    The Max-K-slack baseline of QDDH (sec. VI): almost complete, and as slow as the worst row ever seen. K
    never shrinks: a single row that is years late makes it hold years of rows (see ``guard.past``).
    """

    name: ClassVar[str] = "max"
    shares: ClassVar[bool] = True

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> "MaxSlackLogic":
        return MaxSlackLogic(int(snapshot["slack"]) if snapshot else 0)


class MaxSlackLogic(DisorderLogic):
    """K-slack whose K is the running maximum of the delays."""

    def __init__(self, slack: int) -> None:
        self._slack = slack

    def bounds(self, arrivals: Arrivals) -> Int64s:
        slack = np.maximum(np.maximum.accumulate(arrivals.delay), self._slack)
        if slack.size:
            self._slack = int(slack[-1])
        return arrivals.progress - slack

    def bounds_at(self, progress: Int64s) -> Int64s:
        return progress - self._slack

    def snapshot(self) -> Snapshot:
        return {"slack": self._slack}
