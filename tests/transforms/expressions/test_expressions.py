"""Expressions of Filter and MapToFields: their three languages, and their values on Arrow batches."""

import datetime as dt
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.pipelines.assembly.mapping import applied_schema, apply, check, evaluate
from slackwater.pipelines.template.expression_text import parse_text, text_of
from slackwater.pipelines.template.graph import ARRIVAL, Filter, MapToFields
from slackwater.transforms.errors import ConfigError, SlackwaterError
from slackwater.transforms.expressions.tree import Col, Expr, ExpressionError, Lit, Op, parse

BATCH = pa.record_batch(
    {
        "i": pa.array([1, -2, None, 7], pa.int32()),
        "j": pa.array([3, 0, 5, None], pa.int64()),
        "f": pa.array([0.5, -4.0, None, 2.0]),
        "s": pa.array(["a", "b", None, "it's"]),
        "b": pa.array([True, False, None, True]),
        "t": pa.array([dt.datetime(2024, 1, d) for d in (1, 2, 3, 4)], pa.timestamp("us")),
        "d": pa.array([dt.date(2024, 1, d) for d in (1, 3, 3, 5)]),
        "l": pa.array([[1], [2], None, []], pa.list_(pa.int64())),
        "c": pa.array(["x", "y", "x", None]).dictionary_encode(),
    }
)


def values(text: str, language: Any = "generic") -> list[Any]:
    return evaluate(parse_text(text, language), BATCH).to_pylist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i + j", [4, -2, None, None]),
        ("i / j", [1 / 3, None, None, None]),
        ("7 / 2", [3.5] * 4),
        ("i % 2", [1, 0, None, 1]),
        ("j % i", [0, 0, None, None]),
        ("i % 0", [None] * 4),
        ("-7 % 3", [-1] * 4),
        ("f % 1.5", [0.5, -1.0, None, 0.5]),
        ("abs(i)", [1, 2, None, 7]),
        ("-f", [-0.5, 4.0, None, -2.0]),
        ("sqrt(f)", [0.5**0.5, None, None, 2**0.5]),
        ("least(i, j)", [1, -2, 5, 7]),
        ("greatest(i, f)", [1.0, -2.0, None, 7.0]),
        ("i > 0 AND j > 0", [True, False, None, None]),
        ("i > 0 OR j > 0", [True, False, True, True]),
        ("NOT b", [False, True, None, False]),
        ("b = TRUE", [True, False, None, True]),
        ("s IN ('a', 'it''s')", [True, False, None, True]),
        ("i IN (1, NULL)", [True, None, None, None]),
        ("i BETWEEN 1 AND j", [True, False, None, None]),
        ("s IS NULL", [False, False, True, False]),
        ("s IS NOT NULL", [True, True, False, True]),
        ("i = NULL", [None] * 4),
        ("s < 'b'", [True, False, None, False]),
        ("t >= '2024-01-02 00:00:00'", [False, True, True, True]),
        ("t = d", [True, False, True, False]),
        ("c = 'x'", [True, False, True, None]),
        ("l IS NULL", [False, False, True, False]),
        ("NULL", [None] * 4),
    ],
)
def test_value_of_sql(text: str, expected: list[Any]) -> None:
    assert values(text) == expected
    assert values(text_of(parse_text(text))) == expected


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("i", Col(None, "i")),
        ("order", Col(None, "order")),
        ("5", Lit(5)),
        ("-2.5", Lit(-2.5)),
        ('"a < b"', Lit("a < b")),
        ("i == 5", Op("=", (Col(None, "i"), Lit(5)))),
        ("i != 5", Op("<>", (Col(None, "i"), Lit(5)))),
        ("i > 5", Op("<", (Lit(5), Col(None, "i")))),
        ("5 >= group", Op("<=", (Col(None, "group"), Lit(5)))),
        ('s == "a"', Op("=", (Col(None, "s"), Lit("a")))),
        ("""s = "it's" """, Op("=", (Col(None, "s"), Lit("it's")))),
        ("true", Lit(True)),
    ],
)
def test_generic_reads_what_beam_reads(text: str, tree: Expr) -> None:
    assert parse_text(text) == tree


def test_double_quotes_are_text_in_generic_and_a_column_in_sql() -> None:
    assert parse_text('s = "a" AND i = 1') == parse("s = 'a' AND i = 1")
    assert parse_text('"s" = 1', "sql") == parse_text("`s` = 1", "sql") == Op("=", (Col(None, "s"), Lit(1)))


@pytest.mark.parametrize(
    ("text", "language", "fault"),
    [
        ("upper(s)", "generic", "'UPPER(s)' is not supported; supported are columns, numbers"),
        ("i >", "sql", "cannot read 'i >'"),
        ("", "python", "the expression is empty; write one such as a > 5"),
        ("i >", "python", "cannot read 'i >' as Python: invalid syntax"),
        (
            "__import__('os').system('x')",
            "python",
            "is not supported in Python expressions; supported are columns",
        ),
        ("(lambda: 1)()", "python", "'(lambda: 1)()' is not supported in Python expressions"),
        ("[x for x in s]", "python", "is not supported in Python expressions"),
        ("s.upper()", "python", "'s.upper()' is not supported in Python expressions"),
        ("i ** 2", "python", "'i ** 2' is not supported"),
        ("i // 2", "python", "'i // 2' is not supported"),
        ("max(i)", "python", "'max(i)' is not supported"),
        ("max(*s, 1)", "python", "'max(*s, 1)' is not supported"),
        ("i is 5", "python", "'i is 5': only None can be compared by is; use =="),
        ("i in s", "python", "'s' must be a list of values, such as (1, 2, 3)"),
        ("-" * 5000 + "x", "python", "the expression is nested more than 100 deep; split it, with MapToFields"),
        ("(" * 5000 + "1", "generic", "nested more than 100 deep"),
    ],
)
def test_what_is_not_understood_is_named(text: str, language: Any, fault: str) -> None:
    with pytest.raises(ExpressionError) as error:
        parse_text(text, language)
    assert fault in str(error.value)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("nope > 1", "there is no column 'nope'; there are i, j, f, s, b, t, d, l, c"),
        ("orders.i > 1", "there is no column 'orders.i'; there are i, j"),
        ("i < 's'", "i is a number and 's' is text: they cannot be compared"),
        ("s > 1", "1 is a number and s is text: they cannot be compared"),
        ("t > 5", "5 is a number and t is a time: they cannot be compared"),
        ("t > 'soon'", "'soon' is not a time; write it as 2024-01-31 or 2024-01-31 12:00:00"),
        ("l = l", "l is of a type that has no order and l is of a type that has no order"),
        ("s + 1", "s is text, not a number; arithmetic needs numbers"),
        ("i AND b", "i is a number, not a condition; compare it with something"),
        (
            "i > 99999999999999999999",
            "99999999999999999999 does not fit into 64 bits; write it as a decimal number",
        ),
    ],
)
def test_what_does_not_fit_the_columns_is_named(text: str, fault: str) -> None:
    with pytest.raises(ExpressionError) as error:
        check(parse_text(text), BATCH.schema)
    assert fault in str(error.value)


def test_several_columns_of_one_name_cannot_be_told_apart() -> None:
    twice = pa.schema([("a", pa.int64()), ("a", pa.int64())])
    with pytest.raises(ExpressionError, match="there are several columns 'a'; rename one"):
        check(parse("a > 1"), twice)


def test_overflow_is_an_error_not_another_number() -> None:
    with pytest.raises(SlackwaterError, match="i \\* 9223372036854775807: overflow; keep the numbers smaller"):
        evaluate(parse("i * 9223372036854775807"), BATCH)


def test_types_of_results() -> None:
    for text, type_ in [
        ("i", pa.int32()),
        ("i + 1", pa.int64()),
        ("i / 1", pa.float64()),
        ("i > 1", pa.bool_()),
    ]:
        assert check(parse(text), BATCH.schema) == type_


# --- Filter and MapToFields


def test_filter_keeps_rows_that_are_true() -> None:
    kept = apply(Filter(parse("i > 0")), BATCH)
    assert kept.column("i").to_pylist() == [1, 7]
    assert apply(Filter(parse("NULL")), BATCH).num_rows == 0


def test_fields_replace_columns_or_are_added_and_the_hidden_arrival_stays() -> None:
    batch = BATCH.select(["i", "s"]).append_column(ARRIVAL, pa.array([10, 11, 12, 13]))
    replaced = apply(MapToFields({"double": parse("i * 2")}), batch)
    assert replaced.to_pydict() == {ARRIVAL: [10, 11, 12, 13], "double": [2, -4, None, 14]}
    added = apply(MapToFields({"n": Lit(1)}, append=True, drop=("s",)), batch)
    assert added.to_pydict() == {"i": [1, -2, None, 7], ARRIVAL: [10, 11, 12, 13], "n": [1] * 4}
    swapped = apply(MapToFields({"i": Col(None, "s"), "s": Col(None, "i")}), batch)
    assert swapped.column("i").to_pylist() == BATCH.column("s").to_pylist()


def test_schema_is_what_apply_gives() -> None:
    config = MapToFields({"x": parse("i + 1"), "y": parse("s")}, append=True, drop=("c",))
    assert applied_schema(config, BATCH.schema) == apply(config, BATCH).schema
    assert applied_schema(Filter(parse("b")), BATCH.schema) == BATCH.schema


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        (Filter(parse("i + 1")), "keep: must be true or false for each row, but is a number; compare it"),
        (Filter(parse("x > 1")), "keep: there is no column 'x'"),
        (MapToFields({"a": parse("x")}), "fields.a: there is no column 'x'"),
        (
            MapToFields({"i": parse("j")}, append=True),
            "fields.i: there is a column of this name already; rename",
        ),
        (MapToFields({}, append=True, drop=("x",)), "drop: there is no column 'x'; there are i, j"),
        (MapToFields({}, append=True, drop=tuple(BATCH.schema.names)), "drop: leaves no column; drop fewer"),
        (MapToFields({ARRIVAL: parse("i")}), f"fields.{ARRIVAL}: is the name of a hidden column"),
        (
            MapToFields({"a": Op("cast", (parse("f"), Lit("integer")))}),
            "fields.a: f is of type double, not integer; change output_type or expression",
        ),
    ],
)
def test_settings_that_do_not_fit_are_named(config: Filter | MapToFields, fault: str) -> None:
    with pytest.raises(ConfigError) as error:
        applied_schema(config, BATCH.schema)
    assert str(error.value).startswith(fault)


def test_output_type_fixes_the_type() -> None:
    assert check(Op("cast", (parse("i"), Lit("integer"))), BATCH.schema) == pa.int64()
    assert check(Op("cast", (parse("i"), Lit("number"))), BATCH.schema) == pa.float64()


# --- against DuckDB and against Python itself

DUCKDB = duckdb.connect(config={"threads": 1})
for setting in ("ieee_floating_point_ops", "error_on_division_by_zero"):
    if DUCKDB.execute("SELECT 1 FROM duckdb_settings() WHERE name = ?", [setting]).fetchall():
        DUCKDB.execute(f"SET {setting} = false")  # division by zero is null

_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "a": st.none() | st.integers(-20, 20),
            "b": st.none() | st.integers(-20, 20),
            "x": st.none() | st.sampled_from([-2.5, -1.0, 0.0, 0.25, 4.0, 9.0]),
            "s": st.none() | st.sampled_from(["", "p", "q", "it's"]),
        }
    ),
    min_size=1,
    max_size=6,
)
_SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("x", pa.float64()), ("s", pa.string())])
_NUMBERS: st.SearchStrategy[str] = st.recursive(
    st.sampled_from(["a", "b", "x", "3", "-2", "0", "1.5"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/%"), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        inner.map(lambda e: f"abs({e})"),
        st.tuples(st.sampled_from(["least", "greatest"]), inner, inner).map(lambda p: f"{p[0]}({p[1]}, {p[2]})"),
    ),
    max_leaves=4,
)
_TESTS: st.SearchStrategy[str] = st.recursive(
    st.one_of(
        st.tuples(_NUMBERS, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), _NUMBERS).map(" ".join),
        st.tuples(st.sampled_from(["=", "<>", "<", ">="]), st.sampled_from(["'p'", "''", "'it''s'"])).map(
            lambda p: f"s {p[0]} {p[1]}"
        ),
        _NUMBERS.map(lambda e: f"{e} IS NULL"),
        _NUMBERS.map(lambda e: f"{e} IN (1, 2, NULL)"),
        st.tuples(_NUMBERS, _NUMBERS).map(lambda p: f"a BETWEEN {p[0]} AND {p[1]}"),
    ),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda p: f"({p[0]}) {p[1]} ({p[2]})"),
        inner.map(lambda e: f"NOT ({e})"),
    ),
    max_leaves=4,
)


@given(rows=_ROWS, text=_TESTS | _NUMBERS)
def test_same_values_as_duckdb(rows: list[dict[str, Any]], text: str) -> None:
    table = pa.Table.from_pylist(rows, _SCHEMA)
    (batch,) = table.to_batches()
    ours = evaluate(parse(text), batch).to_pylist()
    again = evaluate(parse(text_of(parse(text))), batch).to_pylist()
    DUCKDB.register("t", table)
    theirs = [row[0] for row in DUCKDB.execute(f"SELECT {text} FROM t").fetchall()]
    assert [_near(v) for v in ours] == [_near(v) for v in theirs]
    assert [_near(v) for v in again] == [_near(v) for v in theirs]


_PYTHON: st.SearchStrategy[str] = st.recursive(
    st.one_of(
        st.tuples(
            st.sampled_from(["a", "b", "3", "s", "'p'", "None"]),
            st.sampled_from(["==", "!="]),
            st.sampled_from(["a", "b", "2", "s", "'q'", "None"]),
        )
        .map(" ".join)
        .filter(lambda e: ("'" in e or "s" in e.split()) <= ({"a", "b", "2", "3"}.isdisjoint(e.split()))),
        st.sampled_from(
            ["a is None", "s is not None", "a in (1, 2, 3)", "a not in (1, None)", "s in ['p', 'q']"]
        ),
        st.sampled_from(["-5 < 3 <= 4", "max(1, 2) > 1.5", "-7 % 3 == 2", "abs(-3) == 3", "+1 - -1 == 2"]),
    ),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda p: f"({p[0]}) {p[1]} ({p[2]})"),
        inner.map(lambda e: f"not ({e})"),
    ),
    max_leaves=5,
)


@given(rows=_ROWS, text=_PYTHON)
def test_same_values_as_python(rows: list[dict[str, Any]], text: str) -> None:
    (batch,) = pa.Table.from_pylist(rows, _SCHEMA).to_batches()
    ours = evaluate(parse_text(text, "python"), batch).to_pylist()
    assert ours == [eval(text, {}, row) for row in rows]


def test_python_arithmetic_keeps_its_meaning() -> None:
    assert values("j % 3 == 0 and -7 % 3 == 2", "python")[0] is True
    assert values("min(i, j) / 2", "python")[0] == 0.5


def _near(value: Any) -> Any:
    return round(value, 9) + 0.0 if isinstance(value, float) else value
