"""The settings of joins, aggregates and Reorder, as they stand in a template or in Python code."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, Field, ValidationError

from slackwater.plugins.documented import Documented
from slackwater.plugins.options import Duration
from slackwater.transforms.errors import ConfigError

TimeUnit = Literal["s", "ms", "us", "ns"]


class GuardConfig(Documented):
    """Limits on event times; rows beyond them go to the late output instead of the join."""

    past: Duration | None = None
    """refuse rows that are older than their input's newest by more than this (reason too_late)"""
    future: Duration | None = None
    """refuse a lone row that is ahead of every input by more than this (reason future_time)"""


class OperatorConfig(Documented):
    """Settings that every transform has that puts rows in order."""

    time: str | dict[str, str]
    """event-time column, one name for all inputs or {input: column}: integer, timestamp or date"""
    time_unit: TimeUnit = "ms"
    """unit of integer event times"""
    arrival: str | dict[str, str] | None = None
    """column with the order of arrival over all inputs; default: the order of the rows, inputs taking turns"""
    disorder: dict[str, Any] = Field(default_factory=lambda: {"strategy": "max"})
    """disorder strategy and its options; a recall alone means the strategy result_slack"""
    guard: GuardConfig = GuardConfig()
    """limits on event times"""
    metrics: Duration | None = None
    """stream time between rows of the output ``metrics``; strategies that adapt report whenever they do"""

    @classmethod
    def read(cls, settings: dict[str, Any]) -> Self:
        """Validate raw settings; raise ConfigError that names the setting at fault."""
        try:
            return cls.model_validate(settings)
        except ValidationError as error:
            raise config_error(error, cls) from None


class ReorderConfig(OperatorConfig):
    """Settings of Reorder: rows out in order of event time, rows that came too late beside."""


class JoinConfig(OperatorConfig):
    """Settings of one sliding window join."""

    window: Duration | dict[str, Any]
    """how far back a row may be to be joined: one duration, {input: duration}, or {size: 5s, closed: right}"""
    where: str | None = None
    """join condition in SQL; none joins everything within the windows"""
    join: dict[str, Any] = Field(default_factory=lambda: {"strategy": "mswj"})
    """join strategy and its options"""
    shedding: dict[str, Any] = Field(default_factory=lambda: {"strategy": "none"})
    """shedding strategy and its options"""
    output: Literal["rows", "counts"] = "rows"
    """joined rows, or the number of results per timestamp"""
    shards: int = Field(default=1, ge=1, le=4096)
    """parts that the join is split into by key"""


class AggregateConfig(OperatorConfig):
    """Settings of one sliding window aggregate."""

    range: Duration
    """how much time a window extent covers"""
    slide: Duration | None = None
    """time from one extent to the next; default: the range"""
    group_by: str | list[str] = Field(default_factory=list)
    """columns to group by; none makes one group of all rows"""
    aggregates: dict[str, str]
    """new column: count(*), or count, sum, avg, min or max of a column or an expression"""
    having: str | None = None
    """SQL condition on the group columns and the aggregates; groups that fail it are left out"""
    shards: int = Field(default=1, ge=1, le=4096)
    """parts that the groups are split into"""


def config_error(error: ValidationError, model: type[BaseModel]) -> ConfigError:
    """Return the first fault of a validation in one sentence."""
    faults = error.errors()
    first = next((f for f in faults if f["type"] == "extra_forbidden"), faults[0])
    path = tuple(
        str(part)
        for part in first["loc"]
        if str(part) not in ("str", "int") and not str(part).startswith(("dict[", "function-"))
    )
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = f"is not a setting; known settings: {', '.join(model.model_fields)}"
        if len(path) > 1:
            message = "is not a setting; remove it or check the spelling"
    elif first["type"] == "missing":
        message = "is missing; add it"
    elif " got " not in message:
        message = f"{message[0].lower()}{message[1:]}, got {first['input']!r}"
    return ConfigError(message, *path)
