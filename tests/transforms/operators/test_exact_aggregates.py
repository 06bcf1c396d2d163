"""Aggregates of decimals against DuckDB: sums, minima and maxima are exact, and what does not fit is refused."""

import re
from decimal import Decimal, localcontext

import aggregate_reference as extents
import close_reference as groups
import duckdb
import numpy as np
import pyarrow as pa
import pytest

from slackwater.transforms.errors import SlackwaterError

AGGREGATES = {"s": "sum(v)", "a": "avg(v)", "lo": "min(v)", "hi": "max(v)", "n": "count(v)"}
TYPES = [(4, 2), (9, 0), (18, 4), (18, 18), (19, 0), (19, 2), (30, 9), (38, 0), (38, 18), (38, 38)]


@pytest.fixture(autouse=True)
def _many_digits():
    with localcontext(prec=80):
        yield


def schema_of(type_):
    return pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("k", pa.string()), ("v", type_)])


def drawn(seed, digits, places, n=300):
    """Rows whose values are at the edges of a type and of words, and anywhere; sums stay below 38 digits."""
    rng = np.random.default_rng(seed)
    largest = 10 ** min(digits, 35) - 1
    edges = [
        0,
        1,
        -1,
        2**32 - 1,
        2**32,
        2**63 - 1,
        2**63,
        -(2**63),
        2**64 - 1,
        2**64,
        -(2**96),
        largest,
        -largest,
    ]
    rows = []
    for k in range(n):
        number = edges[int(rng.integers(len(edges)))]
        if rng.random() < 0.6 or abs(number) > largest:
            number = (
                int(rng.integers(-(2**63), 2**63 - 1)) ** 2 * int(rng.choice([-1, 1])) % (2 * largest) - largest
            )
        value = None if rng.random() < 0.1 else Decimal(number).scaleb(-places)
        rows.append({"id": k, "ts": k // 7, "k": "abc"[int(rng.integers(3))], "v": value})
    return rows


def wanted(rows, type_, start, end):
    """DuckDB's aggregates of the rows from one time to before another."""
    table = pa.Table.from_pylist(rows, schema=schema_of(type_))
    assert table.num_rows
    with duckdb.connect() as connection:
        connection.register("t", table)
        found = connection.execute(
            "SELECT k, sum(v), avg(v), min(v), max(v), count(v) FROM t WHERE ts >= ? AND ts < ? GROUP BY k "
            "ORDER BY k",
            [start, end],
        ).fetchall()
    return {key: values for key, *values in found}


def same(got, expected):
    total, mean, low, high, n = expected
    assert (got["s"], got["lo"], got["hi"], got["n"]) == (total, low, high, n)
    assert (got["a"] is None) == (mean is None)
    if n:
        assert got["a"] == pytest.approx(float(total / n), rel=1e-14, abs=1e-300)


@pytest.mark.parametrize(("digits", "places"), TYPES)
@pytest.mark.parametrize(("cut", "restart"), [(None, False), (11, True)])
def test_extents_of_decimals_are_those_of_duckdb(digits, places, cut, restart):
    type_ = pa.decimal128(digits, places)
    rows = drawn(digits * 100 + places, digits, places)
    plan = extents.plan_of(
        schema_of(type_), range="20ms", slide="10ms", group_by="k", aggregates=AGGREGATES, guard="none"
    )
    assert plan.result_schema.field("s").type == pa.decimal128(38, places)
    assert plan.result_schema.field("lo").type == plan.result_schema.field("hi").type == type_
    assert plan.result_schema.field("a").type == pa.float64()
    got = extents.run(plan, rows, cut, restart).rows()
    assert len(got) > 9
    for row in got:
        same(row, wanted(rows, type_, row["start"], row["end"])[row["k"]])


@pytest.mark.parametrize(("digits", "places"), TYPES)
@pytest.mark.parametrize(("cut", "restart"), [(None, False), (11, True)])
def test_groups_of_decimals_are_those_of_duckdb(digits, places, cut, restart):
    type_ = pa.decimal128(digits, places)
    rows = drawn(digits * 100 + places + 50, digits, places)
    plan = groups.plan_of(schema_of(type_), by="k", aggregates=AGGREGATES)
    expected = wanted(rows, type_, 0, len(rows))
    got = groups.run(plan, [(0, row) for row in rows], cut, restart).rows()
    assert sorted(row["k"] for row in got) == list(expected)
    for row in got:
        same(row, expected[row["k"]])


@pytest.mark.parametrize("type_", [pa.decimal256(40, 3), pa.decimal128(5, -2)])
def test_other_decimals_are_exact_as_well(type_):
    values = [Decimal("123456700"), Decimal("-100"), None, Decimal("300")]
    if type_.scale > 0:
        values[0] += Decimal("0.123")
    else:
        values[0] = Decimal("1234500")
    plan = extents.plan_of(schema_of(type_), range="1s", aggregates=AGGREGATES)
    (row,) = extents.run(plan, [{"id": 0, "ts": 1, "v": v} for v in values]).rows()
    assert (row["s"], row["lo"], row["hi"]) == (values[0] + 200, -100, values[0])
    assert row["a"] == pytest.approx(float((values[0] + 200) / 3), rel=1e-14)
    nothing = extents.run(plan, [{"id": 0, "ts": 1, "v": None}]).rows()[0]
    assert [nothing[name] for name in AGGREGATES] == [None, None, None, None, 0]


def test_what_decimals_are_computed_of_is_exact():
    """A product of decimals has more digits than either; its values and sums are exact all the same."""
    schema = pa.schema([("ts", pa.int64()), ("price", pa.decimal128(18, 4)), ("n", pa.int64())])
    rows = [{"ts": 1, "price": Decimal("0.1000"), "n": 3}, {"ts": 2, "price": Decimal("0.2001"), "n": 10**12}]
    plan = extents.plan_of(schema, range="1s", aggregates={"s": "sum(price * n)", "hi": "max(price * n)"})
    (row,) = extents.run(plan, rows).rows()
    assert (row["s"], row["hi"]) == (Decimal("200100000000.3000"), Decimal("200100000000.0000"))


@pytest.mark.parametrize("operator", ["aggregate", "close"])
@pytest.mark.parametrize(
    ("type_", "values", "said"),
    [
        (
            pa.decimal128(38, 2),
            ["9" * 36, "9" * 36],
            "s: sum(v) does not fit into a decimal of 38 digits; sum smaller numbers, or sum v / 1, a floating "
            "number",
        ),
        (
            pa.decimal256(60, 0),
            ["1" * 50],
            "v: a value does not fit into a decimal of 38 digits; aggregate smaller numbers, or v / 1, a "
            "floating number",
        ),
    ],
)
def test_a_decimal_that_does_not_fit_is_refused_and_the_advice_works(operator, type_, values, said):
    def aggregated(text):
        rows = [{"id": k, "ts": 1, "k": "a", "v": Decimal(value)} for k, value in enumerate(values)]
        if operator == "close":
            plan = groups.plan_of(schema_of(type_), by="k", aggregates={"s": text})
            return groups.run(plan, [(0, row) for row in rows]).rows()
        plan = extents.plan_of(schema_of(type_), range="1s", aggregates={"s": text})
        return extents.run(plan, rows).rows()

    with pytest.raises(SlackwaterError, match=re.escape(said)):
        aggregated("sum(v)")
    (row,) = aggregated("sum(v / 1)")
    assert row["s"] == pytest.approx(sum(map(float, values)))


@pytest.mark.parametrize("count", [31, 32])
def test_a_sum_of_128_bits_is_not_taken_for_a_smaller_one(count):
    """32 times 2**122 is 2**127, one more than fits; a sum that wraps would be negative."""
    schema = schema_of(pa.decimal128(38, 0))
    plan = extents.plan_of(schema, range="1s", aggregates={"s": "sum(v)"})
    rows = [{"id": 0, "ts": 1, "v": Decimal(2**122)}] * count
    with pytest.raises(SlackwaterError, match=re.escape("s: sum(v) does not fit into a decimal of 38 digits")):
        extents.run(plan, rows)
    (row,) = extents.run(plan, [*rows, *[{"id": 0, "ts": 1, "v": Decimal(-(2**122))}] * (count - 1)]).rows()
    assert row["s"] == 2**122
