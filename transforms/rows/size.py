"""Bytes that rows take in Arrow columns, row by row: what a row weighs whatever batch it is in.

A column of texts or lists ends at 2³¹ bytes, and Arrow does not see that in time. So what may take many rows, or
the same row many times, takes them in pieces of PIECE_BYTES, which also bounds the memory for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.plugins.contract import Float64s, Int64s
from slackwater.transforms.rows.words import int64s

_UNKNOWN = 16.0
"""Taken for a value of which nothing is known beforehand, or of a type that has no size of its own."""

PIECE_BYTES: Final = 1 << 27
"""Bytes of rows that are one batch at most, unless one row has more: as JSON they take up to six times that."""


def cuts(sizes: Int64s, most: int | None = None) -> Iterator[slice]:
    """Yield slices that cover rows of these bytes; each has ``most`` bytes, or PIECE_BYTES, or is one row."""
    most, start, ends = most or PIECE_BYTES, 0, np.cumsum(sizes)
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + most, "right")))
        yield slice(start, stop)
        start = stop


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in pieces of PIECE_BYTES: most are one."""
    if batch.nbytes <= PIECE_BYTES:
        yield batch
    else:
        for part in cuts(row_bytes(batch)):
            yield batch.slice(part.start, part.stop - part.start)


def together(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return batches of one schema as one, or as few as have PIECE_BYTES each; none is cut."""
    if len(batches) < 2:
        return list(batches)
    parts = cuts(np.array([batch.nbytes for batch in batches], np.int64))
    return [pa.concat_batches(batches[part]) for part in parts]


def fits(batches: Sequence[pa.RecordBatch]) -> bool:
    """Whether batches of one schema may be put into one, in any order: they have no texts, or PIECE_BYTES."""
    if len(batches) < 2 or fixed_bytes(batches[0].schema) is not None:
        return True
    return sum(batch.nbytes for batch in batches) <= PIECE_BYTES


def fixed_bytes(schema: pa.Schema) -> float | None:
    """Return the bytes of a row where all have the same, else None."""
    widths = [_width(field.type) for field in schema]
    return None if None in widths else sum(width for width in widths if width is not None)


def guessed_bytes(schema: pa.Schema) -> float:
    """Return the bytes of a row as far as they can be guessed before any is seen."""
    return sum(2 * _UNKNOWN if (width := _width(field.type)) is None else width for field in schema)


def row_bytes(batch: pa.RecordBatch) -> Int64s:
    """Return the bytes of each row, rounded up."""
    total = np.zeros(batch.num_rows)
    for column in batch.columns:
        total += _bytes(column)
    return np.ceil(total).astype(np.int64)


def _width(type_: pa.DataType) -> float | None:
    """Return the bytes of a value and of its validity bit; None where values differ."""
    try:
        return float(type_.bit_width) / 8 + 1 / 8
    except ValueError:
        return None


def _bytes(column: pa.Array) -> Float64s:
    type_ = column.type
    if pa.types.is_dictionary(type_):
        return _bytes(column.dictionary_decode())
    if pa.types.is_struct(type_):
        return sum((_bytes(column.field(i)) for i in range(type_.num_fields)), np.zeros(len(column)))
    if (width := _width(type_)) is not None:
        return np.full(len(column), width)
    if pa.types.is_map(type_):
        return _bytes(column.cast(pa.list_(pa.struct([type_.key_field, type_.item_field]))))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        ends = np.cumsum(_whole(pc.list_value_length(column)))
        below = np.concatenate([[0.0], np.cumsum(_bytes(column.flatten()))])[np.concatenate([[0], ends])]
        return np.diff(below) + 8 + 1 / 8
    if any(is_text(type_) for is_text in _TEXTS):
        return np.asarray(_whole(pc.binary_length(column)) + 4 + 1 / 8, np.float64)
    return np.full(len(column), _UNKNOWN)


def _whole(lengths: pa.Array) -> Int64s:
    return int64s(lengths.cast(pa.int64()).fill_null(0))


_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
