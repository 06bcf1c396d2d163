"""Event times as Beam's timestamps: windows, combines and triggers behind a transform go by them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp

from slackwater.transforms.rows.encoder import int64s, valid_mask
from slackwater.transforms.settings.time_unit import NANOS

_MICRO: Final = 1000


class EventTime(NamedTuple):
    """Where the rows of an output have their event time."""

    column: str
    unit: str
    """Of whole numbers: s, ms, us or ns."""


def stamps(batch: pa.RecordBatch, time: EventTime, otherwise: Timestamp, window: Any) -> list[Timestamp]:
    """Return Beam's timestamp of each row: its event time, within the bounds of its Beam window.

    Args:
        batch: the rows.
        time: where they have their event time.
        otherwise: the timestamp of rows that have none, or one in text.
        window: Beam window that the rows are in, and stay in.
    """
    column = batch.column(time.column)
    unit = time.unit
    if pa.types.is_timestamp(column.type):
        unit = column.type.unit
    elif pa.types.is_date(column.type):
        column, unit = column.cast(pa.timestamp("ms")), "ms"
    elif not pa.types.is_integer(column.type):
        return [otherwise] * batch.num_rows
    low, high = _bounds(window)
    micros = np.clip(_micros(int64s(column.cast(pa.int64(), safe=False)), NANOS[unit]), low, high).tolist()
    if not column.null_count:
        return [Timestamp(micros=at) for at in micros]
    known = valid_mask(column).tolist()
    return [Timestamp(micros=at) if has else otherwise for at, has in zip(micros, known, strict=True)]


def _micros(ticks: Any, nanos: int) -> Any:
    """Return ticks in microseconds; what is beyond 64 bits becomes the last that is not."""
    if nanos < _MICRO:
        return ticks // (_MICRO // nanos)
    most = np.iinfo(np.int64).max // (nanos // _MICRO)
    return np.clip(ticks, -most, most) * (nanos // _MICRO)


def _bounds(window: Any) -> tuple[int, int]:
    """Return the first and the last microsecond of a window."""
    start = MIN_TIMESTAMP if isinstance(window, GlobalWindow) else window.start
    return start.micros, window.max_timestamp().micros
