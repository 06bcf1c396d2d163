"""With a slack above the largest delay the operator gives what a query over the sorted data gives."""

from collections import Counter
from datetime import date, datetime, timedelta
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from running import NAMES, numbered, plan_of, run

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("ts", pa.int64()),
        ("n", pa.int32()),
        ("big", pa.int64()),
        ("tiny", pa.uint8()),
        ("f", pa.float64()),
        ("half", pa.float32()),
        ("s", pa.string()),
        ("d", pa.dictionary(pa.int32(), pa.string())),
        ("raw", pa.binary()),
        ("t", pa.timestamp("us")),
        ("day", pa.date32()),
        ("flag", pa.bool_()),
        ("price", pa.decimal128(9, 2)),
    ]
)
WORDS = ["", "a", "b", "ä", "a b", "it's", "longer than eight bytes", "longer than eight bytez"]

TWO_WAY = [
    "a.n = b.n",
    "a.n = b.tiny",
    "a.n = b.f",
    "a.f = b.half",
    "a.big = b.big",
    "a.s = b.s",
    "a.s = b.d",
    "a.d = b.d AND a.n = b.n",
    "a.raw = b.raw",
    "a.t = b.t",
    "a.day = b.day AND a.flag = b.flag",
    "a.t = b.day",
    "a.price = b.price",
    "a.n = b.n AND a.s <> b.s",
    "a.s = 'it''s' AND b.s IN ('a', 'b', 'nowhere')",
    "a.s IS NULL AND b.n IS NOT NULL",
    "a.n BETWEEN b.n - 1 AND b.n + 1",
    "a.n NOT BETWEEN 1 AND 2 AND b.n = a.n",
    "a.n NOT IN (1, 2, 3) AND a.tiny = b.tiny",
    "a.n IN (1, NULL) AND a.n = b.n",
    "least(a.n, b.n, 3) = greatest(a.tiny, b.tiny)",
    "abs(a.f - b.f) < 0.5",
    "sqrt(a.tiny) * 2 > b.f + 1.5",
    "(a.n + b.n) % 3 = 1",
    "-a.n % 3 = -1 AND b.tiny = 2",
    "a.n / 2 = b.n",
    "a.n / b.n > 1",
    "a.t < b.t AND a.tiny = b.tiny",
    "a.t >= b.day AND a.tiny = b.tiny",
    "a.flag AND NOT b.flag AND a.n = b.n",
    "a.n = b.n OR a.s = b.s",
    "NOT (a.n < b.n OR a.n > b.n)",
    "a.price - b.price BETWEEN -1.5 AND 1.5 AND a.n = b.n",
    "a.n > 1",
    "n1 = m1",
]


def rows_of(seed, n, inputs, spread=400, delay=60):
    """Rows of several inputs in arrival order: random values with nulls, ties, and delays up to ``delay``."""
    rng = np.random.default_rng(seed)

    def maybe(value):
        return None if rng.random() < 0.1 else value

    arrivals = []
    for k in range(n):
        number = int(rng.integers(0, 5))
        row = {
            "ts": k * spread // n - int(rng.random() < 0.3) * int(rng.integers(0, delay)),
            "n": maybe(number),
            "big": maybe((1 << 60) + int(rng.integers(0, 3))),
            "tiny": maybe(int(rng.integers(0, 5))),
            "f": maybe(float(rng.choice([0.0, -0.0, 0.5, 1.0, 2.0, 3.25]))),
            "half": maybe(float(rng.choice([0.0, 0.5, 1.0, 3.25]))),
            "s": maybe(str(rng.choice(WORDS))),
            "d": maybe(str(rng.choice(WORDS))),
            "raw": maybe(str(rng.choice(WORDS)).encode()),
            "t": maybe(datetime(2026, 1, 1) + timedelta(hours=12 * number)),
            "day": maybe(date(2026, 1, 1) + timedelta(days=int(rng.integers(0, 3)))),
            "flag": maybe(bool(rng.random() < 0.5)),
            "price": maybe(Decimal(int(rng.integers(0, 8))) / 2),
        }
        arrivals.append((int(rng.integers(0, inputs)), row))
    return numbered(arrivals)


def duckdb_results(arrivals, schemas, where, windows):
    """The same join as a query: every member within its own window as seen from the newest."""
    names = NAMES[: len(schemas)]
    con = duckdb.connect()
    for i, (name, schema) in enumerate(zip(names, schemas, strict=True)):
        con.register(name, pa.Table.from_pylist([row for which, row in arrivals if which == i], schema=schema))
    newest = f"greatest({', '.join(f'{name}.ts' for name in names)})"
    within = " AND ".join(f"{name}.ts >= {newest} - {w}" for name, w in zip(names, windows, strict=True))
    where = (where or "TRUE").replace("/ b.n", "/ nullif(b.n, 0)")  # some versions raise, ours gives NULL
    query = f"SELECT {', '.join(f'{name}.id' for name in names)}, {newest} FROM {', '.join(names)} WHERE {within}"
    return Counter((row[:-1], row[-1]) for row in con.execute(f"{query} AND ({where})").fetchall())


@pytest.mark.parametrize("where", TWO_WAY)
def test_two_inputs(where):
    arrivals = rows_of(1, 500, 2)
    schemas = [SCHEMA, SCHEMA]
    if "n1" in where:  # unqualified columns that only one input has
        schemas = [SCHEMA.append(pa.field("n1", pa.int64())), SCHEMA.append(pa.field("m1", pa.int64()))]
        for which, row in arrivals:
            row["m1" if which else "n1"] = row["n"]
    plan = plan_of(
        schemas,
        window={"a": "25ms", "b": "40ms"},
        where=where,
        disorder={"strategy": "fixed", "slack": "60ms"},
    )
    expected = duckdb_results(arrivals, schemas, where, [25, 40])
    assert expected, "the condition is never true: the test would show nothing"
    got = run(plan, arrivals, [100, 333], [200])
    assert got.results == expected
    assert got.late == []


@pytest.mark.parametrize(
    "where",
    [
        "a.s = b.s AND b.s = c.s",
        "a.s = b.s AND b.n = c.n",
        "a.n = b.n AND a.n = c.f",
        "a.n = b.n AND b.f + c.f > 2",
        "abs(a.n - b.n) < 1 AND abs(b.n - c.n) < 1",
        "a.s = 'a' AND b.n = c.n",
    ],
)
def test_three_inputs(where):
    arrivals = rows_of(2, 240, 3)
    plan = plan_of(SCHEMA, 3, window="30ms", where=where, disorder={"strategy": "fixed", "slack": "1s"})
    expected = duckdb_results(arrivals, [SCHEMA] * 3, where, [30] * 3)
    assert expected
    assert run(plan, arrivals, [50], [100]).results == expected


@pytest.mark.parametrize(
    "where", ["a.n = b.n AND b.n = c.n AND c.n = d.n", "a.n = b.n AND b.s = c.s AND c.tiny = d.tiny"]
)
def test_four_inputs(where):
    arrivals = rows_of(3, 160, 4)
    plan = plan_of(SCHEMA, 4, window="40ms", where=where, disorder={"strategy": "fixed", "slack": "1s"})
    expected = duckdb_results(arrivals, [SCHEMA] * 4, where, [40] * 4)
    assert expected
    assert run(plan, arrivals, [50], [100]).results == expected


def test_event_times_may_be_timestamps():
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("n", pa.int32())])
    start = datetime(2026, 3, 1)
    plain = rows_of(4, 200, 2)
    stamped = [
        (which, {"id": r["id"], "n": r["n"], "ts": start + timedelta(milliseconds=r["ts"])}) for which, r in plain
    ]
    plan = plan_of(schema, window="25ms", where="a.n = b.n", disorder={"strategy": "fixed", "slack": "1s"})
    got = run(plan, stamped)
    assert plan.result_schema.field("ts").type == schema.field("ts").type
    expected = duckdb_results(plain, [SCHEMA] * 2, "a.n = b.n", [25, 25])
    found = Counter(
        (
            (row["a_id"], row["b_id"]),
            round((row["ts"].replace(tzinfo=None) - start) / timedelta(milliseconds=1)),
        )
        for row in got.rows
    )
    assert found == expected
