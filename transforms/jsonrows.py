"""Rows as JSON text, a column at a time."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_ESCAPED = r'[\x00-\x1f"\\\x7f]'


def rows_to_json(batch: pa.RecordBatch) -> pa.Array:
    """Return each row as a JSON object. Times are ISO 8601 text, binary is hexadecimal, NaN is null."""
    if batch.num_rows == 0:
        return pa.array([], pa.string())
    parts: list[Any] = []
    for k, (name, column) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        prefix = ("{" if k == 0 else ", ") + json.dumps(name) + ": "
        parts += [prefix, pc.fill_null(_values(column), "null")]
    if not parts:
        return pa.array(["{}"] * batch.num_rows)
    return pc.binary_join_element_wise(*parts, "}", "")


def _values(column: pa.Array) -> pa.Array:
    type_ = column.type
    if pa.types.is_dictionary(type_):
        return _values(column.dictionary_decode())
    if pa.types.is_integer(type_) or pa.types.is_boolean(type_):
        return column.cast(pa.string())
    if pa.types.is_floating(type_):
        column = column.cast(pa.float64())
        text = pc.if_else(pc.is_finite(column), column, None).cast(pa.string())
        whole = pc.match_substring_regex(text, r"^-?\d+$")
        return pc.if_else(whole, pc.binary_join_element_wise(text, ".0", ""), text)
    if pa.types.is_null(type_):
        return pa.nulls(len(column), pa.string())
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return _quoted(column.cast(pa.string()))
    if pa.types.is_timestamp(type_) or pa.types.is_date(type_) or pa.types.is_time(type_):
        return _quoted(column.cast(pa.string()))
    return pa.array([None if v is None else json.dumps(_plain(v)) for v in column.to_pylist()], pa.string())


def _quoted(column: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py():
        return pa.array([None if v is None else json.dumps(v) for v in column.to_pylist()], pa.string())
    return pc.binary_join_element_wise('"', column, '"', "")


def _plain(value: Any) -> Any:
    """A value of a nested or unusual column as something JSON has."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, bytes):
        return value.hex()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
