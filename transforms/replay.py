"""Arrival order and shards: from batches of rows to chunks that an operator takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

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
from slackwater.transforms.intake import Chunk
from slackwater.transforms.kernels import strings
from slackwater.transforms.plan import ARRIVAL, JoinPlan
from slackwater.transforms.times import LIMIT, event_times

EVERY_SHARD: Final = -1
"""Shard of a row that all of them get."""


def arrival_numbers(plan: JoinPlan, which: int, batch: pa.RecordBatch) -> Int64s:
    """Return the arrival number of each row: the named column, else the hidden one.

    A row without an arrival number is taken to have come right after the row before it. Where inputs are merged
    by event time, that is the number; a row without one comes first.
    """
    if plan.arrives_by_time:
        ticks, known = event_times(batch.column(plan.time_columns[which]), plan.unit)
        return np.where(known, ticks, -LIMIT)
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
    """Return the shard of each row, or EVERY_SHARD: by the key that all inputs share, alike in every process."""
    if plan.config.shards == 1:
        return np.zeros(batch.num_rows, np.int64)
    batch, everywhere = plan.shard_rows(which, batch)
    shards = (key_hashes(plan, which, batch) & np.int64(0x7FFFFFFFFFFFFFFF)) % plan.config.shards
    if everywhere is not None:
        shards[everywhere] = EVERY_SHARD
    return shards


def key_hashes(plan: JoinPlan, which: int, batch: pa.RecordBatch) -> Int64s:
    """Return a hash of each row's key that all inputs share, alike in every process; 0 where there is none."""
    n = batch.num_rows
    total = np.zeros(n, np.int64)
    for cell in plan.shard_cells(which):
        column = batch.column(cell.column)
        hashes = np.empty(n, np.int64)
        if pa.types.is_null(column.type):
            hashes[:] = 0
        elif cell.kind == "text":
            strings.hash_strings(*text_buffers(plain(column)), hashes)
        elif cell.kind == "time":
            # Times of different inputs that are equal must go to the same shard, whatever their units.
            keyed = len(plan.inputs) > 1 and not plan.arrives_by_time
            unit = time_unit(plan.condition, list(plan.member_schemas.values())) if keyed else None
            strings.hash_ints(time_words(column, unit or unit_of(column.type)), hashes)
        else:
            strings.hash_ints(number_words(column, cell.kind), hashes)
        hashes[~valid_mask(column)] = 0
        total = total * 31 + hashes
    return total


def split_by_shard(batch: pa.RecordBatch, shards: Int64s, n: int) -> list[tuple[int, pa.RecordBatch]]:
    """Return (shard, rows) for each of ``n`` shards that occurs, rows in their order."""
    present = np.unique(shards)
    if EVERY_SHARD in present:
        return [(s, batch.take(pa.array(in_shard(shards, s)))) for s in range(n)]
    if present.size <= 1:
        return [(int(shard), batch) for shard in present]
    return [(int(shard), batch.take(pa.array(in_shard(shards, shard)))) for shard in present]


def in_shard(shards: Int64s, shard: int) -> Int64s:
    """Return the rows that a shard gets."""
    return np.flatnonzero((shards == shard) | (shards == EVERY_SHARD))
