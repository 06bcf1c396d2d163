"""Times, windows and columns that settings name, checked against the inputs that are really there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from slackwater.plugins.contract import UNBOUNDED
from slackwater.plugins.registry.options import Duration, Rows
from slackwater.plugins.shedding.queue_options import Queue
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.settings.models import JoinConfig, OperatorConfig
from slackwater.transforms.settings.time_unit import (
    NANOS,
    arrival_nanos,
    arrival_unit,
    finest_unit,
    is_read_from_text,
)


def bind_times(
    config: OperatorConfig, schemas: Mapping[str, pa.Schema]
) -> tuple[tuple[str, ...], tuple[str, ...] | None, str]:
    """Return event-time columns, arrival columns and the unit of time; raise ConfigError if they do not fit."""
    for name, schema in schemas.items():
        _refuse_views(name, schema)
    time_columns = columns_of(config.time, schemas, "time")
    named: str | dict[str, str] | None = getattr(config, "arrival", None)
    arrival = None if named is None else columns_of(named, schemas, "arrival")
    if arrival is not None:
        arrival_unit(arrival, schemas)
    return time_columns, arrival, finest_unit(config, schemas, time_columns)


def _refuse_views(name: str, schema: pa.Schema) -> None:
    for field in schema:
        if _has_views(field.type):
            raise ConfigError(
                f"column {field.name!r} of input {name!r} has type {field.type}, and Arrow cannot take rows out "
                "of columns of views; cast it to string or binary",
                "input",
            )


def _has_views(type_: pa.DataType) -> bool:
    if pa.types.is_dictionary(type_):
        return _has_views(type_.value_type)
    inner = [type_.field(k).type for k in range(type_.num_fields)]
    return bool(pa.types.is_string_view(type_) or pa.types.is_binary_view(type_) or any(map(_has_views, inner)))


def kind_of_times(type_: pa.DataType) -> str | None:
    """What a column of times is made of; text and empty columns may hold any."""
    if is_read_from_text(type_):
        return "any"
    if pa.types.is_integer(type_):
        return "integer"
    return "timestamp" if pa.types.is_timestamp(type_) or pa.types.is_date(type_) else None


def columns_of(
    given: str | Mapping[str, str], schemas: Mapping[str, pa.Schema], *setting: str
) -> tuple[str, ...]:
    """Return the column of each input that a setting names, one for all or each its own."""
    if not isinstance(given, str):
        _same_inputs(given, tuple(schemas), *setting)
    columns = tuple(given if isinstance(given, str) else given[name] for name in schemas)
    for (name, schema), column in zip(schemas.items(), columns, strict=True):
        if column not in schema.names:
            raise ConfigError(
                f"input {name!r} has no column {column!r}; it has {', '.join(schema.names)}", *setting
            )
    return columns


def _same_inputs(given: Mapping[str, Any], names: Sequence[str], *setting: str) -> None:
    for name in names:
        if name not in given:
            raise ConfigError(f"says nothing of input {name!r}; add it", *setting)
    for name in given:
        if name not in names:
            raise ConfigError(f"names no input; the inputs are {', '.join(names)}", *setting, name)


def clock_nanos(queue: Queue, columns: Sequence[str], schemas: Mapping[str, pa.Schema], unit: str) -> int:
    """Return the nanoseconds of a tick of the arrival columns; of integers the queue says, else ``unit``."""
    return arrival_nanos(columns, schemas) or NANOS[queue.arrival_unit or unit]


def check_queue(queue: Queue | None, columns: Sequence[str] | None) -> None:
    """Raise ConfigError if rows do not say when they came and a queue has to know."""
    if queue is not None and columns is None and queue.service_rate is not None:
        raise ConfigError(
            "a rate goes by times of arrival; name their column with arrival, or leave service_rate out",
            *("shedding", "queue", "service_rate"),
        )


def rows_of(config: JoinConfig, names: Sequence[str]) -> tuple[int, ...]:
    """Return how many rows the window of each input has; nothing where windows are of time."""
    if isinstance(config.window, Rows):
        return (int(config.window),) * len(names)
    if not isinstance(config.window, dict) or not any(map(Rows.meant, config.window.values())):
        return ()
    sizes = dict(config.window)
    if "closed" in sizes:
        raise ConfigError("is for windows of time, and this one is of rows; leave it out", "window", "closed")
    if set(sizes) == {"size"}:
        sizes = dict.fromkeys(names, sizes["size"])
    _same_inputs(sizes, names, "window")
    rows = []
    for name in names:
        try:
            rows.append(int(Rows.parse(sizes[name])))
        except ValueError as error:
            others = "; windows are all of rows or all of time" if not Rows.meant(sizes[name]) else ""
            raise ConfigError(f"{error}{others}", "window", name) from None
    return tuple(rows)


def windows_of(config: JoinConfig, names: Sequence[str], unit: str) -> tuple[int, ...]:
    """Return the window of each input in ticks, inclusive at both ends; windows of rows are endless."""
    closed = "both"
    sizes: dict[str, Any]
    if config.window is None or rows_of(config, names):
        return (UNBOUNDED,) * len(names)
    if isinstance(config.window, Duration):
        sizes = dict.fromkeys(names, config.window)
    else:
        assert isinstance(config.window, dict)
        sizes = dict(config.window)
        closed = sizes.pop("closed", "both")
        if closed not in ("both", "right"):
            raise ConfigError(f"must be both or right, got {closed!r}", "window", "closed")
        if set(sizes) == {"size"}:
            sizes = dict.fromkeys(names, sizes["size"])
        _same_inputs(sizes, names, "window")
    ticks = []
    for name in names:
        path = ("window",) if isinstance(config.window, Duration) else ("window", name)
        try:
            size = Duration.parse(sizes[name])
        except ValueError as error:
            raise ConfigError(str(error), *path) from None
        ticks.append(whole_ticks(size, unit, *path) - (closed == "right"))
    return tuple(ticks)


def whole_ticks(size: Duration, unit: str, *path: str) -> int:
    """Return a length of time in ticks; raise ConfigError unless it is a whole number of them, and not 0."""
    if size <= 0:
        raise ConfigError(f"must be longer than 0, got {size}", *path)
    if size % NANOS[unit]:
        raise ConfigError(f"must be a whole number of {unit}, the unit of the event times, got {size}", *path)
    return size // NANOS[unit]
