"""Join conditions for ``slackwater bench fuzz``: random trees, their SQL, and what they mean exactly.

Trees are the package's own (``Col``, ``Lit``, ``Op``), but nothing here uses its parser, compiler or evaluator:
SQL is written and trees are evaluated independently. Whole numbers and decimals are exact; arithmetic with a
double is arithmetic of doubles; comparisons between a double and an exact number are exact. NaN equals itself and
is above all else. Logic is three-valued: None is NULL.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from random import Random
from typing import Any, Final

import pyarrow as pa

from slackwater.pipelines.bench.fuzz.data import Column, Pool
from slackwater.transforms.expressions.tree import Col, Expr, Lit, Op

Row = Mapping[Col, Any]

_CALLS: Final = ("abs", "sqrt", "least", "greatest")


class Columns:
    """The columns that a condition may use: by family, then by input."""

    def __init__(self, inputs: Mapping[str, Sequence[Column]], pools: Mapping[str, Pool]) -> None:
        self._inputs, self._pools = inputs, pools

    def families(self, least: int = 1) -> list[str]:
        """Families with columns in at least so many inputs."""
        return [f for f in self._pools if sum(bool(self._of(name, f)) for name in self._inputs) >= least]

    def pick(self, rng: Random, family: str, *, apart_from: str = "") -> Col:
        """Return a column of a family, of another input than ``apart_from``."""
        names = [name for name in self._inputs if name != apart_from and self._of(name, family)]
        name = rng.choice(names)
        return Col(name, rng.choice(self._of(name, family)).name)

    def literal(self, rng: Random, family: str) -> Lit | None:
        """Return a constant to compare a column of a family with, if SQL can write one."""
        if family not in ("number", "text", "bool"):
            return None
        value = rng.choice(self._pools[family].values)
        if family == "number":
            return _literal_number(value)
        return Lit(value if "\0" not in str(value) else "a")

    def small(self, family: str) -> bool:
        """Whether the values of a family leave room for arithmetic."""
        return self._pools[family].small

    def _of(self, name: str, family: str) -> list[Column]:
        return [column for column in self._inputs[name] if column.family == family]


def _literal_number(value: Fraction | float) -> Lit | None:
    """A number whose digits mean the same as a decimal and as a double."""
    if isinstance(value, float) or abs(value) > 2**64:
        return None
    if value.denominator == 1:
        return Lit(int(value))
    return Lit(float(value)) if value.denominator <= 8 else None


def condition(rng: Random, names: Sequence[str], columns: Columns) -> Expr | None:
    """Return a random condition over the inputs ``names``; None joins everything within the windows."""
    if rng.random() < 0.04:
        return None
    parts = _keys(rng, names, columns) if rng.random() < 0.8 else []
    extra = rng.choice([0, 0, 1, 1, 2]) if parts else rng.randint(1, 2)
    parts += [_predicate(rng, columns, rng.randint(0, 2)) for _ in range(extra)]
    rng.shuffle(parts)
    tree = parts[0]
    for part in parts[1:]:
        tree = Op("and", (tree, part))
    return tree


def _keys(rng: Random, names: Sequence[str], columns: Columns) -> list[Expr]:
    """Equalities that link inputs as a star, a chain, or any graph."""
    shared = columns.families(2)
    if not shared:
        return []
    common = rng.choice(shared)
    links: list[Expr] = []
    for _ in range(max(1, len(names) - rng.choice([0, 1, 1, 1]))):
        family = common if rng.random() < 0.7 else rng.choice(shared)
        left = columns.pick(rng, family)
        other = family if rng.random() < 0.97 else rng.choice(shared)
        try:
            links.append(Op("=", (left, columns.pick(rng, other, apart_from=str(left.table)))))
        except IndexError:
            continue
    return links


def _predicate(rng: Random, columns: Columns, depth: int) -> Expr:
    if depth and rng.random() < 0.5:
        name = rng.choice(["and", "or", "not"])
        count = 1 if name == "not" else 2
        return Op(name, tuple(_predicate(rng, columns, depth - 1) for _ in range(count)))
    family = rng.choice(columns.families())
    first = columns.pick(rng, family)
    shape = rng.random()
    if shape < 0.1:
        return Op("is_null", (first,))
    if family == "number" and shape < 0.6 and (columns.small(family) or rng.random() < 0.3):
        return _arithmetic(rng, columns)
    literal = columns.literal(rng, family)
    other: Expr = columns.pick(rng, family) if literal is None or rng.random() < 0.6 else literal
    if literal is not None and shape < 0.75:
        items = {str(item): item for item in (columns.literal(rng, family) for _ in range(3)) if item is not None}
        return Op("in", (first, *items.values()))
    if family == "number" and shape < 0.85:
        low, high = columns.pick(rng, family), columns.literal(rng, family)
        return Op("between", (first, low, high or first))
    ordered = family not in ("text", "bytes", "bool", "null")
    return Op(rng.choice(["=", "<>", "<", "<=", ">", ">="] if ordered else ["=", "<>"]), (first, other))


def _arithmetic(rng: Random, columns: Columns) -> Expr:
    first = columns.pick(rng, "number")
    second = columns.pick(rng, "number")
    small = Lit(rng.choice([0, 1, 2, 3, 0.5, 1.5]))
    third: Expr = small if rng.random() < 0.6 else columns.pick(rng, "number")
    shape = rng.randrange(6)
    if shape == 0:
        return Op(rng.choice(["<=", "<"]), (Op("abs", (Op("-", (first, second)),)), small))
    if shape == 1:
        return Op("=", (Op("%", (first, Lit(rng.choice([2, 3, 0])))), small))
    if shape == 2:
        return Op(rng.choice(["=", "<="]), (Op(rng.choice(["least", "greatest"]), (first, second)), third))
    if shape == 3:
        return Op(rng.choice(["<", ">="]), (Op("sqrt", (first,)), third))
    if shape == 4:
        return Op(rng.choice(["<", "=", ">"]), (Op("/", (first, second)), third))
    negated: Expr = Op("neg", (second,)) if rng.random() < 0.3 else second
    return Op(rng.choice(["=", "<>", "<", ">="]), (Op(rng.choice("+-*"), (first, negated)), third))


def sql(tree: Expr, column: Callable[[Col], str] = str, guarded: bool = False) -> str:
    """Return a tree as SQL; ``guarded`` for engines in which division by zero and bad roots are errors."""

    def text(node: Expr) -> str:
        if isinstance(node, Col):
            return column(node)
        if isinstance(node, Lit):
            return _sql_literal(node.value)
        args = [text(arg) for arg in node.args]
        if node.name in _CALLS:
            if guarded and node.name == "sqrt":
                return f"CASE WHEN {args[0]} >= 0 THEN sqrt({args[0]}) END"
            return f"{node.name}({', '.join(args)})"
        if node.name in ("/", "%") and guarded:
            args[1] = f"nullif({args[1]}, 0)"
        match node.name:
            case "not" | "neg":
                return f"({'NOT' if node.name == 'not' else '-'} {args[0]})"
            case "is_null":
                return f"({args[0]} IS NULL)"
            case "in":
                return f"({args[0]} IN ({', '.join(args[1:])}))"
            case "between":
                return f"({args[0]} BETWEEN {args[1]} AND {args[2]})"
        return f"({args[0]} {node.name.upper()} {args[1]})"

    return text(tree)


def _sql_literal(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "NULL" if value is None else str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value) if value >= 0 else f"({value!r})"


def value_of(tree: Expr, row: Row) -> Any:
    """Return what a tree is for one row of each input that it names; None for NULL."""
    if isinstance(tree, Col):
        return row[tree]
    if isinstance(tree, Lit):
        return tree.value
    if tree.name in ("and", "or"):
        left, right = (value_of(arg, row) for arg in tree.args)
        decides = tree.name == "or"
        if left is decides or right is decides:
            return decides
        return None if left is None or right is None else not decides
    args = [value_of(arg, row) for arg in tree.args]
    match tree.name:
        case "is_null":
            return args[0] is None
        case "in":
            return _any([_compared("=", args[0], item) for item in args[1:]])
        case "between":
            return _all([_compared("<=", args[1], args[0]), _compared("<=", args[0], args[2])])
        case "least" | "greatest":
            return _extreme(tree.name, [arg for arg in args if arg is not None])
    if any(arg is None for arg in args):
        return None
    if tree.name == "not":
        return not args[0]
    if tree.name in ("=", "<>", "<", "<=", ">", ">="):
        return _compared(tree.name, *args)
    return _calculated(tree.name, args)


def _any(tests: Sequence[bool | None]) -> bool | None:
    return True if True in tests else (None if None in tests else False)


def _all(tests: Sequence[bool | None]) -> bool | None:
    return False if False in tests else (None if None in tests else True)


def _rank(value: Any) -> tuple[int, Any]:
    """NaN as the largest number there is, and text as its bytes."""
    if isinstance(value, str):
        return (0, value.encode())
    return (1, 0) if isinstance(value, float) and math.isnan(value) else (0, value)


def _compared(name: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    a, b = _rank(left), _rank(right)
    if name in ("=", "<>"):
        return (a == b) == (name == "=")
    if name in (">", ">="):
        a, b = b, a
    return a < b or (name in ("<=", ">=") and a == b)


def _extreme(name: str, values: list[Any]) -> Any:
    if not values:
        return None
    if any(isinstance(value, float) for value in values):
        values = [float(value) for value in values]
    return (min if name == "least" else max)(values, key=_rank)


def _calculated(name: str, args: list[Any]) -> Any:
    if name in ("/", "sqrt") or any(isinstance(arg, float) for arg in args):
        args = [float(arg) for arg in args]
    first, second = args[0], args[-1]
    match name:
        case "neg":
            return -first
        case "abs":
            return abs(first)
        case "sqrt":
            return None if first < 0 else math.sqrt(first)
        case "+":
            return first + second
        case "-":
            return first - second
        case "*":
            return first * second
    if second == 0:
        return None
    if name == "/":
        return first / second
    if isinstance(first, float):
        return math.fmod(first, second) if not math.isinf(first) else math.nan
    rest = abs(first) % abs(second)
    return -rest if first < 0 else rest


def types_compared(tree: Expr, type_of: Callable[[Col], pa.DataType]) -> list[set[pa.DataType]]:
    """Return the types of the columns and constants below each operation that compares or calculates."""
    if not isinstance(tree, Op):
        return []
    below = [found for arg in tree.args for found in types_compared(arg, type_of)]
    if tree.name in ("and", "or", "not", "is_null"):
        return below
    return [*below, set(_leaf_types(tree, type_of))]


def _leaf_types(tree: Expr, type_of: Callable[[Col], pa.DataType]) -> list[pa.DataType]:
    if isinstance(tree, Col):
        return [type_of(tree)]
    if isinstance(tree, Lit):
        kinds = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
        return [] if tree.value is None else [kinds[type(tree.value)]]
    return [found for arg in tree.args for found in _leaf_types(arg, type_of)]
