"""The driver of a shard: cuts, idle inputs, progress, accounts, errors and snapshots, without an engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import SCHEMA, plan_of

from slackwater.plugins.clock import now_nanos
from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.engine.account import Account, each_once, total
from slackwater.transforms.engine.collector import Collector
from slackwater.transforms.engine.driver import ShardDriver, since_last
from slackwater.transforms.engine.frontier import WaitingRows
from slackwater.transforms.engine.silence import Silence
from slackwater.transforms.errors import ShardError
from slackwater.transforms.operators.base import Operator
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.output.outputs import Outputs
from slackwater.transforms.settings.plan import ARRIVAL, JoinPlan
from slackwater.transforms.sharding.copies import with_copies
from slackwater.transforms.state import snapshot as snapshots


class Recorder(Operator):
    """Writes down what it is told; every row is a result when the inputs end."""

    def __init__(self, plan: JoinPlan) -> None:
        self.accounting = Accounting(plan.inputs)
        self.seconds = {}
        self.told: list[Any] = []
        self.rows: list[pa.RecordBatch] = []
        self.fault: Exception | None = None

    nbytes = 7

    @property
    def warnings(self) -> list[str]:
        return ["odd"]

    def push(self, chunk: Chunk) -> Outputs:
        if self.fault is not None:
            raise self.fault
        self.told.append(("push", chunk.arrival.tolist(), now_nanos()))
        self.accounting.receive(chunk.at_home)
        self.rows += chunk.batches
        return Outputs.empty()

    def idle(self, members: Sequence[int]) -> Outputs:
        self.told.append(("idle", list(members), now_nanos()))
        return Outputs.empty()

    def advance(self, progress: Any) -> Outputs:
        self.told.append(("advance", progress.tolist(), now_nanos()))
        return Outputs.empty()

    def finish(self) -> Outputs:
        self.accounting.in_order += self.accounting.received
        return Outputs.empty()._replace(results=self.rows)

    def snapshot(self) -> dict[str, Any]:
        return {"rows": len(self.rows)}


PLAN = plan_of(SCHEMA, 2, window="1s")


def chunk_of(numbers: Sequence[int], copies: Sequence[bool] = ()) -> Chunk:
    """Rows of the first input."""
    columns = {name: np.zeros(len(numbers), np.int64) for name in SCHEMA.names}
    rows = pa.RecordBatch.from_pydict(columns, SCHEMA)
    none = rows.slice(0, 0)
    if copies:
        rows, none = with_copies(rows, np.array(copies)), with_copies(none, np.zeros(0, np.bool_))
    return Chunk(np.zeros(len(numbers), np.int8), np.array(numbers), [rows, none])


def recorded() -> tuple[ShardDriver, Recorder]:
    operator = Recorder(PLAN)
    return ShardDriver(PLAN, 3, operator=operator), operator


def waiting_of(plan: JoinPlan, rows: Sequence[tuple[int, int, int]]) -> WaitingRows:
    """Rows (input, event time, key) that arrive one after the other, each of them a batch."""
    waiting = WaitingRows(plan)
    for number, (which, ts, key) in enumerate(rows):
        row = {"id": number, "ts": ts, "k": key, "v": 0}
        waiting.add(which, np.array([number]), pa.RecordBatch.from_pylist([row], SCHEMA))
    return waiting


def result(driver: ShardDriver, rows: Sequence[tuple[int, int, int]], most: int) -> tuple[Any, ...]:
    outputs = [*driver.take(waiting_of(driver.plan, rows).take().steps(most, bounded=True)), *driver.finish()]
    whole = Outputs.together(outputs)
    found = [row for batch in whole.results for row in batch.to_pylist()]
    # Late rows of a step leave by input, so where chunks are cut changes their order.
    late = sorted((row for batch in whole.late for row in batch.to_pylist()), key=str)
    return found, late, driver.accounting.received.tolist()


arrivals = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 40), st.integers(0, 2)), max_size=40)


@settings(max_examples=40, deadline=None)
@given(arrivals, st.integers(1, 7))
def test_cuts_change_no_result(rows, most) -> None:
    plan = plan_of(SCHEMA, 2, window="10ms", where="a.k = b.k", disorder={"strategy": "max"})
    assert result(ShardDriver(plan), rows, most) == result(ShardDriver(plan), rows, 1 << 17)


def test_rows_are_pushed_in_steps_at_the_given_time() -> None:
    driver, operator = recorded()
    list(driver.take([chunk_of([1, 2]), chunk_of([3])], nanos=55))
    driver.idle([1], 66)
    driver.advance(np.array([4, 5]), 77)
    assert operator.told == [("push", [1, 2], 55), ("push", [3], 55), ("idle", [1], 66), ("advance", [4, 5], 77)]
    driver.push(chunk_of([4]))
    assert operator.told[-1][2] > 1 << 60, "else the time of day is that of the clock"
    assert (driver.warnings, driver.nbytes) == (["odd"], 7)


def test_an_operator_that_keeps_nothing_back_may_ignore_what_others_need() -> None:
    driver, _ = recorded()
    driver.hand_over(lambda batch: None)
    driver.drop_late()
    driver.measure(1.0)
    driver.close()
    assert not driver.measures


def test_what_is_left_comes_at_the_end_and_every_row_is_accounted_for() -> None:
    driver, _ = recorded()
    driver.push(chunk_of([1, 2, 3], copies=[False, True, False]))
    assert driver.given.tolist() == [2, 0], "another shard accounts for the copy"
    assert not driver.ended
    (outputs,) = driver.finish()
    assert driver.ended and sum(batch.num_rows for batch in outputs.results) == 3


def test_a_lost_row_fails_the_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, operator = recorded()
    monkeypatch.setattr(operator.accounting, "receive", lambda inputs: None)
    driver.push(chunk_of([1, 2]))
    with pytest.raises(
        ShardError, match="shard 3: of input 'a', a shard was given 2 rows, received 0 and"
    ) as failed:
        list(driver.finish())
    assert "please report it" in str(failed.value) and not driver.ended


def test_errors_name_the_shard_and_the_rows() -> None:
    driver, operator = recorded()
    operator.fault = ValueError("odd value")
    with pytest.raises(ShardError, match=r"shard 3, input 'a' arrivals 5 to 9: .*odd value"):
        driver.push(chunk_of([5, 7, 9]))
    operator.idle = None  # type: ignore[assignment,method-assign]
    with pytest.raises(ShardError, match=r"^shard 3: "):
        driver.idle([0])


def test_a_shard_goes_on_from_its_snapshot() -> None:
    plan = plan_of(SCHEMA, 2, window="10ms", where="a.k = b.k", disorder={"strategy": "fixed", "slack": "9ms"})
    rng = np.random.default_rng(4)
    rows = [(int(i), int(ts), int(k)) for i, ts, k in zip(*rng.integers(0, (2, 30, 3), (60, 3)).T, strict=True)]
    expected = result(ShardDriver(plan), rows, 10)
    driver, found = ShardDriver(plan), []
    for chunk in waiting_of(plan, rows).take().steps(10, bounded=True):
        driver = ShardDriver(plan, snapshot=snapshots.loads(snapshots.dumps(driver.snapshot())))
        found.append(driver.push(chunk))
    found += driver.finish()
    whole = Outputs.together(found)
    # The partners of a row may come in another order.
    rows_found = [row for batch in whole.results for row in batch.to_pylist()]
    assert sorted(rows_found, key=str) == sorted(expected[0], key=str)
    assert driver.given.tolist() == expected[2]


def test_a_snapshot_of_an_operator_alone_is_read() -> None:
    """Earlier versions stored no more: what the operator has received is taken for what it was given."""
    plan = plan_of(SCHEMA, 2, window="10ms", where="a.k = b.k")
    driver = ShardDriver(plan)
    list(driver.take(waiting_of(plan, [(0, 1, 1), (1, 2, 1)]).take().steps(10)))
    again = ShardDriver(plan, snapshot=snapshots.loads(snapshots.dumps(driver.operator.snapshot())))
    assert again.given.tolist() == [1, 1]


def test_outputs_are_put_together_and_numbered() -> None:
    def batch(n: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"v": np.zeros(n, np.int64)})

    def numbers(found: Iterator[tuple[str, pa.RecordBatch]]) -> list[tuple[str, list[int]]]:
        return [(name, rows.column(ARRIVAL).to_pylist()) for name, rows in found]

    collector = Collector("out", first=100, at_least=3)
    assert numbers(collector.take(Outputs.empty()._replace(results=[batch(1), batch(1)], late=[batch(4)]))) == [
        ("late", [100, 101, 102, 103])
    ]
    assert numbers(collector.take(Outputs.empty()._replace(results=[batch(2), batch(1)], late=[batch(1)]))) == [
        ("out", [100, 101, 102, 103])
    ]
    assert numbers(collector.rest()) == [("out", [104]), ("late", [104])]
    assert collector.rows == {"out": 5, "late": 5, "metrics": 0, "syncs": 0, "punctuations": 0}
    plain = Collector("out", numbered=False)
    assert list(plain.take(Outputs.empty()._replace(results=[batch(2)]))) == [("out", batch(2))]


def test_inputs_fall_silent_by_the_clock_and_wake_when_they_speak() -> None:
    silence = Silence(2, 10)
    assert silence.due() is None, "nobody has spoken"
    assert not silence.rest({0}, 100) and silence.due() == 110
    assert not silence.rest({0}, 109)
    assert silence.rest({0}, 110) and silence.members == [1] and silence.due() == 120
    assert not silence.rest({0}, 115), "no other one is silent now"
    again = Silence(2, 10, silence.heard, silence.members)
    assert not again.wake({0}) and again.wake({0, 1}) and again.members == []
    assert again.rest((), 200) and again.members == [0, 1] and again.due() is None
    assert not Silence(2, None).rest({0}, 1 << 60)
    alone = Silence(1, 10, [0], [0])
    assert not alone.wake({0}), "its rows wake it"


def test_rows_of_a_step_came_one_after_the_other_since_the_last_one() -> None:
    assert since_last(100, 200, 4).tolist() == [125, 150, 175, 200]
    assert since_last(100, 200, 0).tolist() == []


def test_accounts_of_shards_add_up_and_their_warnings_come_once() -> None:
    accounts = []
    for shard in range(2):
        accounting = Accounting(("a", "b"))
        accounting.receive(np.array([0, 1, 1], np.int8))
        written = Account(shard, accounting, ["w", f"of {shard}"], {"out": 5}).dumps()
        accounts.append(Account.loads(written, ("a", "b")))
    assert [(account.shard, account.given) for account in accounts] == [(0, {"out": 5}), (1, {"out": 5})]
    assert total(("a", "b"), (account.accounting for account in accounts)).received.tolist() == [2, 4]
    said = each_once("joined", (account.warnings for account in accounts))
    assert said == ["joined: w", "joined: of 0", "joined: of 1"]
