"""The columns that rows are grouped by, checked against what is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from slackwater.transforms.errors import ConfigError
from slackwater.transforms.expressions.condition import MAX_CELLS, Cell
from slackwater.transforms.expressions.tree import ExpressionError
from slackwater.transforms.rows.layout import layout_of, value_type

MAX_NAMED: Final = 32
"""Group columns at most where keys may leave some open: half of the bits of a null mask say which."""


def column_names(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return one column or several as a tuple."""
    return (given,) if isinstance(given, str) else tuple(given)


def check_columns(schema: pa.Schema, columns: Sequence[str], setting: str, most: int = MAX_CELLS) -> None:
    """Raise ConfigError unless the columns are there, each once, and can be grouped by."""
    for column in columns:
        if column not in schema.names:
            raise ConfigError(f"there is no column {column!r}; there are {', '.join(schema.names)}", setting)
        if columns.count(column) > 1:
            raise ConfigError(f"names {column!r} twice; remove one", setting)
    if len(columns) > most:
        raise ConfigError(f"names more than {most} columns; group by fewer", setting)
    group_cells(schema, columns, setting)


def group_cells(schema: pa.Schema, columns: Sequence[str], setting: str) -> list[Cell]:
    """Return the columns, and how each is laid in a word; raise ConfigError if one cannot be grouped by."""
    return [_cell(schema.field(name), setting) for name in columns]


def key_schema(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """Return the columns as they come out: a dictionary is replaced by its values."""
    fields = [schema.field(name) for name in columns]
    types = [f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in fields]
    return pa.schema([pa.field(f.name, type_) for f, type_ in zip(fields, types, strict=True)])


def check_names(columns: Sequence[str], own: Sequence[str], setting: str) -> None:
    """Raise ConfigError if a group column is called like one of the results' own."""
    for column in columns:
        if column in own:
            raise ConfigError(
                f"column {column!r} is called like a column of the results ({', '.join(own)}); "
                "rename it with MapToFields",
                setting,
            )


def check_aggregate_names(names: Sequence[str], taken: Sequence[str]) -> None:
    """Raise ConfigError if an aggregate is called like another column of the results."""
    for name in names:
        if name in taken:
            raise ConfigError(
                f"there is a result column of this name already ({', '.join(taken)}); choose another name",
                "aggregates",
                name,
            )


def _cell(field: pa.Field, setting: str) -> Cell:
    try:
        layout = layout_of(field.type, field.name)
    except ExpressionError:
        raise ConfigError(
            f"column {field.name!r} has type {field.type}, which cannot be grouped by; use a simple column",
            setting,
        ) from None
    if pa.types.is_decimal(value_type(field.type)):
        return Cell(field.name, "text", f"scale {layout.scale}")
    return Cell(field.name, *layout)
