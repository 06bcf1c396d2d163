"""GroupClose against its literal reading and against DuckDB; what leaves early, and what is held."""

import json

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from close_reference import PUNCTUATIONS, ROWS, merged, plan_of, reference, run
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.transforms.kernels.operators.open_groups import RANGES, REMEMBERED
from slackwater.transforms.operators.group_close.operator import GroupCloser
from slackwater.transforms.operators.join import Chunk

TS = st.integers(-5, 30)
J = st.one_of(st.none(), st.integers(0, 3))
ROW = st.fixed_dictionaries(
    {
        "ts": TS,
        "k": st.sampled_from([None, "", "a", "ü" * 9]),
        "j": J,
        "v": st.one_of(st.none(), st.integers(-9, 9)),
        "x": st.one_of(st.none(), st.integers(-99, 99).map(lambda n: n / 4)),
    }
)
END = st.one_of(st.none(), st.integers(-1, 4))
K_PATTERN = st.one_of(
    st.sampled_from([None, "", "a", "ü" * 9, "new"]), st.lists(st.sampled_from(["a", ""]), max_size=2)
)
J_RANGE = st.fixed_dictionaries({}, optional={"from": END, "to": END})
PATTERN = st.one_of(
    st.fixed_dictionaries({}, optional={"k": K_PATTERN, "j": st.one_of(J, st.lists(J, max_size=3))}),
    st.fixed_dictionaries({"j": J_RANGE}),
)
EVENTS = st.tuples(
    st.lists(ROW, max_size=40).map(
        lambda rows: [{"id": n, "twin": row["j"], **row} for n, row in enumerate(rows)]
    ),
    st.lists(st.tuples(TS, PATTERN).map(lambda p: {"ts": p[0], "pattern": json.dumps(p[1])}), max_size=8),
)
WINDOW = st.one_of(st.none(), st.integers(1, 12))


def by_columns(by, punctuations):
    """Punctuations on the columns of ``by`` only."""
    return [p for p in punctuations if json.loads(p["pattern"]).keys() <= set(by)]


@given(EVENTS, st.sampled_from([["k", "j"], ["j", "k"], ["j"], ["k"]]), WINDOW, st.integers(1, 12), st.booleans())
def test_groups_and_late_rows_are_those_of_the_literal_reading(events, by, window, cut, restart):
    rows, punctuations = events
    order = merged(rows, by_columns(by, punctuations))
    limit = {} if window is None else {"window": f"{window}ms"}
    expected = reference(order, by, window)
    done = run(plan_of(by=by, **limit), order, cut, restart)
    got = done.closings(by)
    assert got.groups == expected.groups
    assert sorted(got.late) == sorted(expected.late)
    account = done.operator.accounting
    assert account.balanced(0) and account.balanced(1)
    assert account.results == len(expected.groups)


@given(EVENTS, st.integers(1, 12), st.randoms(use_true_random=False))
def test_punctuations_may_come_late_where_rows_keep_what_they_say(events, cut, random):
    """How rows and punctuations are interleaved is no matter: a row is in the group it was in, in order."""
    rows, punctuations = events
    by = ["k", "j"]
    true = reference(merged(rows, punctuations), by)
    broken = {number for number, _ in true.late}
    rows = [row for row in rows if row["id"] not in broken]
    order = merged(rows, punctuations)
    expected = reference(order, by)
    for n in range(len(order)):
        if order[n][0] and random.random() < 0.5:
            order.insert(random.randrange(n, len(order)), order.pop(n))
    got = run(plan_of(by=by), order, cut).closings(by)
    assert not got.late
    assert sorted(map(repr, got.groups), key=str) == sorted(map(repr, expected.groups), key=str)


@settings(max_examples=15)
@given(st.integers(0, 1 << 30), st.integers(1, 60), st.integers(50, 700), st.sampled_from([1, 2]))
def test_on_complete_input_every_group_is_that_of_duckdb(seed, keys, cut, columns):
    """A punctuation after the last row of each group, of some a second time: one result per group."""
    rng = np.random.default_rng(seed)
    n = 1000
    ts = np.sort(rng.integers(0, 300, n))
    rows = pa.table(
        {
            "id": np.arange(n), "ts": ts, "k": [f"key {k}" for k in rng.integers(0, keys, n)],
            "j": rng.integers(0, columns, n), "twin": np.zeros(n, np.int64), "v": rng.integers(-99, 99, n),
            "x": rng.integers(-99, 99, n) / 4,
        },
        schema=ROWS,
    )  # fmt: skip
    by = ["k", "j"][:columns]
    keyed = ", ".join(by)
    last = duckdb.sql(f"SELECT max(ts) AS ts, {keyed} FROM rows GROUP BY {keyed}").fetchall()
    patterns = [
        {"ts": ts + int(rng.integers(0, 3)), "pattern": json.dumps(dict(zip(by, key, strict=True)))}
        for ts, *key in last
    ]
    order = merged(rows.to_pylist(), [p for p in patterns for _ in range(rng.integers(0, 3))])
    done = run(
        plan_of(by=by, aggregates={"n": "count(*)", "s": "sum(v)", "a": "avg(x)", "hi": "max(v)"}), order, cut
    )
    sql = f"SELECT {keyed}, count(*), sum(v)::BIGINT, avg(x), max(v) FROM rows GROUP BY {keyed} ORDER BY {keyed}"
    got = [tuple(row.values())[: columns + 4] for row in done.rows()]
    assert sorted(got) == duckdb.sql(sql).fetchall()
    assert not done.rows("late")


def event(ts, pattern=None, **row):
    if pattern is not None:
        return 1, {"ts": ts, "pattern": json.dumps(pattern)}
    return 0, {"id": 0, "ts": ts, "k": "a", "j": 0, "twin": 0, "v": 1, "x": None, **row}


def test_a_group_leaves_when_the_first_row_after_its_punctuation_comes():
    events = [event(1), event(5), event(5, {"k": "a"}), event(5, k="b"), event(6, k="b"), event(9, k="b")]
    left = [sum(batch.num_rows for batch in out.results) for out in run(plan_of(by="k"), events, 1).outputs]
    assert left == [0, 0, 0, 0, 1, 0, 1]


def test_a_window_includes_both_ends_and_the_next_row_opens_another_group():
    events = [event(10), event(20), event(21), event(40, k="b")]
    got = run(plan_of(by="k", window="10ms", aggregates={"n": "count(*)"}), events, 1)
    assert [tuple(row.values()) for row in got.rows()] == [
        ("a", 2, 20, "window"),
        ("a", 1, 31, "window"),
        ("b", 1, 40, "end"),
    ]


def test_a_punctuation_at_the_end_of_a_window_is_what_closes_the_group():
    events = [event(10), event(20, {"k": "a"}), event(21, k="b")]
    assert [row["closed_by"] for row in run(plan_of(by="k", window="10ms"), events).rows()] == [
        "punctuation",
        "end",
    ]


def test_rows_behind_their_punctuation_are_too_late_and_those_after_it_contradict_it():
    events = [event(1), event(3, {"k": "a"}), event(9, k="b"), event(2, id=1), event(3, id=2), event(4, id=3)]
    got = run(plan_of(by="k"), events, 2)
    assert sorted(got.closings(["k"]).late) == [(1, "too_late"), (2, "too_late"), (3, "punctuation_violated")]
    assert got.operator.accounting.summary(10**6)["late"] == {"punctuation_violated": 1, "too_late": 2}


def test_rows_behind_time_are_counted_while_their_group_is_open():
    events = [event(9), event(3), event(20, k="b"), event(5, k="b"), event(12)]
    got = run(plan_of(by="k", window="10ms", aggregates={"n": "count(*)"}), events, 1)
    assert [tuple(row.values()) for row in got.rows()] == [
        ("a", 2, 19, "window"),
        ("b", 2, 20, "end"),
        ("a", 1, 20, "end"),
    ]
    stale = run(plan_of(by="k", window="10ms"), [event(30, k="b"), event(19, id=7), event(20)], 1)
    assert stale.closings(["k"]).late == [(7, "too_late")]


def numbered(n, start=0):
    """One row for each of n groups, and a punctuation for each right after it."""
    key = np.arange(start, start + n)
    blank = pa.nulls(n)
    columns = {"id": key, "ts": 2 * key, "k": blank, "j": key, "twin": blank, "v": key, "x": blank}
    rows = pa.table({name: pa.array(column).cast(ROWS.field(name).type) for name, column in columns.items()})
    patterns = pa.table({"ts": 2 * key, "pattern": [f'{{"j": {k}}}' for k in key]}, schema=PUNCTUATIONS)
    return rows.combine_chunks().to_batches()[0], patterns.combine_chunks().to_batches()[0]


def test_memory_is_that_of_the_open_groups_and_not_of_all_that_ever_were():
    """Half a million groups, two of them open at a time; those punctuated are remembered up to a bound."""
    operator = GroupCloser(plan_of(by="j", window="3ms", aggregates={"n": "count(*)"}))
    size, n = [], 1 << 14
    for start in range(0, 32 * n, n):
        rows, _ = numbered(n, start)
        empty = pa.RecordBatch.from_pylist([], schema=PUNCTUATIONS)
        operator.push(Chunk(np.zeros(n, np.int8), np.arange(n), [rows, empty]))
        size.append(operator.nbytes)
    assert operator.accounting.max_tuples <= 3
    assert max(size[16:]) <= max(size[:16])
    assert len(operator.snapshot()["store"]["records"]) <= 2


def test_a_million_punctuations_are_remembered_and_older_ones_forgotten():
    operator = GroupCloser(plan_of(by="j", aggregates={"n": "count(*)"}))
    rows, patterns = numbered(REMEMBERED + 2)
    inputs = np.tile(np.array([0, 1], np.int8), rows.num_rows)
    operator.push(Chunk(inputs, np.arange(inputs.size), [rows, patterns]))
    assert operator.accounting.results == REMEMBERED + 1
    again = rows.take(pa.array([0, 1, 2])).set_column(1, "ts", pa.array([10**9] * 3))
    none = patterns.slice(0, 0)
    out = operator.push(Chunk(np.zeros(3, np.int8), np.arange(3), [again, none]))
    late = [json.loads(row)["j"] for batch in out.late for row in batch.column("row").to_pylist()]
    assert late == [2], "the last punctuation and those up to a million before it"


def test_ranges_that_lie_in_others_take_no_room_and_the_oldest_are_forgotten():
    apart = [event(n, {"j": {"from": 10 * n, "to": 10 * n + 3}}) for n in range(RANGES + 1)]
    rows = [event(10**6, j=0), event(10**6, j=10), event(10**6, j=RANGES * 10 + 1)]
    late = run(plan_of(by="j"), [*apart, *rows], 100).rows("late")
    assert [json.loads(row["row"])["j"] for row in late] == [10, RANGES * 10 + 1]
    inside = [event(n, {"j": {"to": n}}) for n in range(3 * RANGES)]
    late = run(plan_of(by="j"), [event(0, {"j": {"from": 10**7}}), *inside, event(10**6, j=10**7)], 100).rows(
        "late"
    )
    assert len(late) == 1


@pytest.mark.parametrize("cut", [1, 3, 100])
def test_floating_sums_have_the_same_bits_wherever_chunks_are_cut(cut):
    rng = np.random.default_rng(3)
    events = [event(n, x=float(x)) for n, x in enumerate(rng.normal(0, 1e9, 200))]
    whole, parts = (run(plan_of(by="k"), events, size, True).rows() for size in (None, cut))
    assert whole == parts
