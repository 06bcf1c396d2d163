"""Ranges that are punctuated: what they purge, what leaves, against the per-tuple reading."""

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from conditions import EFFORT, SLACKS, cuts, eq, star, windows
from hypothesis import given, settings
from hypothesis import strategies as st
from punctuation_reference import SeveralValues, punctuated_join, told_values, values_of
from running import NAMES, disorder_of, numbered, plan_of, run

from slackwater.plugins.join.punctuated import logic as punctuated_logic
from slackwater.transforms.kernels.punctuation.value_ranges import intersect, subtract

RANGE = {"k": {"from": "low", "to": "high"}}


def schema_of(type_):
    return pa.schema(
        [
            ("id", pa.int64()),
            ("ts", pa.int64()),
            ("p", pa.string()),
            *((name, type_) for name in ("k", "low", "high")),
        ]
    )


def plan_with(m, strategy, sizes, slack="none", type_=None):
    kinds = [
        kind
        for name in NAMES[:m]
        for kind in (
            {"input": name, "when": "p = 'range'", "range": RANGE},
            {"input": name, "when": "p = 'value'", "key": "k"},
            {"input": name, "when": "p = 'above'", "range": {"k": {"from": "low"}}},
        )
    ]
    return plan_of(
        schema_of(type_ or pa.int64()),
        m,
        window=dict(zip(NAMES, (f"{w}ms" for w in sizes), strict=False)),
        where=star(m).sql,
        disorder=disorder_of(slack),
        join={"strategy": strategy},
        guard="none",  # Else the few rows wait for each other, and cuts show nothing.
        punctuations=kinds,
    )


def says(which, row):
    k, low, high = row["k"], row.get("low"), row.get("high")
    if row["p"] == "value":
        return (lambda r: eq(r["k"], k)), [] if k is None else [k]
    if row["p"] == "above":
        return (lambda r: None not in (low, r["k"]) and r["k"] >= low), [] if low is None else values_of(low, 99)
    if row["p"] == "range":
        ends = (1, 0) if None in (low, high) else (low, high)
        return (lambda r: r["k"] is not None and ends[0] <= r["k"] <= ends[1]), values_of(*ends)
    return None


@st.composite
def streams(draw, m, size):
    """Rows whose values move on, ranges that follow them, and now and then one that has no upper end."""
    kind = st.sampled_from([None] * 12 + ["range", "range", "value", "above"])
    value = st.sampled_from([0, 1, 2, 3, 4, None])
    row = st.tuples(
        st.integers(0, m - 1), st.integers(0, 2), st.sampled_from([0, 0, 0, 1, 4]), value, value, value, kind
    )
    arrivals, clock = [], 0
    for which, step, late, k, low, width, p in draw(st.lists(row, max_size=size)):
        clock += step
        on = clock // 6
        low = None if low is None else low + on - 3 + 9 * (p == "above")
        high = None if None in (low, width) else low + width
        k = None if k is None else k + on - (p is not None)
        arrivals.append((which, {"ts": clock - late, "p": p, "k": k, "low": low, "high": high}))
    return numbered(arrivals)


@pytest.mark.parametrize("m", [2, 3])
@settings(max_examples=70 * EFFORT, deadline=None)
@given(data=st.data())
def test_ranges_purge_and_leave_as_the_reading_says(m, data):
    arrivals = data.draw(streams(m, 70 if m == 2 else 50))
    sizes, slack = data.draw(windows(m)), data.draw(SLACKS)
    edges, restores = data.draw(cuts(len(arrivals))), data.draw(cuts(len(arrivals)))
    join = SeveralValues(sizes, star(m).test, says, lambda which, row: row["k"], range(m))
    expected = punctuated_join(join, arrivals, slack)
    states = {}
    for strategy in ("wjoin", "pwjoin", "pjoin"):
        got = run(plan_with(m, strategy, sizes, slack), arrivals, edges, restores)
        assert got.results == expected.results
        assert got.late_ids("punctuation_violated") == Counter(expected.violated)
        told = {"pwjoin": expected.early, "pjoin": expected.regular}.get(strategy, [])
        assert sorted(told_values(got)) == sorted(told)
        over = dict(told)
        assert all(row["ts"] <= over.get(row["a_k"], row["ts"]) for row in got.rows)
        states[strategy] = {entry.identity: entry.live for entry in got.log}
    for strategy in ("pwjoin", "pjoin"):
        assert all(n <= states["wjoin"][who] for who, n in states[strategy].items())


def rows_of(*rows):
    return numbered(
        (which, {"ts": ts, "p": p, "k": k, "low": low, "high": high}) for which, ts, p, k, low, high in rows
    )


def test_a_range_leaves_around_the_values_that_are_held():
    rows = rows_of(
        (0, 1, None, 5, None, None), (1, 1, None, 6, None, None), (0, 2, "range", None, 1, 9),
        (0, 3, None, 20, None, None), (1, 3, None, 20, None, None), (1, 14, None, 20, None, None),
        (0, 14, None, 21, None, None),
    )  # fmt: skip
    got = run(plan_with(2, "pwjoin", [10, 10]), rows, range(7), range(7))
    assert [(row["ts"], json.loads(row["pattern"])["b_k"]) for row in got.punctuations] == [
        (2, {"from": 1, "to": 4}), (2, {"from": 6, "to": 9}), (14, 5),
    ]  # fmt: skip
    assert got.log[3].live == 3, "both 20 and the 5; the 6 of b has gone with the range of a"


@pytest.mark.parametrize(
    ("type_", "values", "shown"),
    [
        (pa.int32(), (1, 2**31 - 1), {"from": 2, "to": None}),
        (pa.float64(), (-1.5, 2.5), {"from": np.nextafter(-1.5, 0), "to": None}),
        (pa.timestamp("ms", "UTC"), (0, 5), {"from": "1970-01-01 00:00:00.001Z", "to": None}),
        (pa.date32(), (0, 5), {"from": "1970-01-01 00:00:01.000", "to": None}),
    ],
)
def test_ends_of_any_type_leave_as_json(type_, values, shown):
    held, later = values
    rows = rows_of(
        (0, 1, None, held, None, None), (1, 1, None, held, None, None), (0, 2, "above", None, held, None),
        (1, 3, None, later, None, None), (0, 3, None, None, None, None),
    )  # fmt: skip
    got = run(plan_with(2, "pwjoin", [10, 10], type_=type_), rows)
    patterns = [json.loads(row["pattern"]) for row in got.punctuations]
    assert patterns == [{"a_k": shown, "b_k": shown}]
    assert len(got.rows) == 1


def test_a_range_that_grows_with_every_row_costs_what_is_new():
    """As an ordered input has it: everything below the newest value is over."""
    rows = []
    for t in range(1_000):
        for which in (0, 1):
            rows += [(which, t, None, t, None, None), (which, t, "range", None, 0, t)]
    got = run(plan_with(2, "pwjoin", [100_000, 100_000]), rows_of(*rows), range(0, len(rows), 500))
    assert len(got.rows) == 1_000
    assert max(entry.live for entry in got.log) < 10
    assert got.operator.join.logic.logic._logic._v.n_ranges.tolist() == [1, 1, 1]
    assert len(told_values(got)) == 1_000


def test_of_too_many_ranges_the_lowest_is_forgotten_and_results_stay(monkeypatch):
    rows = []
    for t in range(0, 400, 2):
        rows += [(t // 2 % 2, t, None, t % 40, None, None), (0, t, "range", None, 3 * t, 3 * t + 1)]
        rows += [(1, t, "value", 3 * t + 1, None, None)]
    whole = run(plan_with(2, "pwjoin", [50, 50]), rows_of(*rows))
    monkeypatch.setattr(punctuated_logic, "RANGES", 2)
    few = run(plan_with(2, "pwjoin", [50, 50]), rows_of(*rows), [100], [200])
    assert few.results == whole.results
    assert few.operator.join.logic.logic._logic._v.n_ranges.max() == 2


@settings(max_examples=200 * EFFORT, deadline=None)
@given(*[st.sets(st.integers(0, 30)) for _ in range(2)])
def test_ranges_are_sets(left, right):
    def ranges(values):
        parts = [[v, v] for v in sorted(values)]
        merged = [part for k, part in enumerate(parts) if k == 0 or parts[k - 1][1] < part[0] - 1]
        for part in merged:
            while part[1] + 1 in values:
                part[1] += 1
        return np.array(merged, np.int64).reshape(-1, 2)

    def values(parts):
        return {v for low, high in parts for v in range(low, high + 1)}

    assert values(subtract(ranges(left), ranges(right))) == left - right
    assert values(intersect(ranges(left), ranges(right))) == left & right
