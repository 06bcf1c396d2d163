"""Columns for ``slackwater bench fuzz``: every Arrow type, with values at the edges of what it holds.

Columns that are to be compared are of one *family* (numbers, text, instants, …) and take their values from one
small pool, each rounded to the nearest value of its type: so columns of different types often agree, and often
only nearly. What a column holds is kept as exact Python values beside the Arrow array: whole numbers, fractions,
doubles, text, bytes, and for all kinds of time nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from math import isinf, isnan
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa

NANOS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
DAY: Final = 86_400 * 10**9
YEAR_1: Final = -62_135_596_800 * 10**9
YEAR_9999: Final = 253_370_764_800 * 10**9
"""First of January of these years, in nanoseconds since 1970."""
_ZONES: Final = ("UTC", "Europe/Berlin", "America/New_York", "+05:30")
_EXACT: Final = Context(prec=200)

INTEGERS: Final = tuple(
    pa.type_for_alias(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)
)  # fmt: skip
FLOATS: Final = (pa.float16(), pa.float32(), pa.float64())
DECIMALS: Final = (
    pa.decimal128(9, 2), pa.decimal128(12, 2), pa.decimal128(18, 4), pa.decimal128(38, 0), pa.decimal128(38, 10),
    pa.decimal128(5, 5), pa.decimal256(20, 3), pa.decimal256(76, 0), pa.decimal256(60, 20),
)  # fmt: skip

FAMILIES: Final[dict[str, tuple[pa.DataType, ...]]] = {
    "number": (*INTEGERS, *FLOATS, *DECIMALS, pa.int64(), pa.float64(), pa.dictionary(pa.int16(), pa.int64())),
    "text": (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())),
    "bytes": (pa.binary(), pa.large_binary(), pa.binary(4), pa.binary_view()),
    "instant": (*(pa.timestamp(unit) for unit in NANOS), pa.date32(), pa.date64()),
    "zoned": tuple(pa.timestamp(unit, zone) for unit in NANOS for zone in _ZONES),
    "clock": (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    "span": tuple(pa.duration(unit) for unit in NANOS),
    "bool": (pa.bool_(),),
    "null": (pa.null(),),
}
"""The types of each family; columns of one family may be compared."""
_CSV_TYPES: Final[dict[str, tuple[pa.DataType, ...]]] = {
    "number": (pa.int64(), pa.float64()),
    "text": (pa.string(),),
    "bool": (pa.bool_(),),
    "instant": (pa.timestamp("s"), pa.timestamp("ns")),
}
"""The types that a column of a text file is read as, where the file alone says what it holds."""

_NUMBERS: Final = [*map(Fraction, range(7)), *map(Fraction, (-1, -2, 100)), Fraction(1, 2), Fraction(3, 4)]
_HUGE: Final = [
    *(Fraction(2**bits + more) for bits in (31, 53, 62, 63, 64) for more in (-1, 0, 1)),
    *(Fraction(-(2**bits) + more) for bits in (7, 53, 63) for more in (-1, 0, 1)),
    *map(Fraction, (127, 128, 255, 256, 65504, 10**18, 10**37 + 1, 10**38 - 1)),
    *(Fraction(text) for text in ("0.1", "0.10", "1234567.89", "1234567.8900001", "1e-5", "99999.99999")),
    *map(Fraction, (0.1, 1 / 3, 1e300, 5e-324)),
]  # fmt: skip
_SPECIAL: Final = [float("nan"), float("inf"), float("-inf"), -0.0]
WORDS: Final = ["a", "b", "c", "A", "ä", "a\u0308", "it's", "a b", "zz", "\U0001f600"]
_TRAPS: Final = [
    "NA", "N/A", "NULL", "null", "nan", "NaN", "None", "007", "7", "0", "-1", "#N/A", " a", "a ", 'quo"te',
    "a,b", "a;b", "\\", "'", "TRUE", "2024-01-01", "x" * 300, "1e5", "12345678901234567890", "\u2028",
]  # fmt: skip
_ODD: Final = ["", "\x00", "a\x00b", "line\nbreak", "\r\n", "\t"]
"""Texts that not every format can tell from others."""


@dataclass(frozen=True)
class Column:
    """A column with what it exactly holds; ``family`` says what it may be compared with."""

    name: str
    type: pa.DataType
    family: str
    values: list[Any]
    array: pa.Array


@dataclass(frozen=True)
class Pool:
    """The values of a family that the columns of a case share; ``small`` ones do not overflow in arithmetic."""

    family: str
    values: list[Any]
    small: bool


def pool(rng: Random, family: str, formats: set[str]) -> Pool:
    """Return a few values of a family that all of ``formats`` can hold."""
    size = rng.randint(2, 6)
    if family == "number":
        small = rng.random() < 0.6
        values: list[Any] = rng.sample(_NUMBERS if small else _NUMBERS[:4] + _HUGE, size)
        if not small and rng.random() < 0.4 and formats <= {"parquet"}:
            values += rng.sample(_SPECIAL, 2)
        return Pool(family, values, small)
    if family in ("text", "bytes"):
        odd = _ODD if formats <= {"parquet"} else []
        values = rng.sample(WORDS, 2) + rng.sample(WORDS + _TRAPS + odd, size)
        return Pool(family, values if family == "text" else [text.encode() for text in values], True)
    if family == "bool":
        return Pool(family, [False, True], True)
    if family == "clock":
        return Pool(family, [0, DAY - 1, *(rng.randrange(DAY) // 10**9 * 10**9 for _ in range(size))], True)
    return Pool(family, instants(rng, size, wide=formats <= {"parquet"}), True)


def instants(rng: Random, size: int, wide: bool) -> list[int]:
    """Return instants in nanoseconds: around a day of our time, at the epoch, and with ``wide`` at all edges."""
    base = rng.choice([0, 1_700_000_000 * 10**9, -(10**9)])
    step = rng.choice([1, 10**3, 10**6, 10**9, DAY])
    values = [base + rng.randrange(5) * step for _ in range(size)]
    if wide and rng.random() < 0.4:
        edges = [YEAR_1, YEAR_9999, 2**63 - 1, -(2**63), 2**63, 20_000 * 365 * DAY, 18_993 * DAY, -1]
        values += rng.sample(edges, 2)
    return values


def type_for(rng: Random, family: str, format: str) -> pa.DataType:
    """Return a type of a family that a file of ``format`` can hold."""
    return rng.choice(FAMILIES[family] if format == "parquet" else _CSV_TYPES[family])


def families_of(formats: set[str]) -> list[str]:
    """Return the families that files of all these formats can hold."""
    if formats <= {"parquet"}:
        return list(FAMILIES)
    return list(_CSV_TYPES)


def column(rng: Random, name: str, type_: pa.DataType, of: Pool, rows: int) -> Column:
    """Return a column of values of a pool, some of them null."""
    nulls = rng.choice([0.0, 0.0, 0.1, 0.3])
    chosen = [None if rng.random() < nulls else rng.choice(of.values) for _ in range(rows)]
    return column_of(name, type_, of.family, chosen)


def column_of(name: str, type_: pa.DataType, family: str, chosen: list[Any]) -> Column:
    """Return a column with each value rounded to the nearest that ``type_`` has."""
    inner = type_.value_type if pa.types.is_dictionary(type_) else type_
    if pa.types.is_null(inner):
        return Column(name, type_, family, [None] * len(chosen), pa.nulls(len(chosen)))
    words = [None if value is None else _nearest(inner, value) for value in chosen]
    exact = [None if word is None else _exact(inner, word) for word in words]
    array = _array(inner, words)
    return Column(name, type_, family, exact, array.dictionary_encode().cast(type_) if inner != type_ else array)


def _nearest(type_: pa.DataType, value: Any) -> Any:
    """Return the value of a type that is nearest: what its array is made of."""
    types = pa.types
    if types.is_integer(type_):
        low, high = (0, 2**type_.bit_width - 1) if types.is_unsigned_integer(type_) else _signed(type_.bit_width)
        return _clamped(value, low, high, 0)
    if types.is_floating(type_):
        return float(_float(type_, value))
    if types.is_decimal(type_):
        most = 10**type_.precision - 1
        shift = Fraction(10) ** type_.scale
        scaled = _clamped(value * shift if isinstance(value, Fraction) else value, -most, most, 0)
        return Decimal(scaled).scaleb(-type_.scale, _EXACT)
    if types.is_temporal(type_):
        return _ticks(type_, value)
    if types.is_fixed_size_binary(type_):
        return value[:4].ljust(4, b"\0")
    return value


def _signed(bits: int) -> tuple[int, int]:
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def _clamped(value: Fraction | float, low: int, high: int, nan: int) -> int:
    if isinstance(value, float):
        return nan if isnan(value) or value == 0 else (high if value > 0 else low)
    return max(low, min(high, round(value)))


def _float(type_: pa.DataType, value: Fraction | float) -> Any:
    try:
        wide = float(value)
    except OverflowError:
        wide = float("inf") if value > 0 else float("-inf")
    with np.errstate(over="ignore"):
        return np.dtype(type_.to_pandas_dtype()).type(wide)


def unit_nanos(type_: pa.DataType) -> int:
    """Return the nanoseconds of one tick of a type of time."""
    if pa.types.is_date32(type_):
        return DAY
    return 10**6 if pa.types.is_date64(type_) else NANOS[type_.unit]


def _ticks(type_: pa.DataType, nanos: int) -> int:
    """Return an instant as ticks of a type, as near as it can hold."""
    if pa.types.is_date64(type_):
        return _day(nanos) * 86_400_000
    if pa.types.is_date32(type_):
        return _day(nanos)
    low, high = _signed(type_.bit_width)
    return max(low, min(high, nanos // unit_nanos(type_)))


def _day(nanos: int) -> int:
    """Days since 1970, within the years that Python has dates for."""
    return max(YEAR_1 // DAY, min(YEAR_9999 // DAY + 364, nanos // DAY))


def _exact(type_: pa.DataType, word: Any) -> Any:
    """Return what a value is to the truth: comparable with all others of its family."""
    if pa.types.is_temporal(type_):
        return word * unit_nanos(type_)
    return Fraction(word) if isinstance(word, Decimal) else word


def _array(type_: pa.DataType, words: list[Any]) -> pa.Array:
    if pa.types.is_temporal(type_):
        return pa.array(words, pa.int32() if type_.bit_width == 32 else pa.int64()).cast(type_)
    if pa.types.is_float16(type_):
        return pa.array([None if word is None else np.float16(word) for word in words], type_)
    return pa.array(words, type_)


def carried(rng: Random, name: str, rows: int) -> Column:
    """Return a column of a nested type, which no condition can compare."""
    number = pa.array([rng.choice([None, 0, 1, 2**63 - 1]) for _ in range(rows)], pa.int64())
    text = pa.array([rng.choice([None, "", "NA", "ä", "\U0001f600"]) for _ in range(rows)])
    lists = [rng.choice([None, [], [1], [None, 2**40], [1, 2, 3]]) for _ in range(rows)]
    shape = rng.randrange(5)
    if shape == 0:
        array = pa.StructArray.from_arrays([number, text], names=["x", "y"])
    elif shape == 1:
        array = pa.array(lists, rng.choice([pa.list_(pa.int64()), pa.large_list(pa.int64())]))
    elif shape == 2:
        array = pa.array([((v or []) * 2 + [1, 2])[:2] for v in lists], pa.list_(pa.int64(), 2))
    elif shape == 3:
        array = pa.array([None if v is None else [("k", len(v))] for v in lists], pa.map_("string", "int32"))
    else:
        inner = pa.StructArray.from_arrays([number], names=["x"])
        array = pa.StructArray.from_arrays([inner, pa.array(lists, pa.list_(pa.int64()))], names=["deep", "many"])
    return Column(name, array.type, "carried", array.to_pylist(), array)


def is_special(value: Any) -> bool:
    """Whether a number is NaN or infinite."""
    return isinstance(value, float) and (isnan(value) or isinf(value))
