"""Arrival order and shards: from batches of rows to chunks that an operator takes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.plugins.contract import Int64s
from slackwater.transforms.encode import (
    int64s,
    number_words,
    plain,
    text_buffers,
    time_unit,
    time_words,
    unit_of,
    valid_mask,
)
from slackwater.transforms.kernels import strings
from slackwater.transforms.operator import Chunk
from slackwater.transforms.plan import ARRIVAL, JoinPlan


def arrival_numbers(plan: JoinPlan, which: int, batch: pa.RecordBatch) -> Int64s:
    """Return the arrival number of each row: the named column, else the hidden one.

    A row without an arrival number is taken to have come right after the row before it.
    """
    column = batch.column(ARRIVAL if plan.arrival_columns is None else plan.arrival_columns[which])
    if column.null_count:
        column = pc.fill_null(pc.fill_null_forward(column), 0)
    return int64s(column.cast(pa.int64(), safe=False))


def without_arrival(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch without the hidden column."""
    return batch.drop_columns([ARRIVAL]) if ARRIVAL in batch.schema.names else batch


def in_arrival_order(batches: Sequence[pa.RecordBatch], arrivals: Sequence[Int64s]) -> Chunk:
    """Merge one batch per input into a chunk; equal arrival numbers go in input order, then in row order."""
    sorted_batches, sorted_arrivals = [], []
    for batch, arrival in zip(batches, arrivals, strict=True):
        if arrival.size and (np.diff(arrival) < 0).any():
            order = np.argsort(arrival, kind="stable")
            batch, arrival = batch.take(pa.array(order)), arrival[order]
        sorted_batches.append(without_arrival(batch))
        sorted_arrivals.append(arrival)
    arrival = np.concatenate(sorted_arrivals)
    inputs = np.repeat(np.arange(len(batches), dtype=np.int8), [len(a) for a in sorted_arrivals])
    order = np.argsort(arrival, kind="stable")
    return Chunk(inputs[order], arrival[order], sorted_batches)


def shards_of(plan: JoinPlan, which: int, batch: pa.RecordBatch) -> Int64s:
    """Return the shard of each row: by the key that all inputs share, the same in every process."""
    n = batch.num_rows
    cells = plan.shard_cells(which) if plan.config.shards > 1 else []
    total = np.zeros(n, np.int64)
    for cell in cells:
        column = batch.column(cell.column)
        hashes = np.empty(n, np.int64)
        if cell.kind == "text":
            strings.hash_strings(*text_buffers(plain(column)), hashes)
        elif cell.kind == "time":
            # Times of different inputs that are equal must go to the same shard, whatever their units.
            unit = time_unit(plan.condition, list(plan.schemas.values())) if len(plan.inputs) > 1 else None
            strings.hash_ints(time_words(column, unit or unit_of(column.type)), hashes)
        else:
            strings.hash_ints(number_words(column, cell.kind), hashes)
        hashes[~valid_mask(column)] = 0
        total = total * 31 + hashes
    return (total & np.int64(0x7FFFFFFFFFFFFFFF)) % plan.config.shards


def split_by_shard(batch: pa.RecordBatch, shards: Int64s) -> list[tuple[int, pa.RecordBatch]]:
    """Return (shard, rows) for each shard that occurs, rows in their order."""
    present = np.unique(shards)
    if present.size <= 1:
        return [(int(shard), batch) for shard in present]
    return [(int(shard), batch.take(pa.array(np.flatnonzero(shards == shard)))) for shard in present]
