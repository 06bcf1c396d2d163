"""Joins split over shards by every scheme give what one shard gives, and account for every row once."""

from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from conditions import EFFORT
from hypothesis import given, settings
from hypothesis import strategies as st
from running import NAMES, plan_of
from sharding import points, run_shards

from slackwater.transforms.settings.plan import ARRIVAL

HOT = {"hot_keys": {"input": "b", "values": [1, 4]}}
CONDITIONS = {
    "a.k = b.k": ("key", {}),
    "a.k = b.k AND a.x < b.x": ("hot keys", HOT),
    "a.k = b.k AND b.k = c.k": ("hot keys", {**HOT, "hot_keys": {"input": "c", "values": [0], "split": 2}}),
    "abs(a.x - b.x) <= 5": ("cell", {}),
    "a.x BETWEEN b.x - 2 AND b.x + 7": ("cell", {}),
    "a.y - b.y < 4 AND b.y < a.y + 0.5": ("cell", {}),
    "sqrt((a.x - b.x) * (a.x - b.x) + (a.y - b.y) * (a.y - b.y)) < 9": ("cell", {}),
    "abs(a.x - b.x) + abs(a.y - b.y) <= 12": ("cell", {}),
    "abs(a.x - b.x) < 6 AND abs(c.y - a.y) <= 9": ("cell", {}),
    "abs(a.x - b.x) < 6 AND abs(b.x - c.x) <= 4": ("cell", {}),
    "a.k = b.k AND abs(b.x - c.x) < 8": ("part key", {}),
    "a.x < b.x": ("one bucket", {}),
    "a.y < b.y AND b.y < c.y AND a.k <> c.k": ("one bucket", {}),
}
WINDOW = 40


def plan_for(where, shards, batches, **more):
    schema = batches[0].schema.remove(batches[0].schema.get_field_index(ARRIVAL))
    given = {"where": where, "window": f"{WINDOW}ms", "shards": shards, **CONDITIONS[where][1], **more}
    if shards == 1 or shards < given.get("hot_keys", {}).get("split", 2):
        given.pop("hot_keys", None)
    return plan_of(schema, len(batches), **given)


def truth(where, batches):
    """What DuckDB finds among all rows, by ids."""
    names = NAMES[: len(batches)]
    connection = duckdb.connect()
    for name, batch in zip(names, batches, strict=True):
        connection.register(name, pa.Table.from_batches([batch]))
    times = ", ".join(f"{name}.ts" for name in names)
    ids = ", ".join(f"{name}.id" for name in names)
    within = f"greatest({times}) - least({times}) <= {WINDOW}"
    sql = f"SELECT {ids} FROM {', '.join(names)} WHERE {where} AND {within}"
    return Counter(connection.execute(sql).fetchall())


def assert_late_rows_explain(done, expected):
    """Assert that every result that is missing has a row that is in the late output."""
    assert done.results <= expected
    missing = expected - done.results
    assert missing
    for result in missing:
        assert any((name, k) in done.late for name, k in zip(NAMES, result, strict=False)), result


@given(
    where=st.sampled_from(sorted(CONDITIONS)),
    shards=st.integers(1, 9),
    seed=st.integers(0, 2**32 - 1),
    cuts=st.sets(st.integers(0, 120), max_size=2),
)
@settings(max_examples=40 * EFFORT, deadline=None)
def test_the_results_are_those_of_duckdb_whatever_the_shards(where, shards, seed, cuts):
    """With a slack as large as any delay nothing is late, so every result has to be there, once."""
    m = 3 if "c." in where else 2
    batches = points(np.random.default_rng(seed), m, 40 if m == 3 else 80)
    plan = plan_for(where, shards, batches, disorder={"strategy": "fixed", "slack": "300ms"})
    assert plan.partitioning.name == CONDITIONS[where][0] or shards <= 2
    done = run_shards(plan, batches, cuts)
    assert done.results == truth(where, batches)
    assert not done.late
    done.check_accounts(batches)


@pytest.mark.parametrize("where", CONDITIONS)
def test_a_late_row_is_written_where_it_is_late_and_every_row_is_counted_once(where):
    batches = points(np.random.default_rng(7), 3 if "c." in where else 2, 80)
    plan = plan_for(where, 4, batches, disorder={"strategy": "none"}, guard={"past": "35ms"})
    done = run_shards(plan, batches, [100])
    done.check_accounts(batches)
    assert len(done.late) > 40
    assert_late_rows_explain(done, truth(where, batches))
    copied = max(plan.partitioning.factors()) > 1
    assert copied or not done.account.late_copies
    assert done.account.late_copies or where != "a.x < b.x"


@pytest.mark.parametrize("where", ["a.k = b.k AND a.x < b.x", "abs(a.x - b.x) <= 5", "a.x < b.x"])
@pytest.mark.parametrize(
    "shedding",
    [
        {"strategy": "prob", "memory": 12},
        {"strategy": "prob", "queue": {"rows": 5, "service_rate": 100, "refresh": 20}},
    ],
    ids=["memory", "queue"],
)
def test_a_row_that_is_shed_is_written_by_the_shard_that_shed_it(where, shedding):
    batches = [
        batch.rename_columns([*batch.schema.names[:-1], "at"])
        for batch in points(np.random.default_rng(5), 2, 90)
    ]
    given = {"where": where, "window": "40ms", "shards": 4, "arrival": "at", **CONDITIONS[where][1]}
    plan = plan_of(batches[0].schema, 2, **given, disorder={"strategy": "none"}, shedding=shedding)
    done = run_shards(plan, batches, [70])
    done.check_accounts(batches)
    assert sum(n for (_, reason), n in done.account.late.items() if reason == "shed") > 10
    assert_late_rows_explain(done, truth(where, batches))


def test_a_hot_key_does_not_make_one_shard_do_most_of_the_work():
    rng = np.random.default_rng(3)
    columns = {"id": np.arange(4000), "ts": np.arange(4000), ARRIVAL: np.arange(4000)}
    batches = []
    for skewed in (True, False):
        keys = rng.integers(0, 400, 4000)
        batches.append(
            pa.RecordBatch.from_pydict({**columns, "k": np.where(skewed & (rng.random(4000) < 0.5), 7, keys)})
        )
    schema = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("k", pa.int64())])
    largest = {}
    for hot in (None, {"input": "a", "values": [7]}):
        plan = plan_of(schema, where="a.k = b.k", window="40ms", shards=4, hot_keys=hot)
        done = run_shards(plan, batches)
        largest[hot is None] = max(done.rows) / sum(done.rows)
    assert largest[True] > 0.4 and largest[False] < 0.28
