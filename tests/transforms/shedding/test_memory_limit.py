"""Memory in bytes and by stream time: never exceeded, the same whatever the chunks, refused where it is wrong."""

import dataclasses
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from cheapest import CheapestLogic
from hypothesis import given, settings
from hypothesis import strategies as st
from running import SCHEMA, numbered, plan_of, run

from slackwater.plugins import SheddingStrategy
from slackwater.plugins.registry.options import Duration, Memory, MemoryLimit
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.rows.size import fixed_bytes, row_bytes

TEXTS = pa.schema([*SCHEMA, ("t", pa.string())])


def arrivals_of(seed, n, keys=40, step=1, schema=SCHEMA):
    rng = np.random.default_rng(seed)
    ts = step * np.arange(n) - rng.integers(0, 9, n) * (rng.random(n) < 0.2)
    rows = [
        {"ts": int(t), "k": int(k), "v": int(t) % 7} for t, k in zip(ts, rng.integers(0, keys, n), strict=True)
    ]
    if "t" in schema.names:
        # Rows become longer and longer.
        rows = [{**row, "t": "x" * int(rng.integers(0, 1 + k // 8))} for k, row in enumerate(rows)]
    return numbered(zip(rng.integers(0, 2, n).tolist(), rows, strict=True))


def join_of(shedding, schema=SCHEMA, window="1h", slack=8, **more):
    disorder = {"strategy": "fixed", "slack": f"{slack}ms"}
    return plan_of(schema, window=window, where="a.k = b.k", disorder=disorder, shedding=shedding, **more)


@pytest.mark.parametrize("strategy", ["random", "prob", "life"])
@pytest.mark.parametrize("schema", [SCHEMA, TEXTS], ids=["numbers", "texts"])
def test_bytes_are_kept_to_whatever_the_chunks(strategy, schema):
    arrivals = arrivals_of(1, 9000, 3000, schema=schema)
    plan = join_of({"strategy": strategy, "memory": "1MB", "allocation": "fixed"}, schema, output="counts")
    whole = run(plan, arrivals, range(0, 9000, 900))
    assert whole.late_ids("shed"), "there was room for everything"
    assert (700_000 if schema is SCHEMA else 250_000) < whole.operator.accounting.max_bytes <= 1_000_000
    cuts = np.random.default_rng(2).integers(0, 9000, 7).tolist()
    again = run(plan, arrivals, cuts, cuts[:3])
    assert again.counts == whole.counts
    assert again.late_ids("shed") == whole.late_ids("shed")
    assert again.operator.accounting.max_bytes <= 1_000_000


@settings(max_examples=8)
@given(st.data())
def test_a_schedule_changes_the_memory_at_its_time(data):
    """At every arrival no more is held than the schedule says for the stream time, whatever the chunks."""
    strategy = data.draw(st.sampled_from(["random", "prob"]))
    slack = data.draw(st.sampled_from([0, 40]))
    steps = data.draw(st.lists(st.sampled_from([6, 20, 60, 200]), min_size=2, max_size=4))
    memory = {f"{100 * k}ms": tuples for k, tuples in enumerate(steps)}
    arrivals = arrivals_of(data.draw(st.integers(0, 10**6)), 500)
    plan = join_of({"strategy": strategy, "memory": memory}, slack=slack)
    first = arrivals[0][1]["ts"]
    single = run(plan, arrivals, range(0, 500, 9))
    newest = np.maximum.accumulate([row["ts"] for _, row in arrivals]) - first
    allowed = [steps[min(int(max(0, t)) // 100, len(steps) - 1)] for t in newest]
    assert single.operator.accounting.max_tuples <= max(allowed)
    edges = data.draw(st.lists(st.integers(0, 500), max_size=5))
    got = run(plan, arrivals, edges, edges[:2])
    assert got.results == single.results
    assert got.late_ids("shed") == single.late_ids("shed")
    assert got.late_ids("too_late") == single.late_ids("too_late")
    assert all(got.operator.accounting.balanced(i) for i in range(2))


def held_after(plan, arrivals):
    """How many tuples are held after each arrival."""
    from running import chunk_of

    from slackwater.transforms.operators.join import Operator

    operator = Operator(plan)
    for k, arrival in enumerate(arrivals):
        operator.push(chunk_of(plan, [arrival], k))
        yield len(operator.order) + operator.join.live()


def test_tuples_leave_at_once_when_the_memory_shrinks():
    arrivals = arrivals_of(3, 600)
    plan = join_of({"strategy": "prob", "memory": {"0s": 300, "200ms": 80, "400ms": 150}}, slack=60)
    first = arrivals[0][1]["ts"]
    newest = np.maximum.accumulate([row["ts"] for _, row in arrivals]) - first
    held = list(held_after(plan, arrivals))
    limits = [300 if t < 200 else 80 if t < 400 else 150 for t in newest]
    assert all(h <= limit for h, limit in zip(held, limits, strict=True))
    assert [max(held[k] for k, x in enumerate(limits) if x == limit) for limit in (80, 150)] == [80, 150]


class Fading(SheddingStrategy):
    """A third party's strategy whose memory becomes less and less."""

    name = "fading"

    def build(self, setting, snapshot=None):
        return FadingLogic()


class FadingLogic(CheapestLogic):
    def __init__(self):
        super().__init__(64, False)

    def scores(self, tuples):
        self.memory = max(8, self.memory - 4)
        return tuples.ts.astype(float)


def test_a_strategy_may_change_its_memory_between_runs():
    plan = dataclasses.replace(join_of({"strategy": "none"}), shedding=Fading())
    held = list(held_after(plan, arrivals_of(4, 500)))
    assert max(held) <= 64
    assert max(held[-50:]) == 8


@pytest.mark.parametrize(
    ("memory", "fault"),
    [
        (0, "must be a number of tuples such as 100000, or bytes such as 64MB, got 0"),
        (-3, "must be a number of tuples such as 100000, or bytes such as 64MB, got -3"),
        ("90MBB", "must be a number of tuples such as 100000, or bytes such as 64MB, got '90MBB'"),
        ("-1MB", "must be a number of tuples such as 100000, or bytes such as 64MB, got '-1MB'"),
        (True, "must be a number of tuples such as 100000, or bytes such as 64MB, got True"),
        ("20kB", "must be at least 1MB where it is in bytes, got '20kB'"),
        ({}, "says nothing of the beginning; add 0s, as in {0s: 9000, 10m: 500}, got {}"),
        ({"1m": 5}, "says nothing of the beginning; add 0s, as in {0s: 9000, 10m: 500}, got {'1m': 5}"),
        (
            {"0s": 5, "60s": 4, "1m": 3},
            "names the same time twice; leave one out, got {'0s': 5, '60s': 4, '1m': 3}",
        ),
        ({"0s": 5, "soon": 4}, "at 'soon' must be a duration such as 250ms, 5s, 1m, 2h or 1d, got 'soon'"),
        ({"0s": 0}, "at '0s' must be a number of tuples such as 100000, or bytes such as 64MB, got 0"),
    ],
)
@pytest.mark.parametrize("strategy", ["random", "prob", "life"])
def test_wrong_memory_is_refused(strategy, memory, fault):
    with pytest.raises(ConfigError) as raised:
        join_of({"strategy": strategy, "memory": memory})
    assert str(raised.value) == f"shedding.memory: option 'memory' of strategy {strategy!r}: {fault}."


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        (
            {"join": {"strategy": "pwjoin"}},
            "shedding.memory: strategy 'pwjoin' cannot tell how many bytes its tuples take; give a number of "
            "tuples, or use mswj, wjoin or symmetric_hash",
        ),
        (
            {"unique": "a.id"},
            "shedding.memory: what is remembered of punctuations is not limited by it; give a number of tuples, "
            "not bytes",
        ),
        (
            {"join": {"strategy": "xjoin"}, "window": None},
            "shedding: strategy 'xjoin' has a memory of its own and loses nothing, what is too much goes to "
            "disk; leave out shedding, or use mswj, pwjoin, wjoin, pjoin or symmetric_hash",
        ),
    ],
)
def test_joins_that_cannot_be_held_to_bytes_say_so(settings, fault):
    with pytest.raises(ConfigError) as raised:
        join_of({"strategy": "random", "memory": "4MB"}, **settings)
    assert str(raised.value) == fault


def test_limits_are_written_as_they_are_read():
    for text in ({"0s": 9000, "10m": "64MB"}, 5, "2GB"):
        limit = MemoryLimit.parse(text)
        assert str(limit) == ("{0s: 9000, 10m: 64MB}" if isinstance(text, dict) else str(text))
    limit = MemoryLimit.parse({"10m": 7, "0s": 9})
    assert [limit.at(t) for t in (-5, 0, Duration.parse("10m") - 1, Duration.parse("10m"))] == [
        *(Memory(9, False),) * 3,
        Memory(7, False),
    ]


def test_a_row_weighs_the_same_in_every_batch():
    columns = {
        "n": pa.array([1, None, 3], pa.int32()),
        "t": pa.array(["a", None, "xyz" * 5]),
        "d": pa.array(["p", "p", "qq"]).dictionary_encode(),
        "l": pa.array([[1, 2], None, []], pa.list_(pa.int64())),
        "s": pa.array([{"x": 1, "y": "u"}, {"x": 2, "y": ""}, None]),
        "z": pa.nulls(3),
    }
    batch = pa.record_batch(columns)
    whole = row_bytes(batch)
    assert whole.tolist() == [row_bytes(batch.slice(k, 1))[0] for k in range(3)]
    assert Counter(np.diff(whole) > 0) == {False: 1, True: 1}
    plain = pa.record_batch({"a": pa.array([1.5]), "b": pa.array([True])})
    assert row_bytes(plain)[0] == np.ceil(fixed_bytes(plain.schema)) == 9


def test_maps_weigh_what_their_entries_do():
    maps = pa.array([None, [("k", 1)], [], [("a", 2), ("bcd", None)]], pa.map_("string", "int32"))
    lists = maps.cast(pa.list_(pa.struct([maps.type.key_field, maps.type.item_field])))
    weights = [row_bytes(pa.record_batch([column], ["x"])).tolist() for column in (maps, lists)]
    assert weights[0] == weights[1]
    assert weights[0][0] == weights[0][2] < weights[0][1] < weights[0][3]
