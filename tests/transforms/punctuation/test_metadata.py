"""Static metadata against the per-tuple reading: what follows from it, what contradicts it, wrong settings."""

import json
import math
import operator
from collections import Counter
from functools import partial

import pyarrow as pa
import pytest
from conditions import EFFORT, SLACKS, cuts, eq, known, star, windows
from hypothesis import given, settings
from hypothesis import strategies as st
from punctuation_reference import PunctuatedJoin, punctuated_join
from running import NAMES, disorder_of, numbered, plan_of, run

from slackwater.transforms.errors import ConfigError
from slackwater.transforms.punctuation import promises

SCHEMA = pa.schema(
    [(name, pa.int64()) for name in ("id", "ts", "k", "v")] + [("x", pa.float64()), ("t", pa.string())]
)
STRATEGIES = ("mswj", "wjoin", "pwjoin", "pjoin")


def has(row, columns, value):
    return all(eq(row[column], v) for column, v in zip(columns, value, strict=True))


class PromisedJoin(PunctuatedJoin):
    """Tuples that join punctuate what static promises let one conclude from them.

    ``promises`` are (kind, input, columns).
    """

    def __init__(self, windows, promises):
        super().__init__(
            windows, star(len(windows)).test, lambda *_: None, lambda _, row: row["k"], range(len(windows))
        )
        self.promises = promises
        self.last = {}

    def arrive(self, e):
        late = e.ts < self.on_t
        super().arrive(e)
        if any(which == e.input and matches(e.row) for which, matches in self.force):
            return
        for promise in self.promises:
            kind, which, columns = promise
            value = tuple(e.row[column] for column in columns)
            if which == e.input and None not in value and (kind == "unique" or not late):
                self.conclude(promise, value)

    def conclude(self, promise, value):
        kind, which, columns = promise
        last = self.last.get(promise)
        match kind:
            case "unique":
                self.force.append((which, lambda row: has(row, columns, value)))
                if columns == ("k",):
                    self.over.setdefault(value[0], set()).add(which)
                    self.now = max(self.now, self.on_t)
                    self.look()
            case "clustered":
                if last is not None and last != value:
                    finished = last[0] if columns == ("k",) else None
                    self.pending.append((which, lambda row: has(row, columns, last), finished, promise, last))
                self.last[promise] = value
            case "ascending" | "descending":
                beyond = operator.lt if kind == "ascending" else operator.gt
                said = partial(known, lambda x: beyond(x, value[0]))
                self.pending.append((which, lambda row: said(row[columns[0]]), None, promise, None))

    def take_effect(self):
        self.pending = [said[:3] for said in self.pending if said[4] is None or self.last[said[3]] != said[4]]
        super().take_effect()


def metadata_of(promises):
    """The settings that mean ``promises``."""
    found = {"unique": [], "clustered": [], "ordered": []}
    for kind, which, columns in promises:
        names = [f"{NAMES[which]}.{column}" for column in columns]
        if kind in ("unique", "clustered"):
            found[kind].append(names[0] if len(names) == 1 else names)
        else:
            found["ordered"].append(names[0] + (" desc" if kind == "descending" else ""))
    return found


def plan_with(m, sizes, slack, promises, strategy, **more):
    return plan_of(
        SCHEMA,
        m,
        window=dict(zip(NAMES, (f"{w}ms" for w in sizes), strict=False)),
        where=star(m).sql,
        disorder=disorder_of(slack),
        join={"strategy": strategy},
        **metadata_of(promises),
        **more,
    )


@st.composite
def streams(draw, m, size):
    """Rows that keep most promises, and break some: keys move on with time, values rise."""
    step, value = st.integers(0, 2), st.sampled_from([0, 0, 0, 1, 2, -3, None])
    row = st.tuples(st.integers(0, m - 1), step, st.sampled_from([0, 0, 0, 0, 1, 4]), value, value)
    arrivals, clock = [], 0
    for which, step, late, k, v in draw(st.lists(row, max_size=size)):
        clock += step
        key = None if k is None else clock // 3 + k
        rising = None if v is None else clock // 4 + v
        x = None if v is None else (clock // 4 - 4) / 8 + v
        arrivals.append((which, {"ts": clock - late, "k": key, "v": rising, "x": x}))
    return numbered(arrivals)


@st.composite
def promised(draw, m):
    kinds = [(kind, columns) for kind in ("unique", "clustered") for columns in (("k",), ("v",), ("k", "v"))]
    kinds += [(kind, (c,)) for kind in ("ascending", "descending") for c in "kvx"]
    which = st.integers(0, m - 1)
    chosen = draw(st.lists(st.tuples(st.sampled_from(kinds), which), min_size=1, max_size=3, unique=True))
    return [(kind, which, columns) for (kind, columns), which in chosen]


def within(key, to, **ends):
    low = ends["from"]
    return (low is None or key >= low) and (to is None or key <= to)


@pytest.mark.parametrize("m", [2, 3])
@settings(max_examples=40 * EFFORT, deadline=None)
@given(data=st.data())
def test_every_strategy_gives_what_the_reading_gives(m, data):
    arrivals, promises = data.draw(streams(m, 60)), data.draw(promised(m))
    sizes, slack = data.draw(windows(m)), data.draw(SLACKS)
    edges, restores = data.draw(cuts(len(arrivals))), data.draw(cuts(len(arrivals)))
    expected = punctuated_join(PromisedJoin(sizes, promises), arrivals, slack)
    for strategy in STRATEGIES:
        got = run(plan_with(m, sizes, slack, promises, strategy), arrivals, edges, restores)
        assert got.results == expected.results
        assert got.late_ids("too_late") == Counter(expected.late)
        assert got.late_ids("punctuation_violated") == Counter(expected.violated)
        assert all(got.operator.accounting.balanced(i) for i in range(m))
        assert got.operator.accounting.punctuations.sum() == 0
        told_of = [
            (json.loads(row["pattern"])["a_k"], row["ts"])
            for row in got.punctuations
            if "a_v" not in row["pattern"]
        ]
        over = {value: ts for value, ts in told_of if not isinstance(value, dict)}
        assert all(row["ts"] <= over.get(row["a_k"], row["ts"]) for row in got.rows)
        for ends, ts in ((value, ts) for value, ts in told_of if isinstance(value, dict)):
            later = [row["a_k"] for row in got.rows if row["ts"] > ts]
            assert not any(within(key, **ends) for key in later)
        if all(kind in ("unique", "clustered") and columns == ("k",) for kind, _, columns in promises):
            told = {"pwjoin": expected.early, "pjoin": expected.regular}.get(strategy, [])
            assert sorted(over.items()) == sorted(told)


def rows_of(*rows):
    return numbered((which, {"ts": ts, "k": k, "v": v}) for which, ts, k, v in rows)


def late_of(got):
    """(input, reason, id), in order of the rows."""
    found = [(row["input"], row["reason"], json.loads(row["row"])["id"]) for row in got.late]
    return sorted(found, key=lambda row: row[2])


@pytest.mark.parametrize("strategy", ["mswj", "pwjoin", "pjoin"])
def test_a_value_that_comes_again_contradicts_unique_even_at_the_same_time(strategy):
    rows = rows_of(
        (0, 1, 7, 0), (0, 1, 7, 1), (1, 1, 7, 0), (1, 2, 7, 0), (0, 2, 7, 0), (0, 3, None, 0), (0, 3, None, 0)
    )
    plan = plan_of(
        SCHEMA,
        window="9ms",
        where="a.k = b.k",
        disorder={"strategy": "none"},
        join={"strategy": strategy},
        unique="a.k",
    )
    got = run(plan, rows, range(7), range(7))
    assert late_of(got) == [("a", "punctuation_violated", 1), ("a", "punctuation_violated", 2)]
    assert got.results == {((0, 0), 1): 1, ((0, 1), 2): 1}
    assert got.operator.accounting.summary(10**6)["late"] == {"punctuation_violated": 2}


def test_a_late_row_that_is_kept_makes_its_value_seen():
    rows = rows_of(
        (0, 5, 1, 0), (1, 5, 1, 0), (0, 3, 2, 0), (0, 4, 2, 0), (0, 6, 2, 0), (1, 6, 2, 0), (0, 9, 9, 0)
    )
    plan = plan_of(SCHEMA, window="9ms", where="a.k = b.k", disorder={"strategy": "none"}, unique="a.k")
    got = run(plan, rows)
    assert late_of(got) == [("a", "too_late", 1), ("a", "too_late", 2), ("a", "punctuation_violated", 3)]
    assert got.results == {((0, 0), 5): 1, ((1, 1), 6): 1}


def test_rows_of_one_time_have_no_order():
    """Clustered and ordered columns may come in any order within a time; the value that came last stays open."""
    rows = rows_of(
        (1, 1, 0, 0), (0, 1, 1, 1), (0, 2, 2, 2), (0, 2, 1, 1), (0, 3, 1, 2), (0, 4, 2, 1), (0, 5, 3, 3)
    )
    settings = {"window": "9ms", "where": "a.k = b.k", "disorder": {"strategy": "none"}}
    got = run(
        plan_of(SCHEMA, **settings, clustered="a.k"), [*rows[:4], *rows[4:], (1, {"ts": 9, "k": 1, "id": 1})]
    )
    assert late_of(got) == [("a", "punctuation_violated", 4)]
    assert got.results == {((n, 1), 9): 1 for n in (0, 2, 3)}
    got = run(plan_of(SCHEMA, **settings, ordered="a.v"), rows)
    assert late_of(got) == [("a", "punctuation_violated", 4)]
    got = run(plan_of(SCHEMA, **settings, ordered="a.v desc"), rows)
    assert late_of(got) == [("a", "punctuation_violated", n) for n in (1, 3, 5)]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.int64(), [-(2**63), -(2**63), 5, 2**63 - 1, 2**63 - 2, -(2**63)]),
        (
            pa.float64(),
            [-math.inf, -1.5, -0.0, 0.0, -1e-300, 2.5, math.inf, math.nan, math.nan, 1e300, -math.inf],
        ),
        (pa.timestamp("us"), [10**6, 10**6, 10**7, 3]),
        (pa.date32(), [1, 2, 1]),
        (pa.bool_(), [False, True, False, False]),
    ],
)
def test_columns_of_any_type_but_text_are_followed_in_order(type_, values, descending):
    schema = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("k", type_)])
    values = values[::-1] if descending else values
    broken, extreme = [], None
    for n, value in enumerate(values):
        place = (value != value, 0 if value != value else value)
        if extreme is not None and (place > extreme if descending else place < extreme):
            broken.append(n)
        else:
            extreme = place
    rows = [(1, {"ts": 0}), *((0, {"ts": n, "k": value}) for n, value in enumerate(values)), (1, {"ts": 99})]
    plan = plan_of(
        schema, window="9ms", disorder={"strategy": "none"}, ordered=["a.k desc" if descending else "a.k"]
    )
    got = run(plan, numbered(rows), range(9), range(9))
    assert broken
    assert late_of(got) == [("a", "punctuation_violated", n) for n in broken]


def test_texts_are_known_again_after_all_rows_with_them_have_gone():
    rows = [(n % 2, {"ts": 100 * n, "t": f"text {n // 6}", "k": n % 2}) for n in range(60)]
    rows += [(0, {"ts": 6_001, "t": "text 9", "k": 1}), (0, {"ts": 6_002, "t": "text 3", "k": 1})]
    plan = plan_of(SCHEMA, window="9ms", where="a.t = b.t", disorder={"strategy": "none"}, clustered=["a.t"])
    got = run(plan, numbered(rows), range(0, 60, 3), range(0, 60, 3))
    assert late_of(got) == [("a", "punctuation_violated", 31)]


def test_what_is_forgotten_is_no_longer_noticed(monkeypatch):
    monkeypatch.setattr(promises, "REMEMBERED", 3)
    rows = rows_of(*((0, n, n, 0) for n in range(5)), (0, 6, 0, 0), (0, 7, 4, 0), (1, 8, 4, 0))
    for window in ("99ms", None):
        more = {} if window is None else {"window": window}
        strategy = {"strategy": "pjoin" if window is None else "pwjoin", "flags": 3}
        plan = plan_of(SCHEMA, where="a.k = b.k", join=strategy, unique=["a.k"], foreign_key="b.v -> a.k", **more)
        got = run(plan, rows, range(8), range(8))
        assert late_of(got) == [("a", "punctuation_violated", 6)]


def test_a_reference_to_what_never_came_is_found_at_the_end_of_a_join_without_a_window():
    rows = rows_of(
        (0, 1, 7, 0), (1, 2, 7, 0), (1, 3, 8, 0), (1, 4, None, 0), (1, 5, 9, 0), (0, 6, 9, 0), (1, 2, 5, 0)
    )
    plan = plan_of(
        SCHEMA,
        where="a.k = b.k",
        join={"strategy": "pjoin"},
        disorder={"strategy": "none"},
        foreign_key="b.k → a.k",
    )
    assert plan.setting.metadata == (("foreign_key", 1, (0,)), ("unique", 0, (0,)))
    got = run(plan, rows, range(7), range(7))
    assert late_of(got) == [("b", "punctuation_violated", 1), ("b", "too_late", 4)]
    assert got.results == {((0, 0), 2): 1, ((1, 3), 6): 1}
    account = got.operator.accounting.summary(10**6)["accounting"]["b"]
    assert account["late"] == {"punctuation_violated": 1, "too_late": 1}
    assert account["joined_or_expired"] == 3
    assert account["balanced"]
    windowed = plan_of(
        SCHEMA, window="1ms", where="a.k = b.k", disorder={"strategy": "none"}, foreign_key="b.k → a.k"
    )
    assert "punctuation_violated" not in run(windowed, rows).operator.accounting.summary(10**6)["late"]


@settings(max_examples=40 * EFFORT, deadline=None)
@given(data=st.data())
def test_foreign_keys_without_a_window_are_those_of_sets(data):
    """In order of time: the first row of each key in a counts, and b refers to one of them or to nothing."""
    values = st.sampled_from([*range(12), None])
    rows = [
        (which, n, k, 0) for n, (which, k) in enumerate(data.draw(st.lists(st.tuples(st.integers(0, 1), values))))
    ]
    arrivals = rows_of(*rows)
    first, repeated = {}, []
    for which, row in arrivals:
        if which == 0 and row["k"] is not None:
            known = first.setdefault(row["k"], row["id"])
            repeated += [(0, row["id"])] if known != row["id"] else []
    refers = [row for which, row in arrivals if which == 1 and row["k"] is not None]
    plan = plan_of(
        SCHEMA,
        where="a.k = b.k",
        join={"strategy": "pjoin"},
        disorder={"strategy": "none"},
        foreign_key="b.k -> a.k",
    )
    edges = data.draw(cuts(len(arrivals)))
    got = run(plan, arrivals, edges, edges)
    assert {pair for pair, _ in got.results} == {(first[r["k"]], r["id"]) for r in refers if r["k"] in first}
    dangling = [(1, r["id"]) for r in refers if r["k"] not in first]
    assert got.late_ids() == got.late_ids("punctuation_violated") == Counter(repeated + dangling)
    assert all(got.operator.accounting.balanced(i) for i in range(2))


def test_unique_keys_on_both_sides_keep_nothing_for_long():
    """Each pair is over when its second row has come: without a window, state stays small, and pairs leave."""
    rows = rows_of(*((which, 2 * n + which, n, 0) for n in range(3_000) for which in (0, 1)))
    plan = plan_of(
        SCHEMA,
        where="a.k = b.k",
        join={"strategy": "pjoin"},
        disorder={"strategy": "none"},
        unique=["a.k", "b.k"],
    )
    got = run(plan, rows, range(0, 6_000, 500))
    assert got.operator.accounting.results == 3_000
    assert len(got.punctuations) == 3_000
    assert max(entry.live for entry in got.log) < 600


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"unique": "k"}, r"^unique: must be input\.column, got 'k'$"),
        ({"unique": ["a.k", "c.k"]}, r"^unique\.1: c\.k names no input; the inputs are a, b$"),
        ({"unique": [["a.k", "b.k"]]}, r"^unique: must be columns of one input, got a\.k, b\.k$"),
        ({"unique": [[]]}, r"^unique: names no column; write input\.column$"),
        ({"unique": [5]}, r"^unique\.0: input should be a valid string, got 5$"),
        ({"clustered": ["a.q"]}, r"^clustered: input 'a' has no column 'q'; it has id, ts, k, v, x, t$"),
        (
            {"clustered": ["a.l"]},
            r"^clustered: a\.l has type list<.*>, which a condition cannot compare; use a s",
        ),
        (
            {"ordered": ["a.t"]},
            r"^ordered: column 'a\.t' is text, which is not followed in order; use a number or",
        ),
        (
            {"ordered": ["a.k down"]},
            r"^ordered: must be input\.column, maybe with desc after it, got 'a\.k down'$",
        ),
        ({"ordered": [["a.k", "a.v"]]}, r"^ordered\.0: input should be a valid string, got \['a\.k', 'a\.v'\]$"),
        ({"ordered": ""}, r"^ordered: must be input\.column, maybe with desc after it, got ''$"),
        ({"foreign_key": "a.k"}, r"^foreign_key: must be input\.column -> input\.column, got 'a\.k'$"),
        (
            {"foreign_key": "a.k -> a.v"},
            r"^foreign_key: must lead from one input to another, got 'a\.k -> a\.v'$",
        ),
        ({"foreign_key": "a.k -> b.q"}, r"^foreign_key: input 'b' has no column 'q'; it has id, ts, k, v, x, t$"),
        ({"foreign_key": ["a.k→c.k"]}, r"^foreign_key: c\.k names no input; the inputs are a, b$"),
        (
            {"foreign_key": "a.k -> b.t"},
            r"^foreign_key: a\.k is int64 and b\.t is string; make them alike with MapToFields$",
        ),
        ({"unique": ["a.k"] * 101}, r"^unique: at most 100 promises and kinds of punctuations, got 101$"),
    ],
)
def test_settings_at_fault_are_named(given, message):
    schema = SCHEMA.append(pa.field("l", pa.list_(pa.int64()))) if given.get("clustered") == ["a.l"] else SCHEMA
    with pytest.raises(ConfigError, match=message):
        plan_of(schema, window="1s", where="a.k = b.k", **given)


def test_shards_need_promises_on_the_column_that_splits_rows():
    settings = {"window": "1s", "where": "a.k = b.k AND a.v = b.v", "shards": 2}
    plan_of(SCHEMA, unique=[["a.v", "a.k"], "b.k"], ordered=["a.k"], foreign_key="a.k -> b.k", **settings)
    for wrong, named in (
        ({"unique": "b.v"}, r"unique: .*name b\.k"),
        ({"clustered": "a.v"}, r"clustered: .*name a\.k"),
        ({"ordered": "a.x desc"}, r"ordered: .*name a\.k"),
        ({"foreign_key": "a.k -> b.v"}, r"foreign_key: .*name b\.k"),
    ):
        said = "its values are spread over shards, none of which sees all rows with one: name "
        with pytest.raises(ConfigError, match=f"^{named}, by which rows are split, or use shards: 1$") as caught:
            plan_of(SCHEMA, **wrong, **settings)
        assert said in str(caught.value)
