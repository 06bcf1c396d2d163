"""What a case of ``slackwater bench fuzz`` should give: by DuckDB where that is exact, else by exact arithmetic.

DuckDB compares a whole number with a double as doubles, has no decimals beyond 38 digits, no half floats, and
times of day and spans in microseconds only. So it is asked where a condition compares columns of the
types in ``_DUCKDB`` with their like; every other condition is tried on all combinations in Python. Where both can
tell, ``both`` finds out whether they agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from functools import cache
from typing import Any, Final

import pyarrow as pa

from slackwater.pipelines.bench.fuzz.cases import Case
from slackwater.pipelines.bench.fuzz.conditions import sql, types_compared, value_of
from slackwater.pipelines.bench.fuzz.data import INTEGERS
from slackwater.pipelines.io.plain_types import plain_type
from slackwater.transforms.errors import SlackwaterError
from slackwater.transforms.expressions.tree import Col, Expr, Op, columns, conjuncts

Result = tuple[int, ...]
"""The ids of the members, one for each input, and the result's time in nanoseconds."""

_INTEGERS: Final = frozenset(INTEGERS)
_DUCKDB: Final[tuple[frozenset[pa.DataType], ...]] = (
    _INTEGERS,
    frozenset([pa.float32(), pa.float64()]),
    frozenset([pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]),
    frozenset([pa.binary(), pa.large_binary()]),
    frozenset([pa.timestamp("us"), pa.timestamp("ms"), pa.timestamp("s")]),
    frozenset([pa.date32()]),
    frozenset([pa.bool_()]),
)
"""Types that DuckDB compares exactly with each other."""
_READABLE: Final = frozenset().union(*_DUCKDB, [pa.null()])
"""Types of the columns that DuckDB is given; it cannot read all others, such as half floats, in every version."""
_LARGEST: Final = 10**18
"""DuckDB is given times of the rows as 64-bit integers."""


def truth(case: Case, absent: Mapping[str, Set[int]]) -> tuple[Counter[Result], str]:
    """Return the results of a case without the rows ``absent``, by input, and who says so."""
    if duckdb_can(case):
        return by_duckdb(case, absent), "duckdb"
    return by_trial(case, absent), "exact"


def duckdb_can(case: Case) -> bool:
    """Whether DuckDB decides a case exactly."""
    times = [t for i in case.inputs for t in i.times if t is not None]
    if any(abs(t) > _LARGEST * 4 for t in times):
        return False
    if case.tree is None:
        return True
    types = {Col(i.name, c.name): c.type for i in case.inputs for c in i.columns}
    if not {types[column] for column in columns(case.tree)} <= _READABLE:
        return False
    compared = types_compared(case.tree, types.__getitem__)
    return all(any(found <= family for family in _DUCKDB) for found in compared)


def by_duckdb(case: Case, absent: Mapping[str, Set[int]]) -> Counter[Result]:
    """Return the results as a query over the same values gives them."""
    connection = _duckdb()
    names = [i.name for i in case.inputs]
    types = {Col(i.name, c.name): c.type for i in case.inputs for c in i.columns}
    used = {column for column in columns(case.tree)} if case.tree is not None else set()
    for i in case.inputs:
        there = [k for k, t in enumerate(i.times) if t is not None and k not in absent.get(i.name, ())]
        table = {
            c.name: c.array.cast(plain_type(c.type)).take(pa.array(there, pa.int64()))
            for c in i.columns
            if Col(i.name, c.name) in used
        }
        table["id"] = pa.array(there, pa.int64())
        table["__t"] = pa.array([i.times[k] for k in there], pa.int64())
        connection.register(i.name, pa.table(table))
    newest = f"greatest({', '.join(f'{name}.__t' for name in names)})"
    inside = ">" if case.open_end else ">="
    tests = [f"{n}.__t {inside} {newest} - {w}" for n, w in zip(names, case.windows, strict=True)]
    if case.tree is not None:
        tests.append(sql(case.tree, lambda column: _duckdb_column(column, types[column]), guarded=True))
    ids = ", ".join(f"{name}.id" for name in names)
    query = f"SELECT {ids}, {newest} FROM {', '.join(names)} WHERE {' AND '.join(tests)}"
    return Counter(connection.execute(query).fetchall())


@cache
def _duckdb() -> Any:
    """The connection of this process; one thread, as tables are small."""
    try:
        import duckdb
    except ImportError:
        raise SlackwaterError("bench fuzz needs DuckDB to compare with; pip install duckdb") from None
    return duckdb.connect(config={"threads": 1})


def _duckdb_column(column: Col, type_: pa.DataType) -> str:
    """A column in a width in which its arithmetic is exact, or that of doubles."""
    if type_ in _INTEGERS:
        return f"{column}::HUGEINT"
    return f"{column}::DOUBLE" if pa.types.is_floating(type_) else str(column)


def by_trial(case: Case, absent: Mapping[str, Set[int]]) -> Counter[Result]:
    """Return the results by trying every combination; a part of the condition is tested as soon as it can be."""
    inputs = case.inputs
    names = [i.name for i in inputs]
    parts = conjuncts(case.tree) if case.tree is not None else []
    stages: list[list[Expr]] = [[] for _ in names]
    for part in parts:
        used = [names.index(str(column.table)) for column in columns(part)]
        stages[max(used, default=0)].append(part)
    rows = [
        [
            (k, t, {Col(i.name, c.name): c.values[k] for c in i.columns})
            for k, t in enumerate(i.times)
            if t is not None and k not in absent.get(i.name, ())
        ]
        for i in inputs
    ]
    found: Counter[Result] = Counter()

    def extend(at: int, ids: tuple[int, ...], times: tuple[int, ...], row: dict[Col, Any]) -> None:
        if at == len(names):
            found[(*ids, max(times))] += 1
            return
        for k, t, values in rows[at]:
            if not _within((*times, t), case.windows, case.open_end):
                continue
            merged = row | values
            if all(value_of(part, merged) is True for part in stages[at]):
                extend(at + 1, (*ids, k), (*times, t), merged)

    extend(0, (), (), {})
    return found


def _within(times: Sequence[int], windows: Sequence[int], open_end: bool) -> bool:
    newest = max(times)
    return all(newest - t < w or (newest - t == w and not open_end) for t, w in zip(times, windows, strict=False))


def is_meaningless(case: Case) -> bool:
    """Whether a condition compares what cannot be compared, so that only a refusal is right.

    A truth value is a number, 0 or 1, where it is compared with one, and bytes are text in UTF-8.
    """
    families = {Col(i.name, c.name): c.family for i in case.inputs for c in i.columns}

    def mixed(tree: Expr) -> bool:
        if not isinstance(tree, Op):
            return False
        if tree.name in ("and", "or", "not", "is_null"):
            return any(map(mixed, tree.args))
        found = {families[column] for column in columns(tree)} - {"null"}
        return len({{"bool": "number", "bytes": "text"}.get(family, family) for family in found}) > 1

    return case.tree is not None and mixed(case.tree)
