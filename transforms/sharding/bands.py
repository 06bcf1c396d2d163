"""Bands in a condition: columns of two inputs whose values a result has within a bounded distance of each other.

What is read of a condition follows from it: a band may be too wide, never too narrow. Understood are comparisons
of sums and differences of columns and constants, and of what cannot be negative with a constant::

    abs(a.x - b.x) <= 5
    a.x BETWEEN b.x - 5 AND b.x + 10
    sqrt((a.x - b.x) * (a.x - b.x) + (a.y - b.y) * (a.y - b.y)) < 3
    abs(a.x - b.x) + abs(a.y - b.y) < 3

Where whole numbers are so large that a difference or a square does not fit into 64 bits, the condition fails; a
shard that a band keeps such a pair from does not notice it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isfinite, sqrt
from typing import Final, NamedTuple

from slackwater.transforms.expressions.condition import Condition
from slackwater.transforms.expressions.tree import Col, Expr, Lit, Op

_ROUNDING: Final = 1e-12
"""Share of the numbers in a condition by which its own arithmetic may be wrong, amply."""


class Band(NamedTuple):
    """Every result has ``low <= left - right <= high``."""

    left: Col
    right: Col
    low: float
    high: float

    def turned(self) -> Band:
        """The same, seen from the other side."""
        return Band(self.right, self.left, -self.high, -self.low)

    def __str__(self) -> str:
        return f"{self.left} - {self.right} from {self.low:g} to {self.high:g}"


class _Linear(NamedTuple):
    """A sum of columns and a constant."""

    columns: dict[Col, int]
    constant: float
    scale: float
    """Sum of all constants without their signs."""


def bands(condition: Condition) -> list[Band]:
    """Return the bands that a condition implies, of two inputs each, with both ends finite."""
    highest: dict[tuple[Col, Col], float] = {}
    for predicate in condition.predicates:
        for left, right, high in _bounds_of(predicate.tree):
            highest[left, right] = min(high, highest.get((left, right), inf))
    found = []
    for (left, right), high in highest.items():
        low = -highest.get((right, left), inf)
        both = condition.inputs.index(str(left.table)), condition.inputs.index(str(right.table))
        if both[0] < both[1] and isfinite(low) and isfinite(high):
            found.append(Band(left, right, low, max(low, high)))
    return found


_Bound = tuple[Col, Col, float]
"""The first column exceeds the second by at most so much."""


def _bounds_of(tree: Expr) -> Iterator[_Bound]:
    if not isinstance(tree, Op) or tree.name not in ("<", "<="):
        return
    small, large = tree.args
    limit = _linear(large)
    if limit is not None and not limit.columns:
        yield from _at_most(small, limit.constant)
    yield from _difference(Op("-", (small, large)), 0.0)


def _at_most(tree: Expr, limit: float) -> Iterator[_Bound]:
    """Yield what follows from a tree that is at most ``limit``, and cannot be negative."""
    if not isinstance(tree, Op) or not _never_negative(tree) or limit < 0:
        return
    if tree.name == "abs":
        yield from _difference(tree.args[0], limit)
        yield from _difference(Op("neg", tree.args), limit)
    elif tree.name == "sqrt":
        yield from _at_most(tree.args[0], limit * limit)
    elif tree.name == "*":
        yield from _at_most(Op("abs", tree.args[:1]), sqrt(limit))
    elif tree.name == "+":
        for part in tree.args:
            yield from _at_most(part, limit)


def _never_negative(tree: Expr) -> bool:
    if isinstance(tree, Lit):
        return isinstance(tree.value, int | float) and tree.value >= 0
    if not isinstance(tree, Op):
        return False
    if tree.name == "*":
        return tree.args[0] == tree.args[1]
    if tree.name == "+":
        return all(map(_never_negative, tree.args))
    return tree.name in ("abs", "sqrt")


def _difference(tree: Expr, limit: float) -> Iterator[_Bound]:
    """Yield what follows from a tree that is at most ``limit``, if it is the difference of two columns."""
    found = _linear(tree)
    if found is None or sorted(found.columns.values()) != [-1, 1]:
        return
    left, right = sorted(found.columns, key=lambda column: -found.columns[column])
    if left.table != right.table:
        yield left, right, limit - found.constant + _ROUNDING * (abs(limit) + found.scale)


def _linear(tree: Expr) -> _Linear | None:
    """Return a tree as a sum, or None if it is none."""
    if isinstance(tree, Col):
        return _Linear({tree: 1}, 0.0, 0.0)
    if isinstance(tree, Lit):
        number = isinstance(tree.value, int | float) and not isinstance(tree.value, bool)
        return _Linear({}, float(tree.value), abs(float(tree.value))) if number else None  # type: ignore[arg-type]
    parts = [_linear(arg) for arg in tree.args]
    if tree.name not in ("+", "-", "neg", "*") or None in parts:
        return None
    terms = [part for part in parts if part is not None]
    if tree.name == "*":
        if any(part.columns for part in terms):
            return None
        product = terms[0].constant * terms[1].constant
        return _Linear({}, product, abs(product))
    signs = {"+": (1, 1), "-": (1, -1), "neg": (-1,)}[tree.name]
    columns: dict[Col, int] = {}
    for sign, part in zip(signs, terms, strict=True):
        for column, times in part.columns.items():
            columns[column] = columns.get(column, 0) + sign * times
    return _Linear(
        {column: times for column, times in columns.items() if times},
        sum(sign * part.constant for sign, part in zip(signs, terms, strict=True)),
        sum(part.scale for part in terms),
    )
