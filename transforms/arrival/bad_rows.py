"""Unreadable rows: they travel among the others, as text, to a late output."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Bools, Int64s
from slackwater.transforms.settings.plan import ARRIVAL

BAD: Final = "__bad"
"""Hidden text column: of a row that could not be read its text and the fault, as JSON; null of all others."""
HIDDEN: Final = (ARRIVAL, BAD)
"""Columns that sources add and that Filter and MapToFields pass on."""


def bad_row(raw: str, fault: str) -> str:
    """Return what the column BAD, and later ``row`` of the late output, has of a row."""
    text = json.dumps({"raw": raw, "fault": fault}, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode()


def with_bad(batch: pa.RecordBatch, at: Sequence[int] | Int64s = (), texts: Sequence[str] = ()) -> pa.RecordBatch:
    """Return the batch with the column BAD; rows ``at`` cannot be read, and keep nothing but ``texts``."""
    if not len(at):
        return batch.append_column(BAD, pa.nulls(batch.num_rows, pa.string()))
    bad = np.zeros(batch.num_rows, np.bool_)
    bad[at] = True
    rows = pa.array(np.arange(batch.num_rows), mask=bad)
    places = np.zeros(batch.num_rows, np.int64)
    places[at] = np.arange(len(at))
    return batch.take(rows).append_column(BAD, pa.array(texts, pa.string()).take(pa.array(places, mask=~bad)))


def has_bad(batch: pa.RecordBatch) -> bool:
    """Whether the batch says of its rows if they could be read."""
    return BAD in batch.schema.names


def bad_ones(batch: pa.RecordBatch) -> Bools | None:
    """Return which rows could not be read; None where all could."""
    if not has_bad(batch):
        return None
    column = batch.column(BAD)
    if column.null_count == len(column):
        return None
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def without_bad_column(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch without the column BAD."""
    return batch.drop_columns([BAD]) if has_bad(batch) else batch


def fault_of(text: str) -> str:
    """Return the fault in what ``bad_row`` returned."""
    return str(json.loads(text)["fault"])
