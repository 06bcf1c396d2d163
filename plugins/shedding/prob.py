"""Shed what is least likely to be matched."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from slackwater.plugins.contract import Setting, Snapshot
from slackwater.plugins.shedding.limits import LimitedMemory

if TYPE_CHECKING:
    from slackwater.plugins.shedding.chances_logic import ChancesLogic


class ByChance(LimitedMemory):
    """How the chances of a match are learnt."""

    estimate: Literal["exact", "decayed", "sketch"] = "decayed"
    """exact: every value ever seen; decayed: the recent past counts most; sketch: the same in fixed memory"""
    half_life: int = Field(default=100_000, ge=1)
    """tuples after which an observation counts half; not used by exact"""
    width: int = Field(default=1 << 14, ge=16, le=1 << 26)
    """counters in each of the four rows of a sketch, rounded up to a power of two"""


class ProbShedding(ByChance):
    """Drop the tuples that are least likely to find a partner when memory is short.

    PROB (SAJ 4.2.1; PROBV with ``allocation: variable``): a tuple is worth the share of arrivals on the other
    input that match it, for more than two inputs the product of these shares. Of equal tuples the older goes.
    A newcomer is joined first and may be the one to go.
    """

    name: ClassVar[str] = "prob"

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> ChancesLogic:
        # Options are read without the compiler; only a join that runs needs it.
        from slackwater.plugins.shedding.chances_logic import ChancesLogic

        return ChancesLogic(self, setting, False, snapshot)
