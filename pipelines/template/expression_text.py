"""Expressions of Filter and MapToFields to trees, in the languages that Beam YAML knows.

``generic`` (the default) and ``sql`` are SQL; in ``generic``, as in Beam, ``"x"`` is text, not a column.
``python`` is Python's expression syntax, read by ``ast`` against a whitelist and never executed. Where Python
and SQL differ, Python's meaning is kept: ``==`` is never null, ``%`` takes the sign of the divisor.
"""

from __future__ import annotations

import ast
import re
from typing import Final, Literal

from slackwater.transforms.expressions.sql import text_of
from slackwater.transforms.expressions.tree import (
    Col,
    Expr,
    ExpressionError,
    Lit,
    Op,
    bounded,
    chained,
    deeply,
    negative,
    number,
    parse,
    shortened,
)

__all__ = ["Language", "parse_text", "text_of"]

Language = Literal["generic", "python", "sql"]

PYTHON_SUPPORTED: Final = (
    "columns, numbers, 'text', True, False, None, + - * / %, == != < <= > >=, and or not, is [not] None, "
    "[not] in (…), abs() min() max()"
)
_QUOTED: Final = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`")
_COMPARED: Final = re.compile(r"(?s)\s*(.+?)\s*(==|!=|<=|>=|<|>)\s*([^<>=!]+?)\s*")
_CONSTANTS: Final = {"true": True, "false": False, "null": None}


def parse_text(text: str, language: Language = "generic") -> Expr:
    """Return the tree of ``text``; raise ExpressionError naming what is not understood."""
    if language == "python":
        return bounded(deeply(_Python(text).tree))
    if language == "generic":
        return _simple(text) or parse(_QUOTED.sub(_generic_quotes, text))
    return parse(_QUOTED.sub(_sql_quotes, text))


def _simple(text: str) -> Expr | None:
    """What Beam's own generic language knows: a column or constant, or two of them compared."""
    atom = _atom(text.strip())
    if atom is not None:
        return atom
    compared = _COMPARED.fullmatch(text)
    left, right = (_atom(compared[1]), _atom(compared[3])) if compared else (None, None)
    if compared is None or left is None or right is None:
        return None
    name = {"==": "=", "!=": "<>", ">": "<", ">=": "<="}.get(compared[2], compared[2])
    return Op(name, (right, left) if compared[2] in (">", ">=") else (left, right))


def _atom(text: str) -> Expr | None:
    if re.fullmatch(r"[^\W\d]\w*", text):
        word = text.lower()
        return Lit(_CONSTANTS[word]) if word in _CONSTANTS else Col(None, text)
    if re.fullmatch(r"-?\d+", text):
        return Lit(int(text))
    if re.fullmatch(r"-?\d+\.\d*", text):
        return Lit(number(text))
    if re.fullmatch(r'"[^\\"]*"', text):
        return Lit(text[1:-1])
    return None


def _generic_quotes(match: re.Match[str]) -> str:
    text = match[0]
    if text[0] == '"':
        return "'" + text[1:-1].replace("'", "''") + "'"
    return _sql_quotes(match)


def _sql_quotes(match: re.Match[str]) -> str:
    text = match[0]
    return f'"{text[1:-1]}"' if text[0] == "`" else text


class _Python:
    """One Python expression."""

    _BINARY: Final[dict[type[ast.operator], str]] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
    _ORDER: Final[dict[type[ast.cmpop], tuple[str, bool]]] = {
        ast.Lt: ("<", False),
        ast.LtE: ("<=", False),
        ast.Gt: ("<", True),
        ast.GtE: ("<=", True),
    }
    _FUNCTIONS: Final = {"abs": "abs", "min": "least", "max": "greatest"}

    def __init__(self, text: str) -> None:
        self._text = text.strip()

    def tree(self) -> Expr:
        if not self._text:
            raise ExpressionError("the expression is empty; write one such as a > 5")
        try:
            parsed = ast.parse(self._text, mode="eval")
        except (SyntaxError, ValueError, MemoryError) as error:
            detail = error.msg if isinstance(error, SyntaxError) else str(error)
            raise ExpressionError(f"cannot read {shortened(self._text)!r} as Python: {detail}") from None
        return self._convert(parsed.body)

    def _convert(self, node: ast.expr) -> Expr:
        match node:
            case ast.Name(id=name):
                return Col(None, name)
            case ast.Constant(value=float() as value):
                return Lit(number(repr(value)))
            case ast.Constant(value=str() | int() | None as value):
                return Lit(value)
            case ast.BoolOp(op=op, values=[first, *others]):
                name = "and" if isinstance(op, ast.And) else "or"
                return chained(name, [self._convert(value) for value in (first, *others)])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return Op("not", (self._convert(operand),))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return negative(self._convert(operand))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self._convert(operand)
            case ast.BinOp(left=left, op=ast.Mod(), right=right):
                a, b = self._convert(left), self._convert(right)
                return Op("%", (Op("+", (Op("%", (a, b)), b)), b))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in self._BINARY:
                return Op(self._BINARY[type(op)], (self._convert(left), self._convert(right)))
            case ast.Compare():
                return self._comparisons(node)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in self._FUNCTIONS:
                needed = (1, 1) if name == "abs" else (2, 255)
                if needed[0] <= len(args) <= needed[1] and not any(isinstance(a, ast.Starred) for a in args):
                    return Op(self._FUNCTIONS[name], tuple(map(self._convert, args)))
        raise ExpressionError(
            f"{self._source(node)!r} is not supported in Python expressions; supported are {PYTHON_SUPPORTED}"
        )

    def _comparisons(self, node: ast.Compare) -> Expr:
        operands = [node.left, *node.comparators]
        tests = [self._compare(node, *pair) for pair in zip(operands, node.ops, operands[1:], strict=False)]
        return chained("and", tests)

    def _compare(self, node: ast.Compare, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Expr:
        if isinstance(op, ast.In | ast.NotIn):
            test = self._member(left, right)
            return Op("not", (test,)) if isinstance(op, ast.NotIn) else test
        if isinstance(op, ast.Is | ast.IsNot) and not (isinstance(right, ast.Constant) and right.value is None):
            raise ExpressionError(f"{self._source(node)!r}: only None can be compared by is; use ==")
        a, b = self._convert(left), self._convert(right)
        if type(op) in self._ORDER:
            name, swapped = self._ORDER[type(op)]
            return Op(name, (b, a) if swapped else (a, b))
        test = _equal(a, b)
        return Op("not", (test,)) if isinstance(op, ast.NotEq | ast.IsNot) else test

    def _member(self, left: ast.expr, right: ast.expr) -> Expr:
        if not isinstance(right, ast.Tuple | ast.List | ast.Set) or not right.elts:
            raise ExpressionError(f"{self._source(right)!r} must be a list of values, such as (1, 2, 3)")
        value = self._convert(left)
        items = [self._convert(item) for item in right.elts]
        if all(isinstance(item, Lit) and item.value is not None for item in items):
            return _known(value, Op("in", (value, *items)))
        return chained("or", [_equal(value, item) for item in items])

    def _source(self, node: ast.expr) -> str:
        return ast.get_source_segment(self._text, node) or type(node).__name__


def _equal(a: Expr, b: Expr) -> Expr:
    """Equality that is never null: None equals None and nothing else."""
    if b == Lit(None) or a == Lit(None):
        return Op("is_null", (a if b == Lit(None) else b,))
    equal = Op("=", (a, b))
    if isinstance(b, Lit):
        return _known(a, equal)
    if isinstance(a, Lit):
        return _known(b, equal)
    both = Op("and", (Op("is_null", (a,)), Op("is_null", (b,))))
    return Op("or", (both, _known(a, _known(b, equal))))


def _known(value: Expr, test: Expr) -> Expr:
    return test if isinstance(value, Lit) else Op("and", (Op("not", (Op("is_null", (value,)),)), test))
