"""Order of arrival: columns of any accepted type as comparable int64 numbers, and what stands in for a column.

Integers are compared as they are. Timestamps, dates and text are times: nanoseconds, or the finest unit of the
columns if none is text. Without a column, the number of a row is the *progress* of its input, the largest event
time up to it, so that inputs of unequal rates advance together. Rows of one number go in input order, then in
that of their input. Rows of unknown order have their event time as number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.plugins.contract import NEVER, Bools, Int64s
from slackwater.transforms.arrival.event_times import event_times
from slackwater.transforms.errors import SlackwaterError
from slackwater.transforms.rows.encoder import int64s, valid_mask
from slackwater.transforms.rows.words import decoded
from slackwater.transforms.settings.time_unit import NANOS, arrival_unit, is_text

if TYPE_CHECKING:
    from slackwater.transforms.settings.plan import Plan


class Numbers(NamedTuple):
    """Numbers of arrival of some rows that follow each other, as far as these tell."""

    values: Int64s
    follows: Bools | None
    """Which of them have the largest number so far, those of rows before these included; None if none has."""

    @property
    def reached(self) -> int:
        """The largest number."""
        return int(self.values.max(initial=NEVER))

    def after(self, reached: int) -> Int64s:
        """Return the numbers, if rows before these have reached this one."""
        if self.follows is None or reached == NEVER:
            return self.values
        return np.where(self.follows, np.maximum(self.values, reached), self.values)


def numbers_of(plan: Plan, which: int, batch: pa.RecordBatch) -> Numbers:
    """Return the numbers of rows of input ``which``, which are in the order of the input.

    Raises:
        SlackwaterError: A value of the arrival column cannot be compared.
    """
    follows = followers(plan, which, batch)
    if plan.arrival_columns is None or plan.by_time:
        values = times_of(plan, which, batch)
    else:
        values = _column(plan, which, batch.column(plan.arrival_columns[which]))
    if follows is not None:
        values = np.where(follows, np.maximum.accumulate(values), values)
    return Numbers(values, follows)


def followers(plan: Plan, which: int, batch: pa.RecordBatch) -> Bools | None:
    """Return which rows of input ``which`` have the largest number so far, None if none has.

    All have it where no column is named, else those that say nothing.
    """
    if plan.arrival_columns is None:
        return np.ones(batch.num_rows, np.bool_)
    column = decoded(batch.column(plan.arrival_columns[which]))
    if plan.by_time or not column.null_count:
        return None
    return ~valid_mask(column)


def times_of(plan: Plan, which: int, batch: pa.RecordBatch) -> Int64s:
    """Return the event times of rows of input ``which`` in ticks, NEVER where there is none."""
    ticks, known = event_times(batch.column(plan.time_columns[which]), plan.unit)
    return np.where(known, ticks, NEVER)


def in_order(numbers: Int64s) -> bool:
    """Whether numbers never fall."""
    return not (numbers[1:] < numbers[:-1]).any()


class Numbering:
    """Numbers the rows of one input, batch after batch in its order."""

    def __init__(self, plan: Plan, which: int) -> None:
        self._plan, self._which = plan, which
        self._reached = NEVER

    def number(self, batch: pa.RecordBatch) -> Int64s:
        """Return the number of each row."""
        numbers = numbers_of(self._plan, self._which, batch).after(self._reached)
        self._reached = max(self._reached, int(numbers.max(initial=NEVER)))
        return numbers


class Reached:
    """How far batches bring their input, which are told in any order, each by the place of its first row."""

    def __init__(self, told: Sequence[tuple[int, int]], before: int = NEVER) -> None:
        ordered = sorted(told)
        self._places = [place for place, _ in ordered]
        self._reached = np.maximum.accumulate([before, *(reached for _, reached in ordered)])

    def before(self, place: int) -> int:
        """Return the largest number of the batches before the one that has a row at this place."""
        return int(self._reached[max(0, int(np.searchsorted(self._places, place, side="right")) - 1)])

    @property
    def last(self) -> int:
        """The largest number of all."""
        return int(self._reached[-1])


def _column(plan: Plan, which: int, column: pa.Array) -> Int64s:
    """Return an arrival column as numbers, NEVER where there is none."""
    assert plan.arrival_columns is not None
    column = decoded(column)
    try:
        unit = arrival_unit(plan.arrival_columns, plan.schemas)
        if is_text(column.type):
            column = _parsed(column, plan.config.time_unit)
        elif unit is not None and not pa.types.is_null(column.type):
            column = column.cast(pa.timestamp(unit, getattr(column.type, "tz", None)))
        values = int64s(column.cast(pa.int64()))
    except pa.ArrowInvalid as error:
        name, fault = plan.inputs[which], str(error).split("\n", 1)[0].rstrip(".")
        raise SlackwaterError(
            f"arrival: column {plan.arrival_columns[which]!r} of input {name!r} has a value that cannot be "
            f"compared: {fault}; correct the value, or filter its row out"
        ) from None
    return np.where(valid_mask(column), values, NEVER) if column.null_count else values


def _parsed(column: pa.Array, unit: str) -> pa.Array:
    """Return times in text as nanoseconds: ISO 8601, in UTC where they name no zone, or numbers of ``unit``."""
    text = pc.utf8_trim_whitespace(column.cast(pa.large_string()))
    whole = pc.match_substring_regex(text, r"^[+-]?\d+$")
    zoned = pc.match_substring_regex(text, r":.*(Z|[+-]\d{2}:?\d{2})$")
    numbers = pc.utf8_ltrim(pc.if_else(whole, text, None), "+").cast(pa.int64())
    times = [
        pc.if_else(pc.and_(pc.equal(zoned, with_zone), pc.invert(whole)), text, None)
        .cast(pa.timestamp("ns", "UTC" if with_zone else None))
        .cast(pa.int64())
        for with_zone in (False, True)
    ]
    return pc.coalesce(pc.multiply_checked(numbers, pa.scalar(NANOS[unit], pa.int64())), *times)
