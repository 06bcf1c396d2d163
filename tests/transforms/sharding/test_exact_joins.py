"""Joins of values of different types: found once on any shards, with long conditions, or refused."""

import decimal
import time
from math import nan

import numpy as np
import pyarrow as pa
import pytest
from exact_values import TYPES, VALUES, batch, fits, passing, rank, same
from hypothesis import given, settings
from hypothesis import strategies as st
from running import plan_of

from slackwater.transforms.arrival.merge import in_arrival_order, split_by_shard
from slackwater.transforms.errors import ConfigError, SlackwaterError
from slackwater.transforms.expressions.tree import ExpressionError
from slackwater.transforms.operators.join import Operator
from slackwater.transforms.settings.plan import ARRIVAL


def numbers(rows, step=1):
    return pa.array(np.arange(rows.num_rows) * step, pa.int64())


def joined(where, left, right, shards=1):
    """The rows that a join finds, as positions, over all shards."""
    batches = [
        rows.append_column("ts", pa.array([0] * rows.num_rows)).append_column(
            "id", pa.array(range(rows.num_rows))
        )
        for rows in (left, right)
    ]
    plan = plan_of([rows.schema for rows in batches], window="1m", where=where, shards=shards)
    found = []
    for shard in range(shards):
        operator = Operator(plan, shard=shard)
        parts = []
        for which, rows in enumerate(batches):
            numbered = rows.append_column(ARRIVAL, numbers(rows))
            mine = [part.rows for part in split_by_shard(plan, which, numbered) if part.shard == shard]
            parts.append(mine[0] if mine else numbered.slice(0, 0))
        arrivals = [part.column(ARRIVAL).to_numpy() for part in parts]
        outs = [operator.push(in_arrival_order(parts, arrivals)), operator.finish()]
        for out in outs:
            found += [(row["a_id"], row["b_id"]) for rows in out.results for row in rows.to_pylist()]
    return sorted(found)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_equal_values_of_any_two_types_are_in_one_shard(data):
    types = [data.draw(st.sampled_from(TYPES)) for _ in range(2)]
    first = data.draw(st.lists(st.none() | VALUES[types[0]], min_size=1, max_size=8))
    second = [same(x, types[1]) for x in first if fits(x, types[1])] + data.draw(
        st.lists(VALUES[types[1]], max_size=3)
    )
    left, right = batch(types[0], first), batch(types[1], second)
    wanted = [
        (i, j) for i, x in enumerate(first) for j, y in enumerate(second) if x is not None and rank(x) == rank(y)
    ]
    assert joined("a.x = b.x", left, right, shards=3) == joined("a.x = b.x", left, right) == wanted


def test_a_run_that_computes_a_number_that_does_not_fit_names_the_condition():
    left, right = batch(pa.int64(), [1, 2**63 - 1]), batch(pa.int64(), [2**63 - 1])
    with pytest.raises(SlackwaterError) as caught:
        joined("a.x = b.x AND a.x + 1 > 0", left, right)
    assert "where: a.x = b.x AND a.x + 1 > 0 computes a whole number that does not fit" in str(caught.value)
    assert joined("a.x = b.x AND a.x - 1 > 0", left, right) == [(1, 0)]


def test_long_lists_and_chains_in_conditions():
    started = time.process_time()
    texts = ", ".join(f"'t{k}'" for k in range(20_000))
    left = batch(pa.string(), ["t0", "t19999", "t20000", None])
    assert passing(f"a.x IN ({texts})", left, left.slice(0, 1))[:, 0].tolist() == [True, True, False, False]
    assert passing(f"a.x NOT IN ({texts})", left, left.slice(0, 1))[:, 0].tolist() == [False, False, True, False]
    assert time.process_time() - started < 8
    numbers = batch(pa.int64(), [499, 500, None])
    for chain in (
        " OR ".join(f"a.x = {k}" for k in range(500)),
        f"a.x IN ({', '.join(map(str, range(500)))})",
        "NOT (" + " AND ".join(f"a.x <> {k}" for k in range(500)) + ")",
        "(" * 50 + "a.x < 500" + ")" * 50,
    ):
        assert passing(chain, numbers, numbers.slice(0, 1))[:, 0].tolist() == [True, False, False]


def test_lists_of_all_kinds_of_items():
    left = batch(pa.float64(), [-0.0, 2.5, nan, 2.0**53, None])
    items = "0, 2.5, 9007199254740993, NULL"
    found = passing(f"a.x IN ({items})", left, left.slice(0, 1))[:, 0]
    assert found.tolist() == [True, True, False, False, False]
    cents = batch(pa.decimal128(12, 2), [decimal.Decimal("0.10"), decimal.Decimal("7.00")])
    assert passing("a.x IN (0.1, 0.105, 7)", cents, cents)[:, 0].tolist() == [True, True]
    assert passing("a.x IN (b.x, 3)", cents, cents).tolist() == [[True, False], [False, True]]
    with pytest.raises(ExpressionError, match=r"a\.x is a number and 'x' is text: they cannot be compared"):
        passing("a.x IN (1, 'x')", cents, cents)


def test_columns_of_views_are_refused():
    with pytest.raises(ConfigError) as caught:
        joined("a.x = b.x", batch(pa.string_view(), ["x"]), batch(pa.string(), ["x"]))
    assert str(caught.value) == (
        "input: column 'x' of input 'a' has type string_view, and Arrow cannot take rows out of columns of "
        "views; cast it to string or binary"
    )


def test_only_columns_of_views_are():
    pages = batch(pa.struct([("page_view", pa.int64())]), [{"page_view": 1}])
    both = pages.append_column("k", pa.array([1]))
    assert joined("a.k = b.k", both, both) == [(0, 0)]
    with pytest.raises(ConfigError, match="Arrow cannot take rows out of columns of views"):
        joined("a.k = b.k", both, batch(pa.list_(pa.binary_view()), [[b"x"]]).append_column("k", pa.array([1])))
