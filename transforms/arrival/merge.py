"""Arrival order and shards: from batches of rows to chunks that an operator takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Int64s
from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.arrival.order import in_order, numbers_of
from slackwater.transforms.rows.encoder import int64s
from slackwater.transforms.settings.plan import ARRIVAL, JoinPlan
from slackwater.transforms.sharding.copies import with_copies


def arrival_numbers(plan: JoinPlan, which: int, batch: pa.RecordBatch) -> Int64s:
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


def in_arrival_order(batches: Sequence[pa.RecordBatch], arrivals: Sequence[Int64s]) -> Chunk:
    """Merge one batch per input into a chunk; equal arrival numbers go in input order, then in row order."""
    sorted_batches, sorted_arrivals = [], []
    for batch, arrival in zip(batches, arrivals, strict=True):
        if not in_order(arrival):
            order = np.argsort(arrival, kind="stable")
            batch, arrival = batch.take(pa.array(order)), arrival[order]
        sorted_batches.append(without_arrival(batch))
        sorted_arrivals.append(arrival)
    arrival = np.concatenate(sorted_arrivals)
    inputs = np.repeat(np.arange(len(batches), dtype=np.int8), [len(a) for a in sorted_arrivals])
    order = np.argsort(arrival, kind="stable")
    return Chunk(inputs[order], arrival[order], sorted_batches)


class Part(NamedTuple):
    """The rows of a batch that go to one shard."""

    shard: int
    at: Int64s
    """Where they are in the batch, in rising order."""
    rows: pa.RecordBatch
    """With a column COPY where rows of their input may go to several shards."""


def split_by_shard(plan: JoinPlan, which: int, batch: pa.RecordBatch) -> list[Part]:
    """Return what each shard gets of a batch of input ``which``, but for shards that get nothing."""
    if not batch.num_rows:
        return []
    if plan.config.shards == 1:
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
