"""Jinja for templates: variables, loops and conditions, within a bound of work.

Templates may come from anywhere, so nothing in one may hang or fill the memory. Whatever makes a value that can
be larger than what it is made of, and every turn of a loop, is paid for before it is done, from WORK for the
whole template. A count is the same on every machine, and unlike a clock it stops what does not return to Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial, wraps
from typing import Any, Final

from jinja2 import StrictUndefined, Undefined, nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

WORK: Final = 1_000_000
"""What a template may cost: a character or an item of a list is 1, a turn of a loop STEP, a call CALL."""
STEP, CALL = 10, 50
MOST_TAGS: Final = 3000
"""Expressions and statements of a template."""
LONGEST: Final = 400_000
"""Characters of the rendered text, besides those that stand in the template."""
MOST_BITS: Final = 4096
"""Of a whole number."""
WIDEST: Final = 1000
"""Characters that a filter may indent by."""
GLOBALS: Final = ("dict", "namespace", "range")
FILTERS: Final = (
    *("abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "indent", "int"),
    *("items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "replace"),
    *("reverse", "round", "safe", "select", "selectattr", "sort", "string", "sum", "title", "tojson", "trim"),
    *("truncate", "unique", "upper", "wordcount"),
)
_METHODS: Final = frozenset(
    (
        *(
            "capitalize",
            "casefold",
            "count",
            "endswith",
            "find",
            "index",
            "isalnum",
            "isalpha",
            "isdigit",
            "islower",
        ),
        *(
            "isnumeric",
            "isspace",
            "isupper",
            "lower",
            "lstrip",
            "partition",
            "removeprefix",
            "removesuffix",
            "rfind",
        ),
        *("rindex", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "swapcase"),
        *("title", "upper"),
    )
)
"""Methods of texts whose result is no larger than the text."""


class _Paid(NodeTransformer):
    """Lets the environment count the turns of loops and put texts together."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        node.iter = self._filter(node.iter, "__turns")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:
        self.generic_visit(node)
        return self._filter(nodes.Tuple(node.nodes, "load", lineno=node.lineno), "__joined")

    def _filter(self, node: Any, name: str) -> nodes.Filter:
        place = {"lineno": node.lineno, "environment": self._environment}
        return nodes.Filter(node, name, [], [], None, None, **place)


class Environment(ImmutableSandboxedEnvironment):
    """A sandbox for one template that renders within its bounds; undefined variables are errors."""

    intercepted_binops = frozenset({"+", "*", "**", "%", "//"})

    def __init__(self) -> None:
        super().__init__(
            undefined=StrictUndefined, keep_trailing_newline=True, optimized=False, finalize=self._shown
        )
        self._left = WORK
        self.globals = {name: self.globals[name] for name in GLOBALS}
        own = {"join": self._join, "replace": self._replace, "indent": self._indent, "sum": self._sum}
        self.filters = {name: self._counted(own.get(name, self.filters[name])) for name in FILTERS}
        self.filters |= {"__turns": self._turns, "__joined": self._joined}

    def rendered(self, tree: nodes.Template, variables: Mapping[str, str], length: int) -> str:
        """Return the text of a template that has this length."""
        self._left, parts, size = WORK, list[str](), 0
        _Paid(self).visit(tree)
        for part in self.from_string(tree).generate(variables):
            parts.append(part)
            size += len(part)
            if size > length + LONGEST:
                raise SecurityError(f"make a text of more than {LONGEST:,} characters")
        return "".join(parts)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if numbers and operator in ("*", "**"):
            _check_bits(operator, left, right)
        elif operator == "*":
            thing, times = (left, right) if isinstance(right, int) else (right, left)
            self._spend(_weight(thing, WORK) * max(0, times) if isinstance(times, int) else 0)
        elif operator == "+" and not numbers:
            self._spend(_weight(left, WORK) + _weight(right, WORK))
        elif operator == "%" and isinstance(left, str | bytes):
            raise SecurityError("format text with %")
        return super().call_binop(context, operator, left, right)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        self._spend(CALL)
        return super().call(*args, **kwargs)

    def wrap_str_format(self, value: Any) -> None:
        """Texts have no format here, not even a safe one: it makes them as wide as it is told."""
        return

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if (isinstance(obj, str) and attr not in _METHODS) or isinstance(obj, int | float | bytes):
            return False
        return super().is_safe_attribute(obj, attr, value)

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, str) and attribute == "replace":
            return partial(self._replace, obj)
        if isinstance(obj, str) and attribute == "join":
            return lambda parts: self._join(parts, obj)
        return super().getattr(obj, attribute)

    def _joined(self, parts: Iterable[Any]) -> str:
        return "".join(map(self._text, parts))

    def _text(self, value: Any) -> str:
        self._spend(_weight(value, WORK))
        return str(value)

    def _shown(self, value: Any) -> Any:
        self._spend(_weight(value, WORK))
        return value

    def _spend(self, work: int) -> None:
        self._left -= work
        if self._left < 0:
            raise SecurityError("take so much time or space")

    def _turns(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self._spend(STEP)
            yield item

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a filter that is paid for: what it is given, and what it makes."""

        @wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self._spend(CALL + sum(_weight(arg, WORK) for arg in args))
            result = function(*args, **kwargs)
            self._spend(_weight(result, WORK))
            return result

        return counted

    def _join(self, value: Iterable[Any], d: str = "", attribute: Any = None) -> str:
        if attribute is not None:
            value = [self.getitem(item, attribute) for item in value]
        parts = [self._text(part) for part in value]
        self._spend(len(str(d)) * len(parts))
        return str(d).join(parts)

    def _replace(self, s: Any, old: str, new: str, count: int | None = None) -> str:
        text = self._text(s)
        self._spend(text.count(old) * len(str(new)))
        return text.replace(old, str(new), -1 if count is None else count)

    def _indent(self, s: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
        indention = width if isinstance(width, str) else " " * min(width, WIDEST + 1)
        if len(indention) > WIDEST:
            raise SecurityError(f"indent by more than {WIDEST:,} characters")
        self._spend(len(indention) * (s.count("\n") + 1))
        lines = s.split("\n")
        indented = [f"{indention}{line}" if line or blank else line for line in lines[1:]]
        return "\n".join([f"{indention}{lines[0]}" if first else lines[0], *indented])

    def _sum(self, iterable: Iterable[Any], attribute: Any = None, start: float = 0) -> Any:
        for item in iterable:
            self._spend(1)
            start += item if attribute is None else self.getitem(item, attribute)
            if not isinstance(start, int | float):
                raise SecurityError("add up what is no number")
        return start


def _check_bits(operator: str, left: float, right: float) -> None:
    """Raise if a product or a power of whole numbers would be too long."""
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() + right.bit_length() if operator == "*" else left.bit_length() * max(0, right)
        if bits > MOST_BITS:
            raise SecurityError(f"make a whole number of more than {MOST_BITS} bits")


def _weight(value: Any, most: int) -> int:
    """Return how many characters and items a value has, written out; about ``most`` if it has more."""
    weight, waiting = 0, [value]
    while waiting and weight <= most:
        found = waiting.pop()
        weight += 1
        if isinstance(found, Undefined):
            continue
        if isinstance(found, str | bytes | range):
            weight += len(found)
        elif isinstance(found, dict):
            waiting += [*found.keys(), *found.values()]
        elif isinstance(found, list | tuple | set):
            waiting += found
    return weight
