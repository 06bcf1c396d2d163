"""What the rows of an input become on their way to the shards, in the tasks that read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from slackwater.plugins.contract import NEVER
from slackwater.transforms.intake import PartProgress
from slackwater.transforms.plan import ARRIVAL, JoinPlan
from slackwater.transforms.scouting import sampler
from slackwater.transforms.spark.packing import pack, pack_beat, pack_call, pack_sample

PARTITION: Final = "__partition"
"""Hidden column with the number of the partition that a row is in."""
PACK_ROWS: Final = 1 << 17
_SHIFT: Final = 40

Batches = Iterator[pa.RecordBatch]


class Says(NamedTuple):
    """What every shard is told besides its own rows."""

    beats: bool
    """How far the rows have come."""
    samples: bool
    """What to learn from."""
    calls: bool
    """By the first task of all, that there is a micro-batch."""


def packer(
    plan: JoinPlan, which: int, keys: Sequence[int], says: Says
) -> Callable[[Iterable[pa.RecordBatch]], Batches]:
    """Return the function that packs a partition of an input, numbering its rows.

    The number of the partition comes in a column: the one that a task knows counts over all inputs.
    """
    schema = plan.schemas[plan.inputs[which]]

    def packed(batches: Iterable[pa.RecordBatch]) -> Batches:
        rows, progress = 0, PartProgress(plan, which)
        chooser = sampler(plan, which) if says.samples else None
        for table in _larger(batches):
            batch = table.select(schema.names).cast(schema).combine_chunks().to_batches()[0]
            place = (table[PARTITION][0].as_py() << _SHIFT) + rows
            rows += batch.num_rows
            arrival = pa.array(place + np.arange(batch.num_rows, dtype=np.int64))
            numbered = batch.append_column(ARRIVAL, arrival)
            yield pack(plan, which, numbered, keys, place)
            if says.beats:
                progress.follow(batch)
            if chooser is not None:
                yield pack_sample(which, chooser.choose(numbered), keys, place)
        if progress.reached != NEVER:
            yield pack_beat(plan.counts_as[which], progress.reached, keys)
        task = TaskContext.get()
        if says.calls and task is not None and task.partitionId() == 0:
            yield pack_call(keys)

    return packed


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
