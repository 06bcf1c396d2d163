"""What punctuations may say, where they take effect, what they cost in memory, and what is wrong with them."""

import json
import math

import pyarrow as pa
import pytest
from conditions import EFFORT, SLACKS, cuts, eq, star, windows
from hypothesis import given, settings
from hypothesis import strategies as st
from punctuation_reference import SeveralValues, punctuated_join, told_values, values_of
from running import NAMES, disorder_of, numbered, plan_of, run

from slackwater.plugins.join.punctuated import logic as punctuated_logic
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.punctuation import promises

ROWS = pa.schema(
    [
        *((name, pa.int64()) for name in ("id", "ts", "k", "v")),
        ("p", pa.string()),
        *((name, pa.int64()) for name in ("low", "high")),
        ("ks", pa.list_(pa.int64())),
    ]
)
KINDS = [
    {"input": "a", "when": "p = 'value'", "key": "k"},
    {"input": "a", "when": "a.p = 'pair'", "key": ["v", "k"]},
    {"input": "a", "when": "p = 'range'", "range": {"k": {"from": "low", "to": "high"}}},
    {"input": "a", "when": "p = 'below'", "range": {"k": {"to": "high"}}},
    {"input": "b", "when": "p = 'list'", "values": {"k": "ks"}},
    {"input": "b", "when": "p = 'listed pair'", "key": "v", "values": {"k": "ks"}},
    {"input": "b", "when": "p IN ('value', 'value too')", "key": "k"},
]


def within(low, value, high):
    return value is not None and low <= value <= high


def says(which, row):
    """The reading of KINDS: what a row says of other rows of its input, and which value of k it finishes."""
    k, v, low, high, ks = (row.get(name) for name in ("k", "v", "low", "high", "ks"))
    match (which, row["p"]):
        case (0, "value") | (1, "value") | (1, "value too"):
            return (lambda r: eq(r["k"], k)), [k]
        case (0, "pair"):
            return (lambda r: eq(r["k"], k) and eq(r["v"], v)), []
        case (0, "range"):
            ends = (1, 0) if None in (low, high) else (low, high)
            return (lambda r: within(ends[0], r["k"], ends[1])), values_of(*ends)
        case (0, "below"):
            end = -math.inf if high is None else high
            return (lambda r: within(-math.inf, r["k"], end)), values_of(-math.inf, end)
        case (1, "list"):
            return (lambda r: r["k"] is not None and r["k"] in (ks or [])), ks or []
        case (1, "listed pair"):
            return (lambda r: eq(r["v"], v) and r["k"] is not None and r["k"] in (ks or [])), []
    return None


@st.composite
def streams(draw):
    value = st.sampled_from([0, 1, 2, 3, None])
    kind = st.sampled_from([None] * 12 + ["value", "pair", "range", "below", "list", "listed pair", "value too"])
    lists = st.one_of(st.none(), st.lists(value, max_size=3))
    row = st.tuples(
        st.integers(0, 1), st.integers(0, 2), st.sampled_from([0, 0, 0, 1, 4]), *[value] * 4, lists, kind
    )
    arrivals, clock = [], 0
    for which, step, late, k, v, low, high, ks, p in draw(st.lists(row, max_size=60)):
        clock += step
        on = clock // 5
        arrivals.append((which, {"ts": clock - late, "v": v, "p": p}))
        moved = {"k": k, "low": low, "high": high}
        arrivals[-1][1].update(
            {name: None if x is None else x + on - (p is not None) for name, x in moved.items()}
        )
        arrivals[-1][1]["high"] = None if high is None else on - 3 + high // 2
        arrivals[-1][1]["ks"] = None if ks is None else [None if x is None else x + on - 1 for x in ks]
    return numbered(arrivals)


@settings(max_examples=120 * EFFORT, deadline=None)
@given(streams(), windows(2), SLACKS, st.data())
def test_values_lists_and_ranges_mean_what_they_say(arrivals, sizes, slack, data):
    join = SeveralValues(sizes, star(2).test, says, lambda which, row: row["k"], (0, 1))
    expected = punctuated_join(join, arrivals, slack)
    edges, restores = data.draw(cuts(len(arrivals))), data.draw(cuts(len(arrivals)))
    for strategy in ("mswj", "pwjoin", "pjoin"):
        plan = plan_of(
            ROWS,
            window=dict(zip(NAMES, (f"{w}ms" for w in sizes), strict=False)),
            where="a.k = b.k",
            disorder=disorder_of(slack),
            join={"strategy": strategy},
            punctuations=KINDS,
        )
        got = run(plan, arrivals, edges, restores)
        assert got.results == expected.results
        assert sorted(got.late_ids("too_late")) == sorted(expected.late)
        assert sorted(got.late_ids("punctuation_violated")) == sorted(expected.violated)
        assert all(got.operator.accounting.balanced(i) for i in range(2))
        told = {"pwjoin": expected.early, "pjoin": expected.regular}.get(strategy, [])
        assert sorted(told_values(got)) == sorted(told)


PLAIN = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("k", pa.string()), ("p", pa.bool_())])


def plain(*rows):
    return numbered((which, {"ts": ts, "k": k, "p": p}) for which, ts, k, p in rows)


def plain_plan(schema=PLAIN, strategy="pwjoin", window="10ms", options=None, **more):
    both = [{"input": name, "when": "p", "key": "k"} for name in "ab"]
    settings = {"where": "a.k = b.k", "disorder": {"strategy": "none"}, "punctuations": both, **more}
    if window is not None:
        settings["window"] = window
    return plan_of(schema, join={"strategy": strategy, **(options or {})}, **settings)


def test_a_tuple_of_the_same_time_is_before_the_punctuation_in_any_order_of_arrival():
    rows = [(0, 1, "x", False), (1, 5, "x", True), (1, 5, "x", False), (0, 6, "y", False), (1, 6, "x", False)]
    rows += [(0, 16, "y", False), (1, 16, "z", False)]
    got = run(plain_plan(), plain(*rows))
    assert [row["ts"] for row in got.rows] == [5]
    assert got.late_ids() == {(1, 2): 1}
    assert [(row["reason"], row["ts"]) for row in got.late] == [("punctuation_violated", 6)]
    assert got.punctuations == [{"ts": 16, "pattern": '{"a_k": "x", "b_k": "x"}'}]


def test_a_tuple_within_the_slack_may_arrive_after_the_punctuation_that_it_precedes():
    rows = [(0, 1, "x", False), (1, 8, "x", True), (1, 5, "x", False), (0, 20, "y", False), (1, 20, "y", False)]
    got = run(plain_plan(disorder={"strategy": "fixed", "slack": "5ms"}), plain(*rows))
    assert sorted(row["ts"] for row in got.rows) == [5, 20]
    assert got.late == []


def test_a_late_tuple_that_matches_is_too_late_and_not_kept():
    rows = [(0, 1, "x", True), (1, 1, "y", False), (0, 5, "y", False), (1, 5, "y", False), (0, 4, "x", False)]
    rows += [(1, 6, "x", False), (0, 7, "z", False)]
    got = run(plain_plan(), plain(*rows))
    assert not [row for row in got.rows if row["a_k"] == "x"]
    assert [row["reason"] for row in got.late] == ["too_late"]
    kept = run(plain_plan(punctuations=[]), plain(*rows))
    assert [row["ts"] for row in kept.rows if row["a_k"] == "x"] == [6, 6]


def test_a_late_punctuation_takes_effect_when_it_comes():
    rows = [(0, 1, "x", False), (1, 1, "x", False), (0, 9, "x", False), (1, 9, "y", False), (0, 3, "x", True)]
    rows += [(0, 9, "x", False), (1, 10, "x", False), (0, 11, "x", False)]
    got = run(plain_plan(), plain(*rows))
    assert [(row["reason"], row["ts"]) for row in got.late] == [("punctuation_violated", 11)]
    assert sorted(row["ts"] for row in got.rows) == [1, 9, 9, 10, 10, 10]
    assert all(got.operator.accounting.balanced(i) for i in range(2))


def test_nothing_but_the_marked_rows_changes_the_account():
    rows = [(0, 1, "x", False), (0, 2, None, True), (1, 3, "x", True), (1, 4, "x", False), (0, 5, "y", False)]
    summary = run(plain_plan(), plain(*rows)).operator.accounting.summary(10**6)
    assert summary["punctuations"] == {"in": 2, "out": 1}
    assert summary["late"] == {"punctuation_violated": 1}
    assert summary["accounting"]["a"] == {
        "input": 3, "joined_or_expired": 2, "punctuations": 1, "late": {}, "balanced": True,
    }  # fmt: skip
    assert summary["accounting"]["b"] == {
        "input": 2, "joined_or_expired": 0, "punctuations": 1, "balanced": True,
        "late": {"punctuation_violated": 1},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("type_", "value", "shown"),
    [
        (pa.int64(), 2**60, 2**60),
        (pa.float64(), 0.5, 0.5),
        (pa.float64(), float("nan"), None),
        (pa.string(), 'ä"', 'ä"'),
        (pa.binary(), b"\x00\xff", "00ff"),
        (pa.bool_(), True, True),
        (pa.timestamp("us", "UTC"), 86_400_000_000, "1970-01-02 00:00:00.000000Z"),
        (pa.date32(), 1, "1970-01-02"),
    ],
)
def test_values_of_any_type_leave_as_json(type_, value, shown):
    schema = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("k", type_), ("p", pa.bool_())])
    rows = [
        (0, 1, value, False),
        (1, 1, value, False),
        (0, 2, value, True),
        (1, 2, value, True),
        (1, 3, None, False),
    ]
    got = run(plain_plan(schema), plain(*rows), range(5), range(5))
    assert [json.loads(row["pattern"]) for row in got.punctuations] == [{"a_k": shown, "b_k": shown}]


@pytest.mark.parametrize("strategy", ["pwjoin", "pjoin"])
def test_memory_follows_the_open_values_not_the_stream(strategy):
    """Every value comes once in each input and is punctuated in both: nothing may pile up, without a window."""
    rows = []
    for t in range(6_000):
        for which in (0, 1):
            rows += [(which, t, f"value {t}", False), (which, t, f"value {t}", True)]
    window = None if strategy == "pjoin" else "1d"
    plan = plain_plan(strategy=strategy, window=window, options={"flags": 1000})
    got = run(plan, plain(*rows), range(0, len(rows), 500))
    assert got.operator.accounting.results == 6_000
    assert len(got.punctuations) == 6_000
    assert max(entry.live for entry in got.log) < 20
    assert len(got.operator.join.logic.logic._w.slots) < 20_000
    assert len(got.operator.join.logic.logic._logic._v.inodes) <= 256 * 8


def test_forgotten_flags_keep_tuples_longer_and_change_no_result(monkeypatch):
    rows = [(t % 2, t, f"{t // 8 * 2 + t % 3}", t % 5 == 4) for t in range(400)]
    whole = run(plain_plan(), plain(*rows))
    few = run(_with_flags(2), plain(*rows), [7, 100], [50])
    assert few.results == whole.results
    assert few.late_ids() == whole.late_ids()
    assert len(few.operator.join.logic.logic._logic._v.inodes) <= 256
    monkeypatch.setattr(promises, "REMEMBERED", 1)
    forgetful = run(_with_flags(2), plain(*rows), range(0, 400, 7), range(0, 400, 50))
    assert len(forgetful.late) < len(whole.late)
    assert forgetful.late_ids() == run(_with_flags(2), plain(*rows)).late_ids()


def _with_flags(flags):
    both = [{"input": name, "when": "p", "key": "k"} for name in "ab"]
    return plan_of(
        PLAIN, window="10ms", where="a.k = b.k", disorder={"strategy": "none"},
        join={"strategy": "pwjoin", "flags": flags}, punctuations=both,
    )  # fmt: skip


def test_ranges_that_touch_are_one_and_the_lowest_is_forgotten(monkeypatch):
    monkeypatch.setattr(promises, "RANGES", 4)
    kinds = [{"input": "a", "when": "p = 'r'", "range": {"k": {"from": "low", "to": "high"}}}]
    plan = plan_of(ROWS, window="10ms", where="a.k = b.k", disorder={"strategy": "none"}, punctuations=kinds)
    ends = [(0, 1), (10, 11), (2, 9), (20, 20), (30, 30), (40, 40), (50, 50), (31, 39)]
    rows = [(0, {"ts": t, "p": "r", "low": low, "high": high}) for t, (low, high) in enumerate(ends)]
    rows += [(0, {"ts": 20, "k": k}) for k in (0, 11, 20, 35, 41, 50)]
    got = run(plan, numbered([(1, {"ts": t}) for t in range(8)] + rows))
    assert [json.loads(row["row"])["k"] for row in got.late if row["reason"] == "punctuation_violated"] == [
        20,
        35,
        50,
    ]


def test_a_join_without_a_window_needs_a_strategy_that_can():
    with pytest.raises(ConfigError, match=r"^window: is missing; strategy 'pwjoin' cannot do without, add it$"):
        plain_plan(window=None)
    with pytest.raises(ConfigError, match=r"^disorder: strategy 'result_slack' looks for results within win"):
        plain_plan(strategy="pjoin", window=None, disorder={"recall": 0.9})
    rows = [(0, 1, "x", False), (1, 10**12, "x", False), (1, 10**13, "x", True), (0, 10**13, "x", False)]
    got = run(plain_plan(strategy="pjoin", window=None), plain(*rows))
    assert [row["ts"] for row in got.rows] == [10**12, 10**13]


def test_only_patterns_on_keys_purge():
    setting = plan_of(ROWS, window="1s", where="a.k = b.k", punctuations=KINDS).setting
    classes, inputs, _ = punctuated_logic.signature_of(setting)
    assert classes == (0,)
    assert inputs.tolist() == [0, -1, 0, 0, 1, -1, 1]
    both = plan_of(ROWS, window="1s", where="a.k = b.k AND a.v = b.v", punctuations=KINDS[1:2]).setting
    classes, inputs, order = punctuated_logic.signature_of(both)
    assert (classes, inputs.tolist(), order.tolist()) == ((0, 1), [0], [[1, 0]])


def test_pairs_of_keys_in_any_order_purge():
    kinds = [
        {"input": name, "when": "p = 'pair'", "key": key} for name, key in (("a", ["v", "k"]), ("b", ["k", "v"]))
    ]
    plan = plan_of(
        ROWS, window="1s", where="a.k = b.k AND a.v = b.v", disorder={"strategy": "none"}, punctuations=kinds,
        join={"strategy": "pwjoin"},
    )  # fmt: skip
    rows = [(which, {"ts": 1, "k": 1, "v": v}) for which in (0, 1) for v in (2, 3)]
    rows += [(which, {"ts": 2, "k": 1, "v": 2, "p": "pair"}) for which in (0, 1)]
    rows += [(which, {"ts": 3, "k": 2, "v": 1}) for which in (0, 1)]
    got = run(plan, numbered(rows), range(8), range(8))
    assert got.punctuations == [{"ts": 2, "pattern": '{"a_k": 1, "b_k": 1, "a_v": 2, "b_v": 2}'}]
    assert len(got.rows) == 3
    assert got.log[-1].live == 4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"input": "c", "when": "p = 'x'", "key": "k"},
            r"^punctuations\.input: names no input; the inputs are a, b$",
        ),
        ({"input": "a", "key": "k"}, r"^punctuations\.when: is missing; add it, or name a source that has noth"),
        ({"input": "a", "when": "p = 'x'", "ky": "k"}, r"^punctuations\.0\.ky: is not a setting; remove it or"),
        (
            {"input": "a", "when": "p = 'x'"},
            "^punctuations: says nothing; name columns with key, values or range$",
        ),
        (
            {"input": "a", "when": "p = 'x'", "key": "q"},
            "^punctuations: input 'a' has no column 'q'; it has id, ts",
        ),
        (
            {"input": "a", "when": "q = 'x'", "key": "k"},
            r"^punctuations\.when: there is no column 'q'; there are id",
        ),
        ({"input": "a", "when": "b.p = 'x'", "key": "k"}, r"^punctuations\.when: there is no column 'b\.p'"),
        ({"input": "a", "when": "p =", "key": "k"}, r"^punctuations\.when: cannot read 'p ='"),
        (
            {"input": "a", "when": "v + 1", "key": "k"},
            r"^punctuations\.when: must be a condition, such as kind = 'cl",
        ),
        (
            {"input": "a", "when": "p = 'x'", "key": "ks"},
            "^punctuations: a.ks has type list<.*>, which a condition ca",
        ),
        (
            {"input": "a", "when": "v = 1", "range": {"p": {"to": "p"}}},
            r"^punctuations\.range: column 'p' is text, wh",
        ),
        (
            {"input": "a", "when": "v = 1", "range": {"k": {}}},
            r"^punctuations\.range\.k: column 'k' needs from, to or",
        ),
        ({"input": "a", "when": "v = 1", "range": {"k": {"til": "v"}}}, r"^punctuations\.0\.range\.k\.til"),
        (
            {"input": "a", "when": "v = 1", "key": "v", "range": {"k": {"to": "v"}}},
            r"^punctuations\.range: must be the on",
        ),
        (
            {"input": "a", "when": "v = 1", "values": {"k": "v"}},
            r"^punctuations\.values: column 'v' must hold lists, got",
        ),
        (
            {"input": "a", "when": "v = 1", "values": {"k": "ks", "v": "ks"}},
            r"^punctuations\.values: at most one column",
        ),
        ([{"input": "a", "when": "v = 1", "key": "k"}] * 101, "^punctuations: at most 100 kinds, got 101$"),
        (
            [{"input": "a", "when": "v = 1", "key": "k"}, {"input": "b", "when": "v = 1"}],
            r"^punctuations\.1: says noth",
        ),
        ("closed", r"^punctuations: input should be a valid list, got 'closed'$"),
    ],
)
def test_settings_at_fault_are_named(given, message):
    with pytest.raises(ConfigError, match=message):
        plan_of(ROWS, window="1s", where="a.k = b.k", punctuations=given)


def test_shards_need_punctuations_that_say_which_shard():
    settings = {"window": "1s", "where": "a.k = b.k", "shards": 2}
    plan_of(ROWS, punctuations=KINDS[:2], **settings)
    with pytest.raises(
        ConfigError, match=r"^punctuations: its rows go to one shard, but it speaks of all: name 'k' in k"
    ):
        plan_of(ROWS, punctuations=KINDS[2], **settings)
