"""Aggregates: SQL text to functions over expressions, and how partial aggregates are laid in words.

The partial aggregate of some rows is a few int64 and float64 words, each of which merges with that of other
rows by adding or by keeping the smaller or larger one (``operators.record_store``). A whole number is summed in
words of 32 bits, so that sums neither overflow on the way nor depend on the order. A decimal is a whole number of
64 or 128 bits, times a power of ten, so its sum, minimum and maximum are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import sqlglot
from sqlglot import exp

from slackwater.plugins.contract import Bools, Float64s, Int64s
from slackwater.transforms.errors import ConfigError, SlackwaterError
from slackwater.transforms.expressions.evaluation import WORDS, check, evaluate, kind_of_value
from slackwater.transforms.expressions.sql import text_of
from slackwater.transforms.expressions.tree import Expr, ExpressionError, parse
from slackwater.transforms.rows.layout import WIDE_DIGITS, layout_of
from slackwater.transforms.rows.words import decimals_of, halves, int64s, words_of

FUNCTIONS: Final[dict[type, str]] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
}
_KNOWN: Final = "count(*), and count, sum, avg, min and max of a column or an expression"
# As in kernels.record_store, which is not imported here: templates are checked without compiling anything.
_ADD, _MIN, _MAX, _MIN_PAIR, _MAX_PAIR, _LOWER = range(6)
_LIMB: Final = 32
_LOW: Final = (1 << _LIMB) - 1
_SMALLEST, _LARGEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_NOTHING: Final = {"min": _LARGEST, "min lower": _LARGEST, "max": _SMALLEST, "max lower": _SMALLEST}
"""Words of a minimum or maximum of nothing; those of sums are 0."""


@dataclass(frozen=True)
class Aggregate:
    """A column of the results."""

    name: str
    function: str
    argument: Expr | None
    """None for ``count(*)``."""

    def __str__(self) -> str:
        return f"{self.function}({'*' if self.argument is None else text_of(self.argument)})"


def parse_aggregate(name: str, text: str) -> Aggregate:
    """Return the aggregate that ``text`` describes; raise ExpressionError saying what would be one."""
    try:
        tree = sqlglot.parse_one(text) if text.strip() else None
    except sqlglot.errors.SqlglotError as error:
        detail = str(error).split("\n", 1)[0].rstrip(".")
        raise ExpressionError(f"cannot read {text!r}: {detail}") from None
    function = FUNCTIONS.get(type(tree))
    if tree is None or function is None:
        raise ExpressionError(f"{text!r} is no aggregate; there are {_KNOWN}")
    if tree.this is None or tree.args.get("expressions"):
        raise ExpressionError(f"{text!r}: {function} takes one argument, such as {function}(speed)")
    if isinstance(tree.this, exp.Star):
        if function != "count":
            raise ExpressionError(f"{text!r}: only count takes *; name a column")
        return Aggregate(name, function, None)
    if isinstance(tree.this, exp.Distinct):
        raise ExpressionError(f"{text!r}: DISTINCT is not supported; there are {_KNOWN}")
    return Aggregate(name, function, parse(tree.this.sql()))


def parse_aggregates(given: Mapping[str, str]) -> tuple[Aggregate, ...]:
    """Return all aggregates; raise ConfigError with the path of the one at fault."""
    if not given:
        raise ConfigError("names no aggregate; add one, such as cars: count(*)", "aggregates")
    found = []
    for name, text in given.items():
        try:
            found.append(parse_aggregate(name, text))
        except ExpressionError as error:
            raise ConfigError(str(error), "aggregates", name) from None
    return tuple(found)


class AggregateLayout:
    """The words of a partial aggregate, for aggregates bound to an input's columns.

    Args:
        aggregates: what to compute.
        schema: columns of the input.

    Raises:
        ConfigError: An expression does not fit the columns, or a function does not fit its values.
    """

    def __init__(self, aggregates: tuple[Aggregate, ...], schema: pa.Schema) -> None:
        self._aggregates = aggregates
        self._values: list[Expr] = []
        self._types: list[pa.DataType] = []
        self._words: dict[tuple[str, int], tuple[bool, int]] = {}
        """(what, value) to the word that holds it: whether it is a floating one, and its place."""
        self._ops: tuple[list[int], list[int]] = ([], [])
        self.types = [self._bind(aggregate, schema) for aggregate in aggregates]
        """Arrow type of each aggregate."""

    @property
    def ops(self) -> tuple[Int64s, Int64s]:
        """How the integer and the floating words merge."""
        return np.array(self._ops[0], np.int64), np.array(self._ops[1], np.int64)

    def rows(self, batch: pa.RecordBatch) -> tuple[Int64s, Float64s]:
        """Return the partial aggregate of each row."""
        n = batch.num_rows
        whole, real = (
            np.empty((n, len(ops)), type_) for ops, type_ in zip(self._ops, (np.int64, float), strict=True)
        )
        if ("rows", -1) in self._words:
            whole[:, self._words["rows", -1][1]] = 1
        for value, expr in enumerate(self._values):
            self._lay(value, evaluate(expr, batch), whole, real)
        return whole, real

    def results(self, whole: Int64s, real: Float64s) -> list[pa.Array]:
        """Return the value of every aggregate for each row of words."""
        return [self._result(k, whole, real) for k in range(len(self._aggregates))]

    def _bind(self, aggregate: Aggregate, schema: pa.Schema) -> pa.DataType:
        """Find words for an aggregate; return its type."""
        function, expr = aggregate.function, aggregate.argument
        if expr is None:
            self._word("rows", -1, False, _ADD)
            return pa.int64()
        try:
            type_ = check(expr, schema)
        except ExpressionError as error:
            raise ConfigError(str(error), "aggregates", aggregate.name) from None
        kind = kind_of_value(type_)
        fits = ("number", "null", "time") if function in ("min", "max") else ("number", "null")
        if function != "count" and kind not in fits:
            wanted = "numbers or times" if "time" in fits else "numbers"
            raise ConfigError(
                f"{text_of(expr)} is {WORDS[kind]} ({type_}), and {function} needs {wanted}; use count, or "
                "convert it with MapToFields",
                "aggregates",
                aggregate.name,
            )
        if expr not in self._values:
            self._values.append(expr)
            self._types.append(type_)
        value = self._values.index(expr)
        self._word("count", value, False, _ADD)
        if function == "count":
            return pa.int64()
        floating, wide = pa.types.is_floating(type_), _is_wide(type_)
        if function in ("sum", "avg"):
            for part in ["sum"] if floating else [f"limb {k}" for k in range(4 if wide else 2)]:
                self._word(part, value, floating, _ADD)
            if function == "avg" or floating:
                return pa.float64()
            return pa.decimal128(WIDE_DIGITS, _scale(type_)) if pa.types.is_decimal(type_) else pa.int64()
        if wide:
            self._word(function, value, False, _MIN_PAIR if function == "min" else _MAX_PAIR)
            self._word(f"{function} lower", value, False, _LOWER)
        else:
            self._word(function, value, floating, _MIN if function == "min" else _MAX)
        return pa.int64() if kind == "null" else type_

    def _word(self, what: str, value: int, floating: bool, op: int) -> None:
        if (what, value) not in self._words:
            self._words[what, value] = floating, len(self._ops[floating])
            self._ops[floating].append(op)

    def _lay(self, value: int, column: pa.Array, whole: Int64s, real: Float64s) -> None:
        """Write the words of one argument; what is null is left out of everything."""
        from slackwater.transforms.rows.encoder import valid_mask

        valid = valid_mask(column)
        parts = {what: at for (what, v), at in self._words.items() if v == value}
        whole[:, parts.pop("count")[1]] = valid
        if not parts:
            return
        if any(floating for floating, _ in parts.values()):
            numbers = column.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy(zero_copy_only=False)
            neutral = {"sum": 0.0, "min": np.nan, "max": -np.inf}
            for what, (_, word) in parts.items():
                real[:, word] = numbers
                real[~valid, word] = neutral[what]
            return
        words = self._integers(value, column)
        for what, (_, word) in parts.items():
            whole[:, word] = _part(what, words)
            whole[~valid, word] = _NOTHING.get(what, 0)

    def _integers(self, value: int, column: pa.Array) -> list[Int64s]:
        """Return numbers or times as words, the lowest first; nulls are anything."""
        type_, text = column.type, text_of(self._values[value])
        if _is_wide(type_):
            words, fits = halves(column, _scale(type_))
            if not fits[np.asarray(column.is_valid())].all():
                raise SlackwaterError(
                    f"{text}: a value does not fit into a decimal of {WIDE_DIGITS} digits; aggregate smaller "
                    f"numbers, or {text} / 1, a floating number"
                )
            return [words[:, 0], words[:, 1]]
        if kind_of_value(type_) == "time" or pa.types.is_decimal(type_):
            return [words_of(layout_of(type_, ""), column)[0]]
        try:
            return [int64s(column.cast(pa.int64()))]
        except pa.ArrowInvalid as error:
            raise SlackwaterError(
                f"{text}: {error}; aggregate numbers that fit into 64 bits with a sign"
            ) from None

    def _result(self, k: int, whole: Int64s, real: Float64s) -> pa.Array:
        aggregate = self._aggregates[k]
        value = -1 if aggregate.argument is None else self._values.index(aggregate.argument)

        def word(what: str) -> Any:
            floating, at = self._words[what, value]
            return (real if floating else whole)[:, at]

        if aggregate.function == "count":
            return pa.array(word("rows" if value < 0 else "count"), pa.int64())
        n = word("count")
        none = n == 0
        type_ = self._types[value] if value >= 0 else pa.null()
        if aggregate.function in ("min", "max"):
            if pa.types.is_decimal(type_):
                best = word(aggregate.function)
                lower = word(f"{aggregate.function} lower") ^ _SMALLEST if _is_wide(type_) else best
                high = best if _is_wide(type_) else best >> 63
                return decimals_of(lower, high, _scale(type_), none).cast(type_)
            return _typed(word(aggregate.function), none, self.types[k], type_)
        if ("sum", value) in self._words:
            total = word("sum")
        else:
            limbs = _carried([word(f"limb {at}") for at in range(4 if _is_wide(type_) else 2)])
            if aggregate.function == "sum":
                return self._exact_sum(aggregate, limbs, none, type_)
            total = limbs.pop().astype(np.float64)
            for limb in reversed(limbs):
                total = total * float(1 << _LIMB) + limb
            total /= 10.0 ** _scale(type_)
        if aggregate.function == "avg":
            total = total / np.where(none, 1, n)
        return pa.array(total, pa.float64(), mask=none)

    def _exact_sum(self, aggregate: Aggregate, limbs: list[Int64s], none: Bools, type_: pa.DataType) -> pa.Array:
        assert aggregate.argument is not None
        text, low, top = text_of(aggregate.argument), limbs[1] << _LIMB | limbs[0], limbs[-1]
        fits = bool((none | ((top >= -(1 << 31)) & (top < 1 << 31))).all())
        if pa.types.is_decimal(type_):
            high = top << _LIMB | limbs[2] if len(limbs) > 2 else top >> _LIMB
            total = decimals_of(low, high, _scale(type_), none)
            if fits or len(limbs) == 2:
                with suppress(pa.ArrowInvalid):
                    total.validate(full=True)
                    return total
            room, cure = f"a decimal of {WIDE_DIGITS} digits", f"{text} / 1, a floating number"
        elif fits:
            return pa.array(low, pa.int64(), mask=none)
        else:
            room, cure = "64 bits", f"{text} * 1.0"
        raise SlackwaterError(
            f"{aggregate.name}: {aggregate} does not fit into {room}; sum smaller numbers, or sum {cure}"
        )


def _is_wide(type_: pa.DataType) -> bool:
    """Whether values are decimals of too many digits for a word."""
    return pa.types.is_decimal(type_) and layout_of(type_, "").is_wide


def _scale(type_: pa.DataType) -> int:
    """Return how many decimal places values are counted in."""
    return max(0, type_.scale) if pa.types.is_decimal(type_) else 0


def _part(what: str, words: list[Int64s]) -> Int64s:
    """Return what a word of a partial aggregate is for one value, given its own words, the lowest first."""
    if what.startswith("limb"):
        k = int(what.split()[1])
        word = words[k // 2]
        if k % 2 == 0:
            return word & _LOW
        return word >> _LIMB if k == 2 * len(words) - 1 else word >> _LIMB & _LOW
    return words[0] ^ _SMALLEST if what.endswith("lower") else words[-1]


def _carried(limbs: list[Int64s]) -> list[Int64s]:
    """Return sums of 32-bit parts, the lowest first, with only 32 bits in each but the last."""
    for k in range(len(limbs) - 1):
        limbs[k + 1] = limbs[k + 1] + (limbs[k] >> _LIMB)
        limbs[k] = limbs[k] & _LOW
    return limbs


def _typed(words: Any, none: Bools, type_: pa.DataType, argument: pa.DataType) -> pa.Array:
    """Return smallest or largest values with the type of the argument."""
    if words.dtype == np.float64:
        return pa.array(words, pa.float64(), mask=none).cast(type_)
    values = pa.array(np.where(none, 0, words), pa.int64(), mask=none)
    if kind_of_value(argument) != "time":
        return values.cast(type_)
    if pa.types.is_date32(type_):
        return (pa.array(np.where(none, 0, words) // 86_400, pa.int32(), mask=none)).cast(type_)
    return values.cast(pa.int32()).cast(type_) if pa.types.is_time32(type_) else values.cast(type_)
