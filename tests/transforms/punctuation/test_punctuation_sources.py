"""Punctuations that have an input of their own: the same as marked rows of the input that they speak of."""

import json
from collections import Counter

import pyarrow as pa
import pytest
from conditions import EFFORT, SLACKS, cuts, windows
from hypothesis import given, settings
from hypothesis import strategies as st
from running import disorder_of, plan_of, run

from slackwater.transforms.errors import ConfigError

TUPLES = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("k", pa.string()), ("v", pa.int64())])
MARKED = TUPLES.append(pa.field("p", pa.bool_())).append(pa.field("ks", pa.list_(pa.string())))
MARKED = MARKED.append(pa.field("low", pa.int64())).append(pa.field("high", pa.int64()))
SOURCE = pa.schema(
    [
        ("ts", pa.int64()),
        ("name", pa.large_string()),
        ("names", pa.list_(pa.string())),
        ("low", pa.int32()),
        ("high", pa.int64()),
        ("id", pa.int64()),
    ]
)
KINDS = {
    "key": ({"key": "k"}, {"key": {"k": "name"}}),
    "values": ({"values": {"k": "ks"}}, {"values": {"k": "names"}}),
    "range": ({"range": {"v": {"from": "low", "to": "high"}}}, {"range": {"v": {"from": "low", "to": "high"}}}),
}


@st.composite
def streams(draw):
    """Rows as (input, row), a fifth of those of input 1 being punctuations, with all that any kind has."""
    value = st.sampled_from([0, 1, 2, None])
    delay = st.sampled_from([0, 0, 0, 1, 4])
    row = st.tuples(st.integers(0, 1), st.integers(0, 2), delay, value, value, st.booleans(), st.booleans())
    arrivals, clock = [], 0
    for which, step, late, k, v, *p in draw(st.lists(row, max_size=60)):
        clock += step
        marked = which == 1 and all(p)
        number = None if k is None else clock // 5 + k - 2 * marked
        text = None if k is None else f"key {number}"
        found = {"id": len(arrivals), "ts": clock - late, "k": text, "v": None if v is None else clock // 5 + v}
        ends = {"low": None if v is None else clock // 5 - v, "high": number and number - 2}
        arrivals.append((which, {**found, "p": marked, "ks": [text, None, "key 3"] if k else None, **ends}))
    return arrivals


def apart(arrivals, source):
    """The same rows with the punctuations in an input of their own."""
    out = []
    for which, row in arrivals:
        if row["p"]:
            has = {"name": row["k"], "names": row["ks"]}
            out.append((source, {**{c: row[c] for c in ("ts", "low", "high", "id")}, **has}))
        else:
            out.append((which, {c: row[c] for c in TUPLES.names}))
    return out


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25 * EFFORT, deadline=None)
@given(data=st.data())
def test_a_source_gives_what_marked_rows_give(kind, data):
    arrivals = data.draw(streams())
    sizes, slack = data.draw(windows(2)), data.draw(SLACKS)
    edges, restores = data.draw(cuts(len(arrivals))), data.draw(cuts(len(arrivals)))
    common = {"window": {"a": f"{sizes[0]}ms", "b": f"{sizes[1]}ms"}, "where": "a.k = b.k"}
    among, own = KINDS[kind]
    for strategy in ("mswj", "pwjoin", "pjoin"):
        common |= {"disorder": disorder_of(slack), "join": {"strategy": strategy}}
        marked = plan_of(MARKED, **common, punctuations={"input": "b", "when": "p", **among})
        expected = run(marked, arrivals, edges)
        schemas = {"closed": SOURCE, "a": TUPLES, "b": TUPLES}
        plan = plan_of(schemas, **common, punctuations={"input": "b", "source": "closed", **own})
        assert plan.inputs == ("a", "b", "closed")
        got = run(plan, apart(arrivals, 2), edges, restores)
        assert identities(got) == identities(expected)
        assert got.late_ids() == expected.late_ids()
        assert Counter(map(str, got.punctuations)) == Counter(map(str, expected.punctuations))
        accounting = got.operator.accounting
        assert all(accounting.balanced(i) for i in range(3))
        assert accounting.punctuations.tolist() == [0, 0, sum(row["p"] for _, row in arrivals)]


def identities(got):
    return Counter((row["a_id"], row["b_id"], row["ts"]) for row in got.rows)


def plan_with(schemas=None, **more):
    schemas = schemas or {"a": TUPLES, "b": TUPLES, "closed": SOURCE}
    settings = {"window": "9ms", "where": "a.k = b.k", "disorder": {"strategy": "none"}}
    settings["punctuations"] = {"source": "closed", "input": "b", "key": {"k": "name"}}
    return plan_of(schemas, **settings | more)


def test_a_source_never_holds_up_the_join():
    rows = [(n % 2, {"id": n, "ts": n, "k": "x"}) for n in range(20)]
    got = run(plan_with(), rows)
    assert len(got.rows) == len(run(plan_of(TUPLES, window="9ms", where="a.k = b.k"), rows).rows) > 0
    assert not got.late


def test_a_row_of_a_source_counts_as_an_arrival_of_what_it_speaks_of():
    rows = [
        (0, {"id": 0, "ts": 5, "k": "x"}),
        (2, {"id": 1, "ts": 9, "name": "y"}),
        (1, {"id": 2, "ts": 4, "k": "x"}),
    ]
    got = run(plan_with(), rows)
    assert [(row["input"], row["reason"], row["ts"]) for row in got.late] == [("b", "too_late", 4)]


def test_rows_that_cannot_be_taken_are_late_under_the_name_of_the_source():
    rows = [(0, {"ts": 500}), (1, {"ts": 500}), (2, {"ts": None, "name": "x"}), (2, {"ts": 3, "name": "y"})]
    got = run(plan_with(guard={"past": "100ms"}), rows, range(4), range(4))
    late = {(row["input"], row["reason"], json.loads(row["row"])["name"]) for row in got.late}
    assert late == {("closed", "bad_record", "x"), ("closed", "too_late", "y")}
    summary = got.operator.accounting.summary(10**6)
    assert summary["input"] == {"a": 1, "b": 1, "closed": 2}
    assert summary["accounting"]["closed"] == {
        "input": 2, "joined_or_expired": 0, "punctuations": 0, "balanced": True,
        "late": {"bad_record": 1, "too_late": 1},
    }  # fmt: skip


@pytest.mark.parametrize("shards", [1, 2])
def test_a_source_without_any_value_says_nothing(shards):
    """Its columns may have no type, as those of an empty file."""
    nothing = pa.schema([("ts", pa.null()), ("name", pa.null())])
    plan = plan_with({"a": TUPLES, "b": TUPLES, "closed": nothing}, shards=shards)
    rows = [(0, {"ts": 1, "k": "x"}), (2, {"ts": None, "name": None}), (1, {"ts": 1, "k": "x"})]
    got = run(plan, rows, range(3), range(3))
    assert [row["reason"] for row in got.late] == ["bad_record"]
    assert len(got.rows) == 1
    timed = pa.schema([("ts", pa.int64()), ("name", pa.null())])
    got = run(plan_with({"a": TUPLES, "b": TUPLES, "closed": timed}), [*rows, (2, {"ts": 5, "name": None})])
    assert len(got.rows) == 1
    batch = pa.RecordBatch.from_pylist([{"ts": 5, "name": None}], schema=timed)
    assert plan.partitioning.routes(2, batch).shard.tolist() == [0]


def test_results_have_no_columns_of_a_source_and_a_window_is_not_for_it():
    plan = plan_with(window={"a": "1s", "b": "2s"})
    assert [name for name in plan.result_schema.names if "closed" in name or "name" in name] == []
    assert plan.windows == (1000, 2000)
    assert plan.time_type == pa.int64()


FLOATS = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.float64())])
TIMES = pa.schema([("ts", pa.int64()), ("k", pa.timestamp("us"))])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"source": "open"}, r"^punctuations\.source: names no input; the inputs are a, b, closed$"),
        ({"source": None}, r"^punctuations\.when: is missing; add it, or name a source that has nothing but pu"),
        (
            {"when": "v = 1"},
            r"^punctuations\.when: a source has nothing but punctuations; leave it out, and let Fil",
        ),
        ({"key": []}, "^punctuations: says nothing; name columns with key, values or range$"),
        (
            {"key": "k"},
            r"^punctuations: input 'closed' has no column 'k'; it has ts, name, names, low, high, id$",
        ),
        ({"key": {"q": "name"}}, "^punctuations: input 'b' has no column 'q'; it has id, ts, k, v$"),
        (
            {"key": {"k": "low"}},
            r"^punctuations: column 'low' has int32 for b\.k, which is string; make them alike ",
        ),
        (
            {"key": [], "values": {"v": "names"}},
            r"^punctuations: column 'names' has string for b\.v, which is int64",
        ),
        (
            {"key": [], "range": {"v": {"to": "name"}}},
            r"^punctuations: column 'name' has large_string for b\.v, wh",
        ),
        (
            {"key": [], "values": {"k": "name"}},
            r"^punctuations\.values: column 'name' must hold lists, got large_",
        ),
        (
            {"input": "closed"},
            r"^punctuations\.input: 'closed' is a source of punctuations, and what it speaks of m",
        ),
        (
            {"source": "b"},
            r"^punctuations\.input: 'b' is a source of punctuations, .*; this one comes from that i",
        ),
        ({"input": "c"}, r"^punctuations\.input: names no input; the inputs are a, b, closed$"),
        ({"source": "a"}, r"^where: 'a\.k' names no input; the inputs are b, closed$"),
    ],
)
def test_settings_at_fault_are_named(given, message):
    whole = {"source": "closed", "input": "b", "key": {"k": "name"}, **given}
    if given == {"source": "a"}:
        whole["key"] = "k"
    with pytest.raises(ConfigError, match=message):
        plan_with(punctuations={name: value for name, value in whole.items() if value is not None})


def test_more_settings_at_fault_are_named():
    one = {"source": "closed", "input": "b", "key": {"k": "name"}}
    with pytest.raises(
        ConfigError, match=r"^punctuations\.1\.source: 'closed' is a source already; give its tran"
    ):
        plan_with(punctuations=[one, one])
    with pytest.raises(
        ConfigError, match=r"^punctuations\.1\.input: 'closed' is a source .*; this one joins noth"
    ):
        plan_with(punctuations=[one, {"input": "closed", "when": "high = 1", "key": "name"}])
    with pytest.raises(
        ConfigError, match=r"^punctuations\.key: may be a mapping only with a source; name columns"
    ):
        plan_with(punctuations={"input": "b", "when": "v = 1", "key": {"k": "k"}})
    with pytest.raises(ConfigError, match=r"^input: needs 2 to 8 inputs, got 2, 1 of them for punctuations$"):
        plan_with({"b": TUPLES, "closed": SOURCE})
    with pytest.raises(ConfigError, match=r"^input: needs 2 to 8 inputs, got 9, 1 of them for punctuations$"):
        plan_with(dict.fromkeys("abcdefgh", TUPLES) | {"closed": SOURCE})
    with pytest.raises(ConfigError, match=r"^where: 'closed\.name' names no input; the inputs are a, b$"):
        plan_with(where="a.k = b.k AND b.k = closed.name")
    over = {"a": TUPLES, "b": TUPLES, "over": SOURCE}
    with pytest.raises(ConfigError, match=r"^window\.over: names no input; the inputs are a, b$"):
        plan_with(over, punctuations=one | {"source": "over"}, window={"a": "1s", "b": "1s", "over": "1s"})
    with pytest.raises(ConfigError, match=r"^time: says nothing of input 'closed'; add it$"):
        plan_with(time={"a": "ts", "b": "ts"})
    with pytest.raises(ConfigError, match=r"^unique: closed\.name names no input; the inputs are a, b$"):
        plan_with(unique="closed.name")
    with pytest.raises(ConfigError, match=r"^punctuations: its rows go to one shard, but .*: name 'k' in key"):
        plan_with(punctuations={"source": "closed", "input": "b", "range": {"v": {"to": "high"}}}, shards=2)
    schemas = {"a": FLOATS, "b": FLOATS, "closed": TIMES}
    with pytest.raises(
        ConfigError, match=r"^punctuations: column 'k' has timestamp\[us\] for b\.k, which is int64"
    ):
        plan_with(schemas, punctuations={"source": "closed", "input": "b", "key": "k"})
    schemas = {"a": FLOATS, "b": FLOATS, "closed": FLOATS}
    plan_with(schemas, punctuations={"source": "closed", "input": "b", "key": {"v": "k"}})
    with pytest.raises(ConfigError, match=r"^punctuations: column 'v' has double for b\.k, which is int64; make"):
        plan_with(schemas, punctuations={"source": "closed", "input": "b", "key": {"k": "v"}})
    times = TIMES.set(1, pa.field("k", pa.timestamp("ms")))
    with pytest.raises(
        ConfigError, match=r"^punctuations: column 'k' has timestamp\[ms\] for b\.k, which is times"
    ):
        plan_with(
            {"a": TIMES, "b": TIMES, "closed": times}, punctuations={"source": "closed", "input": "b", "key": "k"}
        )
