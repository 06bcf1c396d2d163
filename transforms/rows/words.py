"""Columns to words, exactly: a value that has no word in a layout is said to have none."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Bools, Float64s, Int64s
from slackwater.transforms.rows.layout import UNSIGNED, WIDE_DIGITS, WORD_DIGITS, Layout, unit_of
from slackwater.transforms.settings.time_unit import NANOS

Words = tuple[Int64s, Bools | None]
"""Words, nulls as anything, and which values have one; None if all have."""

_LOWEST: Final = np.int64(np.iinfo(np.int64).min)
_HIGHEST: Final = np.iinfo(np.int64).max
_DECIMAL_DIGITS: Final = 76


def int64s(array: pa.Array) -> Int64s:
    """View an int64 Arrow array as NumPy, nulls as whatever is beneath them."""
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array), np.int64)
    return np.frombuffer(buffer, np.int64, len(array), array.offset * 8)


def decoded(column: pa.Array) -> pa.Array:
    """Return a column without a dictionary."""
    while pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column


def words_of(layout: Layout, column: pa.Array) -> Words:
    """Return numbers or times as words of a layout that is not text."""
    column = decoded(column)
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64), None
    if layout.kind == "time":
        return _times(column, layout.form)
    if layout.kind == "float":
        return _floats(column)
    if pa.types.is_decimal(column.type) or (" " in layout.form and not pa.types.is_floating(column.type)):
        return _decimals(column, layout)
    if pa.types.is_floating(column.type):
        return _whole_floats(column, layout)
    return _whole(column, layout.form == UNSIGNED)


def scaled_bytes(column: pa.Array, scale: int) -> tuple[pa.Array, Bools | None]:
    """Return numbers times a power of ten as 32 bytes each, nulls as anything, and which are whole then."""
    known: Bools | None
    if pa.types.is_floating(column.type):
        exact = [_scaled_float(x, scale) for x in reals(column)]
        known = np.array([x is not None for x in exact], np.bool_)
        data = pa.py_buffer(b"".join((x or 0).to_bytes(32, "little", signed=True) for x in exact))
    else:
        words, known = _wide_words(column, scale)
        data = pa.py_buffer(np.ascontiguousarray(words))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(32), len(column), [None, data]), known


def values_of(layout: Layout, type_: pa.DataType, words: Int64s) -> pa.Array:
    """Return words of a layout as values of the type that they were made from; texts are not made here."""
    if layout.kind == "float":
        return pa.array(words.view(np.float64))
    if layout.kind == "time" and (pa.types.is_timestamp(type_) or pa.types.is_date(type_)):
        zone = getattr(type_, "tz", None)
        return pa.array(words).cast(pa.timestamp(layout.form, zone)).cast(type_, safe=False)
    if layout.form == UNSIGNED:
        return pa.array((words ^ _LOWEST).view(np.uint64))
    if layout.scale:
        return decimals_of(words, words >> 63, layout.scale)
    return pa.array(words).cast(type_) if pa.types.is_boolean(type_) else pa.array(words)


def decimals_of(low: Int64s, high: Int64s, scale: int, null: Bools | None = None) -> pa.Array:
    """Return decimals made of two words each, without a check that they have no more than 38 digits."""
    data = pa.py_buffer(np.ascontiguousarray(np.column_stack([low, high])))
    valid = None if null is None else pa.array(~null).buffers()[1]
    return pa.Decimal128Array.from_buffers(pa.decimal128(WIDE_DIGITS, scale), len(low), [valid, data])


def halves(column: pa.Array, scale: int) -> tuple[Int64s, Bools]:
    """Return decimals times a power of ten as two words each, the lower first, and which ones fit into them."""
    words, known = _wide_words(column, scale)
    fits = (words[:, 2:] == (words[:, 1:2] >> 63)).all(axis=1)
    return words[:, :2], fits if known is None else fits & known


def unscaled(layout: Layout, data: list[bytes]) -> pa.Array:
    """Return the numbers that ``scaled_bytes`` has made bytes of."""
    type_ = pa.decimal256(_DECIMAL_DIGITS, layout.scale)
    return pa.Array.from_buffers(type_, len(data), [None, pa.py_buffer(b"".join(data))])


def _whole(column: pa.Array, unsigned: bool) -> Words:
    if pa.types.is_uint64(column.type):
        words = int64s(column.view(pa.int64()))
        return (words ^ _LOWEST, None) if unsigned else (words, words >= 0)
    words = int64s(column.cast(pa.int64()))
    return (words ^ _LOWEST, words >= 0) if unsigned else (words, None)


def reals(column: pa.Array) -> Float64s:
    """Return numbers as floats, rounded where they must be, nulls as 0."""
    column = column.cast(pa.float64(), safe=False).fill_null(0.0)
    return np.asarray(column.to_numpy(zero_copy_only=False), np.float64)


def _floats(column: pa.Array) -> Words:
    """Lay numbers in words as the bits of floats."""
    floats = reals(column)
    if pa.types.is_floating(column.type):
        return _bits(floats), None
    unsigned = pa.types.is_uint64(column.type)
    back, known = _whole_floats(pa.array(floats), Layout("int", UNSIGNED if unsigned else ""))
    return _bits(floats), known & (back == _whole(column, unsigned)[0])


def _bits(floats: Float64s) -> Int64s:
    return np.where(np.isnan(floats), np.nan, floats + 0.0).view(np.int64)


def _whole_floats(column: pa.Array, layout: Layout) -> tuple[Int64s, Bools]:
    """Lay floats in words as whole numbers: times ``10**s``, which is ``2**s * 5**s``, the first exact."""
    with np.errstate(over="ignore", invalid="ignore"):
        floats = np.ldexp(reals(column), layout.scale)
        whole = np.floor(floats) == floats
        if layout.form == UNSIGNED:
            known = whole & (floats >= 0) & (floats < 2.0**64)
            return np.where(known, floats, 0.0).astype(np.uint64).view(np.int64) ^ _LOWEST, known
        factor = 5**layout.scale
        known = whole & (floats >= -(2.0**63)) & (floats < 2.0**63)
    words = np.where(known, floats, 0.0).astype(np.int64)
    if factor > 1:
        known &= (words <= _HIGHEST // factor) & (words >= -(_HIGHEST // factor))
    return np.where(known, words, 0) * factor, known


def _scaled_float(x: float, scale: int) -> int | None:
    """Return a float times a power of ten, if that is a whole number of less than 256 bits."""
    if not np.isfinite(x):
        return None
    above, below = float(x).as_integer_ratio()
    number, rest = divmod(above * 10**scale, below)
    return number if not rest and abs(number) < 1 << 255 else None


def _decimals(column: pa.Array, layout: Layout) -> Words:
    """Lay exact numbers in words, times a power of ten."""
    part, scale = layout.form.split()[0] if " " in layout.form else "scale", layout.scale
    type_ = column.type
    is_same = pa.types.is_decimal128(type_) and type_.precision <= WORD_DIGITS and type_.scale == scale
    if is_same and part == "scale" and layout.form != UNSIGNED:
        return _buffer_words(column, 2)[:, 0], None
    words, known = _wide_words(column, scale)
    low = words[:, 0]
    if part == "high":
        return words[:, 1], known
    if part == "low":
        return low ^ _LOWEST, known
    above = np.zeros_like(low) if layout.form == UNSIGNED else low >> 63
    fits = (words[:, 1:] == above[:, None]).all(axis=1)
    return low ^ _LOWEST if layout.form == UNSIGNED else low, fits if known is None else fits & known


def _wide_words(column: pa.Array, scale: int) -> tuple[Int64s, Bools | None]:
    """Return exact numbers times a power of ten as four words, the lowest first, and which are whole then."""
    if not pa.types.is_decimal(column.type):
        column = column.cast(pa.uint8()) if pa.types.is_boolean(column.type) else column
        column = column.cast(pa.decimal256(20, 0))
    places = max(0, column.type.scale)
    exact = column.cast(pa.decimal256(_DECIMAL_DIGITS, places))
    if scale >= places:
        return _buffer_words(exact.cast(pa.decimal256(_DECIMAL_DIGITS, scale)), 4), None
    cut = exact.cast(pa.decimal256(_DECIMAL_DIGITS, scale), safe=False)
    back = _buffer_words(cut.cast(exact.type), 4)
    return _buffer_words(cut, 4), (back == _buffer_words(exact, 4)).all(axis=1)


def _buffer_words(column: pa.Array, width: int) -> Any:
    if len(column) == 0:
        return np.zeros((0, width), np.int64)
    data = np.frombuffer(column.buffers()[1], np.int64, len(column) * width, column.offset * width * 8)
    return data.reshape(-1, width)


def _times(column: pa.Array, form: str) -> Words:
    ticks, nanos = time_ticks(column)
    if nanos > NANOS["s"]:
        ticks, nanos = ticks * (nanos // NANOS["s"]), NANOS["s"]
    if form in ("seconds", "nanos"):
        per_second = NANOS["s"] // nanos
        return (ticks // per_second if form == "seconds" else ticks % per_second * nanos), None
    return in_unit(ticks, nanos, form)


def time_ticks(column: pa.Array) -> tuple[Int64s, int]:
    """Return times as whole numbers, and how many nanoseconds one is."""
    type_ = column.type
    if pa.types.is_date32(type_):
        return int64s(column.cast(pa.int32()).cast(pa.int64())), 86_400 * NANOS["s"]
    if pa.types.is_time32(type_):
        column = column.cast(pa.int32())
    return int64s(column.cast(pa.int64())), NANOS[unit_of(type_)]


def in_unit(ticks: Int64s, nanos: int, unit: str) -> Words:
    """Return times counted in another unit; those that it cannot hold exactly have none."""
    wanted = NANOS[unit]
    if nanos == wanted:
        return ticks, None
    if nanos > wanted:
        factor = nanos // wanted
        known = (ticks <= _HIGHEST // factor) & (ticks >= -(_HIGHEST // factor))
        return (ticks if known.all() else np.where(known, ticks, 0)) * factor, known
    words, rest = np.divmod(ticks, wanted // nanos)
    return words, rest == 0
