"""Arrow columns to cells: the int64 words that keys and predicates work on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.plugins.contract import Bools, Int8s, Int64s, Snapshot, UInt64s
from slackwater.transforms.expressions.condition import Cell, Condition
from slackwater.transforms.kernels.rows import dictionary as strings
from slackwater.transforms.rows.layout import Layout, value_type
from slackwater.transforms.rows.words import Words, decoded, int64s, scaled_bytes, unscaled, values_of, words_of

__all__ = ["CellEncoder", "TextDictionary", "grown", "int64s", "valid_mask"]


def valid_mask(array: pa.Array) -> Bools:
    """Return where an Arrow array is not null."""
    if array.null_count == 0:
        return np.ones(len(array), np.bool_)
    return np.asarray(pc.is_valid(array).to_numpy(zero_copy_only=False), np.bool_)


class CellEncoder:
    """Encodes batches of every input; equal values of a key class become equal words.

    Text goes through one exact dictionary for the whole join. ``forget`` drops the texts that no live row
    uses, so the dictionary is bounded by the rows held, not by the length of the input.
    """

    def __init__(self, condition: Condition, snapshot: Snapshot | None = None) -> None:
        self._layout = condition.columns
        self._width = condition.width
        self.dictionary = TextDictionary(condition.texts, snapshot)

    def encode(
        self, which: int, batch: pa.RecordBatch, columns: Mapping[int, str] | None = None
    ) -> tuple[Int64s, UInt64s]:
        """Return the cells and null masks of a batch of input ``which``.

        Rows that are not of this input but speak of it have ``columns``: the column for each cell that they fill.
        """
        return self._encode(which, batch, columns, lasting=False)

    def encode_lasting(
        self, which: int, batch: pa.RecordBatch, columns: Mapping[int, str] | None = None
    ) -> tuple[Int64s, UInt64s]:
        """As ``encode``, but with cells as ``lasting`` returns them; no text is taken into the dictionary."""
        return self._encode(which, batch, columns, lasting=True)

    def _encode(
        self, which: int, batch: pa.RecordBatch, columns: Mapping[int, str] | None, lasting: bool
    ) -> tuple[Int64s, UInt64s]:
        cells = np.zeros((batch.num_rows, self._width), np.int64)
        nulls = np.zeros(batch.num_rows, np.uint64)
        layout = self._layout[which]
        names = {c: cell.column for c, cell in enumerate(layout)} if columns is None else columns
        for c, name in names.items():
            column = decoded(batch.column(name))
            words, known = (lasting_words if lasting else self.words)(layout[c], column)
            cells[:, c] = words
            if column.null_count or pa.types.is_null(column.type):
                known = valid_mask(column) if known is None else valid_mask(column) & known
            if known is not None:
                nulls |= (~known).astype(np.uint64) << np.uint64(c)
                if lasting:
                    cells[~known, c] = 0
        return cells, nulls

    def text_cells(self, which: int) -> list[int]:
        """Which cells of an input hold dictionary codes."""
        return [c for c, cell in enumerate(self._layout[which]) if cell.kind == "text"]

    def lasting(self, inputs: Int8s, cells: Int64s) -> Int64s:
        """Return cells with texts as hashes, which stay the same where codes are forgotten and given anew."""
        texts = [(i, c) for i in range(len(self._layout)) for c in self.text_cells(i)]
        if not texts:
            return cells
        cells = cells.copy()
        for i, c in texts:
            mine = inputs == i
            cells[mine, c] = self.dictionary.hashes(cells[mine, c]).view(np.int64)
        return cells

    def words(self, cell: Cell, column: pa.Array) -> Words:
        """Return values as they lie in a cell, nulls as anything, and which have a word."""
        column = decoded(column)
        if cell.kind != "text" or pa.types.is_null(column.type):
            return words_of(cell.layout, column)
        texts, known = exact_texts(cell.layout, column)
        return self.dictionary.encode(texts), known

    def values(self, cell: Cell, type_: pa.DataType, words: Int64s) -> pa.Array:
        """Return words of a cell as values of the column that they were made from, of type ``type_``."""
        type_ = value_type(type_)
        if cell.layout.is_wide:
            return unscaled(cell.layout, self.dictionary.texts(words))
        if cell.kind == "text":
            return pa.array(self.dictionary.texts(words), pa.binary()).cast(type_)
        return values_of(cell.layout, type_, words)


def exact_texts(layout: Layout, column: pa.Array) -> tuple[pa.Array, Bools | None]:
    """Return the bytes that stand for values in a layout of text, and which values have some."""
    if not layout.is_wide:
        return column, None
    texts, known = scaled_bytes(column, layout.scale)
    if column.null_count or known is not None:
        valid = valid_mask(column) if known is None else valid_mask(column) & known
        texts = pc.if_else(pa.array(valid), texts, None)
    return texts, known


def lasting_words(cell: Cell, column: pa.Array) -> Words:
    """Return values as they lie in cells of ``Tuples``, with texts as hashes, nulls as anything."""
    column = decoded(column)
    if cell.kind != "text" or pa.types.is_null(column.type):
        return words_of(cell.layout, column)
    texts, known = exact_texts(cell.layout, column)
    out = np.empty(len(column), np.int64)
    strings.hash_strings(*text_buffers(texts), out)
    return out, known


def lasting_text(text: str) -> int:
    """Return the hash of a text as it lies in cells of ``Tuples``."""
    return int(lasting_words(Cell("", "text"), pa.array([text]))[0][0])


class TextDictionary:
    """Texts to codes, exact, growing by doubling and shrinking by ``forget``."""

    def __init__(self, pinned: Sequence[str], snapshot: Snapshot | None = None) -> None:
        self._pinned = len(pinned)
        if snapshot:
            self._codes = np.array(snapshot["codes"], np.int64)
            self._hashes = np.array(snapshot["hashes"], np.uint64)
            self._starts = np.array(snapshot["starts"], np.int64)
            self._arena = np.array(snapshot["arena"], np.uint8)
            self._next = int(snapshot["next"])
            self.size = len(self._codes)
            self._bytes = int(self._starts[self.size])
        else:
            self._codes, self._hashes = np.empty(0, np.int64), np.empty(0, np.uint64)
            self._starts, self._arena = np.zeros(1, np.int64), np.empty(0, np.uint8)
            self._next, self.size, self._bytes = 1, 0, 0
        self._table = np.full(64, -1, np.int64)
        self._rehash(64)
        if pinned and not snapshot:
            self.encode(pa.array(pinned, pa.string()))

    def encode(self, column: pa.Array) -> Int64s:
        """Return the code of each text, 0 for nulls."""
        offsets, data = text_buffers(column)
        n = len(column)
        self._reserve(n, int(offsets[-1] - offsets[0]) if n else 0)
        out = np.empty(n, np.int64)
        self.size, self._bytes, self._next = strings.encode(
            offsets, data, valid_mask(column), self._table, self._starts, self._hashes, self._codes,
            self._arena, self.size, self._bytes, self._next, out,
        )  # fmt: skip
        return out

    def texts(self, codes: Int64s) -> list[bytes]:
        """Return the texts of codes that are in the dictionary."""
        at = np.searchsorted(self._codes[: self.size], codes)
        return [self._arena[self._starts[k] : self._starts[k + 1]].tobytes() for k in at]

    def hashes(self, codes: Int64s) -> UInt64s:
        """Return a hash of the text of each code that is in the dictionary, 0 of code 0."""
        if not self.size:
            return np.zeros(len(codes), np.uint64)
        at = np.minimum(np.searchsorted(self._codes[: self.size], codes), self.size - 1)
        return np.where(codes == 0, np.uint64(0), self._hashes[at])

    def forget(self, used: Int64s) -> None:
        """Drop every text whose code is not in ``used``; codes that stay keep their texts."""
        keep = np.isin(self._codes[: self.size], used)
        keep[: self._pinned] = True
        self.size, self._bytes = strings.compact(
            keep, self._starts, self._hashes, self._codes, self._arena, self.size
        )
        self._rehash(self._table.size)

    def bytes_for(self, codes: Int64s) -> int:
        """Return the bytes that these texts take, each given once, with the room that growing leaves."""
        at = np.searchsorted(self._codes[: self.size], codes[codes > 0])
        texts = int((self._starts[at + 1] - self._starts[at]).sum())
        return 2 * (24 * at.size + texts) + (16 << (at.size).bit_length())

    def snapshot(self) -> dict[str, Any]:
        return {
            "codes": self._codes[: self.size].copy(),
            "hashes": self._hashes[: self.size].copy(),
            "starts": self._starts[: self.size + 1].copy(),
            "arena": self._arena[: self._bytes].copy(),
            "next": self._next,
        }

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(a.nbytes for a in (self._codes, self._hashes, self._starts, self._arena, self._table))

    def _reserve(self, entries: int, size: int) -> None:
        self._codes = grown(self._codes, self.size + entries)
        self._hashes = grown(self._hashes, self.size + entries)
        self._starts = grown(self._starts, self.size + entries + 1)
        self._arena = grown(self._arena, self._bytes + size)
        if 2 * (self.size + entries) > self._table.size:
            self._rehash(1 << (2 * (self.size + entries)).bit_length())

    def _rehash(self, size: int) -> None:
        while size < 2 * self.size:
            size *= 2
        self._table = np.full(size, -1, np.int64)
        strings.rehash(self._table, self._hashes, self.size)


def text_buffers(column: pa.Array) -> tuple[Int64s, Any]:
    """Return offsets and bytes of a text column of any layout; nulls are empty or whatever is beneath."""
    column = decoded(column)
    if pa.types.is_fixed_size_binary(column.type) or pa.types.is_binary_view(column.type):
        column = column.cast(pa.large_binary())
    elif pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    if pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type):
        width: Any = np.int64
    else:
        width = np.int32
    _, offset_buffer, data_buffer = column.buffers()
    size = np.dtype(width).itemsize
    if len(column) == 0 or offset_buffer is None:
        return np.zeros(len(column) + 1, np.int64), np.empty(0, np.uint8)
    offsets = np.frombuffer(offset_buffer, width, len(column) + 1, column.offset * size).astype(np.int64)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
    return offsets, data


def grown(array: Any, size: int) -> Any:
    """Return ``array`` with room for ``size`` entries: itself, or a copy of at least twice the size."""
    if array.shape[0] >= size:
        return array
    larger = np.empty((max(size, 2 * array.shape[0], 1024), *array.shape[1:]), array.dtype)
    larger[: array.shape[0]] = array
    return larger
