"""Joins without a window: in memory, with most of the state on disk, and DuckDB all agree."""

import gc
import json
from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from conditions import EFFORT, SLACKS, cuts
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import reference_join
from running import chunk_of, disorder_of, numbered, plan_of, run

from slackwater.plugins.contract import UNBOUNDED
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.operators.join import Operator

FIELDS = [("id", pa.int64()), ("ts", pa.int64()), ("v", pa.int64()), ("p", pa.int64())]
INTEGERS = pa.schema([*FIELDS, ("k", pa.int64())])
TEXTS = pa.schema([*FIELDS, ("k", pa.string())])
KEY = "a.k = b.k"
BOTH = "a.k = b.k AND a.v <= b.v"
MEMORIES = st.sampled_from([1, 2, 5, 16, 60])
REREADS = st.sampled_from([0, 0.5, 4])


@st.composite
def arrivals_of(draw, schema, size):
    """Rows in arrival order, some late, some without a key; now and then one punctuates an old one (p = 1)."""
    delay = st.sampled_from([0, 0, 0, 0, 1, 4, 9])
    row = st.tuples(st.integers(0, 1), st.integers(0, 2), delay, st.integers(0, 7), st.integers(0, 4))
    rows = draw(st.lists(row, min_size=size // 2, max_size=size))
    punctuating = draw(st.sets(st.integers(0, size), max_size=size // 4))
    arrivals, clock = [], 0
    for n, (which, step, late, k, v) in enumerate(rows):
        clock += step
        p = int(n in punctuating)
        key = None if k == 7 else max(0, clock // 8 + k - 5 * p)
        if schema is TEXTS and key is not None:
            key = f"key {key}"
        arrivals.append((which, {"ts": clock - late, "k": key, "v": v, "p": p}))
    return numbered(arrivals)


def joined(schema, arrivals, slack, strategy, where, edges=(), restores=(), **options):
    more = options.pop("settings", {})
    plan = plan_of(
        schema, 2, where=where, disorder=disorder_of(slack), join={"strategy": strategy, **options}, **more
    )
    return run(plan, arrivals, edges, restores)


@pytest.mark.parametrize("schema", [INTEGERS, TEXTS], ids=["integers", "texts"])
@settings(max_examples=15 * EFFORT, deadline=None)
@given(data=st.data())
def test_any_memory_gives_what_the_reading_of_the_algorithm_gives(schema, data):
    arrivals, slack = data.draw(arrivals_of(schema, 120)), data.draw(SLACKS)
    where = data.draw(st.sampled_from([KEY, BOTH]))
    expected = reference_join(
        arrivals,
        [UNBOUNDED] * 2,
        lambda rows: (
            rows[0]["k"] is not None
            and rows[0]["k"] == rows[1]["k"]
            and (where == KEY or rows[0]["v"] <= rows[1]["v"])
        ),
        slack,
    )
    edges, restores = data.draw(cuts(len(arrivals))), data.draw(cuts(len(arrivals)))
    options = {
        "memory": data.draw(MEMORIES),
        "partitions": data.draw(st.sampled_from([1, 3, 8])),
        "reread": data.draw(REREADS),
    }
    whole = joined(schema, arrivals, slack, "symmetric_hash", where, edges, restores)
    spilled = joined(schema, arrivals, slack, "xjoin", where, edges, restores, **options)
    counted = joined(schema, arrivals, slack, "xjoin", where, edges, settings={"output": "counts"}, **options)
    assert whole.results == spilled.results == expected.results
    assert counted.counts == expected.counts
    for got in (whole, spilled):
        assert got.late_ids("too_late") == Counter(expected.late)
        assert all(got.operator.accounting.balanced(i) for i in range(2))
        assert got.operator.accounting.results == expected.results.total()
    held = [entry.live for entry in spilled.log]
    assert max(held, default=0) <= options["memory"]


@pytest.mark.parametrize("schema", [INTEGERS, TEXTS], ids=["integers", "texts"])
@settings(max_examples=15 * EFFORT, deadline=None)
@given(data=st.data())
def test_punctuations_and_a_memory_limit_change_no_result(schema, data):
    arrivals, slack = data.draw(arrivals_of(schema, 160)), data.draw(SLACKS)
    marked = data.draw(st.sampled_from(["ab", "ab", "a", "b"]))
    more = {"punctuations": [{"input": name, "when": "p = 1", "key": "k"} for name in marked]}
    edges, restores = data.draw(cuts(len(arrivals))), data.draw(cuts(len(arrivals)))
    options = {"memory": data.draw(MEMORIES), "partitions": data.draw(st.sampled_from([1, 3]))}
    options["reread"] = data.draw(REREADS)
    whole, alone, spilled = (
        joined(schema, arrivals, slack, strategy, BOTH, edges, restores, settings=more, **given)
        for strategy, given in (("symmetric_hash", {}), ("pjoin", {}), ("pjoin", options))
    )
    assert whole.results == alone.results == spilled.results
    assert finished(spilled) == finished(alone)
    # A value that has left is in no result that comes after it, whichever step they come with.
    assert all(row["ts"] <= dict(finished(alone)).get(row["a_k"], row["ts"]) for row in spilled.rows)
    assert all(spilled.operator.accounting.balanced(i) for i in range(2))


@settings(max_examples=15 * EFFORT, deadline=None)
@given(data=st.data())
def test_one_to_many_with_a_memory_limit_changes_no_result(data):
    arrivals, slack = data.draw(arrivals_of(TEXTS, 160)), data.draw(SLACKS)
    more = {"unique": "a.k", "punctuations": {"input": "b", "when": "p = 1", "key": "k"}}
    edges, restores = data.draw(cuts(len(arrivals))), data.draw(cuts(len(arrivals)))
    options = {"memory": data.draw(MEMORIES), "partitions": data.draw(st.sampled_from([1, 3]))}
    options["reread"] = data.draw(REREADS)
    whole, alone, spilled = (
        joined(TEXTS, arrivals, slack, strategy, BOTH, edges, restores, settings=more, **given)
        for strategy, given in (("symmetric_hash", {}), ("mjoin", {}), ("mjoin", options))
    )
    assert whole.results == alone.results == spilled.results
    # What was on disk may make a value leave later, or never; what leaves is over.
    assert set(dict(finished(spilled))) <= set(dict(finished(alone)))
    last = dict(finished(spilled))
    assert all(row["ts"] <= last.get(row["a_k"], row["ts"]) for row in spilled.rows)
    assert all(spilled.operator.accounting.balanced(i) for i in range(2))


def finished(got):
    return sorted((json.loads(row["pattern"])["a_k"], row["ts"]) for row in got.punctuations)


def test_a_value_leaves_after_the_last_result_with_it():
    """Step by step: no batch of results after a punctuation holds its value."""
    rng = np.random.default_rng(3)
    arrivals = []
    for n in range(3_000):
        which, p = int(rng.integers(2)), int(n % 5 == 4)
        arrivals.append((which, {"ts": n, "k": n // 30 - 12 * p + int(rng.integers(4)), "v": 0, "p": p}))
    more = {"punctuations": [{"input": name, "when": "p = 1", "key": "k"} for name in "ab"]}
    plan = plan_of(
        INTEGERS,
        2,
        where=KEY,
        disorder={"strategy": "none"},
        join={"strategy": "pjoin", "memory": 60, "partitions": 4, "reread": 0},
        **more,
    )
    operator, over, results, early = Operator(plan), set(), 0, 0
    arrivals = numbered(arrivals)
    for start in range(0, len(arrivals), 50):
        out = operator.push(chunk_of(plan, arrivals[start : start + 50], start))
        results += check_step(out, over)
        early = len(over)
    for out in operator.finishing():
        results += check_step(out, over)
    assert results > 2_000
    assert len(over) > early > 5
    assert operator.accounting.spilled_tuples > 500
    # Of what punctuations prove useless, little is on disk at any time.
    xjoin = joined(INTEGERS, arrivals, "none", "xjoin", KEY, range(0, 3_000, 50), memory=60, partitions=4)
    assert operator.accounting.spilled_bytes < xjoin.operator.accounting.spilled_bytes / 2


def check_step(out, over):
    results = [row for batch in out.results for row in batch.to_pylist()]
    assert not over & {row["a_k"] for row in results}
    over |= {json.loads(row["pattern"])["a_k"] for batch in out.punctuations for row in batch.to_pylist()}
    return len(results)


def test_state_of_ten_times_the_memory_gives_what_duckdb_gives():
    rng = np.random.default_rng(5)
    n = 40_000
    tables = []
    for _ in range(2):
        k = rng.integers(0, n // 4, n)
        text = pa.array([f"item {x}" if x % 50 else None for x in k])
        tables.append(pa.table({"id": np.arange(n), "ts": np.arange(n), "k": text, "w": rng.random(n)}))
    a, b = tables
    where = "a.k = b.k AND a.w < b.w"
    truth = duckdb.sql(f"SELECT a.id, b.id, greatest(a.ts, b.ts) FROM a JOIN b ON {where}").fetchall()
    pairs = zip(a.to_pylist(), b.to_pylist(), strict=True)
    rows = [(which, row) for pair in pairs for which, row in enumerate(pair)]
    options = {"strategy": "xjoin", "memory": n // 5, "partitions": 16}
    plan = plan_of([a.schema, b.schema], where=where, disorder={"strategy": "none"}, join=options)
    got = run(plan, rows, range(0, 2 * n, 7_001))
    assert Counter((row["a_id"], row["b_id"], row["ts"]) for row in got.rows) == Counter(truth)
    state = got.operator.accounting.summary(1_000_000)["state"]
    assert state["spilled_tuples"] > 8 * n // 5
    assert state["spilled_bytes"] > 20 * state["spilled_tuples"]
    assert state["max_tuples"] <= n // 5 + 2
    # The dictionary of keys holds the texts in memory, not those on disk.
    assert got.operator.rows.encoder.dictionary.size < n // 4


def test_results_with_tuples_on_disk_come_before_the_end_if_disk_is_read():
    arrivals = numbered((n % 2, {"ts": n, "k": n % 97, "v": 0, "p": 0}) for n in range(4_000))
    before_end = {}
    for reread in (0, 4):
        plan = plan_of(
            INTEGERS,
            2,
            where=KEY,
            disorder={"strategy": "none"},
            join={"strategy": "xjoin", "memory": 400, "partitions": 8, "reread": reread},
        )
        operator = Operator(plan)
        outs = [operator.push(chunk_of(plan, arrivals[s : s + 100], s)) for s in range(0, 4_000, 100)]
        before_end[reread] = sum(batch.num_rows for out in outs for batch in out.results)
        operator.finish()
    assert before_end[4] > 1.5 * before_end[0]


def test_a_join_may_be_cut_in_two_by_a_snapshot_with_state_on_disk(tmp_path):
    arrivals = numbered((n % 2, {"ts": n, "k": n % 31, "v": 0, "p": 0}) for n in range(600))
    place = {"memory": 20, "directory": str(tmp_path)}
    whole = joined(INTEGERS, arrivals, "none", "xjoin", KEY, **place)
    again = joined(INTEGERS, arrivals, "none", "xjoin", KEY, restores=[200, 400], **place)
    assert again.results == whole.results
    assert again.operator.accounting.spilled_tuples == whole.operator.accounting.spilled_tuples
    del whole, again
    gc.collect()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("strategy", ["symmetric_hash", "xjoin"])
def test_a_window_is_refused(strategy):
    with pytest.raises(
        ConfigError,
        match=f"^window: strategy '{strategy}' joins without one; leave window out, or use mswj, pwjoin or ",
    ):
        joined(INTEGERS, [], "none", strategy, KEY, settings={"window": "5s"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"memory": "lots"},
            "memory' of strategy 'xjoin': must be a number of tuples such as 100000, or bytes such ",
        ),
        ({"memory": 0}, "such as 100000, or bytes such as 64MB, got 0"),
        ({"memory": "0.1B"}, "such as 100000, or bytes such as 64MB, got '0.1B'"),
        ({"partitions": 0}, "option 'partitions' of strategy 'xjoin'"),
        ({"reread": -1}, "option 'reread' of strategy 'xjoin'"),
    ],
)
def test_options_are_checked(given, message):
    with pytest.raises(ConfigError, match=message):
        joined(INTEGERS, [], "none", "xjoin", KEY, **given)


def test_joins_that_cannot_use_the_disk_are_refused():
    with pytest.raises(
        ConfigError, match=r"^join: only a join on equal keys can use the disk, .* symmetric_hash$"
    ):
        joined(INTEGERS, [], "none", "xjoin", "a.v < b.v")
    with pytest.raises(ConfigError, match=r"^join: only a join of two inputs can use the disk, got 3; join two"):
        plan_of(INTEGERS, 3, where="a.k = b.k AND b.k = c.k", join={"strategy": "xjoin"})
    with pytest.raises(ConfigError, match=r"^join: memory is for joins without a window, and there is one;"):
        joined(INTEGERS, [], "none", "pjoin", KEY, memory=10, settings={"window": "5s"})


def test_symmetric_hash_takes_any_condition_and_many_inputs():
    rows = numbered((n % 3, {"ts": n, "k": n % 4, "v": n % 5, "p": 0}) for n in range(60))
    where = "a.k = b.k AND b.v < c.v"
    plan = plan_of(INTEGERS, 3, where=where, disorder={"strategy": "none"}, join={"strategy": "symmetric_hash"})
    a, b, c = (pa.Table.from_pylist([row for which, row in rows if which == i]) for i in range(3))
    truth = duckdb.sql(f"SELECT a.id, b.id, c.id FROM a, b, c WHERE {where}").fetchall()
    assert sorted((row["a_id"], row["b_id"], row["c_id"]) for row in run(plan, rows).rows) == sorted(truth)
    assert len(truth) > 100
    assert (a.num_rows, b.num_rows, c.num_rows) == (20, 20, 20)
