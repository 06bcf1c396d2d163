"""Groups: from the columns that rows are grouped by to small numbers, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Bools, Int64s, Snapshot, UInt64s
from slackwater.transforms.expressions.condition import Cell
from slackwater.transforms.kernels.operators import groups as kernel
from slackwater.transforms.operators.group_columns import MAX_NAMED
from slackwater.transforms.rows import ipc
from slackwater.transforms.rows.encoder import TextDictionary, exact_texts, grown, valid_mask
from slackwater.transforms.rows.words import decoded, words_of

_RUN: Final = 1 << 13
"""Rows at a time: room is made for as many groups, so that the table stays in cache."""


class GroupIndex:
    """Numbers for keys, exact: null is a key of its own, -0.0 is 0.0, and all NaN are one.

    Numbers are valid until ``keep`` gives new ones to the groups that are still needed, so that memory is bounded
    by those and not by all that ever were.

    Args:
        cells: the columns, and how each is laid in a word; without any there is one group.
        fields: name and type of the columns as they come out.
        snapshot: what ``snapshot`` returned.
    """

    def __init__(self, cells: Sequence[Cell], fields: pa.Schema, snapshot: Snapshot | None = None) -> None:
        self._cells, self._fields = cells, fields
        width = len(cells)
        self._stored, self._nulls = np.empty((0, width), np.int64), np.empty(0, np.uint64)
        self._keys: list[pa.RecordBatch] = []
        """One row per group, in a few batches of falling size."""
        self._texts = TextDictionary([], snapshot["texts"] if snapshot and cells else None)
        self.size = 0 if cells else 1
        """Groups that have a number."""
        if snapshot and cells:
            self._stored, self._nulls = np.array(snapshot["cells"]), np.array(snapshot["nulls"])
            self._keys = list(ipc.from_bytes(snapshot["keys"]))
            self.size = len(self._nulls)
        self._rehash(64)

    def assign(self, batch: pa.RecordBatch, unnamed: UInt64s | None = None) -> Int64s:
        """Return the group of each row, with numbers for those that are new.

        Args:
            batch: the rows.
            unnamed: for each, the columns that it leaves open, as bits; they are null. What leaves columns open
                has numbers of its own.
        """
        out = np.zeros(batch.num_rows, np.int64)
        if self._cells:
            for start in range(0, batch.num_rows, _RUN):
                part = batch.slice(start, _RUN)
                cells, nulls = self._encode(part)
                if unnamed is not None:
                    nulls |= unnamed[start : start + _RUN] << np.uint64(MAX_NAMED)
                self._assign(part, cells, nulls, out[start : start + _RUN])
        return out

    def project(self, groups: Int64s, unnamed: int) -> Int64s:
        """Return the number that each group has when these columns, given as bits, are left open."""
        out = np.empty(groups.size, np.int64)
        cells, nulls = self._stored[groups], self._nulls[groups]
        columns = self.keys(groups)
        for c, field in enumerate(self._fields):
            if unnamed >> c & 1:
                cells[:, c] = 0
                columns[c] = pa.nulls(groups.size, field.type)
        nulls |= np.uint64(unnamed | unnamed << MAX_NAMED)
        self._assign(pa.RecordBatch.from_arrays(columns, schema=self._fields), cells, nulls, out)
        return out

    def cells(self) -> tuple[Int64s, UInt64s]:
        """Return the cells of all groups and their null masks; not to be changed."""
        return self._stored, self._nulls

    def _assign(self, batch: pa.RecordBatch, cells: Int64s, nulls: UInt64s, out: Int64s) -> None:
        n = batch.num_rows
        if 2 * (self.size + n) > self._table.size:
            self._rehash(1 << (2 * (self.size + n)).bit_length())
        self._stored, self._nulls = grown(self._stored, self.size + n), grown(self._nulls, self.size + n)
        first_row = np.empty(n, np.int64)
        size = kernel.assign(cells, nulls, self._table, self._stored, self._nulls, self.size, out, first_row)
        if size > self.size:
            self._add_keys(batch, first_row[: size - self.size], cells)
            self.size = size

    def keys(self, groups: Int64s) -> list[Any]:
        """Return the columns of these groups, as one Arrow array each."""
        if not self._cells:
            return []
        if not self._keys:
            return [pa.array([], field.type) for field in self._fields]
        table = pa.Table.from_batches(self._keys).take(pa.array(groups))
        return [column.combine_chunks() for column in table.columns]

    def keep(self, used: Bools) -> Int64s:
        """Forget every group but those marked; return the new number of each old one."""
        at = np.flatnonzero(used[: self.size])
        numbers = np.full(self.size, -1, np.int64)
        numbers[at] = np.arange(at.size)
        columns = self.keys(at)
        self._keys = [pa.RecordBatch.from_arrays(columns, schema=self._fields)] if at.size else []
        self._stored, self._nulls, self.size = self._stored[at], self._nulls[at], int(at.size)
        texts = [self._stored[:, c] for c, cell in enumerate(self._cells) if cell.kind == "text"]
        self._texts.forget(np.concatenate(texts) if texts else np.empty(0, np.int64))
        self._rehash(64)
        return numbers

    @property
    def nbytes(self) -> int:
        """Bytes of everything held."""
        arrays = self._stored.nbytes + self._nulls.nbytes + self._table.nbytes + self._texts.nbytes
        return int(arrays + sum(batch.nbytes for batch in self._keys))

    def snapshot(self) -> Snapshot:
        if not self._cells:
            return {}
        return {
            "cells": self._stored[: self.size].copy(),
            "nulls": self._nulls[: self.size].copy(),
            "keys": ipc.to_bytes(*self._keys, schema=self._fields),
            "texts": self._texts.snapshot(),
        }

    def _encode(self, batch: pa.RecordBatch) -> tuple[Int64s, UInt64s]:
        cells = np.zeros((batch.num_rows, len(self._cells)), np.int64)
        nulls = np.zeros(batch.num_rows, np.uint64)
        for c, cell in enumerate(self._cells):
            column = decoded(batch.column(cell.column))
            if cell.kind == "text":
                coded = exact_texts(cell.layout, column)[0].dictionary_encode()
                codes = np.append(self._texts.encode(coded.dictionary), 0)
                words = codes[coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
            else:
                words, _ = words_of(cell.layout, column)
            cells[:, c] = words
            if column.null_count or pa.types.is_null(column.type):
                valid = valid_mask(column)
                cells[~valid, c] = 0
                nulls |= (~valid).astype(np.uint64) << np.uint64(c)
        return cells, nulls

    def _add_keys(self, batch: pa.RecordBatch, rows: Int64s, cells: Int64s) -> None:
        columns = []
        for c, (cell, field) in enumerate(zip(self._cells, self._fields, strict=True)):
            column = batch.column(cell.column).take(pa.array(rows))
            if cell.kind == "float":
                # Of 0.0 and -0.0 it must not matter which came first.
                mask = ~valid_mask(column)
                column = pa.array(cells[rows, c].view(np.float64), pa.float64(), mask=mask)
            elif pa.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            columns.append(column.cast(field.type))
        self._keys.append(pa.RecordBatch.from_arrays(columns, schema=self._fields))
        while len(self._keys) > 1 and self._keys[-2].num_rows <= 2 * self._keys[-1].num_rows:
            self._keys[-2:] = [pa.concat_batches(self._keys[-2:])]

    def _rehash(self, size: int) -> None:
        while size < 2 * self.size:
            size *= 2
        self._table = np.full(size, -1, np.int64)
        kernel.rehash(self._table, self._stored, self._nulls, self.size if self._cells else 0)
