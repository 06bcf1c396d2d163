"""Flatten: the rows of several transforms as those of one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from slackwater.pipelines.template.graph import ARRIVAL
from slackwater.transforms.arrival.bad_rows import BAD, has_bad


def flattened(batch: pa.RecordBatch, schema: pa.Schema, which: int, n: int) -> pa.RecordBatch:
    """Return a batch of input ``which`` of ``n`` with the columns of ``schema``.

    Rows keep different numbers in the hidden column; they are not an order of arrival. All have the column BAD.
    """
    numbers = np.asarray(batch.column(ARRIVAL)) * n + which
    rows = batch.select(schema.names)
    if rows.schema != schema:
        rows = rows.cast(schema)
    said = batch.column(BAD) if has_bad(batch) else pa.nulls(batch.num_rows, pa.string())
    return rows.append_column(ARRIVAL, pa.array(numbers, pa.int64())).append_column(BAD, said)
