"""Shed the tuples that expect the fewest results in their remaining lifetime."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from slackwater.plugins.contract import Setting, Snapshot
from slackwater.plugins.shedding.prob import ByChance

if TYPE_CHECKING:
    from slackwater.plugins.shedding.expected_results import ChancesLogic


class LifeShedding(ByChance):
    """Drop the tuples with the fewest matches to expect until the window drops them, when memory is short.

    LIFE (SAJ 4.2.2): the chance of ``prob`` times the remaining lifetime. It overrates newcomers, as it does not
    foresee that they may be dropped before their time; ``prob`` is the better choice as a rule.
    """

    name: ClassVar[str] = "life"

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> ChancesLogic:
        # Options are read without the compiler; only a join that runs needs it.
        from slackwater.plugins.shedding.expected_results import ChancesLogic

        return ChancesLogic(self, setting, True, snapshot)
