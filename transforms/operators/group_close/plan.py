"""GroupClose bound to its inputs: settings checked against the columns that are really there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Bools
from slackwater.plugins.disorder.none import NoSlack
from slackwater.plugins.registry.options import Duration
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
from slackwater.transforms.settings.columns import bind_times
from slackwater.transforms.settings.models import GROUP_CLOSE_INPUTS, GroupCloseConfig
from slackwater.transforms.settings.plan import Plan
from slackwater.transforms.sharding.by_key import ByKey, cross
from slackwater.transforms.sharding.scheme import Partitioning, Routes

ROWS, PUNCTUATIONS = GROUP_CLOSE_INPUTS
AFTER: Final = ("ts", "closed_by")
"""Columns of the results after the aggregates."""
CLOSED_BY: Final = ("punctuation", "window", "end")


class _ByGroup(ByKey):
    """Goes by group. Punctuations that do not name all group columns, or several groups, go to every shard.

    Each is accounted for in one shard.
    """

    def __init__(self, plan: GroupClosePlan) -> None:
        super().__init__(plan, [plan.group_cells] * len(GROUP_CLOSE_INPUTS))
        self._same, self._key_schema = plan.same, plan.key_schema

    def routes(self, which: int, batch: pa.RecordBatch) -> Routes:
        if not self.copies(which):
            return super().routes(which, batch)
        named, several = self._named(batch)
        home = super().routes(which, named).home
        alone = np.flatnonzero(~several)
        row, shard = cross(np.flatnonzero(several), self.shards)
        return Routes.to_several(home, np.append(alone, row), np.append(home[alone], shard))

    def copies(self, which: int) -> bool:
        return GROUP_CLOSE_INPUTS[which] != ROWS

    def _named(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Bools]:
        """Return the first group that each punctuation names, and which name several or leave a column open."""
        # As for expressions: what reads patterns is of no use to who only checks a template.
        from slackwater.transforms.punctuation.patterns import PatternReader

        patterns = PatternReader(list(self.cells[0]), self._key_schema, self._same).read(batch.column("pattern"))
        entries = np.bincount(patterns.of, minlength=batch.num_rows)
        several = entries > 1
        several[patterns.of[patterns.unnamed > 0]] = True
        first = np.zeros(batch.num_rows, np.int64)
        first[patterns.of[::-1]] = np.arange(patterns.of.size)[::-1]
        # What names nothing that there is goes to any shard, to be accounted for there.
        return patterns.values.take(pa.array(first, mask=entries == 0)), several


@dataclass(frozen=True)
class GroupClosePlan(Plan):
    """A plan whose results are aggregates of groups that are over."""

    config: GroupCloseConfig
    window: int | None
    """Ticks after its first row that a group is open."""
    same: dict[str, str]
    """Columns that have the value of a group column in every row."""

    by_time: ClassVar[bool] = True
    without_rows: ClassVar[Mapping[str, str]] = {
        PUNCTUATIONS: "no punctuation came, so none has closed a group; check that the join passes some on"
    }

    @property
    def shards(self) -> int:
        return self.config.shards

    @property
    def idle_timeout(self) -> Duration | None:
        return self.config.idle_timeout

    @property
    def order_matters(self) -> bool:
        """A group without a window takes rows in any order that its join gives."""
        return self.window is not None

    @property
    def by(self) -> tuple[str, ...]:
        """Columns that rows are grouped by."""
        return column_names(self.config.by)

    @cached_property
    def layout(self) -> AggregateLayout:
        """The aggregates, bound to the columns of the rows."""
        return AggregateLayout(parse_aggregates(self.config.aggregates), self.schemas[ROWS])

    @cached_property
    def group_cells(self) -> list[Cell]:
        """The group columns, and how each is laid in a word."""
        return group_cells(self.schemas[ROWS], self.by, "by")

    @cached_property
    def partitioning(self) -> Partitioning:
        return _ByGroup(self)

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
        names = self.config.aggregates
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
    plan = GroupClosePlan(
        config=config,
        schemas={ROWS: rows, PUNCTUATIONS: punctuations},
        time_columns=(time, "ts"),
        arrival_columns=(time, "ts"),
        unit=unit,
        disorder=NoSlack(),
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


def describe(plan: GroupClosePlan) -> Iterator[tuple[str, str]]:
    """Yield what is grouped, and what closes groups, as (what, text)."""
    yield "group by", ", ".join(plan.by)
    if plan.same:
        yield "same", ", ".join(f"{column} = {key}" for column, key in plan.same.items())
    found = (f"{aggregate.name} = {aggregate}" for aggregate in parse_aggregates(plan.config.aggregates))
    yield "aggregates", ", ".join(found)
    yield "window", "none" if plan.config.window is None else str(plan.config.window)
