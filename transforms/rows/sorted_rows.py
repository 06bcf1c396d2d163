"""Rows of several batches in another order, taken a part at a time.

A column of texts ends at 2³¹ bytes (``rows/size.py``), and rows that wait may be more than that. So they are put
into one batch only where they fit; else each part is gathered from the batches that it lies in. Which of the two
changes no part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Int64s
from slackwater.transforms.rows.size import cuts, fits, row_bytes


class SortedRows:
    """Rows of batches of one schema.

    Args:
        schema: of the rows if there is no batch.
        batches: the rows.
        order: which of them, counted over all batches, comes first, second and so on; None if they are in order.
    """

    def __init__(self, schema: pa.Schema, batches: Sequence[pa.RecordBatch], order: Int64s | None = None) -> None:
        self._batches = list(batches) or [pa.RecordBatch.from_pylist([], schema=schema)]
        self._order = order
        if fits(self._batches):
            whole = self._batches[0] if len(self._batches) == 1 else pa.concat_batches(self._batches)
            self._batches = [whole if order is None else whole.take(pa.array(order))]
            self._order = None
        self._ends = np.cumsum([batch.num_rows for batch in self._batches])
        self.sizes = self._sizes()
        """Bytes of each row, in order; None where all fit into one batch."""

    def __len__(self) -> int:
        return int(self._ends[-1]) if self._order is None else len(self._order)

    def _sizes(self) -> Int64s | None:
        if len(self._batches) == 1:
            return None
        sizes = np.concatenate([row_bytes(batch) for batch in self._batches])
        return sizes if self._order is None else sizes[self._order]

    def take(self, start: int, n: int) -> pa.RecordBatch:
        """Return ``n`` rows from place ``start`` on: as many as fit into one batch."""
        if len(self._batches) == 1:
            return self._batches[0].slice(start, n)
        if self._order is not None:
            return self._gathered(self._order[start : start + n])
        first = int(np.searchsorted(self._ends, start, "right"))
        found = []
        while n > 0 and first < len(self._batches):
            batch = self._batches[first]
            part = batch.slice(start - int(self._ends[first]) + batch.num_rows, n)
            found.append(part)
            start, n, first = start + part.num_rows, n - part.num_rows, first + 1
        return pa.concat_batches(found) if found else self._batches[0].slice(0, 0)

    def cuts(self, most: int, start: int = 0, stop: int | None = None) -> Iterator[slice]:
        """Yield places in order, as many at a time as fit into one batch, at most ``most``.

        Args:
            most: places at a time.
            start: the first place.
            stop: the one behind the last; by default all are yielded.
        """
        sizes, stop = self.sizes, len(self) if stop is None else stop
        for first in range(start, stop, most):
            last = min(first + most, stop)
            for part in [slice(0, last - first)] if sizes is None else cuts(sizes[first:last]):
                yield slice(first + part.start, first + part.stop)

    def parts(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order, in as few batches as they fit into."""
        for part in self.cuts(max(1, len(self))):
            yield self.take(part.start, part.stop - part.start)

    def _gathered(self, at: Int64s) -> pa.RecordBatch:
        """Return the rows at these places; every batch is looked at once."""
        if not at.size:
            return self._batches[0].slice(0, 0)
        which = np.searchsorted(self._ends, at, "right")
        order = np.argsort(which, kind="stable")
        found = []
        first = 0
        for batch, stop in zip(*np.unique(which, return_counts=True), strict=True):
            mine = at[order[first : first + stop]]
            rows = self._batches[batch]
            found.append(rows.take(pa.array(mine - (self._ends[batch] - rows.num_rows))))
            first += stop
        back = np.empty_like(order)
        back[order] = np.arange(order.size)
        return pa.concat_batches(found).take(pa.array(back))
