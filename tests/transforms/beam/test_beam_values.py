"""Rows of Beam to Arrow: a value is taken as it is, or its row goes to the late output with what it was."""

import datetime
import json
import typing
from decimal import Decimal

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.utils.timestamp import Timestamp

from slackwater.transforms.arrival.bad_rows import BAD
from slackwater.transforms.beam import SlidingWindowJoin
from slackwater.transforms.beam.rows import RowReader

GOOD = {
    pa.date32(): datetime.date(2024, 1, 1),
    pa.decimal128(38, 9): Decimal("1.5"),
    pa.timestamp("s"): Timestamp(7),
    pa.timestamp("us"): datetime.datetime(2024, 1, 1),
    pa.string(): "x",
    pa.bool_(): True,
}


def read(type_, *values):
    """What becomes of values in a column: (the values, the faults), one of each per row."""
    schema = pa.schema([("x", type_), ("n", pa.int64())])
    batch = RowReader("a", schema).read([beam.Row(x=value, n=k) for k, value in enumerate(values)])
    faults = [None if text is None else json.loads(text)["fault"] for text in batch.column(BAD).to_pylist()]
    assert batch.column("n").to_pylist() == [None if fault else k for k, fault in enumerate(faults)]
    return batch.column("x").to_pylist(), faults


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.int64(), 1.9),
        (pa.int64(), 1_700_000_000.25),
        (pa.int64(), float("inf")),
        (pa.int64(), np.float32(0.5)),
        (pa.int64(), Decimal("1.9")),
        (pa.int64(), 2**63),
        (pa.int64(), "7"),
        (pa.int64(), Timestamp(5)),
        (pa.int8(), 200),
        (pa.uint64(), -1),
        (pa.float64(), 2**53 + 1),
        (pa.date32(), datetime.datetime(2024, 1, 1, 12)),
        (pa.decimal128(38, 9), Decimal("0.1234567891")),
        (pa.timestamp("s"), Timestamp(micros=1)),
        (pa.timestamp("us"), "yesterday"),
        (pa.string(), 7),
        (pa.bool_(), 2),
    ],
)
def test_a_value_that_a_column_cannot_hold_makes_its_row_a_bad_one(type_, value):
    values, faults = read(type_, GOOD.get(type_, 3), value, None)
    assert values[1:] == [None, None]
    assert values[0] is not None
    assert faults == [None, f"x: {value!r} is no {type_}", None]


@pytest.mark.parametrize(
    ("type_", "value", "taken"),
    [
        (pa.int64(), 2.0, 2),
        (pa.int64(), np.float64(2.0**62), 2**62),
        (pa.int64(), float("nan"), None),
        (pa.int64(), True, 1),
        (pa.int64(), np.int8(3), 3),
        (pa.uint64(), 2**64 - 1, 2**64 - 1),
        (pa.float64(), 3, 3.0),
        (pa.date32(), datetime.datetime(2024, 1, 1), datetime.date(2024, 1, 1)),
        (pa.timestamp("us"), Timestamp(micros=1), datetime.datetime(1970, 1, 1, 0, 0, 0, 1)),
        (pa.decimal128(38, 9), Decimal("0.5"), Decimal("0.500000000")),
        (pa.binary(), b"\x00\xff", b"\x00\xff"),
    ],
)
def test_a_value_that_a_column_can_hold_is_taken(type_, value, taken):
    assert read(type_, value, None) == ([taken, None], [None, None])
    # Beside a value that is looked at by itself, it is the same.
    assert read(type_, value, object())[0] == [taken, None]


def test_a_row_that_is_not_like_the_first_is_a_bad_one():
    schema = pa.schema([("x", pa.int64()), ("y", pa.int64())])
    batch = RowReader("a", schema).read([beam.Row(x=1, y=2), beam.Row(x=1), {"x": 5}])
    assert batch.column("x").to_pylist() == [1, None, 5]
    assert [json.loads(t)["fault"] for t in batch.column(BAD).to_pylist() if t] == ["has no field 'y'"]


class Offer(typing.NamedTuple):
    """A row whose types are those of its values, or so they say."""

    ts: int
    price: int


@pytest.mark.parametrize("shards", [1, 3])
def test_rows_with_changed_values_are_in_the_late_output_with_what_they_were(shards):
    offers = [Offer(1, 2), Offer(2, 1.9), Offer(3.25, 3), Offer(4, 3)]  # type: ignore[arg-type]
    with beam.Pipeline() as p:
        a = p | "A" >> beam.Create(offers).with_output_types(Offer)
        b = p | "B" >> beam.Create([beam.Row(ts=k, price=k) for k in range(5)])
        join = SlidingWindowJoin(time="ts", window="1m", where="a.price = b.price", shards=shards)
        outputs = {"a": a, "b": b} | join
        found = outputs["out"] | "Found" >> beam.Map(lambda row: (row.a_ts, row.a_price))
        late = outputs["late"] | "Late" >> beam.Map(lambda row: (row.input, row.reason, row.row))
        assert_that(found, equal_to([(1, 2), (4, 3)]), label="found")
        bad = [
            ({"ts": 2, "price": 1.9}, "price: 1.9 is no int64"),
            ({"ts": 3.25, "price": 3}, "ts: 3.25 is no int64"),
        ]
        shown = [("a", "bad_record", json.dumps({"raw": json.dumps(row), "fault": fault})) for row, fault in bad]
        assert_that(late, equal_to(shown), label="late")
