"""Shards that are told how far rows of other shards have brought the inputs: beats after every micro-batch."""

from __future__ import annotations

from collections import Counter
from typing import Any

import aggregate_reference
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import SCHEMA, chunk_of, disorder_of, numbered, plan_of

from slackwater.plugins.contract import NEVER
from slackwater.transforms.arrival.intake import Chunk, PartProgress
from slackwater.transforms.operators.aggregate.operator import Aggregator
from slackwater.transforms.operators.join import Operator
from slackwater.transforms.settings.plan import JoinPlan
from slackwater.transforms.state import snapshot as snapshots

SHARDS = 8
Rows = list[tuple[int, dict[str, Any]]]


class Shards:
    """Operators of a join by key, and what they gave so far."""

    def __init__(self, plan: JoinPlan, n: int) -> None:
        self.plan, self.operators = plan, [Operator(plan) for _ in range(n)]
        self.results: Counter[tuple[int, int]] = Counter()
        self.late: Counter[str] = Counter()

    def take(self, rows: Rows, first: int) -> None:
        """Give every shard its rows of a micro-batch, then the progress of the inputs."""
        progress = np.full(2, NEVER, np.int64)
        for which, row in rows:
            progress[which] = max(progress[which], row["ts"])
        for shard, operator in enumerate(self.operators):
            mine = [(which, row) for which, row in rows if row["k"] % len(self.operators) == shard]
            for out in (operator.push(chunk_of(self.plan, mine, first)), operator.advance(progress)):
                self._keep(out)

    def restore(self) -> None:
        saved = [snapshots.loads(snapshots.dumps(operator.snapshot())) for operator in self.operators]
        self.operators = [Operator(self.plan, one) for one in saved]

    def finish(self) -> None:
        for operator in self.operators:
            self._keep(operator.finish())

    def _keep(self, out: Any) -> None:
        self.results.update((r["a_id"], r["b_id"]) for batch in out.results for r in batch.to_pylist())
        self.late.update(f"{r['input']} {r['row']}" for batch in out.late for r in batch.to_pylist())


def disordered(rng: np.random.Generator, n: int, keys: int = 20, ahead: int = 30) -> Rows:
    """Rows of two inputs, one ahead of the other; a third of them are delayed by up to 60 ms."""
    which = rng.integers(0, 2, n)
    delay = np.where(rng.random(n) < 0.3, rng.integers(0, 60, n), 0)
    rows = zip(which, 3 * np.arange(n) + ahead * which - delay, strict=True)
    return numbered((int(w), {"ts": int(t), "k": int(rng.integers(keys)), "v": 0}) for w, t in rows)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    slack=st.sampled_from([0, 15, 40, 80]),
    sizes=st.lists(st.integers(0, 80), min_size=3, max_size=8),
    ahead=st.integers(-100, 100),
)
def test_shards_give_what_one_gives_and_no_later(seed: int, slack: int, sizes: list[int], ahead: int) -> None:
    """A tuple that is in order in one shard is so in eight; after a beat, the same times have been released."""
    rng = np.random.default_rng(seed)
    rows = disordered(rng, sum(sizes), ahead=ahead)
    plan = plan_of(SCHEMA, window="100ms", where="a.k = b.k", disorder=disorder_of(slack))
    one, many = Shards(plan, 1), Shards(plan, SHARDS)
    start = 0
    for size in sizes:
        for shards in (one, many):
            shards.take(rows[start : start + size], start)
        start += size
        assert many.results >= one.results, "every result, and by the same micro-batch"
        assert many.late <= one.late
        extra = many.results - one.results
        assert not extra or one.late, "more is found only where one shard has late rows"
        held = [sum(len(operator.order.buffer) for operator in shards.operators) for shards in (one, many)]
        assert held[0] == held[1]
        if rng.random() < 0.3:
            many.restore()
    for shards in (one, many):
        shards.finish()
    assert many.results >= one.results
    assert many.late <= one.late


def test_without_beats_results_wait_for_rows_of_their_own_shard() -> None:
    """What shards give without beats, against which the property above means something."""
    rows = disordered(np.random.default_rng(1), 400)
    plan = plan_of(SCHEMA, window="100ms", where="a.k = b.k", disorder=disorder_of(60))
    one, many = Shards(plan, 1), Shards(plan, SHARDS)
    one.take(rows, 0)
    many.take(rows, 0)
    assert many.results == one.results
    deaf = Shards(plan, SHARDS)
    for shard, operator in enumerate(deaf.operators):
        deaf._keep(operator.push(chunk_of(plan, [(w, r) for w, r in rows if r["k"] % SHARDS == shard])))
    assert deaf.results < one.results


def row(which: int, id_: int, ts: int, **more: int) -> tuple[int, dict[str, int]]:
    return which, {"id": id_, "ts": ts, "k": 1, "v": 0, **more}


def results(out: Any) -> list[tuple[int, int]]:
    return [(r["a_id"], r["b_id"]) for batch in out.results for r in batch.to_pylist()]


def test_delays_are_measured_against_shared_progress() -> None:
    plan = plan_of(SCHEMA, window="100ms", where="a.k = b.k", disorder={"strategy": "max"})
    operator = Operator(plan)
    operator.push(chunk_of(plan, [row(0, 0, 100), row(1, 0, 100)]))
    operator.advance(np.array([200, 200]))
    assert operator.push(chunk_of(plan, [row(0, 1, 170)])).late == []
    assert operator.accounting.last_slack == 30


def test_a_shard_without_rows_waits_for_none() -> None:
    plan = plan_of(SCHEMA, window="100ms", where="a.k = b.k", disorder=disorder_of(50))
    operator = Operator(plan)
    operator.advance(np.array([500, 500]))
    operator.push(chunk_of(plan, [row(0, 0, 460), row(1, 0, 470)]))
    assert results(operator.advance(np.array([530, NEVER]))) == [], "b may still bring rows from 450 on"
    assert results(operator.advance(np.array([NEVER, 530]))) == [(0, 0)]


def test_an_input_that_speaks_elsewhere_is_not_silent() -> None:
    plan = plan_of(SCHEMA, window="100ms", where="a.k = b.k", disorder=disorder_of(10))
    operator = Operator(plan)
    operator.push(chunk_of(plan, [row(0, 0, 104), row(1, 0, 100)]))
    assert results(operator.idle([1])) == []
    operator.advance(np.array([NEVER, 105]))
    assert results(operator.push(chunk_of(plan, [row(0, 1, 130)]))) == [], "b may bring rows from 95 on"
    assert results(operator.advance(np.array([NEVER, 120]))) == [(0, 0)]


ARRIVED = SCHEMA.append(pa.field("at", pa.int64())).append(pa.field("w", pa.int64()))


def test_strategies_that_go_by_the_clock_keep_their_distance() -> None:
    """Of ``heartbeat``, which does not say what its bounds are without an arrival."""
    plan = plan_of(ARRIVED, window="100ms", where="a.k = b.k", arrival="at", disorder={"strategy": "heartbeat"})
    operator = Operator(plan)
    rows = [row(i % 2, i // 2, 100 + 10 * i, at=120 + 10 * i, w=0) for i in range(4)]
    assert results(operator.push(chunk_of(plan, rows))) == []
    operator = Operator(plan, snapshots.loads(snapshots.dumps(operator.snapshot())))
    assert results(operator.advance(np.array([125, 135]))) == [(0, 0), (1, 0)]
    assert results(operator.advance(np.array([140, 140]))) == [(0, 1), (1, 1)]


def test_promises_of_the_input_are_not_extended() -> None:
    disorder = {"strategy": "external", "watermark": "w"}
    plan = plan_of(ARRIVED, window="100ms", where="a.k = b.k", arrival="at", disorder=disorder)
    operator = Operator(plan)
    rows = [row(i, 0, 100, at=i, w=90) for i in range(2)]
    operator.push(chunk_of(plan, rows))
    assert results(operator.advance(np.array([500, 500]))) == []
    assert results(operator.push(chunk_of(plan, [row(i, 1, 600, at=9, w=101) for i in range(2)]))) == [(0, 0)]


def test_strategies_adapt_by_shared_time() -> None:
    adaptive = {"strategy": "quality_driven", "recall": 0.9, "period": "400ms", "interval": "100ms"}
    plan = plan_of(SCHEMA, window="100ms", where="a.k = b.k", disorder=adaptive, metrics="1s")
    operator = Operator(plan)
    operator.push(chunk_of(plan, [row(0, 0, 100), row(1, 0, 100)]))
    (batch,) = operator.advance(np.array([250, 190])).metrics
    assert batch.num_rows == 1
    assert not operator.advance(np.array([260, 190])).metrics


@pytest.mark.parametrize("future", [None, "1s"])
def test_a_corrupt_time_moves_no_shard(future: str | None) -> None:
    guard = {} if future is None else {"guard": {"future": future}}
    plan = plan_of(SCHEMA, window="100ms", where="a.k = b.k", disorder=disorder_of(10), **guard)
    times = [10_000_000, *range(100, 180, 10), 9_000_000, *range(180, 200, 10)]
    batch = pa.RecordBatch.from_pylist([row(0, i, ts)[1] for i, ts in enumerate(times)], schema=SCHEMA)
    part = PartProgress(plan, 0)
    part.follow(batch)
    part.follow(batch.slice(0, 0))
    assert part.reached == (190 if future else 10_000_000)
    operator = Operator(plan)
    operator.push(chunk_of(plan, [row(0, 0, 100), row(1, 0, 100)]))
    operator.advance(np.array([10_000_000, 190]))
    assert operator.entry.intake.progress.tolist() == [100 if future else 10_000_000, 190]
    operator.advance(np.array([5_000_000, NEVER]))
    operator.advance(np.array([5_000_900, NEVER]))
    jumped = operator.entry.intake.progress[0] == 5_000_900
    assert jumped == bool(future), "two that agree are a gap in the data"


def test_extents_are_complete_by_shared_progress() -> None:
    plan = aggregate_reference.plan_of(range="10ms", disorder={"strategy": "fixed", "slack": "5ms"})
    operator = Aggregator(plan)
    assert not operator.advance(np.array([13])).results
    rows = [{"id": i, "ts": ts, "g": 1} for i, ts in enumerate((9, 12))]
    batch = pa.RecordBatch.from_pylist(rows, schema=plan.schemas["input"])
    assert not operator.push(Chunk(np.zeros(2, np.int8), np.arange(2), [batch])).results
    out = operator.advance(np.array([15]))
    assert [r["extent"] for batch in out.results for r in batch.to_pylist()] == [0]
    assert not operator.advance(np.array([23])).results
    out = operator.advance(np.array([24]))
    assert [r["extent"] for batch in out.results for r in batch.to_pylist()] == [1]


def test_rows_that_wait_in_a_queue_are_not_overtaken() -> None:
    queue = {"strategy": "random", "queue": {"rows": 10, "service_rate": 10}}
    plan = plan_of(ARRIVED, window="1s", where="a.k = b.k", shedding=queue, arrival="at", disorder=disorder_of(0))
    operator = Operator(plan)
    operator.push(chunk_of(plan, [row(i % 2, i, i, at=i, w=0) for i in range(6)]))
    assert len(operator.queue) == 5
    operator.advance(np.array([900, 900]))
    assert not operator.idle([0, 1]).late
