"""Event times: columns of any accepted type to int64 ticks, with a mask of the rows that have one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.plugins.contract import Bools, Int64s
from slackwater.transforms.encode import int64s, valid_mask

LIMIT = 1 << 61
"""Times beyond this many ticks from the epoch are not times; keeps all arithmetic within 64 bits."""


def event_times(column: pa.Array, unit: str) -> tuple[Int64s, Bools]:
    """Return each row's event time in ticks of ``unit``, and whether it has one.

    Text is read as an integer number of ticks, else as an ISO 8601 timestamp.
    """
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = _parse_text(column, unit)
    elif pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        column = column.cast(pa.timestamp(unit, getattr(column.type, "tz", None)), safe=False)
    ticks = int64s(column.cast(pa.int64(), safe=False))
    return ticks, valid_mask(column) & (ticks > -LIMIT) & (ticks < LIMIT)


def _parse_text(column: pa.Array, unit: str) -> pa.Array:
    text = pc.utf8_trim_whitespace(column)
    whole = pc.match_substring_regex(text, r"^[+-]?\d{1,18}$")
    numbers = pc.if_else(whole, text, None).cast(pa.int64())
    if numbers.null_count == text.null_count:
        return numbers
    stamp = r"^\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?)?Z?$"
    stamps = pc.if_else(pc.match_substring_regex(text, stamp), pc.utf8_rtrim(text, "Z"), None)
    values = [_stamp(value, np.dtype(f"datetime64[{unit}]")) for value in stamps.to_pylist()]
    return pc.coalesce(numbers, pa.array(values, pa.int64()))


def _stamp(text: str | None, unit: np.dtype[np.datetime64]) -> int | None:
    """Return a timestamp in text as ticks; None for one that the calendar does not have."""
    try:
        return None if text is None else int(np.array(text, unit).astype(np.int64))
    except ValueError:
        return None
