"""The unit of time of a join: what one tick is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from slackwater.transforms.errors import ConfigError
from slackwater.transforms.rows.layout import value_type
from slackwater.transforms.settings.models import OperatorConfig

NANOS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def is_read_from_text(type_: pa.DataType) -> bool:
    """Whether times of a column are text, or none are there; they are read in whatever unit the others have."""
    types = pa.types
    return bool(
        types.is_null(type_)
        or types.is_string(type_)
        or types.is_large_string(type_)
        or types.is_string_view(type_)
    )


def finest_unit(config: OperatorConfig, schemas: Mapping[str, pa.Schema], columns: Sequence[str]) -> str:
    """Return the finest unit of the inputs' event times, which must all be integers or all be times."""
    types = {name: value_type(s.field(c).type) for (name, s), c in zip(schemas.items(), columns, strict=True)}
    kinds: dict[str, str] = {}
    units: list[str] = []
    for (name, type_), column in zip(types.items(), columns, strict=True):
        if is_read_from_text(type_):
            continue
        if pa.types.is_integer(type_):
            kinds.setdefault("integer", name)
            units.append(config.time_unit)
        elif pa.types.is_timestamp(type_) or pa.types.is_date(type_):
            kinds.setdefault("timestamp", name)
            units.append(type_.unit if pa.types.is_timestamp(type_) else "ms")
        else:
            raise ConfigError(
                f"column {column!r} of input {name!r} must be an integer, a timestamp or a date, got {type_}",
                "time",
            )
    if len(kinds) > 1:
        raise ConfigError(
            f"input {kinds['integer']!r} has integer times and input {kinds['timestamp']!r} has timestamps; "
            "store both the same way, or name columns that agree",
            "time",
        )
    return min(units, key=lambda u: NANOS[u], default=config.time_unit)


def is_text(type_: pa.DataType) -> bool:
    """Whether a column has text."""
    return is_read_from_text(type_) and not pa.types.is_null(type_)


def arrival_unit(columns: Sequence[str], schemas: Mapping[str, pa.Schema]) -> str | None:
    """Return the unit in which arrivals are compared if they are times, None if they are integers.

    Raises:
        ConfigError: A column is neither, or they cannot be compared with each other.
    """
    found: dict[bool, str] = {}
    units: list[str] = []
    for (name, schema), column in zip(schemas.items(), columns, strict=True):
        type_ = value_type(schema.field(column).type)
        if pa.types.is_null(type_):
            continue
        timed = is_text(type_) or pa.types.is_timestamp(type_) or pa.types.is_date(type_)
        if not timed and not pa.types.is_integer(type_):
            raise ConfigError(
                f"column {column!r} of input {name!r} must be an integer, a timestamp, a date or text, "
                f"got {type_}",
                "arrival",
            )
        found.setdefault(timed, f"column {column!r} of input {name!r}, {type_}")
        units += ["ns" if is_text(type_) else getattr(type_, "unit", "ms")] if timed else []
    if len(found) > 1:
        raise ConfigError(
            f"{found[False]}, cannot be compared with {found[True]}; store both the same way, or name columns "
            "that agree",
            "arrival",
        )
    # Dates of 32 bits count days, and those of 64 bits milliseconds.
    return min(("ms" if u == "day" else u for u in units), key=lambda u: NANOS[u], default=None)


def arrival_nanos(columns: Sequence[str] | None, schemas: Mapping[str, pa.Schema]) -> int | None:
    """Return the nanoseconds of a number of arrival; None if arrivals are integers, or there is no column."""
    unit = None if columns is None else arrival_unit(columns, schemas)
    return None if unit is None else NANOS[unit]
