"""Comparing and computing whole columns exactly, where Arrow would bring them to a type that rounds."""

from __future__ import annotations

from math import isnan
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.plugins.contract import Bools
from slackwater.transforms.expressions.sql import text_of
from slackwater.transforms.expressions.tree import Expr, ExpressionError, Lit, Op, Real
from slackwater.transforms.rows.layout import Layout
from slackwater.transforms.rows.words import words_of

_DIGITS: Final = 38
_MOST_DIGITS: Final = 76
_INTEGER_DIGITS: Final = 20
_VERDICTS: Final = {"=": np.equal, "<>": np.not_equal, "<": np.less, "<=": np.less_equal}


def comparable(expr: Expr, value: Any, other: pa.DataType) -> Any:
    """Return a number as it is compared with one of type ``other``: both of one type, unless that would round."""
    if pa.types.is_decimal(other) and isinstance(expr, Lit) and isinstance(expr.value, Real):
        value = pa.scalar(expr.value.exact)
    type_ = value.type
    if pa.types.is_floating(type_):
        return value.cast(pa.float64())
    if pa.types.is_boolean(type_):
        value = (
            value if isinstance(value, pa.Array) else pa.scalar(int(value.as_py()) if value.is_valid else None)
        )
        return value.cast(pa.int64())
    if pa.types.is_decimal(type_) or pa.types.is_uint64(type_):
        return value
    if isinstance(expr, Lit) and pa.types.is_floating(other) and float(expr.value) == expr.value:  # type: ignore[arg-type]
        return value.cast(pa.float64())
    return value.cast(pa.int64())


def compared(name: str, left: Any, right: Any, rows: int) -> pa.Array:
    """Compare values of two types by what they are; one of them may be the same for all rows."""
    left, right = (value if isinstance(value, pa.Array) else pa.repeat(value, rows) for value in (left, right))
    types = left.type, right.type
    if not any(map(_is_number, types)):
        found = _verdict(name, *_time_signs(left, right))
    elif not any(map(pa.types.is_floating, types)):
        scale = max(0, *(getattr(type_, "scale", 0) for type_ in types))
        digits = max(_digits(type_)[0] - _digits(type_)[1] + scale for type_ in types)
        if digits > _MOST_DIGITS:
            raise ExpressionError(f"a comparison takes {digits} digits, and at most {_MOST_DIGITS} are compared")
        exact = pa.decimal256(_MOST_DIGITS, scale)
        return _VERDICT_OF[name](_decimal(left).cast(exact), _decimal(right).cast(exact))
    elif any(map(pa.types.is_decimal, types)):
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        return pa.array([_decimal_verdict(name, *pair) for pair in pairs], pa.bool_())
    elif pa.types.is_floating(types[0]):
        sign, unordered = _float_signs(right, left)
        found = _verdict(name, -sign, unordered)
    else:
        found = _verdict(name, *_float_signs(left, right))
    valid = np.asarray(left.is_valid(), np.bool_) & np.asarray(right.is_valid(), np.bool_)
    return pa.array(found, pa.bool_(), mask=~valid)


def decimals_for(expr: Op, values: list[Any]) -> list[Any]:
    """Return numbers as decimals that an operation can be done with exactly."""
    exact = [_decimal(value) for value in values]
    sizes = [_digits(value.type) for value in exact]
    scale = max(places for _, places in sizes)
    if expr.name == "*":
        wanted = sum(digits for digits, _ in sizes) + 1
    else:
        wanted = max(digits - places for digits, places in sizes) + scale + 1
    if wanted > _MOST_DIGITS:
        raise ExpressionError(
            f"{text_of(expr)} may have {wanted} digits, and decimals have at most {_MOST_DIGITS}; divide them by "
            "1, which makes them floats"
        )
    make = pa.decimal128 if wanted <= _DIGITS else pa.decimal256
    if expr.name in ("least", "greatest"):
        return [value.cast(make(wanted, scale)) for value in exact]
    return [value.cast(make(*size)) for value, size in zip(exact, sizes, strict=True)]


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))


def _digits(type_: pa.DataType) -> tuple[int, int]:
    return (type_.precision, type_.scale) if pa.types.is_decimal(type_) else (_INTEGER_DIGITS, 0)


def _decimal(value: Any) -> Any:
    if not pa.types.is_decimal(value.type):
        return value.cast(pa.decimal128(_INTEGER_DIGITS, 0))
    digits, places = _digits(value.type)
    return value if places >= 0 else value.cast(pa.decimal256(digits - places, 0))


_VERDICT_OF: Final = {"=": pc.equal, "<>": pc.not_equal, "<": pc.less, "<=": pc.less_equal}


def _verdict(name: str, sign: Any, unordered: Bools | None = None) -> Bools:
    found = np.asarray(_VERDICTS[name](sign, 0), np.bool_)
    return found if unordered is None else np.where(unordered, name == "<>", found)


def _time_signs(left: pa.Array, right: pa.Array) -> tuple[Any, None]:
    """Compare times of two units: by seconds, then by what is left of them."""
    signs = []
    for form in ("seconds", "nanos"):
        first, second = (words_of(Layout("time", form), column)[0] for column in (left, right))
        signs.append((first > second).astype(np.int8) - (first < second).astype(np.int8))
    return np.where(signs[0] != 0, signs[0], signs[1]), None


def _decimal_verdict(name: str, left: Any, right: Any) -> bool | None:
    """Compare a decimal with a float, one by one: Python does so exactly."""
    if left is None or right is None:
        return None
    if isnan(left) or isnan(right):
        return name == "<>"
    return bool({"=": left == right, "<>": left != right, "<": left < right, "<=": left <= right}[name])


def _float_signs(whole: pa.Array, real: pa.Array) -> tuple[Any, Bools]:
    """Compare whole numbers with floats; return -1, 0 or 1, and where there is no number."""
    kind = np.uint64 if pa.types.is_uint64(whole.type) else np.int64
    numbers = np.asarray(pc.fill_null(whole, 0)).astype(kind)
    floats = np.asarray(pc.fill_null(real, 0.0))
    low, high = (0.0, 2.0**64) if kind is np.uint64 else (-(2.0**63), 2.0**63)
    floor = np.floor(floats)
    inside = (floor >= low) & (floor < high)
    steps = np.where(inside, floor, 0.0).astype(kind)
    sign = (numbers > steps).astype(np.int8) - (numbers < steps).astype(np.int8)
    sign = np.where((sign == 0) & (floats > floor), -1, sign)
    return np.where(inside, sign, np.where(floats > 0, -1, 1)), np.isnan(floats)
