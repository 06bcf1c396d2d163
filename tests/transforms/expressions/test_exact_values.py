"""Values are compared as what they are, whatever their types: against Python's own exact arithmetic."""

import datetime
import decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from exact_values import CONSTANTS, ORDER, TIMES, TYPES, VALUES, batch, fits, fitting, passing, rank, same
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.transforms.errors import SlackwaterError
from slackwater.transforms.expressions.tree import ExpressionError

decimal.getcontext().prec = 100


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_numbers_of_any_two_types_are_compared_by_value(data):
    types = [data.draw(st.sampled_from(TYPES)) for _ in range(2)]
    columns = [data.draw(st.lists(st.none() | VALUES[t], min_size=1, max_size=4)) for t in types]
    if data.draw(st.booleans()):
        shared = [v for v in columns[0] if fits(v, types[1])]
        columns[1] = [*columns[1], *(same(v, types[1]) for v in shared)]
    name = data.draw(st.sampled_from(list(ORDER)))
    # An equality is a key; with OR it is a predicate.
    where = f"a.x {name} b.x" + data.draw(st.sampled_from(["", " OR FALSE"]))
    try:
        found = passing(where, batch(types[0], columns[0]), batch(types[1], columns[1]))
    except ExpressionError as error:
        wide = [pa.types.is_decimal(t) and t.precision > 18 for t in types]
        assert any(wide)
        assert "of more than 18 digits" in str(error) or "at most 38 are compared" in str(error)
        return
    wanted = [
        [x is not None and y is not None and ORDER[name](rank(x), rank(y)) for y in columns[1]]
        for x in columns[0]
    ]
    assert found.tolist() == wanted


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_numbers_are_compared_with_constants_by_value(data):
    type_ = data.draw(st.sampled_from([t for t in TYPES if t not in (pa.float32(), pa.float16())]))
    values = data.draw(st.lists(VALUES[type_], min_size=1, max_size=4))
    text = data.draw(st.sampled_from(CONSTANTS))
    name = data.draw(st.sampled_from(list(ORDER)))
    turned = data.draw(st.booleans())
    where = f"{text} {name} a.x" if turned else f"a.x {name} {text}"
    constant = float(text) if pa.types.is_floating(type_) and "." in text else decimal.Decimal(text)
    try:
        found = passing(where, batch(type_, values), batch(pa.int64(), [0]))[:, 0]
    except ExpressionError as error:
        assert "does not fit into 64 bits" in str(error) or "at most 38 are compared" in str(error)
        return
    ordered = (lambda a, b: ORDER[name](b, a)) if turned else ORDER[name]
    assert found.tolist() == [ordered(rank(value), rank(constant)) for value in values]


ARITHMETIC = {
    "a.x + b.x": lambda x, y: x + y,
    "a.x - b.x": lambda x, y: x - y,
    "a.x * b.x": lambda x, y: x * y,
    "-a.x": lambda x, y: -x,
    "abs(b.x)": lambda x, y: abs(y),
    "a.x % b.x": lambda x, y: (abs(x) % abs(y)) * (-1 if x < 0 else 1) if y else None,
    "greatest(a.x, b.x) - least(a.x, b.x)": lambda x, y: abs(x - y),
}


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_whole_numbers_and_decimals_are_computed_exactly_or_not_at_all(data):
    types = [
        data.draw(st.sampled_from([pa.int64(), pa.decimal128(12, 2), pa.decimal128(18, 4)])) for _ in range(2)
    ]
    (x,), (y,) = (data.draw(st.tuples(VALUES[t])) for t in types)
    text = data.draw(st.sampled_from(list(ARITHMETIC)))
    value = ARITHMETIC[text](Fraction(x), Fraction(y))
    bound = data.draw(st.integers(-20, 20))
    where = f"{text} < {bound}"
    try:
        found = passing(where, batch(types[0], [x]), batch(types[1], [y]))[0, 0]
    except SlackwaterError as error:
        assert f"where: {where} computes a whole number that does not fit into 64 bits" in str(error)
        # A number of at most as many places as the operands have together.
        assert max(abs(Fraction(x)), abs(Fraction(y)), abs(value or 0)) * 10**8 >= 2**63
        return
    assert found == (value is not None and value < bound)


@pytest.mark.parametrize(
    ("where", "x"),
    [
        ("a.x + 1 > 0", 2**63 - 1),
        ("a.x - 1 < 0", -(2**63)),
        ("a.x * 2 > 0", 2**62),
        ("-a.x > 0", -(2**63)),
        ("abs(a.x) > 0", -(2**63)),
        ("(a.x + 1) IS NULL", 2**63 - 1),
        ("NOT a.x + 1 < 0", 2**63 - 1),
    ],
)
def test_a_whole_number_that_does_not_fit_is_an_error_that_names_the_condition(where, x):
    with pytest.raises(SlackwaterError) as caught:
        passing(where, batch(pa.int64(), [x]), batch(pa.int64(), [1]))
    assert str(caught.value) == (
        f"where: {where} computes a whole number that does not fit into 64 bits; keep the numbers smaller, or "
        "divide them"
    )


def test_a_number_that_does_not_fit_and_decides_nothing_is_none():
    left = batch(pa.int64(), [2**63 - 1, None, -(2**63)])
    assert passing("a.x + 1 > 0 AND a.x < 5", left, batch(pa.int64(), [1]))[:, 0].tolist() == [
        False,
        False,
        False,
    ]
    assert passing("a.x % -1 = 0", left, batch(pa.int64(), [1]))[:, 0].tolist() == [True, False, True]


def test_arithmetic_with_unsigned_numbers_is_checked_too():
    left = batch(pa.uint64(), [2**64 - 1])
    with pytest.raises(SlackwaterError, match="does not fit into 64 bits"):
        passing("a.x + 1 > 0", left, batch(pa.int64(), [1]))
    assert passing("a.x + 1 = b.x", batch(pa.uint64(), [4]), batch(pa.int64(), [5]))[0, 0]


def test_decimals_beside_constants_are_decimals():
    left = batch(pa.decimal128(12, 2), [decimal.Decimal("0.10"), decimal.Decimal("0.20")])
    assert passing("a.x + 0.2 = 0.3", left, batch(pa.int64(), [1]))[:, 0].tolist() == [True, False]
    assert passing("a.x * 3 = 0.3", left, batch(pa.int64(), [1]))[:, 0].tolist() == [True, False]
    assert passing("a.x / 2 = 0.05", left, batch(pa.int64(), [1]))[:, 0].tolist() == [True, False]


def test_arithmetic_refuses_decimals_of_too_many_digits():
    with pytest.raises(
        ExpressionError, match=r"a\.x is a decimal of more than 18 digits; arithmetic needs fewer"
    ):
        passing("a.x + 1 > 0", batch(pa.decimal128(38, 2), []), batch(pa.int64(), []))
    with pytest.raises(ExpressionError, match="has 24 decimal places, and decimals are computed with at most 18"):
        passing("a.x * b.x > 0", batch(pa.decimal128(18, 12), []), batch(pa.decimal128(18, 12), []))


def test_all_decimals_of_two_scales_find_each_other():
    cents = [decimal.Decimal(n * 7919 % 10**9).scaleb(-2) for n in range(2000)]
    found = passing("a.x = b.x", batch(pa.decimal128(12, 2), cents), batch(pa.decimal128(18, 4), cents))
    assert found.sum() == 2000 == found.trace()


def test_ids_of_38_digits_do_not_collide():
    ids = [decimal.Decimal(10**37 + n) for n in range(50)]
    for where in ("a.x = b.x", "a.x = b.x OR FALSE"):
        found = passing(where, batch(pa.decimal128(38, 0), ids), batch(pa.decimal128(38, 0), ids))
        assert found.tolist() == np.eye(50, dtype=bool).tolist()


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_times_of_any_two_units_are_compared_by_value(data):
    types = [data.draw(st.sampled_from(list(TIMES))) for _ in range(2)]
    (family, unit), (other, second) = (TIMES[t] for t in types)
    bits = [31 if pa.types.is_date32(t) or pa.types.is_time(t) else 63 for t in types]
    ticks = [data.draw(st.lists(fitting(-(2**b), 2**b - 1), min_size=1, max_size=3)) for b in bits]
    if pa.types.is_time(types[0]):
        ticks[0] = [n % 86_400 for n in ticks[0]]
    if pa.types.is_time(types[1]):
        ticks[1] = [n % 86_400 for n in ticks[1]]
    ticks[1] += [n * unit // second for n in ticks[0] if -(2 ** bits[1]) <= n * unit // second < 2 ** bits[1]]
    name = data.draw(st.sampled_from(list(ORDER)))
    where = f"a.x {name} b.x" + data.draw(st.sampled_from(["", " OR FALSE"]))
    columns = [
        pa.array(n, pa.int32() if t.bit_width == 32 else pa.int64()).cast(t)
        for n, t in zip(ticks, types, strict=True)
    ]
    rows = [pa.RecordBatch.from_arrays([column], ["x"]) for column in columns]
    if family != other:
        with pytest.raises(ExpressionError, match=r"they can(not be compared| never be equal)"):
            passing(where, *rows)
        return
    wanted = [[ORDER[name](x * unit, y * second) for y in ticks[1]] for x in ticks[0]]
    assert passing(where, *rows).tolist() == wanted


@pytest.mark.parametrize(
    ("first", "second", "fault"),
    [
        (
            pa.timestamp("us"),
            pa.timestamp("us", "UTC"),
            "a time without a time zone and b.x is a time with a time",
        ),
        (
            pa.date32(),
            pa.timestamp("us", "UTC"),
            "a.x is a time without a time zone and b.x is a time with a time",
        ),
        (pa.duration("s"), pa.timestamp("s"), "a.x is a duration and b.x is a time without a time zone"),
        (pa.time32("s"), pa.timestamp("s"), "a.x is a time of day and b.x is a time without a time zone"),
        (pa.string(), pa.int64(), "a.x is text and b.x is a number"),
        (pa.decimal128(38, 2), pa.string(), "a.x is a number and b.x is text"),
    ],
)
def test_values_of_different_families_are_refused(first, second, fault):
    for where in ("a.x = b.x", "a.x <> b.x"):
        with pytest.raises(ExpressionError) as caught:
            passing(where, batch(first, []), batch(second, []))
        assert fault in str(caught.value)
        assert "convert one of them with MapToFields" in str(caught.value)


@pytest.mark.parametrize(
    "type_",
    [
        pa.list_(pa.int64()),
        pa.struct([("y", pa.int64())]),
        pa.map_(pa.string(), pa.int64()),
        pa.month_day_nano_interval(),
    ],
)
def test_columns_that_have_no_order_are_refused(type_):
    with pytest.raises(ExpressionError, match="which a condition cannot compare; use a simple column"):
        passing("a.x = b.x", batch(type_, []), batch(type_, []))


TEXTS = ["", "x", "ä", "a longer text than twelve bytes", None, "x"]


@pytest.mark.parametrize(
    "second", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
@pytest.mark.parametrize("where", ["a.x = b.x", "a.x = b.x OR FALSE", "a.x IN (b.x)"])
def test_text_is_text_however_it_is_laid_out(second, where):
    right = pa.RecordBatch.from_arrays([pa.array(TEXTS).cast(second)], ["x"])
    found = passing(where, batch(pa.string(), TEXTS).slice(1), right)
    assert found.tolist() == [[x is not None and x == y for y in TEXTS] for x in TEXTS[1:]]


@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2)])
def test_bytes_are_compared(type_):
    values = [b"ab", b"\x00\xff", None]
    found = passing("a.x = b.x", batch(type_, values), batch(pa.binary(), values))
    assert found.tolist() == [[True, False, False], [False, True, False], [False, False, False]]


@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2)])
@pytest.mark.parametrize("where", ["a.x = b.x", "a.x = b.x OR FALSE", "a.x IN (b.x)", "NOT a.x <> b.x"])
def test_bytes_equal_the_text_that_they_are_in_utf8(type_, where):
    left = batch(pa.string(), ["ab", "é", "\\x", None])
    found = passing(where, left, batch(type_, ["é".encode(), b"\xc3\x00", b"ab", b"\\x", None]))
    assert found.tolist() == [[False, False, True, False, False], [True, *4 * [False]],
                              [False, False, False, True, False], 5 * [False]]  # fmt: skip


def test_a_null_in_a_dictionary_is_null():
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["x", None]))
    left = pa.RecordBatch.from_arrays([coded], ["x"])
    for where in ("a.x = b.x", "a.x = b.x OR FALSE"):
        assert passing(where, left, batch(pa.string(), ["x", ""])).tolist() == [[True, False], [False, False]]


def test_a_column_without_values_equals_nothing():
    left = batch(pa.null(), [None, None])
    for type_, values in ((pa.string(), ["", "x"]), (pa.int64(), [0, 1]), (pa.timestamp("s"), [0, 1])):
        for where in ("a.x = b.x", "a.x = b.x OR FALSE"):
            assert not passing(where, left, batch(type_, values)).any()


def test_a_date_after_the_end_of_nanoseconds_is_later_than_all_of_them():
    far = batch(pa.date32(), [datetime.date(9999, 1, 1), datetime.date(2024, 1, 1)])
    times = pa.array([2**63 - 1, 1_704_067_200 * 10**9]).cast(pa.timestamp("ns"))
    near = pa.RecordBatch.from_arrays([times], ["x"])
    assert passing("a.x > b.x", far, near).tolist() == [[True, True], [False, False]]
    assert passing("a.x = b.x", far, near).tolist() == [[False, False], [False, True]]
    assert passing("a.x = b.x", far, far).tolist() == [[True, False], [False, True]]
