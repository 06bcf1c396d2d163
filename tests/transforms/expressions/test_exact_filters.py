"""Filter and MapToFields compare and compute exactly: against Python's own arithmetic."""

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest
from exact_values import CONSTANTS, ORDER, TIMES, VALUES, fits, fitting, rank, same
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.pipelines.template.expression_text import parse_text
from slackwater.transforms.errors import SlackwaterError
from slackwater.transforms.expressions.evaluation import check, evaluate
from slackwater.transforms.expressions.tree import ExpressionError


def rows(**columns):
    return pa.RecordBatch.from_pydict(columns)


def value_of(text, batch, language="sql"):
    return evaluate(parse_text(text, language), batch)


def is_nan(value):
    return value != value


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_numbers_of_any_two_types_are_compared_by_value(data):
    types = [data.draw(st.sampled_from(list(VALUES))) for _ in range(2)]
    first = data.draw(st.lists(st.none() | VALUES[types[0]], min_size=1, max_size=5))
    second = [
        same(x, types[1]) if fits(x, types[1]) and data.draw(st.booleans()) else data.draw(VALUES[types[1]])
        for x in first
    ]
    name = data.draw(st.sampled_from(list(ORDER)))
    batch = rows(x=pa.array(first, types[0]), y=pa.array(second, types[1]))
    try:
        found = value_of(f"x {name} y", batch).to_pylist()
    except ExpressionError as error:
        assert "at most 76 are compared" in str(error)
        return
    wanted = []
    for x, y in zip(first, second, strict=True):
        if x is None:
            wanted.append(None)
        elif is_nan(x) or is_nan(y):
            wanted.append(name == "<>")
        else:
            wanted.append(ORDER[name](rank(x), rank(y)))
    assert found == wanted


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_numbers_are_compared_with_constants_by_value(data):
    type_ = data.draw(st.sampled_from([t for t in VALUES if t not in (pa.float32(), pa.float16())]))
    values = data.draw(st.lists(VALUES[type_], min_size=1, max_size=4))
    text = data.draw(st.sampled_from(CONSTANTS))
    name = data.draw(st.sampled_from(list(ORDER)))
    constant = (
        float(text) if pa.types.is_floating(type_) and ("." in text or "e" in text) else decimal.Decimal(text)
    )
    if not pa.types.is_decimal(type_) and ("." in text or "e" in text):
        constant = float(text)
    found = value_of(f"x {name} {text}", rows(x=pa.array(values, type_))).to_pylist()
    assert found == [name == "<>" if is_nan(v) else ORDER[name](rank(v), rank(constant)) for v in values]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_times_of_any_two_units_are_compared_by_value(data):
    types = [data.draw(st.sampled_from(list(TIMES)[:5])) for _ in range(2)]
    units = [TIMES[t][1] for t in types]
    bits = [31 if pa.types.is_date32(t) else 63 for t in types]
    ticks = [data.draw(fitting(-(2**b), 2**b - 1)) for b in bits]
    columns = [
        pa.array([n], pa.int32() if t.bit_width == 32 else pa.int64()).cast(t)
        for n, t in zip(ticks, types, strict=True)
    ]
    name = data.draw(st.sampled_from(list(ORDER)))
    found = value_of(f"x {name} y", rows(x=columns[0], y=columns[1])).to_pylist()
    assert found == [ORDER[name](ticks[0] * units[0], ticks[1] * units[1])]


CENTS = pa.array([decimal.Decimal("0.10"), decimal.Decimal("-7.25"), None], pa.decimal128(12, 2))
FINE = pa.array(
    [decimal.Decimal("0.2000"), decimal.Decimal("0.0003"), decimal.Decimal("1.0000")], pa.decimal128(18, 4)
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x + y", ["0.3000", "-7.2497", None]),
        ("x - y", ["-0.1000", "-7.2503", None]),
        ("x * y", ["0.020000", "-0.002175", None]),
        ("x * 3", ["0.30", "-21.75", None]),
        ("x + 0.2", ["0.30", "-7.05", None]),
        ("-x", ["-0.10", "7.25", None]),
        ("abs(x)", ["0.10", "7.25", None]),
        ("least(x, y)", ["0.1000", "-7.2500", "1.0000"]),
        ("greatest(x, n)", ["5.00", "6.00", "7.00"]),
    ],
)
def test_decimals_are_computed_exactly(text, wanted):
    batch = rows(x=CENTS, y=FINE, n=pa.array([5, 6, 7]))
    found = value_of(text, batch)
    assert pa.types.is_decimal(found.type)
    assert [None if v is None else str(v) for v in found.to_pylist()] == wanted
    assert check(parse_text(text, "sql"), batch.schema) == found.type


def test_division_and_floats_make_floats_of_decimals():
    batch = rows(x=CENTS, f=pa.array([2.0, 2.0, 2.0]))
    assert value_of("x / 2", batch).to_pylist() == [0.05, -3.625, None]
    assert value_of("x * f", batch).to_pylist() == [0.2, -14.5, None]
    assert value_of("sqrt(x)", batch).to_pylist() == [pytest.approx(0.1**0.5), None, None]
    assert value_of("x + 0.2 = 0.3", batch).to_pylist() == [True, False, None]


def test_what_decimals_cannot_do_is_refused():
    with pytest.raises(ExpressionError, match="x % 2: % is for whole numbers and floats, not for decimals"):
        value_of("x % 2", rows(x=CENTS))
    wide = pa.array([decimal.Decimal(1)], pa.decimal256(70, 0))
    with pytest.raises(
        ExpressionError, match=r"x \* x may have 141 digits, and decimals have at most 76; divide"
    ):
        value_of("x * x", rows(x=wide))


@pytest.mark.parametrize("text", ["x + 1", "x * 2", "-y", "abs(y)", "y - 1", "u + 1"])
def test_a_whole_number_that_does_not_fit_ends_the_run(text):
    batch = rows(x=pa.array([2**63 - 1]), y=pa.array([-(2**63)]), u=pa.array([2**64 - 1], pa.uint64()))
    with pytest.raises(SlackwaterError, match="keep the numbers smaller, or divide them"):
        value_of(text, batch)


def test_remainders_at_the_edge():
    batch = rows(y=pa.array([-(2**63), 2**63 - 1]), z=pa.array([-1, -(2**63)]))
    assert value_of("y % z", batch).to_pylist() == [0, 2**63 - 1]
    assert value_of("y % 10", batch).to_pylist() == [-8, 7]


def test_a_date_far_ahead_is_later_than_nanoseconds():
    batch = rows(d=pa.array([datetime.date(9999, 1, 1)]), t=pa.array([2**63 - 1]).cast(pa.timestamp("ns")))
    assert value_of("d > t", batch).to_pylist() == [True]
    assert value_of("t < '9999-01-01'", batch).to_pylist() == [True]
    assert value_of("t < '2262-04-11 23:47:17'", batch).to_pylist() == [True]


@pytest.mark.parametrize("type_", [pa.timestamp("us", "UTC"), pa.duration("s"), pa.time32("s")])
def test_times_that_mean_different_things_are_refused(type_):
    with pytest.raises(ExpressionError, match="they cannot be compared"):
        value_of("x < y", rows(x=pa.array([], pa.date32()), y=pa.array([], type_)))


@pytest.mark.parametrize(
    "type_", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_text_is_text_however_it_is_laid_out(type_):
    batch = rows(x=pa.array(["a", None, "c"]).cast(type_), y=pa.array(["a", "b", "d"]))
    assert value_of("x = y", batch).to_pylist() == [True, None, False]
    assert value_of("x IN ('c', 'd')", batch).to_pylist() == [False, None, True]
    assert value_of("x = 'a'", batch).to_pylist() == [True, None, False]
    assert value_of("x < 'b'", batch).to_pylist() == [True, None, False]


@pytest.mark.parametrize("language", ["sql", "python"])
def test_long_lists_and_chains_are_evaluated(language):
    connective, equal, member = (" or ", "==", "in") if language == "python" else (" OR ", "=", "IN")
    batch = rows(s=pa.array(["t19999", "u", None]), n=pa.array([499, -1, None]))
    texts = ", ".join(f"'t{k}'" for k in range(20_000))
    known = [True, False, False if language == "python" else None]
    assert value_of(f"s {member} ({texts})", batch, language).to_pylist() == known
    numbers = ", ".join(map(str, range(2000)))
    assert value_of(f"n {member} ({numbers})", batch, language).to_pylist() == known
    chain = connective.join(f"n {equal} {k}" for k in range(500))
    assert value_of(chain, batch, language).to_pylist() == known
    nested = "(" * 50 + f"n {equal} 499" + ")" * 50
    assert value_of(nested, batch, language).to_pylist() == known


@pytest.mark.parametrize(
    ("text", "language", "fault"),
    [
        (
            " + ".join(["n"] * 500),
            "sql",
            "the expression is nested more than 100 deep; split it, with MapToFields",
        ),
        ("(" * 3000 + "n" + ")" * 3000, "sql", "the expression is nested more than 100 deep"),
        ("NOT " * 300 + "n > 1", "generic", "the expression is nested more than 100 deep"),
        (
            "(" * 30 + "n" + " == 1)" * 30,
            "python",
            "the expression has more than 200,000 parts; split it, with MapToF",
        ),
        (
            "n < 1e999999999",
            "sql",
            "1e999999999 is beyond the range of numbers; write one that fits into 64 bits",
        ),
        ("n < 1e-999999999", "sql", "is beyond the range of numbers"),
        ("n < 1e999", "python", "inf is beyond the range of numbers"),
        (
            "n < 18446744073709551616",
            "sql",
            "18446744073709551616 does not fit into 64 bits; write it as a decimal",
        ),
    ],
)
def test_what_is_too_deep_or_too_large_is_refused(text, language, fault):
    with pytest.raises(ExpressionError) as caught:
        value_of(text, rows(n=pa.array([1])), language)
    assert fault in str(caught.value)
    assert len(str(caught.value)) < 500


def test_int64_is_not_rounded_beside_floats():
    batch = rows(n=pa.array([2**53 + 1]), f=pa.array([2.0**53]))
    assert value_of("n = f", batch).to_pylist() == [False]
    assert value_of("n > f", batch).to_pylist() == [True]
    assert np.asarray(value_of("n = 9007199254740993.0", batch)).tolist() == [False]
