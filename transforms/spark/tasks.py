"""What Spark's tasks do around the stateful step: pack rows, unpack what shards gave, replay whole shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from slackwater.plugins.clock import now_nanos
from slackwater.plugins.contract import NEVER
from slackwater.transforms.arrival.intake import PartProgress
from slackwater.transforms.arrival.order import times_of
from slackwater.transforms.disorder.scout import sampler
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.settings.plan import ARRIVAL, Plan
from slackwater.transforms.spark.blobs import (
    OUTPUT_ARROW,
    Note,
    Packed,
    from_blob,
    pack,
    pack_beat,
    pack_call,
    pack_note,
    pack_sample,
)
from slackwater.transforms.spark.shard import Given, Shard
from slackwater.transforms.spark.state import Output, account_of, as_blobs
from slackwater.transforms.spark.workers import spare_loaded

PACK_ROWS: Final = 1 << 17
PARTITION: Final = "__partition"
"""Hidden column with the number of the partition that a row is in."""
_PARTITION_SHIFT: Final = 40

Batches = Iterator[pa.RecordBatch]


class Says(NamedTuple):
    """What every shard is told besides its own rows."""

    beats: bool
    """How far the rows have come."""
    samples: bool
    """What to learn from."""
    calls: bool
    """By the first task of all, that there is a micro-batch; and by every task, how many rows it has read."""


def packer(
    plan: Plan, which: int, keys: Sequence[int], says: Says
) -> Callable[[Iterable[pa.RecordBatch]], Batches]:
    """Return the function that packs a partition of an input, numbering its rows.

    The number of the partition comes in a column: the one that a task knows counts over all inputs.
    """
    schema = plan.schemas[plan.inputs[which]]

    def packed(batches: Iterable[pa.RecordBatch]) -> Batches:
        rows, place, progress = 0, 0, PartProgress(plan, which)
        chooser = sampler(plan, which) if says.samples else None
        for table in _larger(batches):
            batch = _named(table, schema.names).cast(schema).combine_chunks().to_batches()[0]
            place = (table[PARTITION][0].as_py() << _PARTITION_SHIFT) + rows
            rows += batch.num_rows
            arrival = pa.array(place + np.arange(batch.num_rows, dtype=np.int64))
            numbered = batch.append_column(ARRIVAL, arrival)
            # Rows of a batch DataFrame have no order, and event times stand in for them.
            by_time = not says.calls and plan.arrival_columns is None
            numbers = times_of(plan, which, batch) if by_time else None
            yield pack(plan, which, numbered, keys, place, numbers)
            if says.beats:
                progress.follow(batch)
            if chooser is not None:
                yield pack_sample(which, chooser.choose(numbered), keys, place)
        if says.calls and rows:
            yield pack_note(which, Note(rows, rows, NEVER), keys, place)
        if progress.reached != NEVER:
            yield pack_beat(plan.counts_as[which], progress.reached, keys)
        task = TaskContext.get()
        if says.calls and task is not None and task.partitionId() == 0:
            yield pack_call(keys)
        spare_loaded()

    # Spark shows it in its plans.
    packed.__name__ = f"pack_{plan.inputs[which]}"
    return packed


def _named(table: pa.Table, names: list[str]) -> pa.Table:
    """Return the columns of these names; if there are none such, those that stand in their places."""
    if set(names) <= set(table.column_names):
        return table.select(names)
    return table.select(range(len(names))).rename_columns(names)


def _larger(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Put batches together to about PACK_ROWS rows."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            rows += batch.num_rows
        if rows >= PACK_ROWS:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def unpacker(kind: str, schema: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Batches]:
    """Return the function that makes rows of the blobs of one kind."""

    def unpacked(batches: Iterable[pa.RecordBatch]) -> Batches:
        for packed in batches:
            for blob in packed.column("blob"):
                yield from_blob(blob.as_buffer()).cast(schema)
        spare_loaded()

    unpacked.__name__ = f"unpack_{kind}"
    return unpacked


def whole_shard(plan: Plan, keys: Sequence[int]) -> Callable[[Any, Batches], Batches]:
    """Return the function that replays a shard from its first to its last row."""

    def replay(key: tuple[Any, ...], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shard_key = key[0].as_py()
        rows = [
            Packed(which.as_py(), place.as_py(), blob.as_buffer())
            for batch in batches
            for which, place, blob in zip(batch["input"], batch["place"], batch["blob"], strict=True)
        ]
        for number, out in enumerate(_all_of(Shard(plan, number=keys.index(shard_key)), rows)):
            row = (shard_key, out.kind, number, out.blob, out.counts)
            columns = [pa.array([value], field.type) for value, field in zip(row, OUTPUT_ARROW, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=OUTPUT_ARROW)

    return replay


def _all_of(shard: Shard, rows: list[Packed]) -> Iterator[Output]:
    """Yield what the rows of a shard give, its account last."""
    for outputs in shard.take(Given(rows, now_nanos()), last=True):
        yield from as_blobs(outputs)
    yield account_of(shard, Accounting(shard.accounting.inputs))
