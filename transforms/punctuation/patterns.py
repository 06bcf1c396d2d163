"""Patterns of punctuations, from JSON text to the values and ranges that they name.

A pattern is an object: ``{"item": 7}`` speaks of one value, ``{"item": [7, 8]}`` of several; a value of the form
``{"from": 3, "to": 9}`` is a range with both ends, of which one may lack. Other columns may have any.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.json as pa_json

from slackwater.plugins.contract import Bools, Int64s, UInt64s
from slackwater.transforms.expressions.condition import Cell
from slackwater.transforms.rows.encoder import valid_mask
from slackwater.transforms.rows.words import words_of

_LOWEST, _HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_UNNAMED: Final = object()
_BLOCK_BYTES: Final = 1 << 20


class Patterns(NamedTuple):
    """What some punctuations speak of; one that lists values stands for as many entries."""

    bad: Bools
    """Punctuations whose pattern cannot be read."""
    of: Int64s
    """The punctuation of each entry, ascending; one that closes no group has none."""
    values: pa.RecordBatch
    """The value of each column, null where it is not named."""
    unnamed: UInt64s
    """Columns that an entry does not name, as bits."""
    ranges: dict[int, Int64s]
    """Entries that are ranges: named columns as bits, then lower and upper ends in the order of the values."""


class PatternReader:
    """Reads patterns on some columns.

    Args:
        cells: the columns, and how each is laid in a word.
        fields: their names and types.
        same: other columns that always have the value of one of these.
    """

    def __init__(self, cells: Sequence[Cell], fields: pa.Schema, same: Mapping[str, str]) -> None:
        self._cells, self._fields = cells, fields
        self._of = {**{name: name for name in fields.names}, **same}
        self._json = {field.name: _json_type(field.type) for field in fields}
        self.others: set[str] = set()
        """Columns that were named besides: such a pattern is of a part of a group, and closes none."""

    def read(self, texts: pa.Array) -> Patterns:
        """Return what each pattern says."""
        quick = self._plain(texts) if texts.null_count == 0 and len(texts) else None
        return self._any(texts) if quick is None else quick

    def _plain(self, texts: pa.Array) -> Patterns | None:
        """Read patterns of single values, all at once; None if there are others among them."""
        data = "\n".join(texts.to_pylist())
        if "null" in data or any(map(_is_binary, self._fields.types)):
            return None
        explicit = pa.schema([(name, self._json[column]) for name, column in self._of.items()])
        parse = pa_json.ParseOptions(explicit_schema=explicit, unexpected_field_behavior="infer")
        read = pa_json.ReadOptions(block_size=max(_BLOCK_BYTES, len(data) + 1), use_threads=False)
        try:
            table = pa_json.read_json(pa.BufferReader(data.encode()), read, parse).combine_chunks()
            if table.num_rows != len(texts):
                return None
            named: dict[str, pa.Array] = {}
            closes = np.ones(len(texts), np.bool_)
            for name, column in zip(table.column_names, table.columns, strict=True):
                found = valid_mask(column)
                if not found.any():
                    continue
                if name not in self._of:
                    self.others.add(name)
                    closes &= ~found
                    continue
                values = column.combine_chunks().cast(self._fields.field(self._of[name]).type)
                known = named.setdefault(self._of[name], values)
                if known is not values and known != values:
                    return None
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        columns = [named.get(f.name, pa.nulls(len(texts), f.type)) for f in self._fields]
        unnamed = np.zeros(len(texts), np.uint64)
        for c, column in enumerate(columns):
            unnamed |= (~valid_mask(column)).astype(np.uint64) << np.uint64(c)
        at = np.flatnonzero(closes)
        values = pa.RecordBatch.from_arrays(columns, schema=self._fields).take(pa.array(at))
        return Patterns(np.zeros(len(texts), np.bool_), at, values, unnamed[at], {})

    def _any(self, texts: pa.Array) -> Patterns:
        """Read patterns one by one."""
        bad = np.zeros(len(texts), np.bool_)
        of: list[int] = []
        rows: list[list[Any]] = []
        unnamed: list[int] = []
        ranges: dict[int, Int64s] = {}
        for k, text in enumerate(texts.to_pylist()):
            try:
                for entry in self._entries(json.loads(text) if text is not None else None):
                    if isinstance(entry, np.ndarray):
                        ranges[len(of)] = entry
                        entry = [_UNNAMED] * len(self._cells)
                    of.append(k)
                    unnamed.append(sum(1 << c for c, value in enumerate(entry) if value is _UNNAMED))
                    rows.append([None if value is _UNNAMED else value for value in entry])
            except (ValueError, OverflowError, pa.ArrowException):
                bad[k] = True
        columns = [pa.array([row[c] for row in rows], field.type) for c, field in enumerate(self._fields)]
        values = pa.RecordBatch.from_arrays(columns, schema=self._fields)
        return Patterns(bad, np.array(of, np.int64), values, np.array(unnamed, np.uint64), ranges)

    def _entries(self, pattern: Any) -> list[Any]:
        """Return what a pattern speaks of: a value or _UNNAMED for each column, or the ends of a range."""
        if not isinstance(pattern, dict):
            raise ValueError("a pattern is an object")
        named: dict[str, Any] = {}
        for name, value in pattern.items():
            if name not in self._of:
                self.others.add(name)
                return []
            if named.setdefault(self._of[name], value) != value:
                return []
        if any(isinstance(value, dict) for value in named.values()):
            return [self._range(named)]
        choices = [
            self._typed(c, named[field.name]) if field.name in named else [_UNNAMED]
            for c, field in enumerate(self._fields)
        ]
        return [list(entry) for entry in itertools.product(*choices)]

    def _typed(self, c: int, value: Any) -> list[Any]:
        field = self._fields.field(c)
        return [self._scalar(field.type, item) for item in (value if isinstance(value, list) else [value])]

    def _scalar(self, type_: pa.DataType, value: Any) -> Any:
        if isinstance(value, str) and _is_binary(type_):
            return bytes.fromhex(value)
        if isinstance(value, bool) is not pa.types.is_boolean(type_) and value is not None:
            raise ValueError("true and false are values of their own")
        if isinstance(value, str) and not _json_type(type_) == pa.string():
            raise ValueError("text is no number")
        given = pa.array([value]) if isinstance(value, str) else pa.array([value], self._number(type_, value))
        return given.cast(type_)[0].as_py()

    def _number(self, type_: pa.DataType, value: Any) -> pa.DataType:
        return type_ if value is None or not isinstance(value, float) else pa.float64()

    def _range(self, named: Mapping[str, Any]) -> Int64s:
        width = len(self._cells)
        ends = np.array([0, *[_LOWEST] * width, *[_HIGHEST] * width], np.int64)
        for c, (cell, field) in enumerate(zip(self._cells, self._fields, strict=True)):
            if field.name not in named:
                continue
            given = named[field.name]
            if cell.kind == "text" or isinstance(given, list) or given is None:
                raise ValueError("ranges are of numbers and times, other columns beside them have one value")
            both = given if isinstance(given, dict) else {"from": given, "to": given}
            if not both.keys() <= {"from", "to"}:
                raise ValueError("a range has from and to")
            ends[0] |= 1 << c
            infinite = {"from": -np.inf, "to": np.inf}
            for at, end in ((1, "from"), (1 + width, "to")):
                value = both.get(end)
                if value is None and cell.kind != "float":
                    continue
                ends[at + c] = self._word(cell, field.type, infinite[end] if value is None else value)
        return ends

    def _word(self, cell: Cell, type_: pa.DataType, value: Any) -> int:
        """Return the end of a range as a word that is in the order of the values."""
        column = pa.array([self._scalar(type_, value)], type_)
        words, known = words_of(cell.layout, column)
        if known is not None and not known[0]:
            raise ValueError("a value of the column")
        word = int(words[0])
        return word ^ (word >> 63 & _HIGHEST) if cell.kind == "float" else word


def _json_type(type_: pa.DataType) -> pa.DataType:
    """How the values of a type are written in JSON."""
    if pa.types.is_integer(type_):
        return pa.int64()
    if pa.types.is_floating(type_):
        return pa.float64()
    return pa.bool_() if pa.types.is_boolean(type_) else pa.string()


def _is_binary(type_: pa.DataType) -> bool:
    kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return any(is_kind(type_) for is_kind in kinds)
