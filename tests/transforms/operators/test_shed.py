"""Shed: who passes, who waits and who is shed, against a queue in plain Python."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from queue_reference import queue_up

from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.operators.registry import open_operator
from slackwater.transforms.operators.shed.plan import bind_shed
from slackwater.transforms.settings.models import ShedConfig
from slackwater.transforms.state import snapshot as snapshots

SCHEMA = pa.schema(
    [("id", pa.int64()), ("ts", pa.int64()), ("at", pa.int64()), ("k", pa.string()), ("v", pa.float64())]
)
SHARES = {"a": 0.5, "b": 0.25, "c": 0.125}


def plan_of(inputs=("rows",), **settings):
    return bind_shed(ShedConfig.read({"time": "ts", **settings}), dict.fromkeys(inputs, SCHEMA))


def run(plan, arrivals, cut, restart=False):
    """Return the ids of the rows that passed and of those that were shed, in order; others are (id, reason)."""
    operator = open_operator(plan)
    outputs = []
    for start in range(0, len(arrivals), cut):
        part = arrivals[start : start + cut]
        batches = [
            pa.RecordBatch.from_pylist([row for which, row in part if which == i], schema=SCHEMA)
            for i in range(len(plan.inputs))
        ]
        clock = np.array([row["at"] for _, row in part], np.int64)
        outputs.append(operator.push(Chunk(np.array([which for which, _ in part], np.int8), clock, batches)))
        if restart:
            operator = open_operator(plan, snapshots.loads(snapshots.dumps(operator.snapshot())))
    outputs.append(operator.finish())
    passed = [row["id"] for out in outputs for batch in out.results for row in batch.to_pylist()]
    late = [row for out in outputs for batch in out.late for row in batch.to_pylist()]
    shed = [json.loads(row["row"])["id"] for row in late if row["reason"] == "shed"]
    other = [(json.loads(row["row"])["id"], row["reason"]) for row in late if row["reason"] != "shed"]
    accounting = operator.accounting
    assert accounting.received.sum() == accounting.in_order.sum() + len(late)
    assert accounting.results == len(passed) and accounting.overflowed.sum() == len(shed)
    return passed, shed, other


ARRIVALS = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 60), st.integers(0, 60), st.none()),
        st.integers(0, 4),
        st.sampled_from("abcd"),
        st.sampled_from([0.0, 0.5, 1.0, 2.0, 7.5]),
    ),
    max_size=60,
)
RATES = st.sampled_from([100, 250, 333.3, 1000])


def rows_of(given_rows):
    """Rows that come 0 to 4 ms after each other."""
    at = np.cumsum([gap for _, gap, _, _ in given_rows]).tolist()
    return [{"id": n, "ts": ts, "at": at[n], "k": k, "v": v} for n, (ts, _, k, v) in enumerate(given_rows)]


def ids(rows):
    return [row["id"] for _, row in rows]


@given(ARRIVALS, RATES, st.integers(1, 8), st.integers(1, 30), st.booleans())
def test_what_weighs_least_is_shed(given_rows, rate, queue, cut, restart):
    rows = [(0, row) for row in rows_of(given_rows)]
    plan = plan_of(rate=rate, queue=queue, arrival="at", shedding={"strategy": "prob", "weight": "rows.v"})
    passed, shed, other = run(plan, rows, cut, restart)
    timed = [(which, row) for which, row in rows if row["ts"] is not None]
    expected = queue_up(timed, queue, rate, 1000, lambda which, row, known: row["v"])
    assert (passed, sorted(shed)) == (ids(expected.served), sorted(ids(expected.shed)))
    assert other == [(row["id"], "bad_record") for _, row in rows if row["ts"] is None]


@given(ARRIVALS, RATES, st.integers(1, 8), st.integers(1, 30), st.booleans())
def test_what_partners_rarely_match_is_shed_and_partners_only_teach(given_rows, rate, queue, cut, restart):
    rows = [(n % 3 == 2, row) for n, row in enumerate(rows_of(given_rows))]
    plan = plan_of(
        ("rows", "partners"), rate=rate, queue=queue, arrival="at", where="rows.k = partners.k",
        shedding={"strategy": "prob", "frequencies": {"partners.k": SHARES, "rows.k": SHARES}},
    )  # fmt: skip
    passed, shed, _ = run(plan, rows, cut, restart)
    mine = [(0, row) for which, row in rows if not which and row["ts"] is not None]
    expected = queue_up(mine, queue, rate, 1000, lambda which, row, known: SHARES.get(row["k"], 0.0))
    assert (passed, sorted(shed)) == (ids(expected.served), sorted(ids(expected.shed)))


def test_partners_are_learnt_from():
    """Partners have key a alone, so of rows that come at once those with key a stay."""
    partners = [(1, {"id": n, "ts": n, "at": n, "k": "a", "v": 0.0}) for n in range(200)]
    rows = [(0, {"id": n, "ts": 200, "at": 200, "k": "ab"[n % 2], "v": 0.0}) for n in range(40)]
    settings = {"where": "rows.k = partners.k", "shedding": {"strategy": "prob"}, "arrival": "at"}
    passed, shed, _ = run(plan_of(("rows", "partners"), rate=1, queue=10, **settings), partners + rows, 64)
    assert len(passed) == 11 and {n % 2 for n in passed[1:]} == {0}
    assert len(shed) == 29


@given(ARRIVALS, RATES, st.integers(1, 8), st.integers(1, 30))
def test_dice_fall_the_same_wherever_chunks_are_cut(given_rows, rate, queue, cut):
    rows = [(0, row) for row in rows_of(given_rows)]
    plan = plan_of(rate=rate, queue=queue, arrival="at")
    whole = run(plan, rows, 100)
    assert run(plan, rows, cut, True) == whole
    timed = [(which, row) for which, row in rows if row["ts"] is not None]
    assert len(whole[1]) == len(queue_up(timed, queue, rate, 1000, lambda *_: 0.0).shed)


@given(ARRIVALS, RATES, st.integers(1, 8), st.integers(1, 30))
def test_without_an_arrival_column_the_clock_is_event_time(given_rows, rate, queue, cut):
    rows = [(0, row) for row in rows_of(given_rows)]
    plan = plan_of(rate=rate, queue=queue, shedding={"strategy": "prob", "weight": "v"})
    passed, shed, _ = run(plan, rows, cut)
    timed = [(0, {**row, "at": row["ts"]}) for _, row in rows if row["ts"] is not None]
    expected = queue_up(timed, queue, rate, 1000, lambda which, row, known: row["v"])
    assert (passed, sorted(shed)) == (ids(expected.served), sorted(ids(expected.shed)))


@pytest.mark.parametrize(
    ("inputs", "settings", "message"),
    [
        ("rows", {"rate": 0}, "rate: input should be greater than or equal to 0.01, got 0"),
        ("rows", {}, "rate: is missing; add it"),
        ("rows", {"rate": 1, "shedding": {"strategy": "prob"}}, "shedding: strategy 'prob' goes by what rows"),
        ("rows", {"rate": 1, "shedding": {"strategy": "none"}}, "shedding: strategy 'none' keeps everything"),
        ("rows", {"rate": 1, "shedding": {"strategy": "random", "memory": 9}}, "shedding.memory: is no option"),
        ("rows", {"rate": 1, "arrival": "v"}, "arrival: column 'v' of input 'rows' must be an integer, a "),
        ("rows partners", {"rate": 1}, "where: does not say when a row has a partner"),
        ("rows partners", {"rate": 1, "where": "rows.q = partners.k"}, "where: .*q"),
        ("rows others", {"rate": 1}, "input: must be rows, or rows and partners, got rows, others"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_named(inputs, settings, message):
    with pytest.raises(ConfigError, match=message):
        plan_of(inputs.split(), **settings)
