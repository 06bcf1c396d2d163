"""K-slack with a K that the user sets."""

from typing import ClassVar

from pydantic import Field

from slackwater.plugins.contract import DisorderStrategy, Setting, Snapshot
from slackwater.plugins.disorder.none import ConstantSlackLogic
from slackwater.plugins.registry.options import Duration


class FixedSlack(DisorderStrategy):
    """Hold every row until its input has seen a row that is ``slack`` newer.

    K-slack (QDDH sec. III-A). A row delayed by at most ``slack`` is put in order; one delayed longer goes
    straight on, out of order. Memory is bounded by the rows of one slack interval.
    """

    name: ClassVar[str] = "fixed"
    may_change: ClassVar[tuple[str, ...]] = ("slack",)
    slack: Duration = Field(ge=0)
    """how long to hold each row, in event time"""

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> ConstantSlackLogic:
        return ConstantSlackLogic(setting.ticks(self.slack))
