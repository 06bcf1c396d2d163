"""The stage that delivers: results as rows or counts, late rows with their reasons, and the account."""

import numpy as np
import pyarrow as pa
from running import SCHEMA, chunk_of, numbered, plan_of

from slackwater.plugins.contract import Evicted, Matches, Settled
from slackwater.plugins.guard.calls import guarded
from slackwater.transforms.arrival.intake import Intake, Refused
from slackwater.transforms.disorder.buffer import Emitted
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.output.delivery import Delivery
from slackwater.transforms.punctuation.judge import Judged
from slackwater.transforms.rows.shard_rows import ShardRows
from slackwater.transforms.state import snapshot as snapshots

ROWS = numbered([(0, {"ts": 1, "k": 1}), (1, {"ts": 2, "k": 1}), (0, {"ts": 3, "k": 1})])
NONE = np.empty(0, np.int64)


class Stage:
    """A delivery and three rows that have reached the join: a0, b0 and a1."""

    def __init__(self, snapshot=None, late=(), **settings):
        self.plan = plan_of(SCHEMA, window="9ms", where="a.k = b.k", **settings)
        self.rows = ShardRows(self.plan)
        taken = Intake(self.plan).take(chunk_of(self.plan, ROWS))
        arrivals = self.rows.add(taken, False)
        marked = np.isin(np.arange(3), late)
        self.reached = self.rows.reached(Emitted(taken.codes, arrivals.ts, marked, np.arange(3)))
        self.accounting = Accounting(self.plan.inputs)
        self.logic = guarded(self.plan.join, self.plan.setting)
        state = {} if snapshot is None else snapshots.loads(snapshots.dumps(snapshot))
        seconds = {"materialise": 0.0}
        self.delivery = Delivery(self.plan, self.rows, self.logic, self.accounting, seconds, 3, state)

    def close(self):
        self.delivery.close_step()
        return self.delivery.collect()


def matches(rows=(), probe=(), sizes=(0, 0, 0), **more):
    size = np.array(sizes, np.int64)
    of = np.array(rows, np.int64).reshape(-1, 2)
    return Matches(0, 3, of, np.array(probe, np.int64), size, size.astype(float), **more)


def test_results_leave_as_rows_with_their_times_and_ids():
    stage = Stage(id="rid")
    stage.delivery.take(stage.reached.tuples, matches([(0, 0), (1, 0)], [1, 2], (0, 1, 1)))
    (batch,) = stage.close().results
    rows = batch.to_pylist()
    assert [(row["a_id"], row["b_id"], row["ts"], row["rid"]) for row in rows] == [
        (0, 0, 2, "3-0-0"),
        (1, 0, 3, "3-1-0"),
    ]
    assert stage.close().results == [], "a step gives what was gathered in it"


def test_results_in_another_order_are_put_in_that_of_their_tuples():
    stage = Stage()
    stage.logic.reorders = True
    stage.delivery.take(stage.reached.tuples, matches([(1, 0)], [2]))
    stage.delivery.take(stage.reached.tuples, matches([(0, 0)], [1]))
    stage.delivery.put_in_order(stage.reached.tuples)
    (batch,) = stage.close().results
    assert batch.column("ts").to_pylist() == [2, 3]


def test_counts_wait_for_a_later_time_and_go_through_a_snapshot():
    stage = Stage(output="counts")
    stage.delivery.take(stage.reached.tuples, matches(sizes=(0, 2, 3)))
    (batch,) = stage.close().results
    assert batch.to_pylist() == [{"ts": 2, "count": 2}]
    again = Stage(stage.delivery.snapshot(), output="counts")
    assert list(again.delivery.finish(())) == []
    (batch,) = again.delivery.collect().results
    assert batch.to_pylist() == [{"ts": 3, "count": 3}]


def test_late_rows_are_written_once_and_what_is_shed_afterwards_is_not_counted_again():
    stage = Stage(late=[0])
    stage.delivery.take_late(Judged(stage.reached))
    evicted = Evicted(np.array([0, 0], np.int8), np.array([0, 1]), np.array([-1, 2]))
    stage.delivery.take(stage.reached.tuples, matches(evicted=evicted))
    late = [row for batch in stage.close().late for row in batch.to_pylist()]
    assert [(row["input"], row["reason"], row["ts"]) for row in late] == [("a", "shed", 3), ("a", "too_late", 1)]
    assert stage.accounting.late == {(0, "shed"): 1}


def test_rows_are_counted_and_not_written_where_nobody_reads_them():
    stage = Stage(late=[0])
    stage.delivery.drop_late()
    stage.delivery.take_late(Judged(stage.reached))
    assert stage.close().late == []


def test_what_the_way_in_refuses_is_late_at_once():
    stage = Stage()
    rows = pa.RecordBatch.from_pylist([{"id": 9, "ts": 4}], schema=SCHEMA)
    stage.delivery.refuse([Refused(1, "too_late", np.array([4]), np.array([7]), rows)])
    (row,) = stage.close().late[0].to_pylist()
    assert (row["input"], row["reason"], row["ts"], row["arrival"]) == ("b", "too_late", 4, 7)
    assert stage.accounting.late == {(1, "too_late"): 1}


def test_owed_results_count_though_no_tuple_of_the_step_has_completed_them():
    stage = Stage(output="counts")
    stage.delivery.take_owed(matches(settled=Settled(np.array([5, 5]), None)))
    assert list(stage.delivery.finish(())) == []
    (batch,) = stage.delivery.collect().results
    assert batch.to_pylist() == [{"ts": 5, "count": 2}]
    assert stage.accounting.results == 2
