"""The stateful step on Spark without Spark: retried micro-batches, workers that are behind, timers, bytes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_cases import SCHEMA, arrivals, plan_of
from journaling import part_of

pytest.importorskip("pyspark")

from spark_stores import PackedRow, Query, packed_rows

from slackwater.transforms.operators.join import Operator
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import JoinPlan, bind
from slackwater.transforms.spark.blobs import LATE, RESULT, Note, Packed, pack_beat, pack_marks, pack_note
from slackwater.transforms.spark.shard import Given, Shard
from slackwater.transforms.spark.state import SparkStore

N = 300


def rows_of(batches: Any) -> Counter[Any]:
    return Counter(tuple(row.values()) for batch in batches for row in batch.to_pylist())


def marks(*values: int | None) -> Any:
    """How far each input has come, None if it has ended."""
    notes = [pack_note(i, Note(0, 0, value), [7], 0) for i, value in enumerate(values) if value is not None]
    return [
        PackedRow(*row.values()) for packed in (pack_marks(values, [7]), *notes) for row in packed.to_pylist()
    ]


def beats(member: int, progress: int) -> Any:
    return [PackedRow(*row.values()) for row in pack_beat(member, progress, [7]).to_pylist()]


micro_batches = st.lists(
    st.tuples(
        st.integers(0, 90),
        st.integers(1, 3),
        st.sampled_from(["works", "works", "fails", "fails and dies", "dies"]),
        st.integers(0, 2),
        st.sampled_from([10, 300, 1500]),
    ),
    min_size=6,
    max_size=16,
)
"""Rows, blobs of each input, what happens, who works on it, and milliseconds since the one before."""


@pytest.mark.parametrize("name", ["fixed", "result_slack", "wall", "prob", "queue", "xjoin"])
@settings(max_examples=4, deadline=None)
@given(batches=micro_batches, seed=st.integers(0, 99))
def test_retries_and_workers_that_are_behind_or_new_change_nothing(name, batches, seed) -> None:
    """Live: every micro-batch has arrived after the one before, and inputs fall idle by the clock."""
    plan = plan_of(name, idle_timeout="1s")
    whole = arrivals(plan, seed)
    query = Query(plan, workers=3, timers=True, least=20_000)
    undisturbed = Shard(plan)
    start, ms = 0, 1_000_000
    for n, pieces, fate, who, pause in batches:
        stop, ms = min(N, start + n), ms + pause
        rows = packed_rows(plan, part_of(whole, start, stop), pieces)
        rows += [beat for i in range(pieces - 1) for beat in beats(i, 5 * stop + 20)]
        if fate.startswith("fails"):
            query.micro_batch(rows, who, ms, fails=True)
        if fate.endswith("dies"):
            query.forget(who)
        due = [timer for timer in query.handle.timers if timer <= ms]
        found = query.micro_batch(rows, (who + (fate != "works")) % 3, ms)
        expected = []
        if rows:
            again = [Packed(row.input, row.place, row.blob) for row in rows]
            expected += undisturbed.take(Given(again, ms * 1_000_000))
        if due:
            expected += undisturbed.take(Given([], ms * 1_000_000))
        assert rows_of(found[RESULT]) == rows_of(batch for out in expected for batch in out.results)
        assert rows_of(found[LATE]) == rows_of(batch for out in expected for batch in out.late)
        start = stop
    assert len(query.handle.timers) <= 1
    undisturbed.close()


def test_marks_and_waiting_rows_are_restored_and_the_end_leaves_no_state() -> None:
    plan = plan_of("fixed")
    whole = arrivals(plan, 3)
    query = Query(plan, workers=2, least=5_000)
    results: Counter[Any] = Counter()
    late: Counter[Any] = Counter()
    for k, start in enumerate(range(0, N, 30)):
        part = part_of(whole, start, start + 30)
        # The second input is far behind, so rows of the first have to wait.
        over = start + 30 == N
        rows = [*packed_rows(plan, part), *(marks(None, None) if over else marks(start + 30, start - 40))]
        query.micro_batch(rows, k % 2, fails=True)
        found = query.micro_batch(rows, k // 2 % 2)
        results += rows_of(found[RESULT])
        late += rows_of(found[LATE])
        assert bool(query.handle.summary.content) != over
    operator = Operator(plan)
    expected = [operator.push(whole), operator.finish()]
    assert results == rows_of(batch for out in expected for batch in out.results)
    assert late == rows_of(batch for out in expected for batch in out.late)
    assert not query.handle.base.content
    assert not query.handle.log.content


def drive(query: Query, plan: JoinPlan, n: int, step: int, workers: Any = lambda k: 0) -> None:
    whole = arrivals(plan, 1, n, keys=50_000, step=10)
    for k, start in enumerate(range(0, n, step)):
        query.micro_batch(packed_rows(plan, part_of(whole, start, start + step)), workers(k))


@pytest.mark.parametrize("window", ["5s", "1m", "10m"])
def test_what_is_written_is_proportional_to_the_rows_whatever_the_window(window: str) -> None:
    plan = plan_of("fixed", window=window)
    query = Query(plan, least=100_000)
    drive(query, plan, 40_000, 1_000)
    given, _, written, _ = map(sum, zip(*(account.state for account in query.accounts), strict=True))
    assert written < 4 * given
    assert query.accounts[-1].state.stored < written
    assert max(account.state.read for account in query.accounts) < 500


def test_workers_that_take_turns_read_what_the_others_added() -> None:
    plan = plan_of("fixed", window="1m")
    query = Query(plan, workers=3, least=100_000)
    drive(query, plan, 40_000, 500, lambda k: k % 3)
    steady = [account.state for account in query.accounts[40:]]
    assert sum(cost.read for cost in steady) < 2.2 * sum(cost.given for cost in steady)
    assert sum(cost.stored for cost in steady) > 20 * sum(cost.given for cost in steady)
    base, log = (
        sum(len(content) for (content,) in variable.content.values())
        for variable in (query.handle.base, query.handle.log)
    )
    assert log < 5 * base, "of the log, no more is kept than since the base before the last"


def test_entries_that_a_worker_has_seen_are_not_read() -> None:
    plan = plan_of("fixed")
    query = Query(plan, workers=2)
    drive(query, plan, 120, 20, lambda k: int(k in (0, 3)))
    assert query.handle.log.reads == []
    whole = arrivals(plan, 1, 140)
    query.micro_batch(packed_rows(plan, part_of(whole, 120, 140)), 1)
    assert query.handle.log.reads == [5, 6, 7]
    assert query.handle.base.reads == []


def test_a_base_is_kept_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slackwater.transforms.spark.state.PART_BYTES", 1000)
    query = Query(plan_of("fixed"), least=1)
    store = SparkStore(query.handle.summary, query.handle.base, query.handle.log, query.handle.settings)
    store.put_base(bytes(range(256)) * 20, range(0))
    assert len(query.handle.base.content) == 6
    store.put_base(bytes(range(256)) * 10, range(0))
    assert len(query.handle.base.content) == 3
    assert store.base() == bytes(range(256)) * 10


def test_what_measures_its_own_pace_or_is_on_disk_is_a_base_every_time() -> None:
    queue = {"strategy": "random", "queue": {"rows": 5}}
    config = {"time": "ts", "window": "100ms", "where": "a.k = b.k", "shedding": queue}
    measured = bind(JoinConfig.read(config), {"a": SCHEMA, "b": SCHEMA})
    for plan in (measured, plan_of("xjoin")):
        query = Query(plan)
        drive(query, plan, 300, 100)
        assert not query.handle.log.content
        assert query.handle.base.content
        held = len(query.shards[0])
        assert held == (plan.queue is not None), "nobody would remove files that another worker made superfluous"


def test_an_idle_input_holds_nothing_back_once_its_time_is_over() -> None:
    plan = plan_of("fixed", idle_timeout="1s")
    query = Query(plan, timers=True)
    whole = arrivals(plan, 5)
    first = query.micro_batch(packed_rows(plan, part_of(whole, 0, 200)), ms=1_000)
    assert query.handle.timers == {2_000}
    part = part_of(whole, 200, 300)
    only = part._replace(
        input=part.input[part.input == 0],
        arrival=part.arrival[part.input == 0],
        batches=[part.batches[0], part.batches[1].slice(0, 0)],
    )
    alone = query.micro_batch(packed_rows(plan, only), ms=1_900)
    # The timer of the first micro-batch finds the second input silent, and the first not.
    silent = query.micro_batch([], ms=2_050)
    assert query.handle.timers == {2_900}
    everything = query.micro_batch([], ms=3_000)
    assert query.handle.timers == set()
    operator = Operator(plan)
    outs = [operator.push(part_of(whole, 0, 200)), operator.push(only), operator.idle([1]), operator.idle([0, 1])]
    assert [rows_of(found[RESULT]) for found in (first, alone, silent, everything)] == [
        rows_of(out.results) for out in outs
    ]
    assert sum(len(found[RESULT]) for found in (silent, everything))
    assert query.micro_batch([], ms=9_000) == {RESULT: [], LATE: [], "metrics": []}
