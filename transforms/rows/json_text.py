"""Rows as JSON text, a column at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.plugins.contract import Int64s

_LONGEST = np.iinfo(np.int32).max


def rows_to_json(batch: pa.RecordBatch) -> pa.Array:
    """Return each row as a JSON object. Times are ISO 8601 text, binary is hexadecimal, NaN is null."""
    if batch.num_rows == 0 or not batch.num_columns:
        return pa.array(["{}"] * batch.num_rows, pa.string())
    # The compiler, which takes a while to load.
    from slackwater.transforms.kernels.rows import json_text as kernel
    from slackwater.transforms.rows.encoder import int64s

    if all(pa.types.is_int64(column.type) and not column.null_count for column in batch.columns):
        return integers_to_json(batch.schema.names, np.column_stack([int64s(column) for column in batch.columns]))
    lengths = np.ones(batch.num_rows, np.int64)
    columns: list[tuple[Any, tuple[Any, ...]]] = []
    for k, (name, column) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        label = np.frombuffer(_label(k, name), np.uint8)
        lengths += label.size
        if pa.types.is_signed_integer(column.type):
            words = int64s(column if pa.types.is_int64(column.type) else column.cast(pa.int64()))
            nulls = _nulls(column)
            kernel.measure_integers(words, nulls, lengths)
            columns.append((kernel.write_integers, (label, words, nulls)))
        else:
            texts = _values(column)
            nulls, (offsets, data) = _nulls(texts), _contents(texts)
            kernel.measure_texts(offsets, nulls, lengths)
            columns.append((kernel.write_texts, (label, offsets, data, nulls)))
    ends = np.cumsum(lengths)
    at, out = ends - lengths, np.full(int(ends[-1]), ord("}"), np.uint8)
    offsets = np.concatenate([at[:1], ends])
    for write, given in columns:
        write(*given, at, out)
    return _texts(offsets, out)


def integers_to_json(names: Sequence[str], words: Int64s) -> pa.Array:
    """Return rows of whole numbers, ``words[row, column]``, as ``rows_to_json`` would."""
    from slackwater.transforms.kernels.rows import json_text as kernel

    labels, lengths, longest = _labels_in_words(tuple(names))
    offsets = np.empty(len(words) + 1, np.int64)
    out = np.empty(len(words) * (longest + kernel.LONGEST * len(labels) + 1) + 8, np.uint8)
    first = kernel.write_rows(words, labels, lengths, offsets, out)
    return _texts(offsets, out[first:])


@lru_cache(maxsize=64)
def _labels_in_words(names: tuple[str, ...]) -> tuple[Any, Int64s, int]:
    """Return what stands before the values, in words that end with it, its lengths in bytes and their sum."""
    labels = [_label(k, name) for k, name in enumerate(names)]
    size = -(-max(map(len, labels)) // 8) * 8
    words = np.frombuffer(b"".join(label.rjust(size) for label in labels), "<u8").astype(np.uint64)
    return words.reshape(len(labels), -1), np.array(list(map(len, labels)), np.int64), sum(map(len, labels))


def _label(place: int, name: str) -> bytes:
    """Return what stands before a value."""
    return (("{" if place == 0 else ", ") + json.dumps(name, ensure_ascii=False) + ": ").encode()


def _texts(offsets: Int64s, content: Any) -> pa.Array:
    rows = len(offsets) - 1
    if offsets[-1] > _LONGEST:
        large = pa.LargeStringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(content))
        return large.cast(pa.string())
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(content))


_NONE_NULL = np.empty(0, np.bool_)


def _nulls(column: pa.Array) -> Any:
    """Return which values are null; empty where none is."""
    return column.is_null().to_numpy(zero_copy_only=False) if column.null_count else _NONE_NULL


def _contents(column: pa.Array) -> tuple[Any, Any]:
    """Return offsets and bytes of a column of texts."""
    _, offsets_buffer, data_buffer = column.buffers()
    width = np.int64 if pa.types.is_large_string(column.type) else np.int32
    offsets = np.frombuffer(offsets_buffer, width)[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer else np.empty(0, np.uint8)
    return offsets.astype(np.int64), data


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
    from slackwater.transforms.kernels.rows import json_quotes as quoting

    offsets, data = _contents(column)
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
