"""Comparisons in programs: numbers by their values, whatever their types, and times whatever their units."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Final, NoReturn, Protocol

import pyarrow as pa

from slackwater.transforms.expressions import opcodes as ops
from slackwater.transforms.expressions.tree import Col, Expr, ExpressionError, Lit, Op, Real
from slackwater.transforms.rows.layout import (
    FLOAT,
    TEXT,
    UNSIGNED,
    WHOLE,
    WIDE_DIGITS,
    WORD_DIGITS,
    Layout,
    differing,
    family_of,
    layout_of,
    wide_digits,
)

COMPARISON: Final = {
    "=": (ops.EQ_I, ops.EQ_F),
    "<>": (ops.NE_I, ops.NE_F),
    "<": (ops.LT_I, ops.LT_F),
    "<=": (ops.LE_I, ops.LE_F),
}
BOOL: Final = Layout("bool")
NULL: Final = Layout("null")
LOWEST, HIGHEST = -(2**63), 2**63 - 1
_MIXED: Final = {
    (False, FLOAT): ops.CMP_IF,
    (True, FLOAT): ops.CMP_UF,
    (False, Layout("int", UNSIGNED)): ops.CMP_IU,
}


class CellOf(Protocol):
    """Says where a column lies: (input, cell, layout); its own layout unless one is wanted."""

    def __call__(self, column: Col, layout: Layout | None = None) -> tuple[int, int, Layout]: ...


class Comparisons:
    """The instructions of a program, and those that compare; a subclass knows all other operations.

    Args:
        cell_of: where a column lies.
        literal_code: dictionary code of a text constant.
        type_of: Arrow type of a column.
    """

    def __init__(
        self, cell_of: CellOf, literal_code: Callable[[str], int], type_of: Callable[[Col], pa.DataType]
    ) -> None:
        self._cell_of, self._literal_code, self._type_of = cell_of, literal_code, type_of
        self._rows: list[tuple[int, int, int, int]] = []

    def _emit(self, op: int, target: int, a: int = 0, b: int = 0) -> None:
        self._rows.append((op, target, a, b))

    def _value(self, tree: Expr, r: int, decimal: bool = False) -> Layout:
        """Emit what leaves the value of ``tree`` in register ``r``; return its layout."""
        raise NotImplementedError

    def _load(self, column: Col, r: int, wanted: Layout | None = None) -> Layout:
        i, cell, layout = self._cell_of(column, wanted)
        self._emit(ops.LOAD, r, i, cell)
        return layout

    def _literal(self, tree: Lit, r: int, decimal: bool = False) -> Layout:
        value = tree.value
        if value is None:
            self._emit(ops.CONST, r, 1, 0)
            return NULL
        if isinstance(value, str):
            self._emit(ops.CONST, r, 0, self._literal_code(value))
            return TEXT
        if isinstance(value, float):
            scale = value.places if isinstance(value, Real) else None
            if decimal and scale is not None:
                number = int(value.exact.scaleb(scale))  # type: ignore[attr-defined]
                if scale <= WORD_DIGITS and LOWEST <= number <= HIGHEST:
                    self._emit(ops.CONST, r, 0, number)
                    return Layout("int", f"scale {scale}") if scale else WHOLE
                raise ExpressionError(
                    f"{value} has more than {WORD_DIGITS} digits; decimals are computed with fewer"
                )
            self._emit(ops.CONST, r, 0, bits(value))
            return FLOAT
        if not LOWEST <= value <= HIGHEST:
            raise ExpressionError(f"{value} does not fit into 64 bits; write it as a decimal number")
        self._emit(ops.CONST, r, 0, int(value))
        return BOOL if isinstance(value, bool) else WHOLE

    def _compare(self, tree: Op, r: int) -> None:
        """Emit a comparison."""
        left, right = tree.args
        if Lit(None) in tree.args:
            self._emit(ops.CONST, r, 1, 0)
            return
        if self._in_two_words(left, right):
            self._compare_wide(tree, r)
            return
        for value, constant, turned in ((left, right, False), (right, left, True)):
            if (
                isinstance(constant, Lit)
                and isinstance(constant.value, int | float)
                and isinstance(value, Col | Op)
            ):
                self._compare_constant(tree, value, constant, turned, r)
                return
        self._compare_registers(tree, self._value(left, r), self._value(right, r + 1), r)

    def _compare_registers(self, tree: Op, first: Layout, second: Layout, r: int) -> None:
        """Compare registers ``r`` and ``r + 1``."""
        left, right = tree.args
        if NULL in (first, second):
            self._emit(ops.CONST, r, 1, 0)
            return
        first, second = (WHOLE if layout == BOOL else layout for layout in (first, second))
        if "time" in (first.kind, second.kind) or first.is_number != second.is_number:
            self._refuse(left, right, first, second)
        if first.kind == "text" and tree.name not in ("=", "<>"):
            raise ExpressionError(f"text can be compared with = and <> only, not {left} with {right}")
        if first == second:
            self._emit(COMPARISON[tree.name][first == FLOAT], r, r, r + 1)
            return
        if first.is_wide or second.is_wide:
            self._refuse(left, right, first, second)
        turned = _rank(first) > _rank(second)
        low, high = (second, first) if turned else (first, second)
        scale = high.scale - low.scale if high.kind == "int" and high.form != UNSIGNED else low.scale
        self._emit(_MIXED.get((low.form == UNSIGNED, high), ops.CMP_II), r, r + turned, scale)
        self._emit(ops.CONST, r + 1, 0, 0)
        self._emit(COMPARISON[tree.name][0], r, r + turned, r + 1 - turned)

    def _compare_constant(self, tree: Op, value: Expr, constant: Lit, turned: bool, r: int) -> None:
        """Compare with a number: with the word that it has in the layout of the value, or the one below."""
        layout = self._value(value, r)
        number = _exact(constant)
        if layout.kind != "int":
            given = constant.value
            if layout == FLOAT and isinstance(given, int) and float(given) == given:
                constant = Lit(float(given))
            second = self._literal(constant, r + 1)
            if turned:
                # The value lies first, as if it were on the left.
                mirrored = {"<": "<=", "<=": "<"}.get(tree.name, tree.name)
                self._compare_registers(Op(mirrored, (value, constant)), layout, second, r)
                if tree.name in ("<", "<="):
                    self._emit(ops.NOT, r, r)
            else:
                self._compare_registers(tree, layout, second, r)
            return
        word, below = self._word(number, layout)
        name, op = tree.name, COMPARISON[tree.name][0]
        if below or not LOWEST <= word <= HIGHEST:
            if name in ("=", "<>"):
                name, turned, word = ("<", False, LOWEST) if name == "=" else ("<=", True, LOWEST)
            elif word > HIGHEST:
                name, word = ("<=", HIGHEST) if not turned else ("<", HIGHEST)
            elif word < LOWEST:
                name, word = ("<", LOWEST) if not turned else ("<=", LOWEST)
            else:
                name = "<" if turned else "<="
            op = COMPARISON[name][0]
        self._emit(ops.CONST, r + 1, 0, word)
        self._emit(op, r, *((r + 1, r) if turned else (r, r + 1)))

    def _word(self, number: Fraction, layout: Layout) -> tuple[int, bool]:
        """Return the word of a number, which may be out of range, and whether it is a little below the number."""
        whole, rest = divmod(number * 10**layout.scale, 1)
        return int(whole) - (2**63 if layout.form == UNSIGNED else 0), bool(rest)

    def _in_two_words(self, left: Expr, right: Expr) -> bool:
        """Whether a comparison is of columns that one word cannot hold: decimals of many digits, or times."""
        columns = [tree for tree in (left, right) if isinstance(tree, Col)]
        layouts = [layout_of(self._type_of(column), str(column)) for column in columns]
        return any(layout.is_wide or layout.kind == "time" for layout in layouts) and NULL not in layouts

    def _compare_wide(self, tree: Op, r: int) -> None:
        left, right = tree.args
        known = [family_of(self._type_of(tree)) if isinstance(tree, Col) else "" for tree in tree.args]
        if "a number" in known and {*known} <= {"a number", ""}:
            scale = self._wide_scale(left, right)
            layouts = [Layout("int", f"high {scale}"), Layout("int", f"low {scale}")]
        elif isinstance(left, Col) and isinstance(right, Col) and known[0] == known[1]:
            types = self._type_of(left), self._type_of(right)
            layouts = [Layout("time", "seconds"), Layout("time", "nanos")]
            if layout_of(types[0], "") == layout_of(types[1], ""):
                layouts = [layout_of(types[0], "")]
        else:
            self._refuse(left, right)
        op = COMPARISON[tree.name][0]
        self._part(left, layouts[0], r)
        self._part(right, layouts[0], r + 1)
        if len(layouts) == 1:
            self._emit(op, r, r, r + 1)
            return
        self._emit(ops.EQ_I, r + 2, r, r + 1)
        self._emit(ops.LT_I, r, r, r + 1)
        self._part(left, layouts[1], r + 1)
        self._part(right, layouts[1], r + 3)
        self._emit(ops.EQ_I if tree.name in ("=", "<>") else op, r + 1, r + 1, r + 3)
        self._emit(ops.AND, r + 2, r + 2, r + 1)
        if tree.name in ("=", "<>"):
            self._emit(ops.AND, r, r + 2, r + 2)
        else:
            self._emit(ops.OR, r, r, r + 2)
        if tree.name == "<>":
            self._emit(ops.NOT, r, r)

    def _wide_scale(self, left: Expr, right: Expr) -> int:
        """Return the scale in which two exact numbers can be compared."""
        scale = 0
        for tree, other in ((left, right), (right, left)):
            exact = isinstance(tree, Col) and layout_of(self._type_of(tree), str(tree)) not in (FLOAT, TEXT)
            if isinstance(tree, Col) and exact and family_of(self._type_of(tree)) == "a number":
                scale = max(scale, layout_of(self._type_of(tree), "").scale)
            elif isinstance(tree, Lit) and isinstance(tree.value, int | Real):
                scale = max(scale, tree.value.places if isinstance(tree.value, Real) else 0)
            else:
                raise ExpressionError(
                    f"{other} is a decimal of more than {WORD_DIGITS} digits, which can be compared with "
                    f"constants and columns of whole numbers or decimals only, not with {tree}; convert one "
                    "of them with MapToFields"
                )
        columns = [tree for tree in (left, right) if isinstance(tree, Col)]
        digits = max(wide_digits(self._type_of(column), scale) for column in columns)
        if digits > WIDE_DIGITS:
            raise ExpressionError(
                f"comparing {left} with {right} takes {digits} digits, and at most {WIDE_DIGITS} are compared; "
                "convert one of them with MapToFields"
            )
        return scale

    def _part(self, tree: Expr, layout: Layout, r: int) -> None:
        """Emit a part of an exact number or a time: a column, or a constant that is cut to 128 bits."""
        if isinstance(tree, Col):
            self._load(tree, r, layout)
            return
        assert isinstance(tree, Lit)
        number = int(_exact(tree) * 10**layout.scale)
        number = max(-(2**127), min(number, 2**127 - 1))
        low = number & (2**64 - 1)
        self._emit(ops.CONST, r, 0, number >> 64 if layout.form.startswith("high") else low - 2**63)

    def _in(self, tree: Op, r: int) -> Layout:
        """Emit a search in the constants of a list, then comparisons with its other items."""
        value, *items = tree.args
        simple = not self._in_two_words(value, value) and not isinstance(value, Lit)
        constants = [item for item in items if isinstance(item, Lit) and item.value is not None and simple]
        others = [item for item in items if item not in constants] if len(constants) < len(items) else []
        if constants:
            layout = self._value(value, r)
            words = self._words(value, layout, constants)
            if layout == FLOAT:
                self._emit(ops.CONST, r + 1, 0, bits(0.0))
                self._emit(ops.ADD_F, r, r, r + 1)
            self._emit(ops.IN, r, r, len(words))
            self._rows += [(ops.DATA, 0, 0, word) for word in words]
        for k, item in enumerate(others):
            target = r + bool(k or constants)
            self._compare(Op("=", (value, item)), target)
            if target > r:
                self._emit(ops.OR, r, r, target)
        return BOOL

    def _words(self, value: Expr, layout: Layout, constants: Sequence[Lit]) -> list[int]:
        """Return the words of constants, in order; those that have none in a layout equal nothing."""
        words: set[int] = set()
        for constant in constants:
            is_text = isinstance(constant.value, str)
            if layout != NULL and (is_text != (layout == TEXT) or (layout.kind in ("time", "bool") and is_text)):
                self._refuse(value, constant, layout, TEXT if is_text else WHOLE)
            if is_text:
                words.add(self._literal_code(str(constant.value)))
            elif layout == FLOAT:
                number = _exact(constant) if not isinstance(constant.value, float) else None
                real = float(constant.value)  # type: ignore[arg-type]
                if number is None or Fraction(real) == number:
                    words.add(bits(real + 0.0))
            else:
                word, below = self._word(_exact(constant), layout)
                if not below and LOWEST <= word <= HIGHEST:
                    words.add(word)
        return sorted(words)

    def _refuse(self, left: Expr, right: Expr, *layouts: Layout) -> NoReturn:
        """Raise ExpressionError, with the layouts of what is no column."""
        types = [self._type_of(tree) if isinstance(tree, Col) else None for tree in (left, right)]
        words: Sequence[object] = layouts
        if types[0] is not None and types[1] is not None:
            words = differing(types[0], types[1]) or layouts
        elif not layouts:
            words = [self._value(tree, 0) for tree in (left, right)]
        raise ExpressionError(
            f"{left} is {words[0]} and {right} is {words[1]}: they cannot be compared; "
            "convert one of them with MapToFields"
        )


def _exact(constant: Lit) -> Fraction:
    value = constant.value
    assert isinstance(value, int | float)
    return Fraction(value.exact if isinstance(value, Real) else value)


def _rank(layout: Layout) -> tuple[bool, bool, int]:
    """Order layouts as mixed comparisons take their operands."""
    return layout == FLOAT, layout.form == UNSIGNED, layout.scale


def bits(value: float) -> int:
    """Return a float as a word."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])
