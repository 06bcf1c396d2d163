"""One slack for all shards: what scouts learn from a sample, against what one shard learns from all rows."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import plan_of

from slackwater.plugins.disorder.result_slack.strategy import ResultSlack
from slackwater.transforms.disorder.sample import DEPTH, at_level
from slackwater.transforms.disorder.scout import sampler, scout_plan
from slackwater.transforms.settings.plan import ARRIVAL, JoinPlan
from slackwater.transforms.spark.blobs import Packed, pack, pack_beat, pack_sample
from slackwater.transforms.spark.shard import Given, Shard
from slackwater.transforms.state import snapshot as snapshots

ADAPTIVE = {"recall": 0.9, "period": "2s", "interval": "200ms", "granularity": "5ms"}
SHARING: dict[str, dict[str, Any]] = {
    "result_slack": ADAPTIVE,
    "quality_driven": {**ADAPTIVE, "basic_window": "5ms"},
    "max": {},
    "heartbeat": {},
    "drop_ratio": {"drop_ratio": 0.05},
    "external": {"watermark": "w"},
}
ALONE: dict[str, dict[str, Any]] = {
    "none": {},
    "fixed": {"slack": "40ms"},
}
"""Strategies with nothing to learn."""
EXACT = ("max", "heartbeat", "external")
"""Strategies that go by extremes, which any sample has."""
SHARDS = 8
KEYED = "a.k = b.k"
SCHEMA = pa.schema([(name, pa.int64()) for name in ("id", "ts", "k", "v", "at", "w")])


class Batch(NamedTuple):
    """Rows of both inputs in a micro-batch, in order of arrival."""

    rows: list[pa.RecordBatch]
    places: list[np.ndarray[Any, Any]]


def batches(seed: int, sizes: list[int], keys: int = 30, gap: float = 3) -> list[Batch]:
    """Micro-batches of two inputs, one ahead of the other; of some inputs delays grow, or come and go.

    Times of arrival may be equal. Watermarks are not all kept to.
    """
    rng = np.random.default_rng(seed)
    ahead, often, grows = int(rng.integers(-50, 50)), rng.choice([0.1, 0.3, 0.6]), rng.integers(0, 3)
    found, at = [], 0
    for n in sizes:
        which = rng.integers(0, 2, n)
        longest = (150, 20 + at // 4, int(rng.choice([5, 60, 300])))[grows]
        delay = np.where(rng.random(n) < often, rng.integers(0, longest, n), 0)
        progress = (gap * (at + np.arange(n)) / 2).astype(np.int64)
        ts = progress + ahead * which - delay
        watermark = np.where(rng.random(n) < 0.1, progress + ahead * which - 60, -(10**6))
        rows, places = [], []
        for i in range(2):
            mine = np.flatnonzero(which == i)
            columns = [
                at + mine, ts[mine], rng.integers(0, keys, mine.size), rng.integers(0, 9, mine.size),
                progress[mine], watermark[mine],
            ]  # fmt: skip
            arrays = [pa.array(column.astype(np.int64)) for column in columns]
            rows.append(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
            places.append(mine)
        found.append(Batch(rows, places))
        at += n
    return found


class Live:
    """Shards of a live join, given micro-batches as Spark gives them."""

    def __init__(self, plan: JoinPlan, scouts: bool = True) -> None:
        self.plan, self.scouts = plan, scouts and scout_plan(plan) is not None
        self.shards = [Shard(plan, None, n, self.scouts) for n in range(plan.config.shards)]
        self.results: Counter[Any] = Counter()
        self.late: Counter[str] = Counter()
        self.metrics: list[dict[str, Any]] = []

    def take(self, batch: Batch) -> None:
        keys = list(range(len(self.shards)))
        packed: list[list[Packed]] = [[] for _ in keys]
        for i, (rows, places) in enumerate(zip(batch.rows, batch.places, strict=True)):
            if not rows.num_rows:
                continue
            numbered = rows.append_column(ARRIVAL, pa.array(places))
            parts = [pack(self.plan, i, numbered, keys, 0), pack_beat(i, int(np.max(rows["ts"])), keys)]
            if self.scouts:
                parts.append(pack_sample(i, sampler(self.plan, i).choose(numbered), keys, 0))
            for part in parts:
                for row in part.to_pylist():
                    packed[row.pop("shard")].append(Packed(**row))
        for shard, rows_of_shard in zip(self.shards, packed, strict=True):
            self._keep(shard.take(Given(rows_of_shard, 0)))

    def finish(self) -> None:
        for shard in self.shards:
            self._keep(shard.take(Given([], 0), last=True))

    def _keep(self, outputs: Any) -> None:
        for out in outputs:
            self.results.update((r["a_id"], r["b_id"]) for b in out.results for r in b.to_pylist())
            self.late.update(f"{r['input']} {r['row']}" for b in out.late for r in b.to_pylist())
            self.metrics += [r for b in out.metrics for r in b.to_pylist()]

    def slacks(self) -> list[int]:
        """The slack that the last row of each shard has met."""
        return [shard.accounting.last_slack for shard in self.shards]

    def restore(self) -> None:
        saved = [snapshots.loads(snapshots.dumps(shard.snapshot())) for shard in self.shards]
        self.shards = [Shard(self.plan, one, n, self.scouts) for n, one in enumerate(saved)]


def plan_with(name: str, shards: int = 1, **changes: Any) -> JoinPlan:
    disorder = {"strategy": name, **(SHARING | ALONE)[name]}
    case = {"window": "100ms", "where": KEYED, "arrival": "at", "disorder": disorder, "shards": shards}
    return plan_of(SCHEMA, **{**case, **changes})


@pytest.mark.parametrize("name", SHARING | ALONE)
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    sizes=st.lists(st.integers(0, 300), min_size=2, max_size=6),
    shards=st.sampled_from([2, 3, SHARDS]),
    keys=st.sampled_from([1, 5, 30]),
    gap=st.sampled_from([0.5, 1, 3, 8]),
)
def test_shards_find_all_that_one_finds_by_the_same_micro_batch(
    name: str, seed: int, sizes: list[int], shards: int, keys: int, gap: float
) -> None:
    one, many = Live(plan_with(name)), Live(plan_with(name, shards))
    assert many.scouts == (name in SHARING)
    for batch in batches(seed, sizes, keys, gap):
        one.take(batch)
        many.take(batch)
        assert many.results >= one.results
        assert many.late <= one.late
        if seed % 3 == 0:
            many.restore()
    one.finish()
    many.finish()
    assert many.results >= one.results
    assert many.late <= one.late


@pytest.mark.parametrize("name", SHARING)
def test_without_scouts_shards_lose_results_or_find_them_later(name: str) -> None:
    """Against which the property above means something."""
    one, alone = Live(plan_with(name)), Live(plan_with(name, SHARDS), scouts=False)
    behind = 0
    for batch in batches(1, [300] * 6):
        one.take(batch)
        alone.take(batch)
        behind += (one.results - alone.results).total()
    assert behind > 0


@pytest.mark.parametrize("name", ["max", "quality_driven", "result_slack"])
def test_shards_report_the_slack_that_one_would(name: str) -> None:
    one, many = Live(plan_with(name)), Live(plan_with(name, SHARDS))
    reported: set[int] = set()
    for batch in batches(1, [600] * 4):
        one.take(batch)
        many.take(batch)
        assert max(many.slacks()) == one.slacks()[0]
        reported.update(many.slacks())
    assert max(reported) > 0


def test_a_scout_that_joins_nothing_learns_what_one_that_joins_does(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_with("result_slack", 4)
    quick = Live(plan)
    monkeypatch.setattr(ResultSlack, "needs_feedback", True)
    thorough = Live(plan)
    for batch in batches(1, [700] * 5):
        for live in (quick, thorough):
            live.take(batch)
        assert quick.slacks() == thorough.slacks()
        assert quick.results == thorough.results
        assert quick.late == thorough.late
    assert max(quick.slacks()) > 0


def test_there_is_a_row_of_metrics_per_micro_batch_or_as_often_as_asked() -> None:
    """Rows of scouts are nobody's, and a shard adapts nothing itself."""
    by_batch, by_time = (Live(plan_with("result_slack", 4, **more)) for more in ({}, {"metrics": "100ms"}))
    sizes = [400] * 3
    for batch in batches(1, sizes):
        for live in (by_batch, by_time):
            live.take(batch)
    assert len(by_batch.metrics) == len(sizes) * 4
    assert len(by_time.metrics) > 3 * len(by_batch.metrics)
    for live in (by_batch, by_time):
        live.finish()
        assert sum(row["produced"] for row in live.metrics) == live.results.total()
        assert sum(row["late"] for row in live.metrics) == live.late.total()
        assert {row["required_recall"] for row in live.metrics} == {0.9}


@pytest.mark.parametrize("name", EXACT)
def test_a_thinned_sample_has_all_extremes(name: str) -> None:
    one, many = Live(plan_with(name)), Live(plan_with(name, 4))
    for batch in batches(3, [40_000] * 3, keys=3_000, gap=0.04):
        assert sampler(many.plan, 0).choose(numbered(batch, 0)).level >= 1
        before = Counter(one.results)
        one.take(batch)
        many.take(batch)
        assert many.results >= (before if name == "external" else one.results), "at most a micro-batch later"
        assert many.late <= one.late
    one.finish()
    many.finish()
    assert many.results >= one.results


@pytest.mark.parametrize("name", ["result_slack", "quality_driven", "drop_ratio"])
def test_a_thinned_sample_teaches_nearly_the_same(name: str) -> None:
    """The sample is a fraction of dense rows; all shards still agree, and find what one finds, but for noise."""
    dense = batches(3, [60_000] * 4, keys=3_000, gap=0.05)
    more = {} if name == "drop_ratio" else {"interval": "500ms", "period": "1s"}
    disorder = {"strategy": name, **SHARING[name], **more}
    one, many = (Live(plan_with(name, n, window="40ms", disorder=disorder)) for n in (1, 4))
    levels = {sampler(many.plan, i).choose(numbered(batch, i)).level for batch in dense for i in range(2)}
    assert min(levels) >= 1
    for batch in dense:
        one.take(batch)
        many.take(batch)
    one.finish()
    many.finish()
    assert many.results.total() > 0.98 * one.results.total()


def numbered(batch: Batch, i: int) -> pa.RecordBatch:
    return batch.rows[i].append_column(ARRIVAL, pa.array(batch.places[i]))


def rows_at(ts: Any, keys: Any) -> pa.RecordBatch:
    n = len(ts)
    columns = [np.arange(n), np.asarray(ts), np.asarray(keys), np.zeros(n), np.arange(n), np.zeros(n)]
    batch = pa.RecordBatch.from_arrays([pa.array(c.astype(np.int64)) for c in columns], schema=SCHEMA)
    return batch.append_column(ARRIVAL, pa.array(np.arange(n)))


def test_a_key_is_sampled_on_all_inputs_or_on_none() -> None:
    plan = plan_with("result_slack", SHARDS)
    rng = np.random.default_rng(0)
    ts = np.sort(rng.integers(0, 3_000, 200_000))
    found = []
    for i in range(2):
        sample = sampler(plan, i).choose(rows_at(ts, rng.integers(0, 5_000, ts.size)))
        assert sample.level > 0
        assert 0.5 * ts.size < sample.rows.num_rows * 2**sample.level < 2 * ts.size
        assert sample.rows.schema.names == ["ts", "k", "at", ARRIVAL, DEPTH], (
            "and no more columns than scouts need"
        )
        found.append(
            {
                k
                for k, depth in zip(*(sample.rows[c].to_pylist() for c in ("k", DEPTH)), strict=True)
                if depth < 99
            }
        )
    assert found[0] == found[1]
    assert 0 < len(found[0]) < 4_000


def test_samples_of_a_higher_level_are_part_of_others() -> None:
    plan = plan_with("result_slack", SHARDS)
    rows = sampler(plan, 0).choose(rows_at(np.arange(4_000), np.arange(4_000))).rows
    sets = [set(at_level(rows, level)["k"].to_pylist()) for level in range(6)]
    assert len(sets[0]) == 4_000
    for level in range(1, 6):
        assert sets[level] < sets[level - 1]
        assert 0.6 < len(sets[level]) * 2**level / 4_000 < 1.5


def test_other_keys_are_sampled_later() -> None:
    """A few keys may be unlike the rest, or silent; windows are 100 ms."""
    plan = plan_with("result_slack", SHARDS)
    early, late = (
        set(at_level(sampler(plan, 0).choose(rows_at(np.full(500, t), np.arange(500))).rows, 3)["k"].to_pylist())
        for t in (1_000, 1_000_000)
    )
    assert early and late and early != late


def test_rows_that_are_later_than_all_before_are_always_sampled() -> None:
    plan = plan_with("max", SHARDS)
    ts = np.arange(100_000) // 100
    ts[50_000:50_003] = [400, 300, 350]
    sample = sampler(plan, 0).choose(rows_at(ts, np.zeros(ts.size)))
    assert sample.level > 0
    assert {400, 300} <= set(at_level(sample.rows, 30)["ts"].to_pylist())
    assert 350 not in at_level(sample.rows, 30)["ts"].to_pylist()


@pytest.mark.parametrize("where", ["a.v < b.v", None])
def test_conditions_without_a_key_are_sampled_by_arrival(where: str | None) -> None:
    plan = plan_with("result_slack", SHARDS, where=where)
    sample = sampler(plan, 1).choose(rows_at(np.arange(50_000) // 50, np.zeros(50_000)))
    assert 0.8 < sample.rows.num_rows * 2**sample.level / 50_000 < 1.2


@pytest.mark.parametrize(
    "changes",
    [
        {"shards": 1},
        {"disorder": {"strategy": "fixed", "slack": "5ms"}},
        {"window": None, "join": {"strategy": "symmetric_hash"}, "disorder": {"strategy": "max"}},
        {"shedding": {"strategy": "random", "memory": 50}},
        {"unique": "a.k"},
    ],
)
def test_shards_that_decide_alone_have_no_scouts(changes: dict[str, Any]) -> None:
    assert scout_plan(plan_with("result_slack", **{"shards": SHARDS, **changes})) is None
