"""Event times: columns of any accepted type to int64 ticks, with a mask of the rows that have one."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.plugins.contract import Bools, Int64s
from slackwater.transforms.rows.encoder import int64s, valid_mask
from slackwater.transforms.rows.words import decoded, time_ticks
from slackwater.transforms.settings.time_unit import NANOS, is_read_from_text

LIMIT = 1 << 61
"""Times beyond this many ticks from the epoch are not times; keeps all arithmetic within 64 bits."""

_EPOCH: Final = datetime(1970, 1, 1)
_STAMP: Final = r"^(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}:\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?)?Z?$"


def event_times(column: pa.Array, unit: str) -> tuple[Int64s, Bools]:
    """Return each row's event time in ticks of ``unit``, and whether it has one.

    Text is read as an integer number of ticks, else as an ISO 8601 timestamp. A time that 64 bits cannot hold in
    this unit is none; one of a finer unit is rounded down.
    """
    column = decoded(column)
    known = valid_mask(column)
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64), np.zeros(len(column), np.bool_)
    if is_read_from_text(column.type):
        column = _parse_text(column, unit)
        known, ticks = valid_mask(column), int64s(column)
    elif pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        ticks, nanos = time_ticks(column)
        factor = nanos // NANOS[unit]
        if factor > 1:
            known = known & (ticks < LIMIT // factor) & (ticks > -(LIMIT // factor))
            ticks = np.where(known, ticks, 0) * factor
        elif factor == 0:
            ticks = ticks // (NANOS[unit] // nanos)
    elif pa.types.is_uint64(column.type):
        # Numbers from 2**63 on are negative here, and small ones are never.
        ticks = int64s(column.view(pa.int64()))
        known = known & (ticks >= 0)
    else:
        ticks = int64s(column.cast(pa.int64()))
    return ticks, known & (ticks > -LIMIT) & (ticks < LIMIT)


def _parse_text(column: pa.Array, unit: str) -> pa.Array:
    text = pc.utf8_trim_whitespace(column.cast(pa.large_string()))
    whole = pc.match_substring_regex(text, r"^[+-]?\d{1,18}$")
    numbers = pc.utf8_ltrim(pc.if_else(whole, text, None), "+").cast(pa.int64())
    if numbers.null_count == text.null_count:
        return numbers
    stamps = pc.if_else(pc.match_substring_regex(text, _STAMP), text, None)
    values = [_stamp(value, NANOS[unit]) for value in stamps.to_pylist()]
    return pc.coalesce(numbers, pa.array(values, pa.int64()))


def _stamp(text: str | None, nanos: int) -> int | None:
    """Return a timestamp in text as ticks; None for one that the calendar or 64 bits do not have."""
    parts = None if text is None else re.match(_STAMP, text)
    if parts is None:
        return None
    try:
        stamp = datetime.fromisoformat(f"{parts[1]}T{parts[2] or '00:00'}:{parts[3] or '00'}")
    except ValueError:
        return None
    since = stamp - _EPOCH
    seconds = since.days * 86_400 + since.seconds
    ticks = (seconds * NANOS["s"] + int((parts[4] or "0").ljust(9, "0"))) // nanos
    return ticks if -LIMIT < ticks < LIMIT else None
