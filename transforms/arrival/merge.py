"""Arrival order and shards: from batches of rows to chunks that an operator takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Int8s, Int64s
from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.arrival.order import in_order, numbers_of
from slackwater.transforms.rows.encoder import int64s
from slackwater.transforms.rows.size import cuts
from slackwater.transforms.rows.sorted_rows import SortedRows
from slackwater.transforms.settings.plan import ARRIVAL, Plan
from slackwater.transforms.sharding.copies import with_copies


def arrival_numbers(plan: Plan, which: int, batch: pa.RecordBatch) -> Int64s:
    """Return a number for each row that follows from itself and the batch: the named column, else the hidden one.

    Batches of a live input are taken in this order, and rows are scattered over shards by it. Of a bounded input,
    ``transforms.arrival.order`` says which rows come first.
    """
    if plan.arrival_columns is None:
        return int64s(batch.column(ARRIVAL))
    return numbers_of(plan, which, batch).values


def without_arrival(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch without the hidden column of arrival numbers."""
    return batch.drop_columns([ARRIVAL]) if ARRIVAL in batch.schema.names else batch


class Merged(NamedTuple):
    """Rows of all inputs in order of arrival, to be taken in steps; where these are cut changes no result."""

    input: Int8s
    """The input of each arrival."""
    arrival: Int64s
    """Its number."""
    rows: list[SortedRows]
    """Of each input, in order."""

    @property
    def size(self) -> int:
        """How many rows there are."""
        return self.input.size

    def whole(self) -> Chunk:
        """Return all rows as one chunk: they have to fit into it."""
        return Chunk(self.input, self.arrival, [rows.take(0, len(rows)) for rows in self.rows])

    def steps(self, most: int, came: Int64s | None = None, bounded: bool = False) -> Iterator[Chunk]:
        """Yield all rows in chunks of ``most`` rows, or of as many bytes as fit into a batch.

        Args:
            most: rows of a chunk.
            came: as in a chunk, for all rows.
            bounded: as in a chunk.
        """
        taken = [0] * len(self.rows)
        for part in self._cuts(most):
            inputs = self.input[part]
            counts = np.bincount(inputs, minlength=len(taken)).tolist()
            batches = [rows.take(at, n) for rows, at, n in zip(self.rows, taken, counts, strict=True)]
            taken = [at + n for at, n in zip(taken, counts, strict=True)]
            yield Chunk(inputs, self.arrival[part], batches, None if came is None else came[part], bounded)

    def _cuts(self, most: int) -> Iterator[slice]:
        known = [rows.sizes for rows in self.rows]
        sizes = np.zeros(self.size, np.int64)
        for i, size in enumerate(known):
            if size is not None:
                sizes[self.input == i] = size
        for start in range(0, self.size, most):
            stop = min(start + most, self.size)
            if all(size is None for size in known):
                yield slice(start, stop)
                continue
            for part in cuts(sizes[start:stop]):
                yield slice(start + part.start, start + part.stop)


def merge(rows: Sequence[SortedRows], arrivals: Sequence[Int64s]) -> Merged:
    """Merge the rows of all inputs, which are in order; equal arrival numbers go in input order."""
    arrival = np.concatenate(arrivals)
    inputs = np.repeat(np.arange(len(rows), dtype=np.int8), [len(a) for a in arrivals])
    order = np.argsort(arrival, kind="stable")
    return Merged(inputs[order], arrival[order], list(rows))


def in_arrival_order(batches: Sequence[pa.RecordBatch], arrivals: Sequence[Int64s]) -> Chunk:
    """Merge one batch per input into a chunk; equal arrival numbers go in input order, then in row order."""
    rows, numbers = [], []
    for batch, arrival in zip(batches, arrivals, strict=True):
        order = None if in_order(arrival) else np.argsort(arrival, kind="stable")
        rows.append(SortedRows(batch.schema, [without_arrival(batch)], order))
        numbers.append(arrival if order is None else arrival[order])
    return merge(rows, numbers).whole()


class Part(NamedTuple):
    """The rows of a batch that go to one shard."""

    shard: int
    at: Int64s
    """Where they are in the batch, in rising order."""
    rows: pa.RecordBatch
    """With a column COPY where rows of their input may go to several shards."""


def split_by_shard(plan: Plan, which: int, batch: pa.RecordBatch) -> list[Part]:
    """Return what each shard gets of a batch of input ``which``, but for shards that get nothing."""
    if not batch.num_rows:
        return []
    if plan.shards == 1:
        return [Part(0, np.arange(batch.num_rows), batch)]
    copies = plan.partitioning.copies(which)
    home, row, shards = plan.partitioning.routes(which, batch)
    cuts = np.flatnonzero(np.diff(shards, prepend=-1)).tolist()
    parts = []
    for start, stop in zip(cuts, [*cuts[1:], row.size], strict=True):
        at, shard = row[start:stop], int(shards[start])
        rows = batch if at.size == batch.num_rows else batch.take(pa.array(at))
        parts.append(Part(shard, at, with_copies(rows, home[at] != shard) if copies else rows))
    return parts
