"""Inputs that fall silent: what they hold leaves, nobody waits for them, and they may come back.

Also inputs that rows of other shards move on."""

from __future__ import annotations

from typing import Any

import aggregate_reference
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import SCHEMA, chunk_of, plan_of

from slackwater.plugins.contract import NEVER
from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.disorder.buffer import ReorderBuffer
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.operators.aggregate.operator import Aggregator
from slackwater.transforms.operators.group_close.operator import GroupCloser
from slackwater.transforms.operators.group_close.plan import bind_group_close
from slackwater.transforms.operators.join import Operator
from slackwater.transforms.settings.models import GroupCloseConfig, JoinConfig
from slackwater.transforms.settings.plan import ARRIVAL
from slackwater.transforms.spark.blobs import Packed, pack, pack_beat
from slackwater.transforms.spark.shard import Given, Shard
from slackwater.transforms.state import snapshot as snapshots

SLACK = 10
FIXED = {"strategy": "fixed", "slack": f"{SLACK}ms"}


class Reference:
    """K-slack and Synchronizer as Alg. 1 of QDDH has them, tuple by tuple, with inputs that may fall silent."""

    def __init__(self, inputs: int) -> None:
        self.held: list[list[tuple[int, int]]] = [[] for _ in range(inputs)]
        self.progress = [NEVER] * inputs
        self.released = [NEVER] * inputs
        self.silent: set[int] = set()
        self.synced: list[tuple[int, int]] = []
        self.t_sync = self.on_t = NEVER
        self.out: list[tuple[int, bool]] = []

    def arrive(self, i: int, ts: int, code: int) -> int:
        """Take a row; return the bound that it sets."""
        self.silent.discard(i)
        self.progress[i] = max(self.progress[i], ts)
        bound = self.progress[i] - SLACK
        self.held[i].append((ts, code))
        self._release(i, bound)
        self._synchronise()
        return bound

    def idle(self, inputs: list[int]) -> None:
        self.silent = set(inputs)
        for i in inputs:
            self._release(i, 1 << 62)
        self._synchronise()

    def advance(self, progress: dict[int, int]) -> list[int]:
        """Follow rows that went elsewhere; return the bounds that they set."""
        bounds = [NEVER] * len(self.held)
        for i, ts in progress.items():
            self.silent.discard(i)
            self.progress[i] = max(self.progress[i], ts)
            bounds[i] = self.progress[i] - SLACK
            self._release(i, bounds[i])
            self.released[i] = max(self.released[i], bounds[i])
        self._synchronise()
        return bounds

    def _release(self, i: int, bound: int) -> None:
        for row in sorted(row for row in self.held[i] if row[0] <= bound):
            self.held[i].remove(row)
            self.released[i] = max(self.released[i], row[0])
            self.synced.append(row)

    def _synchronise(self) -> None:
        awake = [t for i, t in enumerate(self.released) if i not in self.silent]
        newest = max((ts for ts, _ in self.synced), default=NEVER)
        self.t_sync = max(self.t_sync, min(awake, default=newest))
        for row in sorted(row for row in self.synced if row[0] <= self.t_sync):
            self.synced.remove(row)
            self.out.append((row[1], row[0] < self.on_t))
            self.on_t = max(self.on_t, row[0])


events = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 2), st.integers(0, 120)),
        st.tuples(st.integers(0, 2), st.integers(0, 120)),
        st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True),
        st.dictionaries(st.integers(0, 2), st.integers(0, 120), min_size=1),
        st.just("restore"),
        st.just("cut"),
    ),
    max_size=80,
)


@settings(max_examples=150, deadline=None)
@given(events=events)
def test_rows_leave_as_the_algorithm_says_where_inputs_fall_silent_or_go_on_elsewhere(events: list[Any]) -> None:
    reference, buffer, out = Reference(3), ReorderBuffer(3), []
    waiting: list[tuple[int, int, int, int]] = []
    since = [0, 0, 0]

    def take(emitted: Any) -> None:
        out.extend(zip(emitted.code.tolist(), emitted.late.tolist(), strict=True))

    def flush() -> None:
        if waiting:
            inputs, *rest = (np.array(column, np.int64) for column in zip(*waiting, strict=True))
            take(buffer.push(inputs.astype(np.int8), *rest))
            waiting.clear()

    for event in [*events, [0, 1, 2]]:
        if isinstance(event, tuple):
            i, ts = event
            code = since[i] * 8 + i
            since[i] += 1
            waiting.append((i, ts, code, reference.arrive(i, ts, code)))
            continue
        flush()
        if isinstance(event, list):
            reference.idle(event)
            take(buffer.idle(event))
        elif isinstance(event, dict):
            take(buffer.advance(np.array(reference.advance(event))))
        elif event == "restore":
            buffer = ReorderBuffer(3, snapshots.loads(snapshots.dumps(buffer.snapshot())))
        assert out == reference.out
    assert len(buffer) == 0, "everything leaves once all are silent"


def fixed(**settings: Any) -> Any:
    disorder = {"strategy": "fixed", "slack": "10ms"}
    return plan_of(SCHEMA, window="100ms", where="a.k = b.k", **{"disorder": disorder, **settings})


def row(which: int, id_: int, ts: int, k: int = 1) -> tuple[int, dict[str, int]]:
    return which, {"id": id_, "ts": ts, "k": k, "v": 0}


def pairs(out: Any) -> list[tuple[int, int]]:
    return [(row["a_id"], row["b_id"]) for batch in out.results for row in batch.to_pylist()]


def test_a_join_goes_on_without_the_input_that_is_silent() -> None:
    plan = fixed()
    operator = Operator(plan)
    assert pairs(operator.push(chunk_of(plan, [row(0, 1, 100), row(1, 1, 101), row(0, 2, 150)]))) == []
    assert pairs(operator.idle([1])) == [], "a is held by its own slack yet"
    assert pairs(operator.push(chunk_of(plan, [row(0, 3, 170)]))) == [(1, 1), (2, 1)]
    late = operator.push(chunk_of(plan, [row(1, 2, 120), row(1, 3, 140)])).late
    assert [r["arrival"] for batch in late for r in batch.to_pylist()] == [0], "behind the join, and not held"
    found = pairs(operator.idle([0, 1]))
    assert found == [(3, 1), (3, 2), (3, 3)], "what came late is in its window still, and met from there"
    assert operator.accounting.late == {(1, "too_late"): 2}


def test_a_queue_is_served_when_nothing_comes_any_more() -> None:
    queue = {"strategy": "random", "queue": {"rows": 10, "service_rate": 10}}
    schema = SCHEMA.append(pa.field("at", pa.int64()))
    plan = plan_of(
        schema, window="1s", where="a.k = b.k", shedding=queue, arrival="at", disorder={"strategy": "none"}
    )
    operator = Operator(plan)
    rows = [(i % 2, {"id": i, "ts": i, "k": 1, "v": 0, "at": i}) for i in range(6)]
    first = pairs(operator.push(chunk_of(plan, rows)))
    assert len(operator.queue) == 5
    assert len(first) + len(pairs(operator.idle([0, 1]))) == 9
    assert len(operator.queue) == 0


def test_metrics_are_written_when_all_are_silent() -> None:
    plan = fixed(metrics="1s")
    operator = Operator(plan)
    assert not operator.push(chunk_of(plan, [row(0, 1, 100), row(1, 1, 101)])).metrics
    assert not operator.idle([0]).metrics
    (batch,) = operator.idle([0, 1]).metrics
    assert batch.to_pylist()[0]["produced"] == 1


def test_extents_that_event_time_has_passed_come_out() -> None:
    plan = aggregate_reference.plan_of(range="10ms", disorder={"strategy": "fixed", "slack": "50ms"})
    schema = plan.schemas["input"]
    rows = [{"id": i, "ts": ts, "g": 1} for i, ts in enumerate((1, 12, 19, 25))]
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    operator = Aggregator(plan)
    out = operator.push(Chunk(np.zeros(4, np.int8), np.arange(4), [batch]))
    assert not out.results
    out = operator.idle([0])
    assert [row["extent"] for batch in out.results for row in batch.to_pylist()] == [0, 1]
    assert not operator.idle([0]).results
    more = pa.RecordBatch.from_pylist([{"id": 4, "ts": 21, "g": 1}, {"id": 5, "ts": 11, "g": 1}], schema=schema)
    out = operator.push(Chunk(np.zeros(2, np.int8), np.arange(2), [more]))
    assert sum(batch.num_rows for batch in out.late) == 1
    out = operator.finish()
    assert [row["extent"] for batch in out.results for row in batch.to_pylist()] == [2]


def test_punctuations_do_not_wait_for_a_row_that_never_comes() -> None:
    rows = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
    marks = pa.schema([("ts", pa.int64()), ("pattern", pa.string())])
    config = GroupCloseConfig.read({"time": "ts", "by": "k", "aggregates": {"n": "count(*)"}})
    plan = bind_group_close(config, {"rows": rows, "punctuations": marks})
    operator = GroupCloser(plan)
    batches = [
        pa.RecordBatch.from_pylist([{"ts": 1, "k": 5}, {"ts": 2, "k": 6}], schema=rows),
        pa.RecordBatch.from_pylist([{"ts": 2, "pattern": '{"k": 5}'}], schema=marks),
    ]
    assert not operator.push(Chunk(np.array([0, 0, 1], np.int8), np.array([1, 2, 2]), batches)).results
    assert not operator.idle([0]).results
    (batch,) = operator.idle([0, 1]).results
    assert [(row["k"], row["n"], row["closed_by"]) for row in batch.to_pylist()] == [(5, 1, "punctuation")]
    (batch,) = operator.finish().results
    assert [row["k"] for row in batch.to_pylist()] == [6]


def test_a_timeout_is_a_duration() -> None:
    assert fixed(idle_timeout="30s").config.idle_timeout == 30_000_000_000
    with pytest.raises(ConfigError, match="idle_timeout: must be a duration such as 250ms"):
        JoinConfig.read({"time": "ts", "window": "1s", "idle_timeout": 5})


def test_inputs_that_wake_in_one_micro_batch_wait_for_each_other() -> None:
    """After a pause, all rows of a come before all of b: without waiting, none of a would find one of b."""
    plan = plan_of(SCHEMA, window="10s", where="a.k = b.k", disorder=FIXED, idle_timeout="1s")
    shard = Shard(plan)

    def take(second: int, *ranges: tuple[int, int]) -> int:
        rows = []
        for i, (first, stop) in enumerate(ranges):
            ids = range(first, stop)
            batch = pa.RecordBatch.from_pylist([{"id": n, "ts": n, "k": n, "v": 0} for n in ids], schema=SCHEMA)
            numbered = batch.append_column(ARRIVAL, pa.array(range(1000 * i, 1000 * i + batch.num_rows)))
            parts = [pack(plan, i, numbered, [0], 0), pack_beat(i, stop - 1, [0])] if ids else []
            rows += [Packed(r["input"], r["place"], r["blob"]) for part in parts for r in part.to_pylist()]
        outputs = shard.take(Given(rows, second * 1_000_000_000))
        return sum(batch.num_rows for out in outputs for batch in out.results)

    assert take(0, (0, 100), (0, 100)) > 80
    assert take(5) > 0, "both are silent, and nothing is held"
    assert take(6, (5000, 5100), (5000, 5100)) + take(20) == 100
    assert not shard.accounting.late
