"""Shed the tuples that are least likely to find a partner."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from slackwater.plugins.contract import Setting, Snapshot
from slackwater.plugins.shedding.limits import LimitedMemory

if TYPE_CHECKING:
    from slackwater.plugins.shedding.expected_results import ChancesLogic


def _texts(given: Any) -> Any:
    """Make texts of key values, as in a CSV file: templates may write numbers, dates and truth values."""
    if not isinstance(given, Mapping):
        return given
    tables = {name: table for name, table in given.items() if isinstance(table, Mapping)}
    return {**given, **{name: {_text(v): share for v, share in table.items()} for name, table in tables.items()}}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime.date) else str(value)


class ByChance(LimitedMemory):
    """How the chances of a match are known, and what a match is worth."""

    estimate: Literal["exact", "decayed", "sketch"] = "decayed"
    """exact: every value ever seen; decayed: the recent past counts most; sketch: the same in fixed memory"""
    half_life: int = Field(default=100_000, ge=1)
    """tuples after which an observation counts half; not used by exact"""
    width: int = Field(default=1 << 14, ge=16, le=1 << 26)
    """counters in each of the four rows of a sketch, rounded up to a power of two"""
    frequencies: Annotated[dict[str, str | dict[str, float]], BeforeValidator(_texts)] = Field(
        default_factory=dict
    )
    """how often key values arrive, instead of an estimate: {input: file} or {input.column: {value: frequency}}"""
    weight: str | None = None
    """SQL number over the inputs, what a result is worth, if null or negative 0: the sum is to be the largest"""


class ProbShedding(ByChance):
    """Drop the tuples that are least likely to find a partner when memory is short.

    PROB (SAJ 4.2.1; PROBV with ``allocation: variable``): a tuple is worth the share of arrivals on the other
    input that match it, for more than two inputs the product of these shares. Of equal tuples the older goes.
    A newcomer is joined first and may be the one to go. Where predicates decide, the share is that of a sample of
    recent arrivals, averaged over similar tuples; with a weight, it is multiplied by the mean weight of a result
    (SAJ 6.1.3).
    """

    name: ClassVar[str] = "prob"

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> ChancesLogic:
        # Options are read without the compiler; only a join that runs needs it.
        from slackwater.plugins.shedding.expected_results import ChancesLogic

        return ChancesLogic(self, setting, False, snapshot)
