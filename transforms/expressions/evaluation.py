"""Evaluating expressions on Arrow batches, a whole column at a time.

Logic is three-valued as in SQL. Division is always floating; division and modulo by zero and the root of a
negative number give null. ``least`` and ``greatest`` ignore nulls. Numbers and times are compared by their
values, whatever their types. Whole numbers are 64 bits wide and decimals exact; a result that does not fit is an
error, not another number.
"""

from __future__ import annotations

from contextlib import suppress
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.transforms.arrival.bad_rows import HIDDEN
from slackwater.transforms.errors import SlackwaterError
from slackwater.transforms.expressions.exact_columns import comparable, compared, decimals_for
from slackwater.transforms.expressions.sql import text_of
from slackwater.transforms.expressions.tree import Col, Expr, ExpressionError, Lit, Op, Real
from slackwater.transforms.rows.layout import family_of

_COMPARE: Final = {"=": "equal", "<>": "not_equal", "<": "less", "<=": "less_equal"}
_ARITHMETIC: Final = {"+": "add_checked", "-": "subtract_checked", "*": "multiply_checked"}
WORDS: Final = {
    "number": "a number",
    "bool": "a truth value",
    "text": "text",
    "time": "a time",
    "null": "NULL",
    "other": "of a type that has no order",
}
_CASTS: Final = {
    "integer": pa.int64(),
    "number": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
}


def check(expr: Expr, schema: pa.Schema) -> pa.DataType:
    """Return the type of ``expr`` on rows of ``schema``; raise ExpressionError if it cannot be evaluated."""
    empty = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
    return evaluate(expr, empty).type


def evaluate(expr: Expr, batch: pa.RecordBatch) -> pa.Array:
    """Return the value of ``expr`` for each row of ``batch``.

    Raises:
        ExpressionError: A column is not there, or of a type that does not fit.
        SlackwaterError: A whole number does not fit into 64 bits.
    """
    try:
        value = _Evaluator(batch).value(expr)
    except pa.ArrowInvalid as error:
        raise SlackwaterError(f"{text_of(expr)}: {error}; keep the numbers smaller, or divide them") from None
    except pa.ArrowNotImplementedError as error:
        raise ExpressionError(f"{text_of(expr)} cannot be computed: {error}; use other types") from None
    return value if isinstance(value, pa.Array) else pa.repeat(value, len(batch))


def kind_of_value(type_: pa.DataType) -> str:
    """What the values of a type are to an expression: one of the keys of WORDS."""
    types = pa.types
    if types.is_boolean(type_):
        return "bool"
    if types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_):
        return "number"
    if types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_):
        return "text"
    if types.is_temporal(type_) and not types.is_interval(type_):
        return "time"
    return "null" if types.is_null(type_) else "other"


class _Evaluator:
    """Evaluates trees on one batch; values are arrays, or scalars where every row has the same."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def value(self, expr: Expr) -> Any:
        if isinstance(expr, Col):
            return self._column(expr)
        if isinstance(expr, Lit):
            if isinstance(expr.value, int) and not -(2**63) <= expr.value < 2**64:
                raise ExpressionError(f"{expr.value} does not fit into 64 bits; write it as a decimal number")
            large = isinstance(expr.value, int) and expr.value >= 2**63
            return pa.scalar(expr.value, pa.uint64() if large else None)
        name, args = expr.name, expr.args
        if name in ("and", "or"):
            return getattr(pc, f"{name}_kleene")(*(self._boolean(arg) for arg in args))
        if name == "not":
            return pc.invert(self._boolean(args[0]))
        if name == "is_null":
            return pc.is_null(self.value(args[0]))
        if name in _COMPARE:
            return self._compare(expr)
        if name == "in":
            return self._in(expr)
        if name == "cast":
            return self._cast(expr)
        return self._arithmetic(expr)

    def _column(self, column: Col) -> pa.Array:
        names = [name for name in self._batch.schema.names if name not in HIDDEN]
        if column.table is not None or column.name not in names:
            raise ExpressionError(f"there is no column {str(column)!r}; there are {', '.join(names)}")
        if names.count(column.name) > 1:
            raise ExpressionError(f"there are several columns {column.name!r}; rename one")
        values = self._batch.column(self._batch.schema.names.index(column.name))
        return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values

    def _boolean(self, expr: Expr) -> Any:
        value = self.value(expr)
        kind = kind_of_value(value.type)
        if kind not in ("bool", "null"):
            raise ExpressionError(f"{text_of(expr)} is {WORDS[kind]}, not a condition; compare it with something")
        return truth(value)

    def _number(self, expr: Expr) -> Any:
        """A number as int64, float64 or decimal."""
        value = self.value(expr)
        kind = kind_of_value(value.type)
        if kind not in ("number", "bool", "null"):
            raise ExpressionError(f"{text_of(expr)} is {WORDS[kind]}, not a number; arithmetic needs numbers")
        return _wide(value)

    def _compare(self, expr: Op) -> Any:
        left, right = (self.value(arg) for arg in expr.args)
        left, right = self._alike(expr.args[0], left, expr.args[1], right)
        if left.type == right.type and getattr(left.type, "scale", 0) >= 0:
            return pc.call_function(_COMPARE[expr.name], [left, right])
        return compared(expr.name, left, right, len(self._batch))

    def _alike(self, a: Expr, left: Any, b: Expr, right: Any) -> tuple[Any, Any]:
        """Bring two values to a common type, or say why they cannot be compared."""
        if isinstance(b, Lit) and isinstance(b.value, str) and kind_of_value(left.type) == "time":
            right = _time(b.value, left.type)
        elif isinstance(a, Lit) and isinstance(a.value, str) and kind_of_value(right.type) == "time":
            left = _time(a.value, right.type)
        kinds = [kind_of_value(left.type), kind_of_value(right.type)]
        known = {"number" if kind == "bool" else kind for kind in kinds if kind != "null"}
        if len(known) > 1 or "other" in known:
            raise ExpressionError(
                f"{text_of(a)} is {WORDS[kinds[0]]} and {text_of(b)} is {WORDS[kinds[1]]}: "
                "they cannot be compared"
            )
        if "null" in kinds:
            type_ = right.type if kinds[0] == "null" else left.type
            return left.cast(type_), right.cast(type_)
        if known == {"number"} and kinds != ["bool", "bool"]:
            return comparable(a, left, right.type), comparable(b, right, left.type)
        if known == {"time"} and family_of(left.type) != family_of(right.type):
            words = family_of(left.type), family_of(right.type)
            raise ExpressionError(
                f"{text_of(a)} is {words[0]} and {text_of(b)} is {words[1]}: they cannot be compared"
            )
        return (
            (left.cast(pa.large_string()), right.cast(pa.large_string())) if known == {"text"} else (left, right)
        )

    def _in(self, expr: Op) -> Any:
        """Look for texts and numbers in a list at once, and compare with all else one by one."""
        first, *items = expr.args
        value = self.value(first)
        kind = kind_of_value(value.type)
        sought: list[Any] = []
        if kind == "text" or pa.types.is_int64(value.type):
            wanted = str if kind == "text" else int
            sought = [item.value for item in items if isinstance(item, Lit) and type(item.value) is wanted]
        tests = [self._compare(Op("=", (first, item))) for item in items if not _is_among(item, sought)]
        if sought:
            fitting = sought if kind == "text" else [n for n in sought if -(2**63) <= n < 2**63]
            type_ = pa.large_string() if kind == "text" else pa.int64()
            found = pc.is_in(value.cast(type_), pa.array(fitting, type_))
            tests.append(pc.if_else(pc.is_valid(value), found, pa.scalar(None, pa.bool_())))
        return reduce(pc.or_kleene, tests)

    def _arithmetic(self, expr: Op) -> Any:
        values = [self._number(arg) for arg in expr.args]
        if any(pa.types.is_decimal(value.type) for value in values):
            return self._decimal_arithmetic(expr, values)
        return self._computed(expr, values)

    def _computed(self, expr: Op, values: list[Any]) -> Any:
        if expr.name == "neg":
            return pc.negate_checked(values[0])
        if expr.name == "abs":
            return pc.abs_checked(values[0])
        if expr.name == "sqrt":
            value = values[0].cast(pa.float64())
            return pc.sqrt(pc.if_else(pc.less(value, 0.0), pa.scalar(None, pa.float64()), value))
        if expr.name == "/" or any(pa.types.is_floating(value.type) for value in values):
            values = [value.cast(pa.float64(), safe=False) for value in values]
        if expr.name in ("least", "greatest"):
            choose = pc.min_element_wise if expr.name == "least" else pc.max_element_wise
            return choose(*values, skip_nulls=True)
        if expr.name == "%":
            return self._modulo(*values)
        if expr.name == "/":
            zero = pc.equal(values[1], 0.0)
            return pc.divide(values[0], pc.if_else(zero, pa.scalar(None, pa.float64()), values[1]))
        if expr.name not in _ARITHMETIC:
            raise ExpressionError(f"{expr.name!r} is not an operation that can be evaluated")
        return pc.call_function(_ARITHMETIC[expr.name], values)

    def _decimal_arithmetic(self, expr: Op, values: list[Any]) -> Any:
        """Compute with decimals: exactly, but for divisions, roots and floats among them."""
        exact = [
            pa.scalar(arg.value.exact) if isinstance(arg, Lit) and isinstance(arg.value, Real) else value
            for arg, value in zip(expr.args, values, strict=True)
        ]
        if expr.name in ("/", "sqrt") or any(pa.types.is_floating(value.type) for value in exact):
            floats = [pc.cast(value, pa.float64(), safe=False) for value in values]
            return self._computed(expr, floats)
        if expr.name == "%":
            raise ExpressionError(f"{text_of(expr)}: % is for whole numbers and floats, not for decimals")
        return self._computed(expr, decimals_for(expr, exact))

    def _modulo(self, left: Any, right: Any) -> Any:
        """The remainder with the sign of the dividend."""
        arrays = [v if isinstance(v, pa.Array) else pa.repeat(v, len(self._batch)) for v in (left, right)]
        null = ~(_valid(arrays[0]) & _valid(arrays[1]))
        a, b = (np.asarray(pc.fill_null(array, 1)) for array in arrays)
        null |= b == 0
        remainder = np.fmod(a, np.where(b == 0, np.ones_like(b), b))
        return pa.array(remainder, arrays[0].type, mask=null)

    def _cast(self, expr: Op) -> Any:
        value, wanted = self.value(expr.args[0]), expr.args[1]
        assert isinstance(wanted, Lit)
        name = str(wanted.value)
        type_ = value.type
        fits = {
            "integer": pa.types.is_integer(type_),
            "number": kind_of_value(type_) == "number",
            "string": kind_of_value(type_) == "text",
            "boolean": kind_of_value(type_) == "bool",
        }
        if not (fits[name] or kind_of_value(type_) == "null"):
            raise ExpressionError(
                f"{text_of(expr.args[0])} is of type {type_}, not {name}; change output_type or expression"
            )
        return value.cast(_CASTS[name])


def truth(value: Any) -> Any:
    """A condition's value as truth values, where it is NULL for every row."""
    return value.cast(pa.bool_()) if pa.types.is_null(value.type) else value


def _wide(value: Any) -> Any:
    """A number, truth value or NULL as int64, float64 or decimal."""
    type_ = value.type
    if pa.types.is_decimal(type_):
        return value
    if pa.types.is_floating(type_):
        return value.cast(pa.float64(), safe=False)
    if pa.types.is_boolean(type_) and not isinstance(value, pa.Array):
        return pa.scalar(None if value.as_py() is None else int(value.as_py()), pa.int64())
    return value.cast(pa.int64())


def _valid(array: pa.Array) -> Any:
    return np.asarray(array.is_valid())


def _is_among(item: Expr, sought: list[Any]) -> bool:
    return bool(sought) and isinstance(item, Lit) and type(item.value) is type(sought[0])


def _time(text: str, type_: pa.DataType) -> Any:
    """Read a time as one of a type, or of a unit that reaches further."""
    wider = [pa.timestamp("s", type_.tz)] if pa.types.is_timestamp(type_) else []
    for wanted in (type_, *wider):
        with suppress(pa.ArrowInvalid):
            return pa.scalar(text).cast(wanted)
    raise ExpressionError(f"{text!r} is not a time; write it as 2024-01-31 or 2024-01-31 12:00:00")
