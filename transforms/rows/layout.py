"""How values lie in words of 64 bits: equal values in equal words, and in the order of the words.

A value that has no word in a layout equals none that has one. A key is laid out as the column that has the fewest
values: ``int64 = double`` compares whole numbers, ``decimal(12, 2) = decimal(18, 4)`` hundredths.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import pyarrow as pa

from slackwater.transforms.expressions.tree import ExpressionError

WORD_DIGITS: Final = 18
"""Decimal digits that always fit into a word."""
WIDE_DIGITS: Final = 38
"""Decimal digits that always fit into two words."""
TIME_UNITS: Final = ("s", "ms", "us", "ns")
UNSIGNED: Final = "unsigned"
_WORDS: Final = {
    "int": "a number",
    "float": "a number",
    "bool": "a truth value",
    "time": "a time",
    "null": "NULL",
}


class Layout(NamedTuple):
    """A layout; ``form`` says what the kind leaves open.

    ========  ===========  ====================================================================
    kind      form         word
    ========  ===========  ====================================================================
    int                    the whole number
    int       unsigned     a number from 0 to 2**64 - 1, less 2**63
    int       scale 2      the number times 10**2; likewise other scales
    int       high 2       the upper half of the number times 10**2 in 128 bits
    int       low 2        the lower half, less 2**63
    float                  the bits, with one zero and one NaN
    text                   a code of the dictionary
    text      scale 2      a code, of the number times 10**2
    time      ms           ticks of that unit
    time      seconds      whole seconds
    time      nanos        what is left of them
    null                   nothing: every value is null
    ========  ===========  ====================================================================
    """

    kind: str
    form: str = ""

    @property
    def scale(self) -> int:
        """Decimal places of the numbers."""
        return int(self.form.split()[1]) if " " in self.form else 0

    @property
    def is_wide(self) -> bool:
        """Whether it holds decimals of too many digits for a word."""
        return self.kind == "text" and self.form != ""

    @property
    def is_number(self) -> bool:
        return self.kind in ("int", "float") or self.is_wide

    def __str__(self) -> str:
        if self.is_wide:
            return f"a decimal of more than {WORD_DIGITS} digits"
        return _WORDS.get(self.kind, self.kind)


WHOLE: Final = Layout("int")
FLOAT: Final = Layout("float")
TEXT: Final = Layout("text")


def layout_of(type_: pa.DataType, where: str) -> Layout:
    """Return the layout for columns of one type; raise ExpressionError if a condition cannot use them."""
    types = pa.types
    type_ = value_type(type_)
    if types.is_null(type_):
        return Layout("null")
    if types.is_uint64(type_):
        return Layout("int", UNSIGNED)
    if types.is_integer(type_) or types.is_boolean(type_):
        return WHOLE
    if types.is_floating(type_):
        return FLOAT
    if types.is_decimal(type_):
        digits, scale = _digits(type_)
        return _scaled("int" if digits <= WORD_DIGITS else "text", scale)
    if is_text(type_):
        return TEXT
    if types.is_temporal(type_) and not types.is_interval(type_):
        return Layout("time", unit_of(type_))
    raise ExpressionError(f"{where} has type {type_}, which a condition cannot compare; use a simple column")


def value_type(type_: pa.DataType) -> pa.DataType:
    """Return the type of the values that columns of a type have."""
    return value_type(type_.value_type) if pa.types.is_dictionary(type_) else type_


def is_text(type_: pa.DataType) -> bool:
    """Whether values are strings of characters or bytes."""
    types = pa.types
    kinds = (
        types.is_string,
        types.is_large_string,
        types.is_string_view,
        types.is_binary,
        types.is_large_binary,
        types.is_binary_view,
        types.is_fixed_size_binary,
    )
    return any(is_kind(type_) for is_kind in kinds)


def unit_of(type_: pa.DataType) -> str:
    """Return the unit that holds every time of a type."""
    return str(getattr(type_, "unit", "ms" if pa.types.is_date64(type_) else "s"))


def family_of(type_: pa.DataType) -> str:
    """Return what the values of a type can be compared with, in words."""
    type_ = value_type(type_)
    if pa.types.is_timestamp(type_):
        return "a time without a time zone" if type_.tz is None else "a time with a time zone"
    if pa.types.is_date(type_):
        return "a time without a time zone"
    if pa.types.is_time(type_):
        return "a time of day"
    if pa.types.is_duration(type_):
        return "a duration"
    layout = layout_of(type_, "")
    return "a number" if layout.is_number else str(layout)


def differing(first: pa.DataType, second: pa.DataType) -> tuple[str, str] | None:
    """Return what values of two types are, in words, if they cannot be compared with each other."""
    families = family_of(first), family_of(second)
    if families[0] == families[1] or "NULL" in families:
        return None
    layouts = layout_of(first, ""), layout_of(second, "")
    if layouts[0].kind == layouts[1].kind:
        return families
    return _WORDS.get(layouts[0].kind, families[0]), _WORDS.get(layouts[1].kind, families[1])


def common_layout(types: Iterable[pa.DataType]) -> Layout:
    """Return the layout of a key whose columns have these types, which are of one family."""
    known = [value_type(type_) for type_ in types if not pa.types.is_null(type_)]
    layouts = [layout_of(type_, "") for type_ in known]
    if not layouts:
        return WHOLE
    if layouts[0].kind == "time":
        return Layout("time", max((layout.form for layout in layouts), key=TIME_UNITS.index))
    for simple in (WHOLE, Layout("int", UNSIGNED)):
        if simple in layouts:
            return simple
    decimals = [_digits(type_) for type_ in known if pa.types.is_decimal(type_)]
    if not decimals:
        return layouts[0]
    scale = min(places for _, places in decimals)
    fewest = min(digits - places + scale for digits, places in decimals)
    return _scaled("int" if fewest <= WORD_DIGITS else "text", scale)


def wide_digits(type_: pa.DataType, scale: int) -> int:
    """Return how many digits numbers of a type have if they are written with so many decimal places."""
    digits, places = _digits(value_type(type_))
    return digits - places + scale


def _scaled(kind: str, scale: int) -> Layout:
    return Layout(kind, f"scale {scale}" if scale or kind == "text" else "")


def _digits(type_: pa.DataType) -> tuple[int, int]:
    """Return the digits of a type of exact numbers, and how many of them are decimal places."""
    if not pa.types.is_decimal(type_):
        return 20, 0
    return type_.precision + max(0, -type_.scale), max(0, type_.scale)
