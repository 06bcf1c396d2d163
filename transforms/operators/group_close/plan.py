"""GroupClose bound to its inputs: settings checked against the columns that are really there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Bools
from slackwater.plugins.disorder.none import NoSlack
from slackwater.plugins.shedding.none import NoShedding
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.expressions.condition import Cell
from slackwater.transforms.operators.aggregate.functions import AggregateLayout, parse_aggregates
from slackwater.transforms.operators.aggregate.plan import long_ticks
from slackwater.transforms.operators.group_columns import (
    MAX_NAMED,
    check_aggregate_names,
    check_columns,
    check_names,
    column_names,
    group_cells,
    key_schema,
)
from slackwater.transforms.operators.reorder import PassOn
from slackwater.transforms.settings.columns import bind_times
from slackwater.transforms.settings.models import GROUP_CLOSE_INPUTS, NO_GUARD, GroupCloseConfig, JoinConfig
from slackwater.transforms.settings.plan import JoinPlan
from slackwater.transforms.sharding.by_key import ByKey
from slackwater.transforms.sharding.scheme import Partitioning

ROWS, PUNCTUATIONS = GROUP_CLOSE_INPUTS
AFTER: Final = ("ts", "closed_by")
"""Columns of the results after the aggregates."""
CLOSED_BY: Final = ("punctuation", "window", "end")


class _ByGroup(ByKey):
    """Goes by group; a punctuation of several is accounted for in one shard."""

    def copies(self, which: int) -> bool:
        return GROUP_CLOSE_INPUTS[which] != ROWS


@dataclass(frozen=True)
class GroupClosePlan(JoinPlan):
    """A plan whose results are aggregates of groups that are over."""

    close: GroupCloseConfig
    window: int | None
    """Ticks after its first row that a group is open."""
    same: dict[str, str]
    """Columns that have the value of a group column in every row."""

    @property
    def side_outputs(self) -> tuple[str, ...]:
        return ("late",)

    @property
    def arrives_by_time(self) -> bool:
        return True

    @property
    def by(self) -> tuple[str, ...]:
        """Columns that rows are grouped by."""
        return column_names(self.close.by)

    @cached_property
    def layout(self) -> AggregateLayout:
        """The aggregates, bound to the columns of the rows."""
        return AggregateLayout(parse_aggregates(self.close.aggregates), self.schemas[ROWS])

    @cached_property
    def group_cells(self) -> list[Cell]:
        """The group columns, and how each is laid in a word."""
        return group_cells(self.schemas[ROWS], self.by, "by")

    @cached_property
    def partitioning(self) -> Partitioning:
        return _ByGroup(self)

    def shard_cells(self, which: int) -> list[Cell]:
        return self.group_cells

    def shard_rows(self, which: int, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Bools | None]:
        """Punctuations that do not name all group columns, or several groups, go to every shard."""
        if GROUP_CLOSE_INPUTS[which] == ROWS:
            return batch, None
        # As for expressions: what reads patterns is of no use to who only checks a template.
        from slackwater.transforms.punctuation.patterns import PatternReader

        patterns = PatternReader(self.group_cells, self.key_schema, self.same).read(batch.column("pattern"))
        entries = np.bincount(patterns.of, minlength=batch.num_rows)
        several = entries > 1
        several[patterns.of[patterns.unnamed > 0]] = True
        first = np.zeros(batch.num_rows, np.int64)
        first[patterns.of[::-1]] = np.arange(patterns.of.size)[::-1]
        # What names nothing that there is goes to any shard, to be accounted for there.
        return patterns.values.take(pa.array(first, mask=entries == 0)), several

    @cached_property
    def key_schema(self) -> pa.Schema:
        """The group columns as they come out."""
        return key_schema(self.schemas[ROWS], self.by)

    @property
    def time_type(self) -> pa.DataType:
        type_ = self.schemas[ROWS].field(self.time_columns[0]).type
        if pa.types.is_timestamp(type_):
            return type_
        return pa.timestamp(self.unit) if pa.types.is_date(type_) else pa.int64()

    @cached_property
    def result_schema(self) -> pa.Schema:
        names = self.close.aggregates
        return pa.schema(
            [
                *self.key_schema,
                *(pa.field(name, type_) for name, type_ in zip(names, self.layout.types, strict=True)),
                pa.field("ts", self.time_type),
                pa.field("closed_by", pa.string()),
            ]
        )


def bind_group_close(
    config: GroupCloseConfig, schemas: Mapping[str, pa.Schema], equal: Collection[Collection[str]] = ()
) -> GroupClosePlan:
    """Check settings against the inputs; raise ConfigError with the path of the setting at fault.

    Args:
        config: the settings.
        schemas: columns of the inputs ``rows`` and ``punctuations``.
        equal: columns of the rows that are known to be equal, such as the keys of the join they come from.
    """
    rows, punctuations = (schemas[name] for name in GROUP_CLOSE_INPUTS)
    (time,), _, unit = bind_times(config, {ROWS: rows})
    by = column_names(config.by)
    if not by:
        raise ConfigError("names no column; add one, such as auctions_id", "by")
    check_columns(rows, by, "by", MAX_NAMED)
    check_names(by, AFTER, "by")
    check_aggregate_names(tuple(config.aggregates), (*by, *AFTER))
    _check_punctuations(punctuations, rows.field(time))
    shared = config.model_dump(include={"time", "time_unit", "shards"})
    plan = GroupClosePlan(
        config=JoinConfig(
            **shared, idle_timeout=config.idle_timeout, window={"size": f"1{unit}"}, guard=NO_GUARD
        ),
        schemas={ROWS: rows, PUNCTUATIONS: punctuations},
        time_columns=(time, "ts"),
        arrival_columns=(time, "ts"),
        unit=unit,
        windows=(0, 0),
        disorder=NoSlack(),
        join=PassOn(),
        shedding=NoShedding(),
        close=config,
        window=None if config.window is None else long_ticks(config.window, unit, "window"),
        same=_same(config, by, equal),
    )
    plan.layout  # noqa: B018 - raises if an aggregate does not fit
    return plan


def _check_punctuations(schema: pa.Schema, time: pa.Field) -> None:
    for column in ("ts", "pattern"):
        if column not in schema.names:
            raise ConfigError(
                f"has no column {column!r}; it has {', '.join(schema.names)}. Read the punctuations of a join, "
                "such as joined.punctuations",
                "input",
                PUNCTUATIONS,
            )
    ts, pattern = schema.field("ts").type, schema.field("pattern").type
    if not (pa.types.is_string(pattern) or pa.types.is_large_string(pattern) or pa.types.is_null(pattern)):
        raise ConfigError(f"column 'pattern' must be text, got {pattern}", "input", PUNCTUATIONS)
    if pa.types.is_timestamp(ts) and not pa.types.is_timestamp(time.type):
        raise ConfigError(
            f"column 'ts' is {ts}, but the time {time.name!r} of the rows is {time.type}; store them alike",
            "input",
            PUNCTUATIONS,
        )
    if not (pa.types.is_timestamp(ts) or pa.types.is_integer(ts) or pa.types.is_null(ts)):
        raise ConfigError(f"column 'ts' must be an integer or a timestamp, got {ts}", "input", PUNCTUATIONS)


def _same(config: GroupCloseConfig, by: tuple[str, ...], equal: Collection[Collection[str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for columns in equal:
        key = next((column for column in by if column in columns), None)
        if key is not None:
            found |= {column: key for column in columns if column not in by}
    for column, key in config.same.items():
        if key not in by:
            raise ConfigError(
                f"names no column of by ({', '.join(by)}); write {{column: by column}}", "same", column
            )
        if column in by:
            raise ConfigError("is a column of by itself; leave it out", "same", column)
    return {**found, **config.same}
