"""No slack: the Synchronizer alone aligns the inputs."""

from typing import ClassVar

from slackwater.plugins.contract import (
    Arrivals,
    DisorderLogic,
    DisorderStrategy,
    Int64s,
    Setting,
    Snapshot,
)


class NoSlack(DisorderStrategy):
    """Release every row at once; inputs are aligned with each other, not sorted.

    Lowest latency, lowest recall: the No-K-slack baseline of QDDH (sec. VI). Nothing is buffered for
    disorder within an input; the Synchronizer still holds what a faster input is ahead of the slowest.
    """

    name: ClassVar[str] = "none"

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> "ConstantSlackLogic":
        return ConstantSlackLogic(0)


class ConstantSlackLogic(DisorderLogic):
    """K-slack with a K that never changes."""

    def __init__(self, slack: int) -> None:
        self._slack = slack

    def bounds(self, arrivals: Arrivals) -> Int64s:
        return arrivals.progress - self._slack

    def bounds_at(self, progress: Int64s) -> Int64s:
        return progress - self._slack

    def snapshot(self) -> Snapshot:
        return {}
