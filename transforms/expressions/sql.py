"""Expression trees as SQL text, as they are shown to users."""

from __future__ import annotations

from typing import Final

from slackwater.transforms.expressions.tree import Col, Expr, Lit

_BINDING: Final = {
    "or": 1,
    "and": 2,
    "not": 3,
    "=": 4,
    "<>": 4,
    "<": 4,
    "<=": 4,
    "+": 5,
    "-": 5,
    "*": 6,
    "/": 6,
    "%": 6,
}


def text_of(expr: Expr) -> str:
    """Return an expression as SQL, as it is shown to users."""
    return _text(expr)[0]


def _text(expr: Expr) -> tuple[str, int]:
    """The text and how tightly its outermost operator binds."""
    if isinstance(expr, Col):
        return str(expr), 9
    if isinstance(expr, Lit):
        if isinstance(expr.value, str):
            return "'" + expr.value.replace("'", "''") + "'", 9
        return (
            "NULL"
            if expr.value is None
            else str(expr.value).upper()
            if isinstance(expr.value, bool)
            else str(expr.value)
        ), 9
    first, *others = expr.args
    if expr.name == "is_null":
        return f"{_inner(first, 5)} IS NULL", 4
    if expr.name == "in":
        return f"{_inner(first, 5)} IN ({', '.join(map(text_of, others))})", 4
    if expr.name == "not":
        return f"NOT {_inner(first, 3)}", 3
    if expr.name == "neg":
        return f"-{_inner(first, 7)}", 7
    if expr.name == "cast":
        return _text(first)
    if expr.name not in _BINDING:
        return f"{expr.name}({', '.join(map(text_of, expr.args))})", 9
    binding = _BINDING[expr.name]
    word = expr.name.upper() if expr.name.isalpha() else expr.name
    tighter = 0 if expr.name in ("and", "or") else 1
    parts = [_inner(first, binding), *(_inner(other, binding + tighter) for other in others)]
    return f" {word} ".join(parts), binding


def _inner(expr: Expr, least: int) -> str:
    text, binding = _text(expr)
    return text if binding >= least else f"({text})"
