"""The rows of one input that are still needed, as Arrow batches, found by row number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Bools, Int64s, UInt64s
from slackwater.transforms.kernels import rows as kernel


class RowStore:
    """Rows in order of their number, with their cells and delays beside them.

    Appending keeps the batches as a few chunks of falling size; ``keep`` throws away all other rows. Both
    cost amortised constant time per row as long as ``keep`` is called when most rows are dead.
    """

    def __init__(self, schema: pa.Schema, width: int) -> None:
        self._schema = schema
        self._chunks: list[pa.RecordBatch] = []
        self.seq: Int64s = np.empty(0, np.int64)
        self.cells: Int64s = np.empty((0, width), np.int64)
        self.nulls: UInt64s = np.empty(0, np.uint64)
        self.delay: Int64s = np.empty(0, np.int64)
        self.reported: Bools = np.empty(0, np.bool_)
        """Rows that are in the late output already."""

    def __len__(self) -> int:
        return len(self.seq)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows and of what is kept beside them."""
        beside = self.seq.nbytes + self.cells.nbytes + self.nulls.nbytes + self.delay.nbytes
        return int(beside + sum(chunk.nbytes for chunk in self._chunks))

    def append(self, batch: pa.RecordBatch, seq: Int64s, cells: Int64s, nulls: UInt64s, delay: Int64s) -> None:
        """Add rows whose numbers are larger than all before."""
        if not batch.num_rows:
            return
        self._chunks.append(batch)
        while len(self._chunks) > 1 and self._chunks[-2].num_rows <= 2 * self._chunks[-1].num_rows:
            self._chunks[-2:] = [pa.concat_batches(self._chunks[-2:])]
        self.seq = np.concatenate([self.seq, seq])
        self.cells = np.concatenate([self.cells, cells])
        self.nulls = np.concatenate([self.nulls, nulls])
        self.delay = np.concatenate([self.delay, delay])
        self.reported = np.concatenate([self.reported, np.zeros(len(seq), np.bool_)])

    def locate(self, seqs: Int64s) -> Int64s:
        """Return where each of ``seqs`` stands; all must be there."""
        out = np.empty(len(seqs), np.int64)
        if len(seqs):
            kernel.locate(self.seq, np.ascontiguousarray(seqs), out)
        return out

    def take(self, seqs: Int64s) -> list[Any]:
        """Return the rows with these numbers, as one Arrow array per column."""
        at = self.locate(seqs)
        if not self._chunks:
            return [pa.array([], field.type) for field in self._schema]
        if len(self._chunks) == 1:
            return list(self._chunks[0].take(pa.array(at)).columns)
        table = pa.Table.from_batches(self._chunks).take(pa.array(at))
        return [column.combine_chunks() for column in table.columns]

    def batch(self, seqs: Int64s) -> pa.RecordBatch:
        """Return the rows with these numbers as one batch."""
        return pa.RecordBatch.from_arrays(self.take(seqs), schema=self._schema)

    def keep(self, seqs: Int64s) -> None:
        """Forget every row but these."""
        seqs = np.sort(seqs)
        at = self.locate(seqs)
        batch = self.batch(seqs)
        self._chunks = [batch] if batch.num_rows else []
        self.seq = seqs
        self.cells, self.nulls = self.cells[at], self.nulls[at]
        self.delay, self.reported = self.delay[at], self.reported[at]
