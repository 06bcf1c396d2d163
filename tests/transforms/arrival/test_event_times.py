"""Event times: what is one, what is none, and that none is another time than was written."""

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import plan_of

from slackwater.transforms.arrival.event_times import LIMIT, event_times
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.operators.join import Chunk, Operator
from slackwater.transforms.settings.time_unit import NANOS


def read(column, unit):
    ticks, known = event_times(column, unit)
    return [int(tick) if ok else None for tick, ok in zip(ticks, known, strict=True)]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_times_of_any_type_are_read_exactly_or_not_at_all(data):
    unit = data.draw(st.sampled_from(list(NANOS)))
    own = data.draw(st.sampled_from([u for u in NANOS if NANOS[u] >= NANOS[unit]]))
    ticks = data.draw(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**10), 10**10), min_size=1))
    factor = NANOS[own] // NANOS[unit]
    wanted = [n * factor if abs(n) * factor < LIMIT and abs(n) < LIMIT // factor else None for n in ticks]
    assert read(pa.array(ticks).cast(pa.timestamp(own)), unit) == wanted


def test_dates_beyond_the_range_of_a_unit_are_no_times():
    dates = pa.array([datetime.date(9999, 1, 1), datetime.date(2024, 1, 1), datetime.date(1, 1, 1), None])
    assert read(dates, "ns") == [None, 1_704_067_200 * 10**9, None, None]
    assert read(dates, "us") == [253_370_764_800 * 10**6, 1_704_067_200 * 10**6, -62_135_596_800 * 10**6, None]


def test_unsigned_numbers_do_not_become_negative():
    assert read(pa.array([0, 2**64 - 1, 2**63, 7], pa.uint64()), "ms") == [0, None, None, 7]


@pytest.mark.parametrize(
    ("text", "ticks"),
    [
        ("+4", 4),
        ("-4", -4),
        (" 17 ", 17),
        ("+", None),
        ("++4", None),
        ("1e3", None),
        ("1.5", None),
        ("99999999999999999999", None),
        ("2024-01-01", 1_704_067_200_000_000_000),
        ("2024-01-01T00:00:00.000000001Z", 1_704_067_200_000_000_001),
        ("2024-01-01 00:01", 1_704_067_260_000_000_000),
        ("2608-01-01", None),
        ("9999-12-31T23:59:59", None),
        ("0000-01-01", None),
        ("2024-02-30", None),
        ("nan", None),
    ],
)
@pytest.mark.parametrize(
    "type_", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_times_in_text(text, ticks, type_):
    assert read(pa.array([text, None]).cast(type_), "ns") == [ticks, None]


def test_a_time_beyond_nanoseconds_is_a_bad_record_and_joins_nothing():
    near = pa.array([1_704_067_200], pa.timestamp("s")).cast(pa.timestamp("ns"))
    # 2**64 ns after 2024: as a wrapped number it would be the same time.
    far = pa.array([1_704_067_200 + 2**64 // 10**9, 1_704_067_200], pa.timestamp("s"))
    batches = [
        pa.RecordBatch.from_pydict({"ts": near, "k": [1]}),
        pa.RecordBatch.from_pydict({"ts": far, "k": [1, 1]}),
    ]
    plan = plan_of([batch.schema for batch in batches], window="1m", where="a.k = b.k")
    operator = Operator(plan)
    outs = [operator.push(Chunk(np.array([0, 1, 1], np.int8), np.arange(3), batches)), operator.finish()]
    assert sum(batch.num_rows for out in outs for batch in out.results) == 1
    (late,) = [row for out in outs for batch in out.late for row in batch.to_pylist()]
    assert (late["input"], late["reason"], late["ts"]) == ("b", "bad_record", None)
    assert "2608-07-" in late["row"]


@pytest.mark.parametrize("type_", [pa.float64(), pa.float32(), pa.bool_(), pa.decimal128(10, 0), pa.time32("s")])
def test_columns_that_hold_no_times_are_refused(type_):
    schema = pa.schema([("ts", type_), ("k", pa.int64())])
    with pytest.raises(ConfigError) as caught:
        plan_of({"a": schema, "b": schema}, time="ts", window="1m", where="a.k = b.k")
    assert str(caught.value) == (
        f"time: column 'ts' of input 'a' must be an integer, a timestamp or a date, got {type_}"
    )
