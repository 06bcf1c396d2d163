"""The rows of one input that are still needed, as Arrow batches, found by row number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Bools, Int8s, Int64s, Snapshot, UInt64s
from slackwater.plugins.guard.returned import Refused
from slackwater.transforms.errors import StateError
from slackwater.transforms.kernels.rows import lookup as kernel
from slackwater.transforms.rows import ipc
from slackwater.transforms.rows.size import cuts, fixed_bytes, row_bytes, together
from slackwater.transforms.state.snapshot import ANEW

SAMPLE = 8192
"""Rows whose bytes are looked at, at most."""


class Beside(NamedTuple):
    """What is kept beside each row, as arrays of the same length."""

    seq: Int64s
    ts: Int64s
    arrival: Int64s
    delay: Int64s
    reported: Bools
    """Rows that are in the late output already."""
    copy: Bools
    """Rows that another shard accounts for, and writes to the late output."""
    mark: Int8s
    """Kind of punctuation that the row is, or -1 for a tuple."""
    cells: Int64s
    nulls: UInt64s

    def at(self, rows: Any) -> Beside:
        """Return the entries that an index or a mask selects."""
        return Beside._make(array[rows] for array in self)


class UnknownRow(Refused):
    """A row number that no row has, or that is named twice: what a join refers to is not there."""

    def __init__(self, seq: int, fault: str = "which no row has that is held") -> None:
        super().__init__(f"named row {seq} {fault}")


class RowStore:
    """Rows in order of their number, with what is kept beside them.

    Appending keeps the batches as a few chunks of falling size; ``keep`` throws away all other rows. Both
    cost amortised constant time per row as long as ``keep`` is called when most rows are dead.
    """

    def __init__(self, schema: pa.Schema, width: int) -> None:
        self._schema = schema
        self._chunks: list[Any] = []
        self._sizes = np.empty(0, np.int64) if fixed_bytes(schema) is None else None
        """Bytes of each row where they differ."""
        none = np.empty(0, np.int64)
        cells = np.empty((0, width), np.int64)
        flags = np.empty(0, np.bool_)
        self.beside = Beside(
            none, none, none, none, flags, flags, flags.astype(np.int8), cells, none.astype(np.uint64)
        )

    def __len__(self) -> int:
        return len(self.beside.seq)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows and of what is kept beside them."""
        return int(sum(a.nbytes for a in self.beside) + sum(chunk.nbytes for chunk in self._chunks))

    def append(self, batch: pa.RecordBatch, beside: Beside) -> None:
        """Add rows whose numbers are larger than all before."""
        if not batch.num_rows:
            return
        self._chunks.append(batch)
        if self._sizes is not None:
            self._sizes = np.concatenate([self._sizes, row_bytes(batch)])
        while len(self._chunks) > 1 and self._chunks[-2].num_rows <= 2 * self._chunks[-1].num_rows:
            merged = together(self._chunks[-2:])
            if len(merged) > 1:
                break
            self._chunks[-2:] = merged
        self._change(lambda array, n: np.concatenate([array, beside[n]]))

    def locate(self, seqs: Int64s) -> Int64s:
        """Return where each of ``seqs`` stands; raise UnknownRow if one is not there."""
        out = np.empty(len(seqs), np.int64)
        unknown = kernel.locate(self.beside.seq, np.ascontiguousarray(seqs), out) if len(seqs) else -1
        if unknown >= 0:
            raise UnknownRow(int(seqs[unknown]))
        return out

    def take(self, at: Int64s) -> list[Any]:
        """Return the rows at these places, as one Arrow array per column."""
        return list(self.batch(at).columns)

    def batch(self, at: Int64s) -> pa.RecordBatch:
        """Return the rows at these places as one batch; they are one of ``cuts``, or a few.

        Arrow would put a column of several chunks together before it takes some of it; only what is taken is.
        """
        if not at.size:
            return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in self._schema], schema=self._schema)
        if len(self._chunks) == 1:
            return self._chunks[0].take(pa.array(at))
        chunk = np.searchsorted(self._starts(), at, "right") - 1
        if (chunk[1:] >= chunk[:-1]).all():
            return pa.concat_batches(list(self._parts(at, chunk)))
        order = np.argsort(chunk, kind="stable")
        back = np.empty_like(order)
        back[order] = np.arange(order.size)
        return pa.concat_batches(list(self._parts(at[order], chunk[order]))).take(pa.array(back))

    def cuts(self, at: Int64s) -> Iterator[slice]:
        """Yield which of these places to take at a time: a place may be there often, and rows may be large."""
        if self._sizes is None:
            yield slice(0, at.size)
        else:
            yield from cuts(self._sizes[at])

    def sizes(self, at: Int64s) -> Int64s | int:
        """Return the bytes of the rows at these places."""
        return int(fixed_bytes(self._schema) or 0) + 1 if self._sizes is None else self._sizes[at]

    def report(self, inputs: Int8s, which: int, seqs: Int64s) -> Int64s:
        """Mark those of ``seqs`` that are of input ``which``, this one, as reported; return the places of those
        that had not been."""
        known, fresh = self.beside, np.empty(len(seqs), np.int64)
        found = kernel.report(known.seq, known.reported, inputs, which, seqs, fresh)
        if found < 0:
            raise UnknownRow(int(seqs[-1 - found]))
        return fresh[:found]

    def keep(self, seqs: Int64s) -> None:
        """Forget every row but these, each named once."""
        ordered = np.sort(seqs)
        twice = np.flatnonzero(ordered[1:] == ordered[:-1])
        if twice.size:
            raise UnknownRow(int(ordered[twice[0]]), "twice")
        at = self.locate(ordered)
        # One chunk after the other, so that no more than one is there twice.
        self._chunks = list(self._parts(at, np.searchsorted(self._starts(), at, "right") - 1, forget=True))
        self._sizes = None if self._sizes is None else self._sizes[at]
        self._change(lambda array, n: array[at])

    def _starts(self) -> Int64s:
        """Return where each chunk begins."""
        return np.cumsum([0, *(chunk.num_rows for chunk in self._chunks)])[:-1]

    def _parts(self, at: Int64s, of: Int64s, forget: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the rows at these places, chunk by chunk, of which ``of`` are the numbers in rising order.

        Where told so, chunks are forgotten meanwhile.
        """
        cuts = np.searchsorted(of, np.arange(len(self._chunks) + 1))
        for n, start in enumerate(self._starts().tolist()):
            chunk: Any = self._chunks[n]
            if forget:
                self._chunks[n] = None
            mine = at[cuts[n] : cuts[n + 1]]
            if mine.size:
                yield chunk if forget and mine.size == chunk.num_rows else chunk.take(pa.array(mine - start))

    def _change(self, changed: Callable[[Any, int], Any]) -> None:
        """Change what is kept beside the rows, one array after the other, so that only one is there twice."""
        arrays: list[Any] = list(self.beside)
        del self.beside
        for n in range(len(arrays)):
            arrays[n] = changed(arrays[n], n)
        self.beside = Beside._make(arrays)

    def row_bytes(self, seqs: Int64s) -> float:
        """Return the bytes of the rows ``seqs``, by a sample of them that does not depend on the others."""
        if not len(seqs):
            return 0.0
        sample = np.sort(seqs)[:: 1 + len(seqs) // SAMPLE]
        if self._sizes is not None:
            return float(self._sizes[self.locate(sample)].mean()) * len(seqs)
        return float(row_bytes(self.batch(self.locate(sample))).mean()) * len(seqs)

    def snapshot(self) -> Snapshot:
        """All rows and what is kept beside them."""
        return {**self.beside._asdict(), "rows": ipc.to_bytes(*together(self._chunks), schema=self._schema)}

    def restore(self, snapshot: Snapshot) -> None:
        """Become as ``snapshot`` says.

        Raises:
            StateError: Its parts do not go together; kernels would read beyond them.
        """
        chunks = list(ipc.from_bytes(snapshot["rows"]))
        beside = Beside._make(np.array(snapshot[name]) for name in Beside._fields)
        n = sum(chunk.num_rows for chunk in chunks)
        kinds: list[tuple[Any, Any]] = list(zip(beside, self.beside, strict=True))
        if (
            any(not chunk.schema.equals(self._schema) for chunk in chunks)
            or any(a.dtype != b.dtype or a.shape != (n, *b.shape[1:]) for a, b in kinds)
            or (np.diff(beside.seq) <= 0).any()
        ):
            raise StateError(f"the stored state has rows that are not those of this input; {ANEW}")
        self._chunks, self.beside = chunks, beside
        if self._sizes is not None:
            self._sizes = np.concatenate([self._sizes, *map(row_bytes, chunks)])
