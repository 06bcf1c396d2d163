"""Flatten: the rows of several transforms as those of one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from slackwater.pipelines.graph import ARRIVAL


def flattened(batch: pa.RecordBatch, schema: pa.Schema, which: int, n: int) -> pa.RecordBatch:
    """Return a batch of input ``which`` of ``n`` with the columns of ``schema``.

    Rows keep different numbers in the hidden column; they are not an order of arrival.
    """
    numbers = np.asarray(batch.column(ARRIVAL)) * n + which
    rows = batch.select(schema.names)
    if rows.schema != schema:
        rows = rows.cast(schema)
    return rows.append_column(ARRIVAL, pa.array(numbers, pa.int64()))
