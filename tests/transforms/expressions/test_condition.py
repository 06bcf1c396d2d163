"""Conditions: what they mean, and the words with which the wrong ones are refused."""

from itertools import product

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from conditions import EFFORT
from hypothesis import given, settings
from hypothesis import strategies as st
from running import numbered, plan_of, run

from slackwater.transforms.expressions.condition import MAX_CELLS, Condition
from slackwater.transforms.expressions.tree import (
    SUPPORTED,
    Col,
    ExpressionError,
    Lit,
    Op,
    columns,
    conjuncts,
    parse,
)
from slackwater.transforms.rows.encoder import CellEncoder

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("i", pa.int32()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("t", pa.timestamp("ms")),
        ("flag", pa.bool_()),
        ("items", pa.list_(pa.int64())),
        ("only", pa.null()),
    ]
)
A_B = {"a": SCHEMA.append(pa.field("mine", pa.int64())), "b": SCHEMA}


def passing(where, left, right):
    """Positions of the pairs of rows, given as batches, that a condition on inputs a and b lets through."""
    condition = Condition(where, {"a": left.schema, "b": right.schema})
    encoder = CellEncoder(condition)
    encoded = [encoder.encode(i, batch) for i, batch in enumerate((left, right))]
    pairs = list(product(range(left.num_rows), range(right.num_rows)))
    at = np.array(pairs, np.int64).reshape(-1, 2)
    cells = [np.ascontiguousarray(encoded[i][0][at[:, i]]) for i in range(2)]
    nulls = [np.ascontiguousarray(encoded[i][1][at[:, i]]) for i in range(2)]
    return [pair for pair, ok in zip(pairs, condition.test(cells, nulls), strict=True) if ok]


def batch_of(**values):
    return pa.RecordBatch.from_pydict(values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the expression is empty; write a condition such as a.id = b.id"),
        ("  ", "the expression is empty; write a condition such as a.id = b.id"),
        ("a.n = ", "cannot read 'a.n = ': "),
        ("a.n = (b.n", "cannot read 'a.n = (b.n': "),
        ("'open", 'cannot read "\'open": '),
        ("x.a.n = b.n", "'x.a.n' is not a column; write input.column"),
        ("a.* = b.n", "'a.*' is not a column; write input.column"),
        ("a.s LIKE 'x%'", f"\"a.s LIKE 'x%'\" is not supported; supported are {SUPPORTED}"),
        ("lower(a.s) = b.s", "'LOWER(a.s)' is not supported; supported are"),
        ("a.n IN (SELECT 1)", "is not supported; supported are"),
        ("a.n BETWEEN SYMMETRIC 5 AND 1", "is not supported; supported are"),
        ("a.n IS TRUE", "'a.n IS TRUE' is not supported; supported are"),
        ("CAST(a.n AS TEXT) = b.s", "is not supported; supported are"),
        ("a.n = b.n; a.i = b.i", "is not supported; supported are"),
        ("SELECT 1", "'SELECT 1' is not supported; supported are"),
        ("a.f + 1.5", "+(a.f, 1.5) is a number, not a condition; compare it with something"),
        ("a.s", "a.s is text, not a condition; compare it with something"),
        ("a.n = b.n AND b.t", "b.t is a time, not a condition; compare it with something"),
        ("NOT 'x'", "'x' is text, not a condition; compare it with something"),
        (
            "a.n + 9223372036854775808 < 0",
            "9223372036854775808 does not fit into 64 bits; write it as a decimal number",
        ),
        ("a.s + 1 = 2", "a.s is text, not a number; arithmetic needs numbers"),
        ("abs(a.t) = 2", "a.t is a time, not a number; arithmetic needs numbers"),
        ("sqrt(a.n < 1) = 2", "<(a.n, 1) is a truth value, not a number; arithmetic needs numbers"),
        ("least(a.n, b.s) = 2", "b.s is text, not a number; arithmetic needs numbers"),
        (
            "a.n < b.s",
            "a.n is a number and b.s is text: they cannot be compared; convert one of them with MapToFields",
        ),
        (
            "a.t < 5 AND a.n = b.n",
            "a.t is a time and 5 is a number: they cannot be compared; convert one of them with MapToFields",
        ),
        ("a.n IN (1, 'x')", "a.n is a number and 'x' is text: they cannot be compared"),
        ("a.s < b.s", "text can be compared with = and <> only, not a.s with b.s"),
        ("a.s BETWEEN 'a' AND 'b'", "text can be compared with = and <> only, not 'a' with a.s"),
        (
            "a.items = b.items",
            "a.items has type list<item: int64>, which a condition cannot compare; use a simple column",
        ),
        ("nowhere = b.n", "column 'nowhere' is in no input; write it as input.column"),
        ("n = b.n", "column 'n' is in several inputs; write it as input.column"),
        ("c.n = b.n", "'c.n' names no input; the inputs are a, b"),
        (
            "a.nowhere = b.n",
            "input 'a' has no column 'nowhere'; it has n, i, f, s, t, flag, items, only, mine",
        ),
        (
            "a.n = b.s",
            "a.n is a number and b.s is text: they can never be equal; convert one of them with MapToFields",
        ),
        ("a.t = b.f", "a.t is a time and b.f is a number: they can never be equal"),
        ("a.f = b.t", "a.f is a number and b.t is a time: they can never be equal"),
        ("a.s = b.t", "a.s is text and b.t is a time: they can never be equal"),
    ],
)
def test_wrong_conditions_are_refused_with_the_fault(text, message):
    with pytest.raises(ExpressionError) as caught:
        Condition(text, A_B)
    assert message in str(caught.value)


def test_a_condition_reads_a_limited_number_of_columns():
    wide = pa.schema([(f"c{k}", pa.int64()) for k in range(MAX_CELLS + 1)])
    where = " AND ".join(f"a.c{k} > 0" for k in range(MAX_CELLS + 1))
    with pytest.raises(ExpressionError, match="the condition reads more than 64 columns of 'a'"):
        Condition(where, {"a": wide, "b": wide})
    Condition(where.rsplit(" AND ", 1)[0], {"a": wide, "b": wide})


@pytest.mark.parametrize(
    ("where", "classes", "predicates"),
    [
        ("a.n = b.n AND b.n = c.n", [{0: "n", 1: "n", 2: "n"}], 0),
        ("a.n = b.n AND b.n = c.n AND a.n = c.n", [{0: "n", 1: "n", 2: "n"}], 0),
        ("a.n = b.n AND a.n = c.n", [{0: "n", 1: "n", 2: "n"}], 0),
        ("a.n = b.n AND c.n = d.n AND d.n = a.n", [{0: "n", 1: "n", 2: "n", 3: "n"}], 0),
        ("a.n = b.n AND b.i = c.i", [{0: "n", 1: "n"}, {1: "i", 2: "i"}], 0),
        ("a.n = b.n AND a.i = b.n", [{0: "n", 1: "n"}], 1),
        ("a.n = b.n AND a.n = a.i", [{0: "n", 1: "n"}], 1),
        ("a.n = 3", [], 1),
        ("a.n = b.n + 1", [], 1),
        ("a.n = b.n OR a.i = b.i", [], 1),
        ("(a.n = b.n AND (TRUE AND a.s = b.s))", [{0: "n", 1: "n"}, {0: "s", 1: "s"}], 0),
        (None, [], 0),
    ],
)
def test_equalities_become_key_classes(where, classes, predicates):
    condition = Condition(where, dict.fromkeys("abcd", SCHEMA))
    found = [{i: condition.columns[i][c].column for i, c in members.items()} for members in condition.classes]
    assert found == classes
    assert len(condition.predicates) == predicates


@pytest.mark.parametrize(
    ("where", "connected", "shards"),
    [
        ("a.n = b.n AND b.n = c.n", True, ["n", "n", "n"]),
        ("a.n = b.n AND b.i = c.i", True, None),
        ("a.n = b.n AND a.i < c.i", True, None),
        ("a.n = b.n", False, None),
        (None, False, None),
        ("a.i = b.i AND b.n = c.n AND b.n = a.n", True, ["n", "n", "n"]),
    ],
)
def test_what_links_the_inputs(where, connected, shards):
    condition = Condition(where, dict.fromkeys("abc", SCHEMA))
    assert condition.connected is connected
    assert (condition.shard_columns and [cell.column for cell in condition.shard_columns]) == shards


def test_unqualified_columns_are_found_where_only_one_input_has_them():
    condition = Condition("mine = b.n", A_B)
    assert condition.columns[0][0].column == "mine"


def test_trees_can_be_walked():
    tree = parse("a.x = 1 AND (b.y > c.z AND NOT a.x IS NULL)")
    assert [str(column) for column in columns(tree)] == ["a.x", "c.z", "b.y", "a.x"]
    assert len(conjuncts(tree)) == 3
    assert str(parse("x = NULL")) == "=(x, NULL)"
    assert parse("x <> -1.5") == Op("<>", (Col(None, "x"), Lit(-1.5)))
    assert parse("-(x)") == Op("neg", (Col(None, "x"),))


NAN = float("nan")


@pytest.mark.parametrize("where", ["a.x = b.x", "a.x = b.x OR FALSE", "NOT a.x <> b.x"])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([0.0, NAN, 1.0, None], [-0.0, NAN, 1.0, None]),
        ([0, 7, 1, None], [-0.0, 7.0, 1.0, None]),
        ([False, True, True, None], [0, 1, 1, None]),
        (["", "x", "ä", None], ["", "x", "ä", None]),
    ],
    ids=["float", "int and float", "bool and int", "text"],
)
def test_equal_is_equal_in_keys_and_in_predicates(where, left, right):
    """-0.0 is 0.0, NaN is NaN, 7 is 7.0, and null is nothing, wherever the equality stands."""
    found = passing(where, batch_of(x=left), batch_of(x=right))
    expected = [(i, j) for i, j in product(range(4), repeat=2) if None not in (left[i], right[j])]
    same = {(i, j) for i, j in expected if left[i] == right[j] or (left[i] != left[i] and right[j] != right[j])}
    assert found == sorted(same)


def test_nan_is_larger_than_every_number():
    left, right = batch_of(x=[NAN, 1.0]), batch_of(x=[NAN, float("inf")])
    assert passing("a.x < b.x", left, right) == [(1, 0), (1, 1)]
    assert passing("a.x >= b.x", left, right) == [(0, 0), (0, 1)]
    assert passing("greatest(a.x, b.x) = b.x", left, right) == [(0, 0), (1, 0), (1, 1)]
    assert passing("least(a.x, b.x) = a.x", left, right) == [(0, 0), (1, 0), (1, 1)]


def test_division_by_zero_and_roots_of_negatives_are_null():
    left, right = batch_of(x=[4, -4]), batch_of(x=[0, 2])
    assert passing("a.x / b.x IS NULL", left, right) == [(0, 0), (1, 0)]
    assert passing("a.x % b.x IS NULL", left, right) == [(0, 0), (1, 0)]
    assert passing("a.x % (b.x * 1.0) IS NULL", left, right) == [(0, 0), (1, 0)]
    assert passing("sqrt(a.x) IS NULL", left, right) == [(1, 0), (1, 1)]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array([0, 3600], pa.time32("s")), pa.array([0, 3_600_000], pa.time32("ms"))),
        (pa.array([0, 3_600_000_000], pa.time64("us")), pa.array([0, 3_600_000_000_000], pa.time64("ns"))),
        (pa.array([0, 3600], pa.time32("s")), pa.array([0, 3_600_000_000], pa.time64("us"))),
        (pa.array([0, 86_400], pa.timestamp("s")), pa.array([0, 1], pa.date32())),
        (pa.array([0, 5], pa.timestamp("s", "UTC")), pa.array([0, 5_000_000_000], pa.timestamp("ns", "UTC"))),
        (pa.array([0, 86_400_000], pa.date64()), pa.array([0, 1], pa.date32())),
        (pa.array([0, 5], pa.duration("s")), pa.array([0, 5000], pa.duration("ms"))),
    ],
    ids=lambda array: str(array.type),
)
def test_times_of_different_units_are_compared_as_times(left, right):
    assert passing("a.x = b.x", batch_of(x=left), batch_of(x=right)) == [(0, 0), (1, 1)]
    assert passing("a.x < b.x", batch_of(x=left), batch_of(x=right)) == [(0, 1)]


def test_text_columns_of_every_layout_are_compared_as_text():
    words = ["x", None, "longer than eight bytes", ""]
    layouts = [
        pa.array(words),
        pa.array(words, pa.large_string()),
        pa.array(words).dictionary_encode(),
        pa.array(["skipped", *words])[1:],
        pa.array([w and w.encode() for w in words], pa.binary()),
        pa.array([w and w.encode() for w in words], pa.large_binary()),
    ]
    for left, right in product(layouts, repeat=2):
        found = passing("a.x = b.x", batch_of(x=left), batch_of(x=right))
        assert found == [(0, 0), (2, 2), (3, 3)]
    fixed = pa.array([b"ab", b"cd", None], pa.binary(2))
    assert passing("a.x = b.x", batch_of(x=fixed), batch_of(x=["cd", "ab"])) == [(0, 1), (1, 0)]


def test_a_column_that_is_all_null_equals_nothing():
    assert passing("a.x = b.x", batch_of(x=pa.nulls(2)), batch_of(x=[1, None])) == []
    assert passing("a.x IS NULL AND b.x = 1", batch_of(x=pa.nulls(2)), batch_of(x=[1, None])) == [
        (0, 0),
        (1, 0),
    ]


def test_two_columns_of_one_input_in_a_class_must_agree():
    schema = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("x", pa.float64()), ("y", pa.float64())])
    rows = [(0, 1.0, 1.0), (0, 1.0, 2.0), (0, NAN, NAN), (1, 1.0, 0.0), (1, NAN, 0.0)]
    arrivals = numbered((which, {"ts": k, "x": x, "y": y}) for k, (which, x, y) in enumerate(rows))
    got = run(plan_of(schema, window="9ms", where="a.x = b.x AND a.y = b.x"), arrivals)
    assert sorted((row["a_id"], row["b_id"]) for row in got.rows) == [(0, 0), (2, 1)]


def numbers():
    """SQL of a random number over columns n and f of a and b; integers and quarters, exact in every order."""
    leaves = st.sampled_from(["a.n", "b.n", "a.f", "b.f", "0", "1", "2", "-3", "0.25", "NULL"])
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds("({} {} {})".format, inner, st.sampled_from("+-*"), inner),
            st.builds("{}({}, {})".format, st.sampled_from(["least", "greatest"]), inner, inner),
            st.builds("abs({})".format, inner),
            st.builds("(- {})".format, inner),
            st.builds("({} / {})".format, inner, st.sampled_from(["2", "-4.0"])),
            st.builds(
                "({} % {})".format,
                st.sampled_from(["a.n", "b.n", "(a.n - b.n)"]),
                st.sampled_from(["2", "-3"]),
            ),
        ),
        max_leaves=5,
    )


def truths():
    leaves = st.one_of(
        st.builds("({} {} {})".format, numbers(), st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), numbers()),
        st.builds("({} IS {}NULL)".format, numbers(), st.sampled_from(["", "NOT "])),
        st.builds(
            "({} {}BETWEEN {} AND {})".format, numbers(), st.sampled_from(["", "NOT "]), numbers(), numbers()
        ),
        st.builds("({} {}IN ({}, {}))".format, numbers(), st.sampled_from(["", "NOT "]), numbers(), numbers()),
        st.sampled_from(
            ["a.s = b.s", "a.s <> b.s", "a.s IN ('x', b.s)", "a.s IS NULL", "TRUE", "FALSE", "a.p", "b.p"]
        ),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "OR"]), inner),
            st.builds("(NOT {})".format, inner),
        ),
        max_leaves=4,
    )


LEFT = batch_of(
    n=[0, 1, -2, None, 3, 7], f=[0.5, None, -1.25, 2.0, 0.0, 7.0], s=["x", "y", None, "", "x", "zz"],
    p=[True, False, None, True, None, False],
)  # fmt: skip
RIGHT = batch_of(
    n=[1, None, 0, -2, 5], f=[None, 0.5, 2.0, -1.25, 1.0], s=[None, "x", "", "y", "x"],
    p=[None, True, False, None, True],
)  # fmt: skip


@pytest.fixture(scope="module")
def database():
    con = duckdb.connect()
    for name, batch in (("a", LEFT), ("b", RIGHT)):
        table = pa.Table.from_batches([batch]).append_column("at", pa.array(range(batch.num_rows)))
        con.register(name, table)
    return con


@settings(max_examples=150 * EFFORT)
@given(where=truths())
def test_random_conditions_mean_what_a_database_says(database, where):
    expected = database.execute(f"SELECT a.at, b.at FROM a, b WHERE ({where}) ORDER BY ALL").fetchall()
    assert passing(where, LEFT, RIGHT) == expected
