"""SQL expressions as data: text to a small tree of columns, literals and whitelisted operations.

sqlglot parses; whatever is not on the whitelist is refused with its name. Nothing is ever executed as code.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import sqlglot
from sqlglot import exp


class ExpressionError(ValueError):
    """The text is no expression that Slackwater understands; the message says why and what would be."""


@dataclass(frozen=True, slots=True)
class Col:
    """A column, qualified by the input it belongs to where the text does so."""

    table: str | None
    name: str

    def __str__(self) -> str:
        return f"{self.table}.{self.name}" if self.table else self.name


@dataclass(frozen=True, slots=True)
class Lit:
    """A constant: number, text, boolean or NULL."""

    value: int | float | str | bool | None

    def __str__(self) -> str:
        return "NULL" if self.value is None else repr(self.value)


@dataclass(frozen=True, slots=True)
class Op:
    """An operation. Names: and or not = <> < <= + - * / % neg abs sqrt least greatest is_null in."""

    name: str
    args: "tuple[Expr, ...]"

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.args))})"


Expr = Col | Lit | Op

_BINARY: Final[dict[type, str]] = {
    exp.And: "and",
    exp.Or: "or",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
}
_SWAPPED: Final[dict[type, str]] = {exp.GT: "<", exp.GTE: "<="}
_UNARY: Final[dict[type, str]] = {exp.Not: "not", exp.Neg: "neg", exp.Abs: "abs", exp.Sqrt: "sqrt"}
_VARIADIC: Final[dict[type, str]] = {exp.Least: "least", exp.Greatest: "greatest"}

MAX_DEPTH: Final = 200
_TOO_DEEP: Final = f"the expression is nested more than {MAX_DEPTH} deep; write IN (…) for long chains of OR"

SUPPORTED: Final = (
    "columns, numbers, 'text', TRUE, FALSE, NULL, + - * / %, = <> < <= > >=, AND OR NOT, BETWEEN, IN, "
    "IS [NOT] NULL, abs sqrt least greatest"
)


def parse(text: str) -> Expr:
    """Return the tree of ``text``; raise ExpressionError naming what is not understood."""
    if not text.strip():
        raise ExpressionError("the expression is empty; write a condition such as a.id = b.id")
    try:
        tree = sqlglot.parse_one(text)
    except sqlglot.errors.SqlglotError as error:
        detail = str(error).split("\n", 1)[0].rstrip(".")
        raise ExpressionError(f"cannot read {text!r}: {detail}") from None
    return _convert(tree)


def _shallow(tree: Expr) -> Expr:
    """Return the tree; raise if it is nested deeper than any code that walks it should have to go."""
    level: list[Expr] = [tree]
    for _ in range(MAX_DEPTH):
        level = [arg for node in level if isinstance(node, Op) for arg in node.args]
        if not level:
            return tree
    raise ExpressionError(_TOO_DEEP)


def columns(tree: Expr) -> Iterator[Col]:
    """Yield every column of ``tree``, left to right, as often as it occurs."""
    if isinstance(tree, Col):
        yield tree
    elif isinstance(tree, Op):
        for arg in tree.args:
            yield from columns(arg)


def conjuncts(tree: Expr) -> list[Expr]:
    """Split ``a AND b AND c`` into its parts; anything else is one part."""
    if isinstance(tree, Op) and tree.name == "and":
        return [part for arg in tree.args for part in conjuncts(arg)]
    return [tree]


def _convert(node: Any) -> Expr:
    kind = type(node)
    if isinstance(node, exp.Paren):
        return _convert(node.this)
    if isinstance(node, exp.Column):
        if node.args.get("db") or not isinstance(node.this, exp.Identifier):
            raise ExpressionError(f"{node.sql()!r} is not a column; write input.column")
        return Col(node.table or None, node.name)
    if isinstance(node, exp.Literal):
        return Lit(node.name if node.is_string else _number(node.name))
    if isinstance(node, exp.Boolean):
        return Lit(bool(node.this))
    if isinstance(node, exp.Null):
        return Lit(None)
    if kind in _BINARY:
        return Op(_BINARY[kind], (_convert(node.left), _convert(node.right)))
    if kind in _SWAPPED:
        return Op(_SWAPPED[kind], (_convert(node.right), _convert(node.left)))
    if kind in _UNARY:
        return Op(_UNARY[kind], (_convert(node.this),))
    if kind in _VARIADIC:
        args = (_convert(node.this), *(_convert(item) for item in node.expressions))
        return Op(_VARIADIC[kind], args)
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        value = _convert(node.this)
        low, high = _convert(node.args["low"]), _convert(node.args["high"])
        return Op("and", (Op("<=", (low, value)), Op("<=", (value, high))))
    if isinstance(node, exp.In) and node.expressions and not node.args.get("query"):
        return Op("in", (_convert(node.this), *(_convert(item) for item in node.expressions)))
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        return Op("is_null", (_convert(node.this),))
    raise ExpressionError(f"{node.sql()!r} is not supported; supported are {SUPPORTED}")


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)
