"""Rows of a batch that may each be wanted many times: which ones is noted, and they are taken part by part.

Results of a join may have the same row often, and a column of texts ends at 2³¹ bytes (``rows/size.py``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Int64s
from slackwater.transforms.rows.size import fixed_bytes, row_bytes


class StoredRows:
    """Some rows of a batch, in any order; by default all of them.

    Args:
        rows: the batch.
        at: places in it.
    """

    def __init__(self, rows: pa.RecordBatch, at: Int64s | None = None) -> None:
        self._rows, self._at = rows, at

    @property
    def num_rows(self) -> int:
        """How many there are."""
        return self._rows.num_rows if self._at is None else len(self._at)

    def take(self, at: Int64s) -> StoredRows:
        """Return some of them."""
        return StoredRows(self._rows, np.asarray(at) if self._at is None else self._at[at])

    @property
    def sizes(self) -> Int64s:
        """Bytes of each."""
        width = fixed_bytes(self._rows.schema)
        if width is not None:
            return np.full(self.num_rows, int(width) + 1)
        sizes: Any = row_bytes(self._rows)
        return np.asarray(sizes if self._at is None else sizes[self._at], np.int64)

    def batch(self, part: slice = slice(None)) -> pa.RecordBatch:
        """Return those in a part as a batch, which they have to fit into."""
        if self._at is None:
            return self._rows if part == slice(None) else self._rows.slice(part.start, part.stop - part.start)
        return self._rows.take(pa.array(self._at[part]))
