"""A live input: the queue engages when the join falls behind and lets go when it has caught up."""

import dataclasses
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from running import plan_of

from slackwater.plugins import JoinStrategy
from slackwater.transforms.operators.join import Chunk, Operator
from slackwater.transforms.rows import ipc
from slackwater.transforms.settings.plan import ARRIVAL
from slackwater.transforms.state import snapshot as snapshots

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
COST = 1e-3
"""Seconds that the join takes per tuple."""


class Clock:
    """Goes on when somebody works or waits."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class SlowJoin(JoinStrategy):
    """Another join, on a processor that takes its time."""

    name: ClassVar[str] = "slow"
    inner: Any
    clock: Any

    def build(self, setting, snapshot=None):
        return SlowLogic(self.inner.build(setting, snapshot), self.clock)


class SlowLogic:
    def __init__(self, logic, clock):
        self._logic, self._clock = logic, clock

    def step(self, released):
        self._clock.now += COST * released.ts.size
        return self._logic.step(released)

    def __getattr__(self, name):
        return getattr(self._logic, name)


class Source:
    """Gives all rows that have come since it was last asked, as an engine with micro-batches does."""

    def __init__(self, plan, clock):
        self.plan, self.clock, self.n, self.asked = plan, clock, 0, 0.0

    def chunk(self, per_second):
        span = self.clock.now - self.asked
        n, rng = int(span * per_second), np.random.default_rng(self.n)
        came = ((self.asked + span * np.arange(1, n + 1) / n) * 1e6).astype(np.int64)
        share = 1 / np.arange(1, 21)
        k, which = rng.choice(20, n, p=share / share.sum()), (np.arange(n) % 2).astype(np.int8)
        table = pa.table({"ts": came // 1000, "k": k}, SCHEMA)
        batches = [table.filter(pa.array(which == i)).combine_chunks().to_batches()[0] for i in (0, 1)]
        self.asked, self.n = self.clock.now, self.n + n
        return Chunk(which, self.n - n + np.arange(n), batches, came)


def live(strategy, phases):
    """Let rows come in phases of (rows per second, seconds); return what was seen after each micro-batch."""
    clock = Clock()
    shedding = {"strategy": strategy, "queue": {"rows": 300, "refresh": 500}}
    plan = plan_of(
        SCHEMA, 2, window="400ms", where="a.k = b.k", output="counts", disorder={"strategy": "none"},
        shedding=shedding,
    )  # fmt: skip
    plan = dataclasses.replace(plan, join=SlowJoin(inner=plan.join, clock=clock))
    operator, source, seen = Operator(plan), Source(plan, clock), []
    assert operator.queue is not None
    for phase, (per_second, seconds) in enumerate(phases):
        until = clock.now + seconds
        while clock.now < until:
            started = clock.now
            clock.now += 0.1
            shed = operator.accounting.late.total()
            began = clock.now
            operator.push(source.chunk(per_second))
            operator.queue.measure(clock.now - began)
            shed = operator.accounting.late.total() - shed
            seen.append((phase, clock.now - started, shed, len(operator.queue), operator.queue.rate))
    operator.finish()
    assert all(operator.accounting.balanced(i) for i in range(2))
    return operator, seen


def test_the_queue_engages_when_the_backlog_grows_and_lets_go_when_it_shrinks():
    operator, seen = live("prob", [(400, 2), (2000, 20), (400, 5)])
    calm, rush, after = ([entry for entry in seen if entry[0] == phase] for phase in range(3))
    assert all(shed == 0 for _, _, shed, _, _ in calm)
    assert all(rate == pytest.approx(0.8 / COST, rel=0.05) for *_, rate in rush)
    assert sum(shed for _, _, shed, _, _ in rush) > 0.4 * sum(2000 * took for _, took, *_ in rush)
    lengths = [took for _, took, *_ in rush]
    assert max(lengths[len(lengths) // 2 :]) < 1.5 * max(lengths[: len(lengths) // 2]), "batches grow for ever"
    assert all(shed == 0 and waiting < 50 for _, _, shed, waiting, _ in after[2:])
    summary = operator.accounting.summary(10**6)["queue"]
    assert summary["max_rows"] == 300
    assert summary["wait_ms"]["max"] <= 400


def test_prob_keeps_more_than_random_of_a_live_input():
    results = {s: live(s, [(2000, 10)])[0].accounting.results for s in ("prob", "random")}
    assert results["prob"] > 1.5 * results["random"]


def test_what_was_measured_outlives_a_restart_and_a_replay_sheds_nothing():
    operator, _ = live("prob", [(2000, 2)])
    saved = snapshots.loads(snapshots.dumps(operator.snapshot()))
    again = Operator(operator._plan, saved)
    assert again.queue is not None and operator.queue is not None
    assert again.queue.rate == operator.queue.rate
    clock = Clock()
    clock.now = 50.0
    chunk = Source(operator._plan, clock).chunk(5000)
    shed = again.accounting.overflowed.sum()
    again.push(chunk._replace(came=None))
    assert (again.accounting.overflowed.sum(), len(again.queue)) == (shed, 0)


def test_a_shard_of_a_streaming_query_measures_its_micro_batches(monkeypatch):
    """Each takes half a second of work and brings what has come in a second: first few rows, then too many."""
    pytest.importorskip("pyspark")
    from slackwater.transforms.spark import shard as shards
    from slackwater.transforms.spark.blobs import Packed

    clock = Clock()

    def busy():
        clock.now += 0.5
        return clock.now

    monkeypatch.setattr(shards, "time", SimpleNamespace(perf_counter=busy))
    plan = plan_of(
        SCHEMA, 2, window="1s", where="a.k = b.k", shedding={"strategy": "random", "queue": {"rows": 50}}
    )
    shard, shed = shards.Shard(plan), []
    for number, n in enumerate((500, 500, 400, 400, 1000, 1000, 1000)):
        blobs = []
        for which in range(2):
            ts = np.full(n // 2, int(clock.now * 1000))
            table = {"ts": ts, "k": np.arange(n // 2) % 7, ARRIVAL: np.arange(n // 2)}
            blobs.append(Packed(which, 0, ipc.to_bytes(*pa.table(table).to_batches())))
        given = list(shard.take(shards.Given(blobs, int(clock.now * 1e9))))
        shed.append(sum(batch.num_rows for outputs in given for batch in outputs.late))
        if number % 2:
            shard = shards.Shard(plan, shard.snapshot())
    assert shed[:4] == [0, 0, 0, 0]
    assert min(shed[4:6]) > 200
