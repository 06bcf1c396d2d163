"""Rows as JSON text, a column at a time."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def rows_to_json(batch: pa.RecordBatch) -> pa.Array:
    """Return each row as a JSON object. Times are ISO 8601 text, binary is hexadecimal, NaN is null."""
    if batch.num_rows == 0:
        return pa.array([], pa.string())
    parts: list[Any] = []
    for k, (name, column) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        prefix = ("{" if k == 0 else ", ") + json.dumps(name, ensure_ascii=False) + ": "
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
        return _quoted(column)
    if pa.types.is_timestamp(type_) or pa.types.is_date(type_) or pa.types.is_time(type_):
        return _quoted(column.cast(pa.string()))
    return pa.array(
        [None if v is None else json.dumps(_plain(v), ensure_ascii=False) for v in column.to_pylist()],
        pa.string(),
    )


def _quoted(column: pa.Array) -> pa.Array:
    from slackwater.transforms.kernels import quoting

    column = column.cast(pa.large_string())
    _, offsets_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer else np.empty(0, np.uint8)
    ends = np.zeros(len(column) + 1, np.int64)
    out = np.empty(quoting.quoted_size(offsets, data), np.uint8)
    quoting.quote(offsets, data, ends, out)
    quoted = pa.LargeStringArray.from_buffers(len(column), pa.py_buffer(ends), pa.py_buffer(out))
    quoted = pc.if_else(column.is_valid(), quoted, None) if column.null_count else quoted
    return quoted.cast(pa.string())


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
