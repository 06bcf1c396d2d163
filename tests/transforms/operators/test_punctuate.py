"""Punctuate: what it says is true, said in time, and what the rows say tuple by tuple."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.transforms.errors import ConfigError
from slackwater.transforms.operators.join import Chunk
from slackwater.transforms.operators.punctuate.plan import bind_punctuate
from slackwater.transforms.operators.registry import open_operator
from slackwater.transforms.settings.models import PunctuateConfig
from slackwater.transforms.state import snapshot as snapshots

SCHEMA = pa.schema(
    [("id", pa.int64()), ("ts", pa.int64()), ("k", pa.string()), ("x", pa.int64()), ("p", pa.bool_())]
)


def plan_of(**settings):
    return bind_punctuate(PunctuateConfig.read({"time": "ts", **settings}), {"input": SCHEMA})


def run(plan, rows, cut, restart=False):
    """Return the rows that passed, the late ones as (id, reason), and the punctuations."""
    operator = open_operator(plan)
    outputs = []
    for start in range(0, len(rows), cut):
        batch = pa.RecordBatch.from_pylist(rows[start : start + cut], schema=plan.schemas["input"])
        number = np.arange(start, start + batch.num_rows)
        outputs.append(operator.push(Chunk(np.zeros(batch.num_rows, np.int8), number, [batch])))
        if restart:
            operator = open_operator(plan, snapshots.loads(snapshots.dumps(operator.snapshot())))
    outputs.append(operator.finish())
    out, late, said = (
        [row for output in outputs for batch in getattr(output, name) for row in batch.to_pylist()]
        for name in ("results", "late", "punctuations")
    )
    accounting = operator.accounting
    assert accounting.received[0] == len(out) + len(late) + accounting.punctuations[0] == len(rows)
    assert accounting.finished == len(said)
    return out, [(json.loads(row["row"])["id"], row["reason"]) for row in late], said


def literal(rows, slack, every):
    """The same, read tuple by tuple: k closed by marked rows, (k, x) unique, x clustered, time in steps."""
    progress, held, released = -(10**9), [], []
    for row in rows:
        progress = max(progress, row["ts"])
        held.append(row)
        due = sorted((r for r in held if r["ts"] + slack <= progress), key=lambda r: (r["ts"], r["id"]))
        held = [r for r in held if r["ts"] + slack > progress]
        released += due
    released += sorted(held, key=lambda r: (r["ts"], r["id"]))
    now, span = -(10**9), None
    pending, over, out, late, said = [], set(), [], [], []
    seen_x = newest = None

    def take_effect():
        nonlocal span
        for kind, value in pending:
            if kind == "ts":
                if now // every != span:
                    said.append((now, {"ts": {"to": value}}))
                span = now // every
            elif (kind, value) not in over and not (kind == "x" and value == seen_x):
                over.add((kind, value))
                said.append((now, {kind: value}))
        pending.clear()

    for row in released:
        is_late = row["ts"] < now
        if row["ts"] > now:
            take_effect()
            now = row["ts"]
        if row["p"]:
            if row["k"] is not None:
                pending.append(("k", row["k"]))
            continue
        pair = None if row["k"] is None else (row["k"], row["x"])
        if {("k", row["k"]), ("x", row["x"]), ("k, x", pair)} & over:
            late.append((row["id"], "too_late" if is_late else "punctuation_violated"))
            continue
        if is_late:
            late.append((row["id"], "too_late"))
        else:
            out.append(row)
        if pair is not None:
            over.add(("k, x", pair))
            said.append((now, {"k": pair[0], "x": pair[1]}))
        if is_late:
            continue
        if row["x"] != seen_x:
            if seen_x is not None:
                pending.append(("x", seen_x))
            seen_x = row["x"]
        if newest is None or row["ts"] > newest:
            newest = row["ts"]
            pending.append(("ts", newest - 1))
    take_effect()
    return out, late, said


ROWS = st.lists(
    st.tuples(st.integers(0, 50), st.sampled_from(["a", "b", "ü", None]), st.integers(0, 3), st.booleans()),
    max_size=50,
)


@given(ROWS, st.integers(0, 30), st.integers(1, 20), st.integers(1, 25), st.booleans())
def test_rows_and_punctuations_are_those_of_a_literal_reading(given_rows, slack, every, cut, restart):
    rows = [dict(zip(SCHEMA.names, (n, *row), strict=True)) for n, row in enumerate(given_rows)]
    plan = plan_of(
        when="p", key="k", unique=[["k", "x"]], clustered="x", progress=f"{every}ms",
        disorder={"strategy": "fixed", "slack": f"{slack}ms" if slack else 0},
    )  # fmt: skip
    out, late, said = run(plan, rows, cut, restart)
    expected = literal(rows, slack, every)
    assert out == expected[0]
    assert sorted(late) == sorted(expected[1])
    key = str
    assert sorted(((row["ts"], json.loads(row["pattern"])) for row in said), key=key) == sorted(
        expected[2], key=key
    )
    assert [row["ts"] for row in said] == sorted(row["ts"] for row in said)
    for row in said:
        pattern = json.loads(row["pattern"])
        told = {"k": row["k"], "x": row["x"], "ts": None if row["ts_to"] is None else {"to": row["ts_to"]}}
        assert pattern == {name: value for name, value in told.items() if value is not None}


@given(ROWS, st.integers(1, 25))
def test_no_later_row_matches_what_was_said(given_rows, cut):
    rows = [dict(zip(SCHEMA.names, (n, *row), strict=True)) for n, row in enumerate(given_rows)]
    out, _, said = run(plan_of(ordered=["x desc"], when="p", key=["k", "x"]), rows, cut)
    for punctuation in said:
        pattern = json.loads(punctuation["pattern"])
        for row in out:
            if row["ts"] > punctuation["ts"]:
                if "k" in pattern:
                    assert (row["k"], row["x"]) != (pattern["k"], pattern["x"])
                else:
                    assert row["x"] < pattern["x"]["from"] == punctuation["x_from"]


def test_times_and_texts_keep_their_types():
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("day", pa.date32()), ("v", pa.float64())])
    config = PunctuateConfig.read({"time": "at", "unique": "day", "ordered": "v", "progress": "1s"})
    plan = bind_punctuate(config, {"input": schema})
    assert plan.punctuation_schema.field("ts").type == pa.timestamp("us", "UTC")
    assert plan.punctuation_schema.names == ["ts", "pattern", "day", "v_to", "at_to"]
    rows = pa.RecordBatch.from_pydict({"at": [10**6, 3 * 10**6], "day": [1, 2], "v": [0.5, 2.0]}, schema=schema)
    operator = open_operator(plan)
    outs = operator.push(Chunk(np.zeros(2, np.int8), np.arange(2), [rows])), operator.finish()
    batches = [batch for out in outs for batch in out.punctuations]
    assert all(batch.schema == plan.punctuation_schema for batch in batches)
    patterns = [json.loads(row["pattern"]) for batch in batches for row in batch.to_pylist()]
    assert {"day": "1970-01-02"} in patterns and {"at": {"to": "1970-01-01 00:00:02.999999Z"}} in patterns
    assert any(pattern.keys() == {"v"} and pattern["v"]["to"] < 0.5 for pattern in patterns)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "when: says nothing of later rows; set when and key, unique, clustered, ordered or progress"),
        ({"when": "p"}, "key: is missing; when and key go together"),
        ({"key": "k", "unique": "x"}, "when: is missing; when and key go together"),
        ({"when": "p", "key": "nope"}, "key: input 'input' has no column 'nope'; it has id, ts, k, x, p"),
        ({"when": "k", "key": "k"}, "when: must be a condition"),
        ({"ordered": "k"}, "ordered: column 'input.k' is text, which is not followed in order"),
        ({"unique": "ts"}, "column 'ts' is one that every punctuation has; rename it with MapToFields"),
        ({"progress": "1s", "ordered": "ts"}, "progress: says what ordered says of column 'ts'"),
        ({"progress": "0s"}, "progress: must be longer than 0"),
        ({"unique": "x", "shards": 2}, "shards: is not a setting"),
        ({"unique": "x", "disorder": {"recall": 0.9}}, "disorder: .*there is one input"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_named(settings, message):
    with pytest.raises(ConfigError, match=message):
        plan_of(**settings)


def test_text_times_have_no_progress():
    schema = pa.schema([("ts", pa.string()), ("x", pa.int64())])
    with pytest.raises(
        ConfigError, match="progress: needs times that are numbers or timestamps, and column 'ts' is"
    ):
        bind_punctuate(PunctuateConfig.read({"time": "ts", "progress": "1s"}), {"input": schema})
