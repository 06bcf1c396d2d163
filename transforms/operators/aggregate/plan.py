"""SlidingWindowAggregate bound to its input: settings checked against the columns that are really there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final

import pyarrow as pa
import sqlglot
from sqlglot import exp

from slackwater.plugins.registry.options import Duration
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.expressions.condition import Cell
from slackwater.transforms.expressions.evaluation import WORDS, check, kind_of_value
from slackwater.transforms.expressions.tree import Expr, ExpressionError, parse
from slackwater.transforms.operators.aggregate.functions import AggregateLayout, parse_aggregates
from slackwater.transforms.operators.group_columns import (
    check_aggregate_names,
    check_columns,
    check_names,
    column_names,
    group_cells,
    key_schema,
)
from slackwater.transforms.settings.columns import bind_times, whole_ticks
from slackwater.transforms.settings.explanation import described
from slackwater.transforms.settings.models import AggregateConfig
from slackwater.transforms.settings.plan import INPUT, DisorderPlan, bind_disorder
from slackwater.transforms.settings.time_unit import NANOS
from slackwater.transforms.sharding.by_key import ByKey
from slackwater.transforms.sharding.scheme import Partitioning

__all__ = ["INPUT", "AggregatePlan", "bind_aggregate"]

BEFORE: Final = ("extent", "start", "end")
AFTER: Final = ("sync", "ts")
"""Columns of the results before the groups and after the aggregates."""
LONGEST: Final = 1 << 61
"""Ticks of a range or a slide, at most: keeps all arithmetic within 64 bits."""


@dataclass(frozen=True)
class AggregatePlan(DisorderPlan):
    """A plan whose results are aggregates over the window extents of its one input."""

    config: AggregateConfig
    range: int
    """Length of an extent in ticks."""
    slide: int
    """Ticks from one extent to the next."""

    side_outputs: ClassVar[tuple[str, ...]] = ("late", "metrics", "syncs")

    @property
    def shards(self) -> int:
        return self.config.shards

    @property
    def group_by(self) -> tuple[str, ...]:
        """Columns that rows are grouped by."""
        return column_names(self.config.group_by)

    @cached_property
    def layout(self) -> AggregateLayout:
        """The aggregates, bound to the input's columns."""
        (schema,) = self.schemas.values()
        return AggregateLayout(parse_aggregates(self.config.aggregates), schema)

    @cached_property
    def having(self) -> Expr | None:
        """The condition on groups."""
        return None if self.config.having is None else parse(self.config.having)

    @cached_property
    def group_cells(self) -> list[Cell]:
        """The group columns, and how each is laid in a word."""
        (schema,) = self.schemas.values()
        return group_cells(schema, self.group_by, "group_by")

    @cached_property
    def partitioning(self) -> Partitioning:
        return ByKey(self, [self.group_cells])

    def in_time_order(self, output: str = "") -> bool:
        return not output

    @cached_property
    def key_schema(self) -> pa.Schema:
        """The group columns as they come out."""
        (schema,) = self.schemas.values()
        return key_schema(schema, self.group_by)

    @cached_property
    def result_schema(self) -> pa.Schema:
        time = self.time_type
        names = self.config.aggregates
        return pa.schema(
            [
                pa.field("extent", pa.int64()),
                pa.field("start", time),
                pa.field("end", time),
                *self.key_schema,
                *(pa.field(name, type_) for name, type_ in zip(names, self.layout.types, strict=True)),
                pa.field("sync", pa.bool_()),
                pa.field("ts", time),
            ]
        )


def bind_aggregate(
    config: AggregateConfig, schemas: Mapping[str, pa.Schema], equal: Collection[Collection[str]] = ()
) -> AggregatePlan:
    """Check settings against the input; raise ConfigError with the path of the setting at fault."""
    if len(schemas) != 1:
        raise ConfigError(f"needs one input, got {len(schemas)}", "input")
    time_columns, arrival, unit = bind_times(config, schemas)
    plan = AggregatePlan(
        config=config,
        schemas=dict(schemas),
        time_columns=time_columns,
        arrival_columns=arrival,
        unit=unit,
        disorder=bind_disorder(config, schemas),
        range=long_ticks(config.range, unit, "range"),
        slide=long_ticks(config.range if config.slide is None else config.slide, unit, "slide"),
    )
    _check_groups(plan)
    _check_names(plan)
    _check_having(plan)
    return plan


def long_ticks(duration: Duration, unit: str, setting: str) -> int:
    """Return a length of time in ticks; raise ConfigError if it is longer than any two times are apart."""
    if duration >= LONGEST * NANOS[unit]:
        raise ConfigError(f"must be shorter: there are no event times in {unit} that are so far apart", setting)
    return whole_ticks(duration, unit, setting)


def _check_groups(plan: AggregatePlan) -> None:
    (schema,) = plan.schemas.values()
    check_columns(schema, plan.group_by, "group_by")
    if not plan.group_by and plan.config.shards > 1:
        raise ConfigError(
            "without group_by there is one group, which cannot be split; use shards: 1 or add group_by", "shards"
        )


def _check_names(plan: AggregatePlan) -> None:
    check_names(plan.group_by, (*BEFORE, *AFTER), "group_by")
    check_aggregate_names(tuple(plan.config.aggregates), (*BEFORE, *plan.group_by, *AFTER))
    plan.layout  # noqa: B018 - raises if an aggregate does not fit


def _check_having(plan: AggregatePlan) -> None:
    text = plan.config.having
    if text is None:
        return
    try:
        if text.strip() and sqlglot.parse_one(text).find(exp.AggFunc):
            raise ConfigError(
                "cannot hold an aggregate; give it a name under aggregates, and write the name here", "having"
            )
    except sqlglot.errors.SqlglotError:
        pass  # parse says it better
    try:
        columns = [field for field in plan.result_schema if field.name not in AFTER]
        kind = kind_of_value(check(parse(text), pa.schema(columns)))
    except ExpressionError as error:
        raise ConfigError(str(error), "having") from None
    if kind not in ("bool", "null"):
        raise ConfigError(f"must be true or false for each group, but is {WORDS[kind]}; compare it", "having")


def describe(plan: AggregatePlan) -> Iterator[tuple[str, str]]:
    """Yield what an aggregate does, as (what, text)."""
    config = plan.config
    yield "range", f"{config.range}, slide {config.slide or config.range}"
    yield "group by", ", ".join(plan.group_by) or "none: one group"
    found = (f"{aggregate.name} = {aggregate}" for aggregate in parse_aggregates(config.aggregates))
    yield "aggregates", ", ".join(found)
    if config.having is not None:
        yield "having", config.having
    yield plan.disorder.stage, described(plan.disorder)
