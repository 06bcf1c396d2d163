"""SQL expressions as data: text to a small tree of columns, literals and whitelisted operations.

sqlglot parses; whatever is not on the whitelist is refused with its name. Nothing is ever executed as code.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from typing import Any, Final, Self, TypeVar

import sqlglot
from sqlglot import exp

T = TypeVar("T")
_deep = threading.Lock()
_STACK_BYTES: Final = 512 << 20
_CALLS: Final = 40_000
_SHOWN: Final = 200


class ExpressionError(ValueError):
    """The text is no expression that Slackwater understands; the message says why and what would be."""


@dataclass(frozen=True, slots=True)
class Col:
    """A column, qualified by the input it belongs to where the text does so."""

    table: str | None
    name: str

    def __str__(self) -> str:
        return f"{self.table}.{self.name}" if self.table else self.name


class Real(float):
    """A number that is written with a point or an exponent: the float next to it, and what it is exactly."""

    exact: Decimal

    def __new__(cls, text: str | float) -> Self:
        number = super().__new__(cls, text)
        number.exact = Decimal(text)
        return number

    @property
    def places(self) -> int:
        """Decimal places that it is written with."""
        return max(0, -int(self.exact.as_tuple().exponent))


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
_UNARY: Final[dict[type, str]] = {exp.Not: "not", exp.Abs: "abs", exp.Sqrt: "sqrt"}
_VARIADIC: Final[dict[type, str]] = {exp.Least: "least", exp.Greatest: "greatest"}

MAX_DEPTH: Final = 100
"""Operations within each other; chains of AND or of OR count as few."""
MAX_SIZE: Final = 200_000
"""Columns, constants and operations, as often as they are evaluated."""
TOO_DEEP: Final = f"the expression is nested more than {MAX_DEPTH} deep; split it, with MapToFields"
_PLACES: Final = 400

SUPPORTED: Final = (
    "columns, numbers, 'text', TRUE, FALSE, NULL, + - * / %, = <> < <= > >=, AND OR NOT, BETWEEN, IN, "
    "IS [NOT] NULL, abs sqrt least greatest"
)


def parse(text: str) -> Expr:
    """Return the tree of ``text``; raise ExpressionError naming what is not understood."""
    if not text.strip():
        raise ExpressionError("the expression is empty; write a condition such as a.id = b.id")
    try:
        return bounded(deeply(lambda: _convert(sqlglot.parse_one(text))))
    except sqlglot.errors.SqlglotError as error:
        detail = str(error).split("\n", 1)[0].rstrip(".")
        raise ExpressionError(f"cannot read {shortened(text)!r}: {detail}") from None


def shortened(text: str) -> str:
    """Return a text, or its beginning, as it is shown in messages."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def deeply(read: Callable[[], T]) -> T:
    """Return what ``read`` does, with room for more calls within each other than there usually is."""
    with suppress(RecursionError):
        return read()
    with _deep, ThreadPoolExecutor(1) as thread:
        limit, size = sys.getrecursionlimit(), threading.stack_size(_STACK_BYTES)
        sys.setrecursionlimit(max(limit, _CALLS))
        try:
            return thread.submit(read).result()
        except RecursionError:
            raise ExpressionError(TOO_DEEP) from None
        finally:
            sys.setrecursionlimit(limit)
            threading.stack_size(size)


def bounded(tree: Expr) -> Expr:
    """Return the tree; raise ExpressionError if it is deeper or larger than code that walks it can go."""
    measured: dict[int, tuple[int, int]] = {}
    waiting: list[Expr] = [tree]
    while waiting:
        node = waiting[-1]
        args = node.args if isinstance(node, Op) else ()
        missing = [arg for arg in args if id(arg) not in measured]
        if missing:
            waiting += missing
            continue
        depth = 1 + max((measured[id(arg)][0] for arg in args), default=0)
        size = 1 + sum(measured[id(arg)][1] for arg in args)
        if depth > MAX_DEPTH:
            raise ExpressionError(TOO_DEEP)
        if size > MAX_SIZE:
            raise ExpressionError(f"the expression has more than {MAX_SIZE:,} parts; split it, with MapToFields")
        measured[id(node)] = depth, size
        waiting.pop()
    return tree


def chained(name: str, parts: Sequence[Expr]) -> Expr:
    """Join parts by ``and`` or ``or``, as a tree that is as low as can be."""
    if len(parts) == 1:
        return parts[0]
    middle = (len(parts) + 1) // 2
    return Op(name, (chained(name, parts[:middle]), chained(name, parts[middle:])))


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
    while isinstance(node, exp.Paren):
        node = node.this
    kind = type(node)
    if isinstance(node, exp.Column):
        if node.args.get("db") or not isinstance(node.this, exp.Identifier):
            raise ExpressionError(f"{node.sql()!r} is not a column; write input.column")
        return Col(node.table or None, node.name)
    if isinstance(node, exp.Literal):
        return Lit(node.name if node.is_string else number(node.name))
    if isinstance(node, exp.Boolean):
        return Lit(bool(node.this))
    if isinstance(node, exp.Null):
        return Lit(None)
    if isinstance(node, exp.And | exp.Or):
        return chained(_BINARY[kind], [_convert(part) for part in _operands(node)])
    if kind in _BINARY:
        return Op(_BINARY[kind], (_convert(node.left), _convert(node.right)))
    if kind in _SWAPPED:
        return Op(_SWAPPED[kind], (_convert(node.right), _convert(node.left)))
    if kind is exp.Neg:
        return negative(_convert(node.this))
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


def _operands(chain: Any) -> list[Any]:
    """Return what a chain of one connective joins, left to right."""
    found, waiting = [], [chain]
    while waiting:
        node = waiting.pop()
        while isinstance(node, exp.Paren):
            node = node.this
        if type(node) is type(chain):
            waiting += [node.right, node.left]
        else:
            found.append(node)
    return found


def negative(tree: Expr) -> Expr:
    """Return a tree with its sign turned; a constant stays one."""
    value = tree.value if isinstance(tree, Lit) else None
    if isinstance(value, Real):
        return Lit(number(str(-value.exact)))
    if isinstance(value, int) and not isinstance(value, bool):
        return Lit(-value)
    return Op("neg", (tree,))


def number(text: str) -> int | float:
    """Return a number as it is written; raise ExpressionError for one that is too large for a float."""
    try:
        return int(text)
    except ValueError:
        pass
    found = Real(text)
    if not isfinite(found) or found.exact.adjusted() < -_PLACES:
        raise ExpressionError(f"{text} is beyond the range of numbers; write one that fits into 64 bits")
    return found
