"""SlidingWindowAggregate bound to its input: settings checked against the columns that are really there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa
import sqlglot
from sqlglot import exp

from slackwater.plugins.options import Duration
from slackwater.plugins.shedding.none import NoShedding
from slackwater.transforms.aggregates import AggregateLayout, parse_aggregates
from slackwater.transforms.condition import MAX_CELLS, Cell, kind_of
from slackwater.transforms.config import AggregateConfig, JoinConfig
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.evaluate import WORDS, check, kind_of_value
from slackwater.transforms.expression import Expr, ExpressionError, parse
from slackwater.transforms.plan import NANOS, JoinPlan, bind_disorder, bind_times, whole_ticks
from slackwater.transforms.reordering import INPUT, PassOn

__all__ = ["INPUT", "AggregatePlan", "bind_aggregate"]

BEFORE: Final = ("extent", "start", "end")
AFTER: Final = ("sync", "ts")
"""Columns of the results before the groups and after the aggregates."""
LONGEST: Final = 1 << 61
"""Ticks of a range or a slide, at most: keeps all arithmetic within 64 bits."""


@dataclass(frozen=True)
class AggregatePlan(JoinPlan):
    """A plan whose results are aggregates over the window extents of its one input."""

    aggregate: AggregateConfig
    range: int
    """Length of an extent in ticks."""
    slide: int
    """Ticks from one extent to the next."""

    @property
    def side_outputs(self) -> tuple[str, ...]:
        return ("late", "metrics", "syncs")

    @property
    def group_by(self) -> tuple[str, ...]:
        """Columns that rows are grouped by."""
        given = self.aggregate.group_by
        return (given,) if isinstance(given, str) else tuple(given)

    @cached_property
    def layout(self) -> AggregateLayout:
        """The aggregates, bound to the input's columns."""
        (schema,) = self.schemas.values()
        return AggregateLayout(parse_aggregates(self.aggregate.aggregates), schema)

    @cached_property
    def having(self) -> Expr | None:
        """The condition on groups."""
        return None if self.aggregate.having is None else parse(self.aggregate.having)

    @cached_property
    def group_cells(self) -> list[Cell]:
        """The group columns, and how each is laid in a word."""
        (schema,) = self.schemas.values()
        return [_group_cell(schema.field(name)) for name in self.group_by]

    def shard_cells(self, which: int) -> list[Cell]:
        return self.group_cells

    @cached_property
    def key_schema(self) -> pa.Schema:
        """The group columns as they come out: a dictionary is replaced by its values."""
        (schema,) = self.schemas.values()
        fields = [schema.field(name) for name in self.group_by]
        types = [f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in fields]
        return pa.schema([pa.field(f.name, type_) for f, type_ in zip(fields, types, strict=True)])

    @cached_property
    def result_schema(self) -> pa.Schema:
        time = self.time_type
        names = self.aggregate.aggregates
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


def bind_aggregate(config: AggregateConfig, schemas: Mapping[str, pa.Schema]) -> AggregatePlan:
    """Check settings against the input; raise ConfigError with the path of the setting at fault."""
    if len(schemas) != 1:
        raise ConfigError(f"needs one input, got {len(schemas)}", "input")
    time_columns, arrival, unit = bind_times(config, schemas)
    shared = config.model_dump(include={"time", "time_unit", "arrival", "disorder", "shards"})
    joined = JoinConfig(**shared, guard=config.guard, metrics=config.metrics, window={"size": f"1{unit}"})
    plan = AggregatePlan(
        config=joined,
        schemas=dict(schemas),
        time_columns=time_columns,
        arrival_columns=arrival,
        unit=unit,
        windows=(0,),
        disorder=bind_disorder(config, schemas),
        join=PassOn(),
        shedding=NoShedding(),
        aggregate=config,
        range=_ticks(config.range, unit, "range"),
        slide=_ticks(config.range if config.slide is None else config.slide, unit, "slide"),
    )
    _check_groups(plan)
    _check_names(plan)
    _check_having(plan)
    return plan


def _ticks(duration: Duration, unit: str, setting: str) -> int:
    if duration >= LONGEST * NANOS[unit]:
        raise ConfigError(f"must be shorter: there are no event times in {unit} that are so far apart", setting)
    return whole_ticks(duration, unit, setting)


def _check_groups(plan: AggregatePlan) -> None:
    (schema,) = plan.schemas.values()
    columns = plan.group_by
    for column in columns:
        if column not in schema.names:
            raise ConfigError(f"there is no column {column!r}; there are {', '.join(schema.names)}", "group_by")
        if columns.count(column) > 1:
            raise ConfigError(f"names {column!r} twice; remove one", "group_by")
    if len(columns) > MAX_CELLS:
        raise ConfigError(f"names more than {MAX_CELLS} columns; group by fewer", "group_by")
    if not columns and plan.config.shards > 1:
        raise ConfigError(
            "without group_by there is one group, which cannot be split; use shards: 1 or add group_by", "shards"
        )
    plan.group_cells  # noqa: B018 - raises if a column cannot be grouped by


def _group_cell(field: pa.Field) -> Cell:
    try:
        kind = kind_of(field.type, field.name)
    except ExpressionError:
        raise ConfigError(
            f"column {field.name!r} has type {field.type}, which cannot be grouped by; use a simple column",
            "group_by",
        ) from None
    return Cell(field.name, "text" if pa.types.is_decimal(field.type) else kind)


def _check_names(plan: AggregatePlan) -> None:
    for column in plan.group_by:
        if column in (*BEFORE, *AFTER):
            raise ConfigError(
                f"column {column!r} is called like a column of the results ({', '.join((*BEFORE, *AFTER))}); "
                "rename it with MapToFields",
                "group_by",
            )
    for name in plan.aggregate.aggregates:
        taken = (*BEFORE, *plan.group_by, *AFTER)
        if name in taken:
            raise ConfigError(
                f"there is a result column of this name already ({', '.join(taken)}); choose another name",
                "aggregates",
                name,
            )
    plan.layout  # noqa: B018 - raises if an aggregate does not fit


def _check_having(plan: AggregatePlan) -> None:
    text = plan.aggregate.having
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
