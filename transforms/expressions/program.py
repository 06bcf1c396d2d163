"""Assembling expression trees into programs for the register machine of ``kernels.expressions.predicate``.

Numbers are compared by their values, whatever their types. Whole numbers and decimals are computed exactly: a
result that does not fit into 64 bits is neither true nor false. Division, roots and what has a float among its
operands are computed with floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Int64s
from slackwater.transforms.expressions import opcodes as ops
from slackwater.transforms.expressions.comparison import BOOL, COMPARISON, NULL, Comparisons, bits
from slackwater.transforms.expressions.tree import Col, Expr, ExpressionError, Lit, Op
from slackwater.transforms.rows.layout import FLOAT, UNSIGNED, WHOLE, WORD_DIGITS, Layout

_ARITHMETIC: Final = {
    "+": (ops.ADD_I, ops.ADD_F),
    "-": (ops.SUB_I, ops.SUB_F),
    "*": (ops.MUL_I, ops.MUL_F),
    "%": (ops.MOD_I, ops.MOD_F),
    "/": (ops.DIV_F, ops.DIV_F),
    "least": (ops.MIN_I, ops.MIN_F),
    "greatest": (ops.MAX_I, ops.MAX_F),
}
_UNARY: Final = {"neg": (ops.NEG_I, ops.NEG_F), "abs": (ops.ABS_I, ops.ABS_F)}


class Assembler(Comparisons):
    """Turns trees into instructions. An operand lands in the register its caller names; deeper ones use higher
    registers, so their number is the depth of the tree and a few more."""

    def assemble(self, trees: Sequence[Expr], checked: bool = False) -> Int64s:
        """Return the program that leaves in register 0 whether all of ``trees`` hold.

        A checked one fails where that depends on a number that does not fit; others call it unknown.
        """
        for k, tree in enumerate(trees):
            self._boolean(tree, min(k, 1))
            if k:
                self._emit(ops.AND, 0, 0, 1)
        if checked:
            self._emit(ops.CHECK, 0)
        return np.array(self._rows, np.int64).reshape(-1, 4)

    def number(self, tree: Expr) -> Int64s:
        """Return the program that leaves in register 0 the number that ``tree`` gives, as the bits of a float."""
        layout = self._value(tree, 0)
        if layout.kind not in ("int", "float"):
            raise ExpressionError(f"{tree} is {layout}, not a number; a weight must be one")
        self._to_float(self._signed(layout, 0), 0)
        return np.array(self._rows, np.int64).reshape(-1, 4)

    def _boolean(self, tree: Expr, r: int) -> None:
        layout = self._value(tree, r)
        if layout not in (BOOL, WHOLE, NULL):
            raise ExpressionError(f"{tree} is {layout}, not a condition; compare it with something")

    def _value(self, tree: Expr, r: int, decimal: bool = False) -> Layout:
        """Emit what leaves the value of ``tree`` in register ``r``; return its layout."""
        if isinstance(tree, Col):
            return self._load(tree, r)
        if isinstance(tree, Lit):
            return self._literal(tree, r, decimal)
        name, args = tree.name, tree.args
        if name in ("and", "or"):
            self._boolean(args[0], r)
            self._boolean(args[1], r + 1)
            self._emit(ops.AND if name == "and" else ops.OR, r, r, r + 1)
            return BOOL
        if name == "not":
            self._boolean(args[0], r)
            self._emit(ops.NOT, r, r)
            return BOOL
        if name == "is_null":
            self._value(args[0], r)
            self._emit(ops.IS_NULL, r, r)
            return BOOL
        if name == "in":
            return self._in(tree, r)
        if name == "sqrt":
            self._to_float(self._number(args[0], r), r)
            self._emit(ops.SQRT_F, r, r)
            return FLOAT
        if name in _UNARY:
            layout = self._number(args[0], r, decimal)
            self._emit(_UNARY[name][layout == FLOAT], r, r)
            return layout
        if name in COMPARISON:
            self._compare(tree, r)
            return BOOL
        return self._arithmetic(tree, r)

    def _number(self, tree: Expr, r: int, decimal: bool = False) -> Layout:
        """Emit a number to compute with: a float, or a whole number of some scale."""
        layout = self._value(tree, r, decimal)
        if layout.kind not in ("int", "float", "null"):
            fault = "; arithmetic needs fewer" if layout.is_wide else ", not a number; arithmetic needs numbers"
            raise ExpressionError(f"{tree} is {layout}{fault}")
        return WHOLE if layout == NULL else self._signed(layout, r)

    def _signed(self, layout: Layout, r: int) -> Layout:
        if layout.form != UNSIGNED:
            return layout
        self._emit(ops.SIGN, r, r)
        return WHOLE

    def _to_float(self, layout: Layout, r: int) -> None:
        """Make a float of the number in a register; the second one behind it is used."""
        if layout == FLOAT:
            return
        self._emit(ops.TO_FLOAT, r, r)
        if layout.scale:
            self._emit(ops.CONST, r + 2, 0, bits(float(10**layout.scale)))
            self._emit(ops.DIV_F, r, r, r + 2)

    def _arithmetic(self, tree: Op, r: int) -> Layout:
        left, *others = tree.args
        decimal = any(map(self._is_decimal, tree.args))
        layout = self._number(left, r, decimal)
        for other in others:
            second = self._number(other, r + 1, decimal)
            if tree.name == "/" or FLOAT in (layout, second):
                self._to_float(layout, r)
                self._to_float(second, r + 1)
                layout = FLOAT
            elif tree.name == "*":
                layout = self._of_scale(layout.scale + second.scale, tree)
            else:
                layout = self._aligned(layout, second, r, tree)
            self._emit(_ARITHMETIC[tree.name][layout == FLOAT], r, r, r + 1)
        return layout

    def _aligned(self, first: Layout, second: Layout, r: int, tree: Expr) -> Layout:
        """Bring the numbers in two registers to the larger scale."""
        scale = max(first.scale, second.scale)
        for register, layout in ((r, first), (r + 1, second)):
            if layout.scale < scale:
                self._emit(ops.CONST, r + 2, 0, 10 ** (scale - layout.scale))
                self._emit(ops.MUL_I, register, register, r + 2)
        return self._of_scale(scale, tree)

    def _of_scale(self, scale: int, tree: Expr) -> Layout:
        if scale > WORD_DIGITS:
            raise ExpressionError(
                f"{tree} has {scale} decimal places, and decimals are computed with at most {WORD_DIGITS}; "
                "convert them with MapToFields"
            )
        return Layout("int", f"scale {scale}") if scale else WHOLE

    def _is_decimal(self, tree: Expr) -> bool:
        """Whether a tree is computed with decimals, so that constants beside it are decimals too."""
        if isinstance(tree, Col):
            return pa.types.is_decimal(self._type_of(tree))
        arithmetic = isinstance(tree, Op) and (
            tree.name in _UNARY or (tree.name in _ARITHMETIC and tree.name != "/")
        )
        return arithmetic and any(map(self._is_decimal, tree.args))  # type: ignore[union-attr]
