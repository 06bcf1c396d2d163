"""Assembling expression trees into programs for the register machine of ``kernels.predicate``."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from slackwater.plugins.contract import Int64s
from slackwater.transforms import opcodes as ops
from slackwater.transforms.expression import Col, Expr, ExpressionError, Lit, Op

_ARITHMETIC: Final = {
    "+": (ops.ADD_I, ops.ADD_F),
    "-": (ops.SUB_I, ops.SUB_F),
    "*": (ops.MUL_I, ops.MUL_F),
    "%": (ops.MOD_I, ops.MOD_F),
    "/": (ops.DIV_F, ops.DIV_F),
    "least": (ops.MIN_I, ops.MIN_F),
    "greatest": (ops.MAX_I, ops.MAX_F),
}
_COMPARISON: Final = {
    "=": (ops.EQ_I, ops.EQ_F),
    "<>": (ops.NE_I, ops.NE_F),
    "<": (ops.LT_I, ops.LT_F),
    "<=": (ops.LE_I, ops.LE_F),
}
_UNARY: Final = {"neg": (ops.NEG_I, ops.NEG_F), "abs": (ops.ABS_I, ops.ABS_F)}


class Assembler:
    """Turns trees into instructions. An operand lands in the register its caller names; deeper ones use higher
    registers, so their number is the depth of the tree.

    Args:
        cell_of: (input, cell, kind) of a column.
        literal_code: dictionary code of a text constant.
    """

    def __init__(
        self, cell_of: Callable[[Col], tuple[int, int, str]], literal_code: Callable[[str], int]
    ) -> None:
        self._cell_of = cell_of
        self._literal_code = literal_code
        self._rows: list[tuple[int, int, int, int]] = []

    def assemble(self, trees: Sequence[Expr]) -> Int64s:
        """Return the program that leaves in register 0 whether all of ``trees`` hold."""
        for k, tree in enumerate(trees):
            self._boolean(tree, min(k, 1))
            if k:
                self._emit(ops.AND, 0, 0, 1)
        return np.array(self._rows, np.int64).reshape(-1, 4)

    def number(self, tree: Expr) -> Int64s:
        """Return the program that leaves in register 0 the number that ``tree`` gives, as the bits of a float."""
        kind = self._value(tree, 0)
        if kind not in ("int", "float"):
            raise ExpressionError(f"{_sql(tree)} is {_word(kind)}, not a number; a weight must be one")
        if kind == "int":
            self._emit(ops.TO_FLOAT, 0, 0)
        return np.array(self._rows, np.int64).reshape(-1, 4)

    def _emit(self, op: int, target: int, a: int = 0, b: int = 0) -> None:
        self._rows.append((op, target, a, b))

    def _boolean(self, tree: Expr, r: int) -> None:
        kind = self._value(tree, r)
        if kind not in ("bool", "int", "null"):
            raise ExpressionError(f"{_sql(tree)} is {_word(kind)}, not a condition; compare it with something")

    def _value(self, tree: Expr, r: int) -> str:
        """Emit what leaves the value of ``tree`` in register ``r``; return its kind."""
        if isinstance(tree, Col):
            i, cell, kind = self._cell_of(tree)
            self._emit(ops.LOAD, r, i, cell)
            return kind
        if isinstance(tree, Lit):
            return self._literal(tree, r)
        name, args = tree.name, tree.args
        if name in ("and", "or"):
            self._boolean(args[0], r)
            self._boolean(args[1], r + 1)
            self._emit(ops.AND if name == "and" else ops.OR, r, r, r + 1)
            return "bool"
        if name == "not":
            self._boolean(args[0], r)
            self._emit(ops.NOT, r, r)
            return "bool"
        if name == "is_null":
            self._value(args[0], r)
            self._emit(ops.IS_NULL, r, r)
            return "bool"
        if name == "in":
            tests = [Op("=", (args[0], item)) for item in args[1:]]
            for k, test in enumerate(tests):
                self._value(test, r + min(k, 1))
                if k:
                    self._emit(ops.OR, r, r, r + 1)
            return "bool"
        if name == "sqrt":
            self._as_float(args[0], r)
            self._emit(ops.SQRT_F, r, r)
            return "float"
        if name in _UNARY:
            kind = self._number(args[0], r)
            self._emit(_UNARY[name][kind == "float"], r, r)
            return kind
        if name in _COMPARISON:
            return self._compare(tree, r)
        return self._arithmetic(tree, r)

    def _literal(self, tree: Lit, r: int) -> str:
        value = tree.value
        if value is None:
            self._emit(ops.CONST, r, 1, 0)
            return "null"
        if isinstance(value, str):
            self._emit(ops.CONST, r, 0, self._literal_code(value))
            return "text"
        if isinstance(value, float):
            self._emit(ops.CONST, r, 0, struct.unpack("<q", struct.pack("<d", value))[0])
            return "float"
        if not -(2**63) <= value < 2**63:
            raise ExpressionError(f"{value} does not fit into 64 bits; write it as a decimal number")
        self._emit(ops.CONST, r, 0, int(value))
        return "bool" if isinstance(value, bool) else "int"

    def _number(self, tree: Expr, r: int) -> str:
        kind = self._value(tree, r)
        if kind not in ("int", "float", "null"):
            raise ExpressionError(f"{_sql(tree)} is {_word(kind)}, not a number; arithmetic needs numbers")
        return "int" if kind == "null" else kind

    def _as_float(self, tree: Expr, r: int) -> None:
        if self._number(tree, r) == "int":
            self._emit(ops.TO_FLOAT, r, r)

    def _arithmetic(self, tree: Op, r: int) -> str:
        left, *others = tree.args
        kind = self._number(left, r)
        for other in others:
            other_kind = self._number(other, r + 1)
            if tree.name == "/" or kind != other_kind:
                kind = self._widen(kind, other_kind, r)
            self._emit(_ARITHMETIC[tree.name][kind == "float"], r, r, r + 1)
        return kind

    def _widen(self, kind: str, other: str, r: int) -> str:
        if kind == "int":
            self._emit(ops.TO_FLOAT, r, r)
        if other == "int":
            self._emit(ops.TO_FLOAT, r + 1, r + 1)
        return "float"

    def _compare(self, tree: Op, r: int) -> str:
        left, right = tree.args
        kinds = [self._value(left, r), self._value(right, r + 1)]
        known = {"int" if kind == "bool" else kind for kind in kinds if kind != "null"}
        if known == {"int", "float"}:
            self._widen("int" if kinds[0] != "float" else "", "int" if kinds[1] != "float" else "", r)
        elif len(known) > 1:
            raise ExpressionError(
                f"{_sql(left)} is {_word(kinds[0])} and {_sql(right)} is {_word(kinds[1])}: "
                "they cannot be compared; convert one of them with MapToFields"
            )
        elif known == {"text"} and tree.name not in ("=", "<>"):
            raise ExpressionError(f"text can be compared with = and <> only, not {_sql(left)} with {_sql(right)}")
        self._emit(_COMPARISON[tree.name]["float" in known], r, r, r + 1)
        return "bool"


def _sql(tree: Expr) -> str:
    return str(tree)


def _word(kind: str) -> str:
    return {"int": "a number", "float": "a number", "bool": "a truth value", "null": "NULL"}.get(kind, kind)
