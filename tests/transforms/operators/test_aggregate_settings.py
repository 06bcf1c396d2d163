"""Settings of SlidingWindowAggregate: the message for every fault, and the types that go in and come out."""

import datetime
import decimal
import math

import numpy as np
import pyarrow as pa
import pytest
from aggregate_reference import plan_of, run

from slackwater.transforms.errors import ConfigError, SlackwaterError
from slackwater.transforms.operators.aggregate.plan import bind_aggregate
from slackwater.transforms.settings.models import AggregateConfig

SCHEMA = pa.schema(
    [("ts", pa.int64()), ("k", pa.string()), ("v", pa.int64()), ("b", pa.bool_()), ("l", pa.list_(pa.int64())),
     ("end", pa.int64()), ("at", pa.int64())]
)  # fmt: skip
GOOD = {"time": "ts", "range": "10s", "group_by": ["k"], "aggregates": {"n": "count(*)"}}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"range": 0}, "range: must be longer than 0, got 0s"),
        ({"range": "-5s"}, "range: must be a duration such as 250ms, 5s, 1m, 2h or 1d, got '-5s'"),
        ({"range": None}, "range: must be a duration such as 250ms, 5s, 1m, 2h or 1d, got None"),
        ({"slide": "0s"}, "slide: must be longer than 0, got 0s"),
        ({"slide": "-1m"}, "slide: must be a duration such as 250ms, 5s, 1m, 2h or 1d, got '-1m'"),
        ({"slide": "1us"}, "slide: must be a whole number of ms, the unit of the event times, got 1us"),
        (
            {"range": "99999999999d"},
            "range: must be shorter: there are no event times in ms that are so far apart",
        ),
        ({"time": "when"}, "time: input 'input' has no column 'when'; it has ts, k, v, b, l, end, at"),
        (
            {"window": "5s"},
            "window: is not a setting; known settings: time, time_unit, error_handling, arrival, ",
        ),
        ({"group_by": ["x"]}, "group_by: there is no column 'x'; there are ts, k, v, b, l, end, at"),
        ({"group_by": ["k", "v", "k"]}, "group_by: names 'k' twice; remove one"),
        (
            {"group_by": "l"},
            "group_by: column 'l' has type list<item: int64>, which cannot be grouped by; use a simple column",
        ),
        (
            {"group_by": "end"},
            "group_by: column 'end' is called like a column of the results (extent, start, end, sync, ts); ",
        ),
        ({"group_by": 5}, "group_by: input should be a valid string, got 5"),
        (
            {"group_by": [], "shards": 2},
            "shards: without group_by there is one group, which cannot be split; use shards: 1 or add group_by",
        ),
        ({"shards": 0}, "shards: input should be greater than or equal to 1, got 0"),
        ({"aggregates": {}}, "aggregates: names no aggregate; add one, such as cars: count(*)"),
        ({"aggregates": {"n": 5}}, "aggregates.n: input should be a valid string, got 5"),
        (
            {"aggregates": {"m": "median(v)"}},
            "aggregates.m: 'median(v)' is no aggregate; there are count(*), and count, sum, avg, min and max of",
        ),
        ({"aggregates": {"m": "v"}}, "aggregates.m: 'v' is no aggregate; there are count(*)"),
        ({"aggregates": {"m": "sum(v) + 1"}}, "aggregates.m: 'sum(v) + 1' is no aggregate; there are count(*)"),
        ({"aggregates": {"m": " "}}, "aggregates.m: ' ' is no aggregate; there are count(*)"),
        ({"aggregates": {"m": "sum(v"}}, "aggregates.m: cannot read 'sum(v': Expecting )"),
        ({"aggregates": {"m": "sum(*)"}}, "aggregates.m: 'sum(*)': only count takes *; name a column"),
        (
            {"aggregates": {"m": "count()"}},
            "aggregates.m: 'count()': count takes one argument, such as count(speed)",
        ),
        ({"aggregates": {"m": "max(v, ts)"}}, "aggregates.m: 'max(v, ts)': max takes one argument, such as max("),
        (
            {"aggregates": {"m": "count(distinct v)"}},
            "aggregates.m: 'count(distinct v)': DISTINCT is not supported",
        ),
        (
            {"aggregates": {"m": "sum(upper(k))"}},
            "aggregates.m: 'UPPER(k)' is not supported; supported are columns",
        ),
        (
            {"aggregates": {"m": "avg(x)"}},
            "aggregates.m: there is no column 'x'; there are ts, k, v, b, l, end, at",
        ),
        (
            {"aggregates": {"m": "min(k)"}},
            "aggregates.m: k is text (string), and min needs numbers or times; use count, or convert it with",
        ),
        (
            {"aggregates": {"m": "sum(b)"}},
            "aggregates.m: b is a truth value (bool), and sum needs numbers; use count",
        ),
        (
            {"aggregates": {"m": "sum(l)"}},
            "aggregates.m: l is of a type that has no order (list<item: int64>), and",
        ),
        (
            {"aggregates": {"k": "count(*)"}},
            "aggregates.k: there is a result column of this name already (extent, start, end, k, sync, ts); ",
        ),
        ({"aggregates": {"sync": "count(*)"}}, "aggregates.sync: there is a result column of this name already"),
        ({"having": "n >"}, "having: cannot read 'n >'"),
        ({"having": ""}, "having: the expression is empty"),
        ({"having": "v > 1"}, "having: there is no column 'v'; there are extent, start, end, k, n"),
        ({"having": "n + 1"}, "having: must be true or false for each group, but is a number; compare it"),
        ({"having": "k < 5"}, "having: k is text and 5 is a number: they cannot be compared"),
        (
            {"having": "count(*) > 1"},
            "having: cannot hold an aggregate; give it a name under aggregates, and write the name here",
        ),
        ({"disorder": {"strategy": "kslak"}}, "disorder: no strategy named 'kslak'; installed: "),
        (
            {"disorder": {"strategy": "fixed", "slack": "fast"}},
            "disorder.slack: option 'slack' of strategy 'fixed'",
        ),
        (
            {"disorder": {"strategy": "drop_ratio", "drop_ratio": 0.01}},
            "disorder: strategy 'drop_ratio' needs times of arrival; name their column with arrival",
        ),
        (
            {"disorder": {"strategy": "result_slack", "recall": 0.9}},
            "disorder: strategy 'result_slack' learns from the results of joins, and there is one input; use",
        ),
    ],
)
def test_every_fault_has_its_message(changed, expected):
    with pytest.raises(ConfigError) as error:
        bind_aggregate(AggregateConfig.read({**GOOD, **changed}), {"input": SCHEMA})
    assert str(error.value).startswith(expected)


def test_there_is_one_input():
    with pytest.raises(ConfigError, match="input: needs one input, got 2"):
        bind_aggregate(AggregateConfig.read(GOOD), {"a": SCHEMA, "b": SCHEMA})


def test_more_group_columns_than_a_mask_has_bits_are_refused():
    schema = pa.schema([("ts", pa.int64()), *((f"c{k}", pa.int64()) for k in range(65))])
    with pytest.raises(ConfigError, match="group_by: names more than 64 columns; group by fewer"):
        plan_of(schema, range="1s", group_by=schema.names[1:], aggregates={"n": "count(*)"})


def only(rows, schema, **settings):
    """The one result of rows that are all in one extent."""
    (row,) = run(plan_of(schema, range="1s", **settings), rows).rows()
    return row


def test_whole_numbers_are_summed_exactly_and_overflow_is_an_error():
    schema = pa.schema([("ts", pa.int64()), ("v", pa.int64())])
    large = 2**63 - 1
    got = only(
        [{"ts": 1, "v": v} for v in (large, large, -large, -large, 7, None)],
        schema,
        aggregates={"s": "sum(v)", "a": "avg(v)"},
    )
    assert (got["s"], got["a"]) == (7, 7 / 5)
    rows = [{"ts": 1, "v": v} for v in (large, 1)]
    assert only(rows, schema, aggregates={"a": "avg(v)"})["a"] == 2.0**62
    with pytest.raises(
        SlackwaterError, match=r"s: sum\(v\) does not fit into 64 bits; sum smaller numbers, or sum v"
    ):
        only(rows, schema, aggregates={"s": "sum(v)"})
    assert only(rows, schema, aggregates={"s": "sum(v * 1.0)"})["s"] == 2.0**63
    unsigned = pa.schema([("ts", pa.int64()), ("v", pa.uint64())])
    assert only([{"ts": 1, "v": large}], unsigned, aggregates={"m": "max(v)"})["m"] == large
    with pytest.raises(
        SlackwaterError, match=r"v: .* not in range.*; aggregate numbers that fit into 64 bits with"
    ):
        only([{"ts": 1, "v": 2**63}], unsigned, aggregates={"m": "max(v)"})


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.int8(), [3, -4, 5]),
        (pa.uint32(), [3, 2**32 - 1, 5]),
        (pa.float32(), [0.5, -1.5, 2.25]),
        (pa.timestamp("us", "UTC"), [datetime.datetime(2024, 1, d, tzinfo=datetime.UTC) for d in (3, 1, 2)]),
        (pa.timestamp("s"), [datetime.datetime(1912, 1, d) for d in (3, 1, 2)]),
        (pa.date32(), [datetime.date(1969, 12, d) for d in (30, 1, 2)]),
        (pa.date64(), [datetime.date(2024, 1, d) for d in (3, 1, 2)]),
        (pa.time32("s"), [datetime.time(h) for h in (3, 1, 2)]),
        (pa.time64("us"), [datetime.time(h) for h in (3, 1, 2)]),
        (pa.duration("ms"), [datetime.timedelta(hours=h) for h in (3, -1, 2)]),
    ],
)
def test_smallest_and_largest_have_the_type_of_their_column(type_, values):
    schema = pa.schema([("ts", pa.int64()), ("v", type_)])
    plan = plan_of(schema, range="1s", aggregates={"lo": "min(v)", "hi": "max(v)", "n": "count(v)"})
    assert plan.result_schema.field("lo").type == plan.result_schema.field("hi").type == type_
    rows = [{"ts": 1, "v": v} for v in (None, *values, None)]
    (row,) = run(plan, rows).rows()
    assert (row["lo"], row["hi"], row["n"]) == (min(values), max(values), 3)
    (row,) = run(plan, rows[:1]).rows()
    assert (row["lo"], row["hi"], row["n"]) == (None, None, 0)


def test_decimals_are_summed_and_grouped_by_exactly():
    schema = pa.schema([("ts", pa.int64()), ("v", pa.decimal128(38, 9))])
    close = [decimal.Decimal("12345678901234567890.000000001"), decimal.Decimal("12345678901234567890.000000002")]
    plan = plan_of(schema, range="1s", group_by="v", aggregates={"s": "sum(v)"})
    got = run(plan, [{"ts": 1, "v": v} for v in close]).rows()
    assert [row["v"] for row in got] == close
    assert [row["s"] for row in got] == close


def test_nan_is_larger_than_every_number():
    schema = pa.schema([("ts", pa.int64()), ("v", pa.float64())])
    aggregates = {"lo": "min(v)", "hi": "max(v)", "s": "sum(v)"}
    got = only([{"ts": 1, "v": v} for v in (1.0, math.nan, -2.0)], schema, aggregates=aggregates)
    assert got["lo"] == -2.0 and math.isnan(got["hi"]) and math.isnan(got["s"])
    got = only([{"ts": 1, "v": math.nan}], schema, aggregates=aggregates)
    assert math.isnan(got["lo"]) and math.isnan(got["hi"])
    got = only([{"ts": 1, "v": v} for v in (math.inf, -math.inf)], schema, aggregates=aggregates)
    assert (got["lo"], got["hi"]) == (-math.inf, math.inf)


@pytest.mark.parametrize(
    ("type_", "values", "groups"),
    [
        (pa.bool_(), [True, None, False, True], 3),
        (pa.float64(), [0.0, -0.0, math.nan, -math.nan, None, 1.5], 4),
        (pa.float32(), [0.5, 0.5, None], 2),
        (pa.uint64(), [2**64 - 1, 0, 2**64 - 1], 2),
        (pa.large_string(), ["", None, "é", "e"], 4),
        (pa.binary(), [b"", None, b"\xff", b"\xff"], 3),
        (pa.date32(), [datetime.date(1969, 1, 1), datetime.date(1969, 1, 2), None], 3),
        (pa.timestamp("ns"), [0, 1, None, 1], 3),
        (pa.time32("ms"), [datetime.time(1), datetime.time(2), datetime.time(1)], 2),
        (pa.dictionary(pa.int8(), pa.string()), ["a", "b", None, "a"], 3),
        (pa.null(), [None, None], 1),
    ],
)
def test_rows_are_grouped_by_values_of_any_simple_type(type_, values, groups):
    schema = pa.schema([("ts", pa.int64()), ("g", type_)])
    plan = plan_of(schema, range="1s", group_by="g", aggregates={"n": "count(*)"}, shards=3)
    column = plan.result_schema.field("g").type
    assert column == (pa.string() if pa.types.is_dictionary(type_) else type_)
    rows = [{"ts": 1, "g": value} for value in values]
    for cut in (1, 2, 99):
        got = run(plan, rows, cut, restart=True).rows()
        assert len(got) == groups
        assert sum(row["n"] for row in got) == len(values)
    assert str(got[0]["g"]) == str(pa.array(values[:1], type_).to_pylist()[0])


def test_null_is_in_no_value_and_text_has_no_neighbours():
    schema = pa.schema([("ts", pa.int64()), ("a", pa.int64()), ("b", pa.string())])
    keys = [(0, None), (None, "0"), (None, None), (0, ""), (0, "0")]
    plan = plan_of(schema, range="1s", group_by=["a", "b"], aggregates={"n": "count(*)"})
    got = run(plan, [{"ts": 1, "a": a, "b": b} for a, b in keys * 2]).rows()
    assert [(row["a"], row["b"], row["n"]) for row in got] == [(a, b, 2) for a, b in keys]


def test_keys_that_differ_in_nulls_only_are_different_groups_however_they_are_hashed():
    names = [f"c{k}" for k in range(6)]
    schema = pa.schema([("ts", pa.int64()), *((name, pa.int64()) for name in names)])
    keys = [tuple(None if code >> k & 1 else 0 for k in range(6)) for code in range(64)]
    plan = plan_of(schema, range="1s", group_by=names, aggregates={"n": "count(*)"})
    got = run(plan, [{"ts": 1, **dict(zip(names, key, strict=True))} for key in keys * 2], 16).rows()
    assert sorted(repr(tuple(row[name] for name in names)) for row in got) == sorted(map(repr, keys))
    assert {row["n"] for row in got} == {2}


@pytest.mark.parametrize(
    ("type_", "first"),
    [
        (pa.timestamp("us", "UTC"), datetime.datetime(1969, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)),
        (pa.timestamp("s"), datetime.datetime(1969, 12, 31, 23, 59, 59)),
        (pa.string(), "1969-12-31T23:59:59"),
    ],
)
def test_times_before_1970_are_rounded_down(type_, first):
    schema = pa.schema([("ts", type_)])
    plan = plan_of(schema, range="1m", slide="1m", aggregates={"n": "count(*)"}, time_unit="s")
    (row,) = run(plan, [{"ts": first}]).rows()
    assert row["extent"] == -1
    times = pa.types.is_timestamp(type_)
    assert plan.result_schema.field("start").type == (type_ if times else pa.int64())
    got = [
        value.timestamp() if times and value.tzinfo else value for value in (row["start"], row["end"], row["ts"])
    ]
    expected = [-60, 0, 0]
    if times and type_.tz is None:
        expected = [datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=s) for s in expected]
    assert got == expected


def test_settings_survive_the_way_to_a_worker():
    import pickle

    plan = plan_of(range="10ms", group_by=["k"], having="n > 1")
    assert plan.result_schema and plan.layout
    rows = [{"id": n, "ts": n, "k": "a", "v": n} for n in range(30)]
    there = pickle.loads(pickle.dumps(plan))
    assert there.result_schema == plan.result_schema
    assert run(there, rows).rows() == run(plan, rows).rows() != []
    assert np.array_equal(there.layout.ops[0], plan.layout.ops[0])
