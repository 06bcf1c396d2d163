"""Copies of rows: a row that goes to several shards is accounted for in one of them, its home."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Bools
from slackwater.transforms.arrival.bad_rows import BAD

COPY: Final = "__copy"
"""Hidden boolean column of rows that were split over shards: true where another shard is the row's home."""


def with_copies(batch: pa.RecordBatch, copy: Bools) -> pa.RecordBatch:
    """Return the batch with marks."""
    return batch.append_column(COPY, pa.array(copy))


def without_copies(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Bools]:
    """Return the rows without marks, and which of them are copies."""
    if COPY not in batch.schema.names:
        return batch, np.zeros(batch.num_rows, np.bool_)
    copy = np.asarray(batch.column(COPY).to_numpy(zero_copy_only=False), np.bool_)
    return batch.drop_columns([COPY]), copy


def with_columns(batch: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    """Return columns of the batch, its marks if it has any, and what it says of rows that could not be read."""
    return batch.select([*names, *(name for name in (COPY, BAD) if name in batch.schema.names)])
