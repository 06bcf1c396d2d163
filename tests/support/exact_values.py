"""Values of every type with what they mean exactly, and joins of two rows of them."""

import decimal
import operator
from fractions import Fraction
from math import inf, isinf, isnan, nan

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from slackwater.transforms.expressions.condition import Condition
from slackwater.transforms.rows.encoder import CellEncoder

EDGES = [0, 1, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1, 10**17, 10**18, 3, 250]


FLOATS = [
    0.0,
    -0.0,
    0.5,
    2.5,
    1e300,
    -1e300,
    5e-324,
    inf,
    -inf,
    nan,
    2.0**53,
    2.0**63,
    -(2.0**63),
    2.0**64,
    0.01,
    1.1,
]


def fitting(low, high):
    edges = [edge for edge in EDGES if low <= edge <= high]
    return st.one_of(
        st.integers(low, high), st.integers(-9, 9).filter(lambda n: n >= low), st.sampled_from(edges)
    )


def decimals(digits, places):
    scaled = fitting(-(10**digits) + 1, 10**digits - 1)
    return scaled.map(lambda n: decimal.Decimal(n).scaleb(-places))


VALUES = {
    pa.int64(): fitting(-(2**63), 2**63 - 1),
    pa.int8(): st.integers(-128, 127),
    pa.uint32(): fitting(0, 2**32 - 1),
    pa.uint64(): fitting(0, 2**64 - 1),
    pa.bool_(): st.booleans(),
    pa.float64(): st.one_of(st.floats(), st.sampled_from(FLOATS), st.integers(-9, 9).map(float)),
    pa.float32(): st.one_of(st.floats(width=32), st.integers(-9, 9).map(float)),
    pa.float16(): st.integers(-9, 9).map(np.float16),
    pa.decimal128(12, 2): decimals(12, 2),
    pa.decimal128(18, 4): decimals(18, 4),
    pa.decimal128(18, 0): decimals(18, 0),
    pa.decimal128(38, 0): decimals(38, 0),
    pa.decimal128(30, 10): decimals(30, 10),
    pa.decimal256(50, 20): decimals(50, 20),
    pa.decimal128(5, -2): st.integers(-999, 999).map(lambda n: decimal.Decimal(n) * 100),
}


ORDER = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt}


def rank(value):
    """A number as something that Python compares exactly; NaN is larger than all others, and equals itself."""
    if isinstance(value, float | np.floating):
        if isnan(value):
            return 2, 0
        if isinf(value):
            return (1 if value > 0 else -1), 0
    return 0, Fraction(value if not isinstance(value, np.floating) else float(value))


def passing(where, left, right):
    """Say of every pair of rows whether the condition holds."""
    condition = Condition(where, {"a": left.schema, "b": right.schema})
    encoder = CellEncoder(condition)
    n, m = left.num_rows, right.num_rows
    pairs = np.repeat(np.arange(n), m), np.tile(np.arange(m), n)
    encoded = [encoder.encode(i, batch) for i, batch in enumerate((left, right))]
    cells = [part[0][at] for part, at in zip(encoded, pairs, strict=True)]
    nulls = [part[1][at] for part, at in zip(encoded, pairs, strict=True)]
    return condition.test(cells, nulls).reshape(n, m)


def batch(type_, values):
    return pa.RecordBatch.from_arrays([pa.array(values, type_)], ["x"])


TYPES = list(VALUES)


def fits(value, type_):
    try:
        return value is not None and rank(same(value, type_)) == rank(value)
    except (pa.ArrowException, ValueError, OverflowError, TypeError, decimal.InvalidOperation):
        return False


def same(value, type_):
    """The value as one of another type."""
    number = rank(value)[1]
    if type_ == pa.float16():
        return np.float16(number if abs(number) < 2000 else 0)
    if pa.types.is_floating(type_):
        return pa.scalar(float(number), type_).as_py()
    if pa.types.is_decimal(type_):
        exact = decimal.Decimal(number.numerator) / decimal.Decimal(number.denominator)
        return pa.array([exact], type_)[0].as_py()
    if number.denominator != 1:
        raise ValueError
    return bool(number) if pa.types.is_boolean(type_) else pa.array([int(number)], type_)[0].as_py()


CONSTANTS = ["0", "1", "-1", "2.5", "0.01", "-0.001", "1e30", "18446744073709551615", "9007199254740993",
             "-9223372036854775808", "99999999999999999999.5"]  # fmt: skip


TIMES = {
    pa.timestamp("ns"): ("naive", 1),
    pa.timestamp("us"): ("naive", 10**3),
    pa.timestamp("ms"): ("naive", 10**6),
    pa.timestamp("s"): ("naive", 10**9),
    pa.date32(): ("naive", 86_400 * 10**9),
    pa.timestamp("us", "UTC"): ("zoned", 10**3),
    pa.timestamp("s", "Europe/Berlin"): ("zoned", 10**9),
    pa.duration("ns"): ("duration", 1),
    pa.duration("s"): ("duration", 10**9),
    pa.time32("s"): ("clock", 10**9),
    pa.time64("ns"): ("clock", 1),
}
