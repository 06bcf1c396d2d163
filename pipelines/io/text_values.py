"""Types of columns in text files, and conversions from text that change no value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.pipelines.io.file_types import WORDS
from slackwater.plugins.contract import Bools

_NUMBER: Final = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_INTEGERS: Final = r"^-?[0-9]{1,19}$"
_SURE_DIGITS: Final = 15
"""Decimals of so many digits come back from a double as they were."""


def word(type_: pa.DataType) -> str:
    """Return what a type is called in messages."""
    return WORDS.get(type_, str(type_))


def converted(text: pa.Array, type_: pa.DataType, declared: bool) -> tuple[pa.Array, Bools | None]:
    """Convert text to a type.

    Args:
        text: values, null where there is none.
        type_: type of the column.
        declared: whether the template says so. A type that was inferred takes only what comes back from it as it
            was written: ``007`` is no integer, and 20 digits are no double.

    Returns:
        The values, and which texts do not fit, None if all do; their values are null.
    """
    if pa.types.is_string(type_):
        return text, None
    if pa.types.is_boolean(type_):
        values = _booleans(text)
    elif pa.types.is_timestamp(type_) and declared:
        values = _in_utc(text, type_)
    else:
        values = _cast(text, type_)
    if not declared and values.null_count < len(values):
        if pa.types.is_integer(type_):
            values = pc.if_else(_without_leading_zeros(text), values, None)
        elif pa.types.is_floating(type_):
            values = pc.if_else(_exact(text, values), values, None)
    if values.null_count == text.null_count:
        return values, None
    unfit = pc.and_(values.is_null(), text.is_valid())
    return values, np.asarray(unfit.to_numpy(zero_copy_only=False), np.bool_)


def inferred(text: pa.Array, guess: pa.DataType) -> pa.DataType:
    """Return ``guess`` if all values come back from it as they were written, else text; null of no values."""
    if pa.types.is_null(guess) or pa.types.is_binary(guess):
        return guess if text.null_count == len(text) and pa.types.is_null(guess) else pa.string()
    try:
        return guess if converted(text, guess, declared=False)[1] is None else pa.string()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.string()


def together(types: Sequence[pa.DataType]) -> pa.DataType:
    """Return the type of a column that has these in several files: text where no other takes them all.

    A file without a value says nothing of the type; if none has one, it is text.
    """
    known = [t for t in dict.fromkeys(types) if not pa.types.is_null(t)]
    if len(known) < 2:
        return known[0] if known else pa.string()
    if all(pa.types.is_integer(t) or pa.types.is_floating(t) for t in known):
        return pa.float64()
    if all(pa.types.is_timestamp(t) for t in known) and len({t.tz for t in known}) == 1:
        return pa.timestamp("ns", known[0].tz)
    return pa.string()


def _cast(text: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return the values, null where a text is none."""
    try:
        return text.cast(type_)
    except pa.ArrowInvalid:
        likely = pc.match_substring_regex(text, _INTEGERS if pa.types.is_integer(type_) else r"^[-+.0-9infaINFA]")
        return _halved(pc.if_else(likely, text, None), type_)


def _halved(text: pa.Array, type_: pa.DataType) -> pa.Array:
    """As ``_cast``; looks for the culprits by halving."""
    try:
        return text.cast(type_)
    except pa.ArrowInvalid:
        if len(text) == 1:
            return pa.nulls(1, type_)
        half = len(text) // 2
        return pa.concat_arrays([_halved(text.slice(0, half), type_), _halved(text.slice(half), type_)])


def _in_utc(text: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return times that may have an offset, in UTC."""
    zoned = pc.match_substring_regex(text, r":.*(Z|[+-][0-9]{2}(:?[0-9]{2})?)$")
    here = _cast(pc.if_else(zoned, None, text), type_)
    there = _cast(pc.if_else(zoned, text, None), pa.timestamp(type_.unit, "UTC"))
    return pc.coalesce(here, there.cast(type_))


def _booleans(text: pa.Array) -> pa.Array:
    lower = pc.utf8_lower(text)
    known = pc.is_in(lower, pa.array(["true", "false"]))
    return pc.if_else(known, pc.equal(lower, "true"), None)


def _without_leading_zeros(text: pa.Array) -> pa.Array:
    """Say which texts that are integers, as decimals or as 0x and more, are written as integers are."""
    zero = pc.and_(pc.starts_with(text, "0"), pc.greater(pc.binary_length(text), 1))
    return pc.invert(pc.or_(zero, pc.starts_with(text, "-0")))


def _exact(text: pa.Array, values: pa.Array) -> pa.Array:
    """Say which decimals a double holds: formatted with as many digits, it is the same number."""
    number = pc.and_(pc.match_substring_regex(text, _NUMBER), pc.is_finite(values).fill_null(False))
    long = pc.and_(number, pc.greater(pc.binary_length(text), _SURE_DIGITS)).fill_null(False)
    at = np.flatnonzero(long.to_numpy(zero_copy_only=False))
    if not at.size:
        return number
    out = number.to_numpy(zero_copy_only=False).copy()
    some, read = text.take(pa.array(at)), values.take(pa.array(at))
    same = pc.equal(read.cast(pa.string()), some).to_numpy(zero_copy_only=False)
    for k in np.flatnonzero(~same).tolist():
        out[at[k]] = is_exact(some[k].as_py(), read[k].as_py())
    return pa.array(out, pa.bool_())


def is_exact(text: str, value: float) -> bool:
    """Whether a double is the number that a text says, to all its digits."""
    if value in (float("inf"), float("-inf")):
        return False
    digits = significant(text)
    try:
        return digits <= 17 and Decimal(f"{value:.{max(1, digits)}g}") == Decimal(text)
    except InvalidOperation:
        return False


def significant(text: str) -> int:
    """How many digits of a number count."""
    return len(re.sub(r"[eE].*$|[^0-9]", "", text).strip("0"))
