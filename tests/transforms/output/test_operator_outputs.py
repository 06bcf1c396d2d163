"""What leaves the operator besides results: late rows, refused rows, warnings; and what it never keeps."""

import json
import time

import numpy as np
import pyarrow as pa
import pytest
from conditions import star
from running import SCHEMA, chunk_of, numbered, plan_of, run

from slackwater.transforms.operators.join import Chunk, Operator

NONE = {"strategy": "none"}


def late_of(got, *fields):
    return [tuple(row[field] for field in fields) for row in got.late]


def test_a_late_row_says_where_why_when_and_what():
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("ts", pa.int64()),
            ("arrived", pa.int64()),
            ("s", pa.string()),
            ("f", pa.float64()),
        ]
    )
    rows = [(0, 10, 100, "x", 1.5), (1, 10, 101, "y", None), (0, 3, 102, 'q"\\\n', float("nan"))]
    arrivals = numbered(
        (which, {"ts": ts, "arrived": arrived, "s": s, "f": f}) for which, ts, arrived, s, f in rows
    )
    got = run(plan_of(schema, window="5ms", arrival="arrived", disorder=NONE), arrivals)
    (late,) = got.late
    assert {k: late[k] for k in ("input", "reason", "ts", "arrival")} == {
        "input": "a",
        "reason": "too_late",
        "ts": 3,
        "arrival": 102,
    }
    assert json.loads(late["row"]) == {"id": 1, "ts": 3, "arrived": 102, "s": 'q"\\\n', "f": None}


def test_without_an_arrival_column_late_rows_carry_the_number_of_their_arrival():
    arrivals = numbered([(0, {"ts": 9}), (1, {"ts": 9}), (1, {"ts": 1}), (1, {"ts": None}), (1, {"ts": 10**6})])
    plan = plan_of(SCHEMA, window="5ms", disorder=NONE, guard={"future": "1s"})
    expected = [("too_late", 2), ("bad_record", 3), ("future_time", 4)]
    assert sorted(late_of(run(plan, arrivals), "reason", "arrival")) == sorted(expected)


def test_rows_without_a_time_are_bad_records_and_the_run_goes_on():
    arrivals = numbered((k % 2, {"ts": None if k in (2, 5, 6) else k, "k": 0}) for k in range(10))
    got = run(plan_of(SCHEMA, window="5ms", where="a.k = b.k"), arrivals, [3, 6], [6])
    assert sorted(late_of(got, "input", "reason", "ts")) == [
        ("a", "bad_record", None),
        ("a", "bad_record", None),
        ("b", "bad_record", None),
    ]
    without = numbered((which, row) for which, row in arrivals if row["ts"] is not None)
    assert len(got.rows) == len(run(plan_of(SCHEMA, window="5ms", where="a.k = b.k"), without).rows) > 0
    assert got.operator.accounting.summary(10**6)["accounting"]["a"] == {
        "input": 5,
        "joined_or_expired": 3,
        "punctuations": 0,
        "late": {"bad_record": 2},
        "balanced": True,
    }


def test_all_times_null():
    got = run(plan_of(SCHEMA, window="5ms"), numbered((k % 2, {"ts": None}) for k in range(6)))
    assert got.rows == []
    assert len(got.late) == 6
    assert got.operator.accounting.recall_estimate() is None


@pytest.mark.parametrize(
    ("text", "ticks"),
    [
        ("7", 7),
        (" -7 ", -7),
        ("1970-01-01T00:00:01", 1000),
        ("1970-01-01 00:00:00.250Z", 250),
        ("1970-01-02", 86_400_000),
        ("", None),
        ("soon", None),
        ("1.5", None),
        ("99999999999999999999", None),
        ("2026-13-01", None),
        (None, None),
    ],
)
def test_times_as_text(text, ticks):
    schema = pa.schema([("id", pa.int64()), ("ts", pa.string())])
    got = run(plan_of(schema, window="5ms"), numbered([(0, {"ts": text}), (1, {"ts": text})]))
    if ticks is None:
        assert late_of(got, "reason", "ts") == [("bad_record", None)] * 2
    else:
        assert [row["ts"] for row in got.rows] == [ticks]


def test_times_beyond_all_reason_are_bad_records():
    arrivals = numbered([(0, {"ts": 2**62}), (1, {"ts": -(2**62)}), (0, {"ts": 2**61 - 1}), (1, {"ts": 0})])
    got = run(plan_of(SCHEMA, window="5ms"), arrivals)
    assert late_of(got, "reason") == [("bad_record",)] * 2
    assert got.operator.accounting.in_order.tolist() == [1, 1]


def test_guard_past_refuses_rows_older_than_their_input_by_more():
    times = [100, 50, 49, 101, 51, 50]
    got = run(
        plan_of(SCHEMA, window="1s", disorder={"strategy": "max"}, guard={"past": "50ms"}),
        numbered((0, {"ts": t}) for t in times),
        [2],
        [3],
    )
    assert late_of(got, "reason", "ts") == [("too_late", 49), ("too_late", 50)]
    assert max(got.operator.accounting.slack) == 50  # what is refused teaches nobody
    assert got.operator.accounting.balanced(0)


@pytest.mark.parametrize("cuts", [(), range(9)])
def test_guard_future_refuses_a_lone_jump_and_believes_a_gap(cuts):
    guard = {"future": "100ms"}
    lone = [(0, 1), (1, 2), (0, 5000), (0, 3), (1, 4), (0, 5)]
    got = run(plan_of(SCHEMA, window="1s", guard=guard), numbered((i, {"ts": t}) for i, t in lone), cuts, cuts)
    assert late_of(got, "input", "reason", "ts") == [("a", "future_time", 5000)]
    gap = [(0, 1), (1, 2), (0, 5000), (0, 5001), (1, 5002), (0, 5003)]
    got = run(plan_of(SCHEMA, window="1s", guard=guard), numbered((i, {"ts": t}) for i, t in gap), cuts, cuts)
    assert not got.late  # those after it stay there
    wild = [(0, 1), (0, 5000), (0, 90000), (0, 700000)]
    got = run(plan_of(SCHEMA, window="1s", guard=guard), numbered((i, {"ts": t}) for i, t in wild), cuts, cuts)
    assert late_of(got, "ts") == [(700000,)]  # nothing goes back to where the input was; the last stands alone


def test_a_row_years_late_is_joined_but_warned_of_once():
    year = 365 * 86_400_000
    plan = plan_of(SCHEMA, window="1s")
    operator = Operator(plan)
    for _ in range(2):
        operator.push(chunk_of(plan, numbered([(0, {"ts": 3 * year}), (0, {"ts": year})])))
    assert operator.warnings == [
        "time of input 'a' goes back 2.0 years; if such rows are errors, set guard: {past: 1d} to send them "
        "to the late output"
    ]


@pytest.mark.parametrize(
    ("m", "n", "where", "total"),
    [
        (3, 4000, star(3).sql, 4000**3),
        (4, 1000, star(4).sql, 1000**4),
        (4, 1000, None, 1000**4),
        (4, 400, "a.k = b.k AND a.k = c.k AND b.v = d.v", 400**3),
        (3, 1200, "a.k = b.k AND b.k = c.k AND a.v = 7", 1200**2),
        (3, 100, "a.k = b.k AND a.v < b.v", 100 * 99 // 2 * 100),
    ],
)
def test_counting_skewed_results_takes_no_time_per_result(m, n, where, total):
    """All rows at one instant with one key k; v is the row number."""
    operator = Operator(plan_of(SCHEMA, m, window="1s", where=where, output="counts", disorder=NONE))
    values = pa.array(np.arange(n))
    columns = [values, pa.array(np.zeros(n, np.int64)), pa.array(np.ones(n, np.int64)), values]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    chunk = Chunk(np.repeat(np.arange(m, dtype=np.int8), n), np.arange(m * n), [batch] * m)
    start = time.perf_counter()
    outputs = [operator.push(chunk), operator.finish()]
    assert time.perf_counter() - start < 20
    rows = [row for out in outputs for one in out.results for row in one.to_pylist()]
    assert rows == [{"ts": 0, "count": total}]


def long_chunks(n, size, key):
    """Two inputs, one row each per tick, in chunks; ``key`` makes the key column of an array of numbers."""
    for first in range(0, n, size):
        t = np.arange(first, first + size)
        batch = pa.RecordBatch.from_arrays([pa.array(t), key(t)], names=["ts", "k"])
        yield Chunk(np.tile(np.array([0, 1], np.int8), size), np.repeat(t, 2), [batch, batch])


@pytest.mark.parametrize("kind", ["int", "text"])
def test_memory_follows_the_window_not_the_stream(kind):
    as_key = {"int": pa.array, "text": lambda t: pa.array([f"key number {x}" for x in t])}[kind]
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64() if kind == "int" else pa.string())])
    plan = plan_of(schema, window="100ms", where="a.k = b.k", disorder={"strategy": "fixed", "slack": "50ms"})
    operator = Operator(plan)
    stored, texts, nbytes, results = [], [], [], 0
    for chunk in long_chunks(60_000, 2_000, as_key):
        results += sum(batch.num_rows for batch in operator.push(chunk).results)
        stored.append(sum(map(len, operator.rows.stores)))
        texts.append(operator.rows.encoder.dictionary.size)
        nbytes.append(operator.nbytes)
    assert max(stored) < 12_000
    assert max(texts) < 12_000
    assert max(nbytes) == max(nbytes[:10])
    assert results + sum(batch.num_rows for batch in operator.finish().results) == 60_000
    assert operator.accounting.max_tuples < 1_000


def test_a_forgotten_text_that_comes_back_still_joins():
    schema = pa.schema([("ts", pa.int64()), ("k", pa.string())])
    plan = plan_of(schema, window="10ms", where="a.k = b.k OR a.k = 'always'", disorder=NONE)
    operator = Operator(plan)
    counts = []
    for chunk in long_chunks(
        20_000, 2_000, lambda t: pa.array([f"word {x % 3000}" if x % 500 else "always" for x in t])
    ):
        counts.append(sum(batch.num_rows for batch in operator.push(chunk).results))
    assert sum(counts) + sum(batch.num_rows for batch in operator.finish().results) == 20_000 + 40 * 20 - 10


@pytest.mark.parametrize("payload", [
    pa.array([["x"], [], None], pa.list_(pa.string())),
    pa.array([{"x": 1}, {"x": None}, None], pa.struct([("x", pa.int8())])),
    pa.array(["u", None, "w"]).dictionary_encode(),
    pa.array([b"\x00\xff", b"", None], pa.binary()),
    pa.nulls(3),
])  # fmt: skip
def test_columns_of_any_type_ride_along(payload):
    schema = pa.schema([("ts", pa.int64()), ("p", payload.type)])
    plan = plan_of(schema, window="9ms", where="a.ts = b.ts", disorder=NONE)
    operator = Operator(plan)
    gathered = []
    for times in ([1, 2, 3], [4, 5, 2], [7, 8, 9]):
        batch = pa.RecordBatch.from_arrays([pa.array(times), payload], schema=schema)
        gathered.append(operator.push(Chunk(np.array([0, 1] * 3, np.int8), np.arange(6), [batch, batch])))
        operator = Operator(plan, operator.snapshot())
    gathered.append(operator.finish())
    rows = [row for out in gathered for batch in out.results for row in batch.to_pylist()]
    assert [row["ts"] for row in rows] == [1, 2, 3, 4, 5, 7, 8, 9]
    assert all(row["a_p"] == row["b_p"] for row in rows)
    late = [json.loads(row["row"]) for out in gathered for batch in out.late for row in batch.to_pylist()]
    assert late == [{"ts": 2, "p": None if payload[2].as_py() is None else payload[2].as_py()}] * 2


def test_names_of_inputs_need_not_be_letters():
    schemas = {"left one": SCHEMA, "right-one": SCHEMA}
    plan = plan_of(schemas, window="5ms", where='"left one".k = "right-one".k')
    got = run(plan, numbered([(0, {"ts": 1, "k": 2}), (1, {"ts": 2, "k": 2})]))
    assert got.rows[0]["left one_id"] == 0
