"""Rows of Beam's schemas to Arrow batches and back."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import decimal
import json
import math
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import repeat
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.transforms.window import WindowedValue
from apache_beam.typehints.row_type import RowTypeConstraint
from apache_beam.typehints.schemas import named_fields_from_element_type
from apache_beam.utils.timestamp import Timestamp

from slackwater.transforms.arrival.bad_rows import bad_row, with_bad
from slackwater.transforms.beam.stamps import EventTime, stamps
from slackwater.transforms.errors import ConfigError

_ARROW: Final[dict[Any, pa.DataType]] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    np.bool_: pa.bool_(),
    np.int8: pa.int8(),
    np.int16: pa.int16(),
    np.int32: pa.int32(),
    np.int64: pa.int64(),
    np.uint8: pa.uint8(),
    np.uint16: pa.uint16(),
    np.uint32: pa.uint32(),
    np.uint64: pa.uint64(),
    np.float32: pa.float32(),
    np.float64: pa.float64(),
    Timestamp: pa.timestamp("us", "UTC"),
    datetime.datetime: pa.timestamp("us"),
    datetime.date: pa.date32(),
    decimal.Decimal: pa.decimal128(38, 9),
}


class RowSchema(NamedTuple):
    """The columns of an input, for Arrow and for Beam."""

    arrow: pa.Schema
    types: dict[str, Any]
    """Beam's type of each column."""
    like: Any = None
    """The class of the rows, where they have one of their own: a NamedTuple or a dataclass."""


def row_schema(name: str, element_type: Any, whole: Collection[str] = ()) -> RowSchema:
    """Return the columns of a PCollection of schema'd rows; raise ConfigError where they have no type.

    Args:
        name: name of the input, for messages.
        element_type: type of its elements.
        whole: columns to be taken as integers even where they are floats: readers that know no missing
            integers make floats of them.
    """
    fields: Sequence[tuple[str, Any]] = ()
    with contextlib.suppress(TypeError, ValueError, NameError):
        if _own_class(element_type) is not None:
            fields = list(typing.get_type_hints(element_type).items())
        else:
            fields = named_fields_from_element_type(element_type)
    if not fields:
        raise ConfigError(
            f"input {name!r} has elements without a schema ({element_type}); use beam.Row or NamedTuple with "
            "typed fields, or give the columns with with_schemas",
            "input",
        )
    columns, types = [], {}
    for column, type_ in fields:
        arrow = _arrow_type(type_)
        if arrow is None:
            raise ConfigError(
                f"column {column!r} of input {name!r} has type {type_}, which has no counterpart in Arrow; "
                "give it one, in MapToFields with output_type",
                "input",
            )
        as_whole = column in whole and pa.types.is_floating(arrow)
        columns.append((column, pa.int64() if as_whole else arrow))
        types[column] = optional(int) if as_whole else type_
    return RowSchema(pa.schema(columns), types, _own_class(element_type))


def _own_class(element_type: Any) -> Any:
    """Return the class of rows that can be made of their columns by name, or None."""
    named = hasattr(element_type, "_fields") or dataclasses.is_dataclass(element_type)
    return element_type if isinstance(element_type, type) and named else None


def arrow_row_schema(schema: pa.Schema) -> RowSchema:
    """Return the columns of an input whose Arrow schema is given; every value may be missing."""
    return RowSchema(schema, {field.name: beam_type(field.type) for field in schema})


def _arrow_type(type_: Any) -> pa.DataType | None:
    if typing.get_origin(type_) in (typing.Union, UnionType):
        (type_, *others) = [t for t in typing.get_args(type_) if t is not type(None)]
        if others:
            return None
    origin = typing.get_origin(type_)
    if isinstance(origin, type) and issubclass(origin, Sequence):
        inner = _arrow_type(typing.get_args(type_)[0])
        return None if inner is None else pa.list_(inner)
    return _ARROW.get(type_)


def beam_type(type_: pa.DataType) -> Any:
    """Return Beam's type of the values of an Arrow type, missing ones included."""
    if pa.types.is_dictionary(type_):
        return beam_type(type_.value_type)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return optional(Sequence[beam_type(type_.value_type)])  # type: ignore[misc]
    exact = {
        arrow: python for python, arrow in _ARROW.items() if python not in (int, float, bool, datetime.datetime)
    }
    exact |= {pa.int64(): int, pa.float64(): float, pa.bool_(): bool}
    tests: list[tuple[Any, Any]] = [
        (pa.types.is_timestamp, Timestamp),
        (pa.types.is_large_string, str),
        (pa.types.is_date, datetime.date),
        (pa.types.is_decimal, decimal.Decimal),
        (pa.types.is_null, str),
    ]
    python = exact.get(type_) or next((found for test, found in tests if test(type_)), Any)
    return Any if python is Any else optional(python)


def optional(type_: Any) -> Any:
    """Return the type of values that may be missing, in the way that Beam knows: to it, ``T | None`` is Any."""
    return typing.Optional[type_]  # noqa: UP045


class RowReader:
    """Makes a batch of rows: attributes of rows or NamedTuples, items of dicts.

    A row with a value that its column cannot hold exactly is marked as one that could not be read, with its
    values and the fault, so that it goes to the late output. A NaN in a column of integers is a missing value.

    Args:
        name: name of the input, for messages.
        schema: columns of the batch.
    """

    def __init__(self, name: str, schema: pa.Schema) -> None:
        self._name, self._schema = name, schema

    def read(self, rows: Sequence[Any]) -> pa.RecordBatch:
        """Return the rows as a batch, with the column BAD."""
        faults: dict[int, str] = {}
        arrays = [
            self._array(field, values, faults)
            for field, values in zip(self._schema, self._columns(rows, faults), strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        at = sorted(faults)
        return with_bad(batch, at, [bad_row(self._shown(rows[k]), faults[k]) for k in at])

    def _columns(self, rows: Sequence[Any], faults: dict[int, str]) -> Sequence[Sequence[Any]]:
        names = self._schema.names
        try:
            if isinstance(rows[0], Mapping):
                return [[row.get(name) for row in rows] for name in names]
            if list(getattr(rows[0], "_fields", ())) == names:
                return list(zip(*rows, strict=True))
            return [list(map(attrgetter(name), rows)) for name in names]
        except (AttributeError, TypeError, ValueError):
            # Some row is not like the first one.
            found = [self._row(row, k, faults) for k, row in enumerate(rows)]
            return list(zip(*found, strict=True))

    def _row(self, row: Any, k: int, faults: dict[int, str]) -> list[Any]:
        if isinstance(row, Mapping):
            return [row.get(name) for name in self._schema.names]
        missing = next((name for name in self._schema.names if not hasattr(row, name)), None)
        if missing is not None:
            faults[k] = f"has no field {missing!r}"
            return [None] * len(self._schema)
        return [getattr(row, name) for name in self._schema.names]

    def _array(self, field: pa.Field, values: Sequence[Any], faults: dict[int, str]) -> pa.Array:
        """Return a column; what Arrow does not read at once, and exactly, is looked at value by value."""
        with contextlib.suppress(pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError):
            return _exact_array(field.type, values)
        parts = []
        for k, value in enumerate(values):
            try:
                parts.append(_exact_array(field.type, [_plain(field.type, value)]))
            except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError):
                faults.setdefault(k, f"{field.name}: {value!r} is no {field.type}")
                parts.append(pa.nulls(1, field.type))
        return pa.concat_arrays(parts)

    def _shown(self, row: Any) -> str:
        """Return a row's values as JSON, those that JSON does not have as Python shows them."""
        (values,) = zip(*self._columns([row], {}), strict=True)
        named = dict(zip(self._schema.names, values, strict=True))
        return json.dumps(named, ensure_ascii=False, default=repr)


def _exact_array(type_: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Return values as an array; raise if one might be changed.

    Told the type, Arrow cuts floats to integers and times to days; it reads Beam's timestamps as whole seconds.
    """
    kinds = set(map(type, values)) - {NoneType}
    if pa.types.is_integer(type_) and not all(issubclass(kind, int | np.integer) for kind in kinds):
        raise TypeError
    if pa.types.is_date(type_) and kinds - {datetime.date}:
        raise TypeError
    if pa.types.is_timestamp(type_) and Timestamp in kinds:
        micros = [None if value is None else value.micros for value in values]
        return pa.array(micros, pa.timestamp("us", type_.tz)).cast(type_)
    return pa.array(values, type_)


def _plain(type_: pa.DataType, value: Any) -> Any:
    """Return a value as one that Arrow takes for the type, if it is the same; NaN is a missing integer."""
    if pa.types.is_integer(type_) and isinstance(value, float | np.floating | decimal.Decimal | bool):
        if math.isnan(value):
            return None
        return int(value) if int(value) == value else value
    midnight = isinstance(value, datetime.datetime) and value.time() == datetime.time() and value.tzinfo is None
    return value.date() if pa.types.is_date(type_) and midnight else value


class UnpackRows(beam.DoFn):  # type: ignore[misc, unused-ignore]
    """Yields every row of a batch, with its event time as Beam's timestamp; it stays in its window.

    Args:
        time: where rows have their event time.
        like: what rows are made as: a class with the columns as its fields, by default ``beam.Row``.
    """

    def __init__(self, time: EventTime, like: Any = None) -> None:
        self._time, self._like = time, like

    def process(
        self,
        element: pa.RecordBatch,
        timestamp: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
    ) -> Iterator[WindowedValue]:
        at, windows = stamps(element, self._time, timestamp, window), (window,)
        for row, stamp in zip(self._rows(element), at, strict=True):
            yield WindowedValue(row, stamp, windows)

    def _rows(self, element: pa.RecordBatch) -> Iterator[Any]:
        names = element.schema.names
        if self._like is not None:
            asked = typing.get_type_hints(self._like)
            columns = [_values(c, asked.get(n)) for n, c in zip(names, element.columns, strict=True)]
            for values in zip(*columns, strict=True):
                yield self._like(**dict(zip(names, values, strict=True)))
            return
        named = [zip(repeat(n), _values(c), strict=False) for n, c in zip(names, element.columns, strict=True)]
        for fields in map(dict, zip(*named, strict=True)):
            # What the constructor does with its arguments, in less than half the time.
            row = beam.Row.__new__(beam.Row)
            row.__dict__ = fields
            yield row


def _values(column: pa.Array, asked: Any = None) -> Any:
    """Return the values of a column as Beam has them; times as datetimes only where these are ``asked`` for."""
    if pa.types.is_timestamp(column.type) and datetime.datetime not in (asked, *typing.get_args(asked)):
        micros = pc.cast(column, pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64()).to_pylist()
        return [None if value is None else Timestamp(micros=value) for value in micros]
    return column.to_pylist()


def unpack(
    batches: beam.PCollection, label: str, types: Mapping[str, Any], time: EventTime, like: Any = None
) -> beam.PCollection:
    """Return the rows of batches as a PCollection with a schema: of the class ``like`` if there is one."""
    row_type = like or RowTypeConstraint.from_fields(list(types.items()))
    return batches | label >> beam.ParDo(UnpackRows(time, like)).with_output_types(row_type)
