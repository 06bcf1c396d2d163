"""The stage that joins: runs of a strategy within its memory, and the join's time."""

import numpy as np
import pytest
from running import SCHEMA, chunk_of, numbered, plan_of

from slackwater.plugins.guard.calls import guarded
from slackwater.transforms.arrival.intake import Intake
from slackwater.transforms.disorder.buffer import Emitted
from slackwater.transforms.disorder.order import Order, Ordered
from slackwater.transforms.errors import SlackwaterError
from slackwater.transforms.operators.join.stage import Join
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.rows.shard_rows import ShardRows
from slackwater.transforms.state import snapshot as snapshots


class Stage:
    """A join, and the rows that it is given in order of time."""

    def __init__(self, snapshot=None, **settings):
        self.plan = plan_of(SCHEMA, **{"window": "20ms", "where": "a.k = b.k", **settings})
        state = {} if snapshot is None else snapshots.loads(snapshots.dumps(snapshot))
        self.rows = ShardRows(self.plan, state)
        logic = guarded(self.plan.join, self.plan.setting, state.get("join"))
        shed = state.get("shedding")
        shedding = guarded(self.plan.shedding, self.plan.setting, shed["logic"] if shed else None)
        self.accounting, seconds = Accounting(self.plan.inputs), {"kernel": 0.0, "adapt": 0.0}
        order = Order(self.plan, self.accounting, seconds, state, shedding.memory is not None)
        self.join = Join(self.plan, logic, shedding, self.rows, order.buffer, self.accounting, seconds, state)
        self.intake = Intake(self.plan, state.get("intake"))
        self.found, self.evicted = [], []

    def give(self, rows, late=()):
        """Join rows (input, time); return the join size of each."""
        given = [(which, {"ts": ts, "k": 1, "v": 0}) for which, ts in rows]
        taken = self.intake.take(chunk_of(self.plan, numbered(given)))
        ts, sizes = self.rows.add(taken, False).ts, []
        n = ts.size
        self.join.shedder.limit.meet(np.maximum.accumulate(ts), 0)
        emitted = Emitted(taken.codes, ts, np.isin(np.arange(n), late), np.arange(n))
        for part, peaks in self.join.parts(Ordered(emitted, np.zeros(n, np.int64), 0)):
            tuples = self.rows.reached(part).tuples
            joined = self.join.step(tuples, None, peaks, self.take)
            sizes += joined.sizes[0].tolist()
            self.join.follow(tuples)
        return sizes

    def take(self, released, matches):
        self.found += matches.rows.tolist()
        if matches.evicted is not None:
            self.evicted += zip(matches.evicted.input.tolist(), matches.evicted.seq.tolist(), strict=True)

    def snapshot(self):
        return {**self.join.snapshot(), **self.rows.snapshot(), "intake": self.intake.snapshot()}


def test_tuples_find_those_in_the_windows_and_the_time_goes_on():
    stage = Stage()
    assert stage.give([(0, 1), (1, 2), (1, 3), (0, 3)]) == [0, 1, 1, 2]
    assert sorted(stage.found) == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert stage.join.now == 3
    assert stage.join.live() == 4
    assert not stage.join.owes()
    assert list(stage.join.finish()) == []


def test_late_tuples_have_missed_the_part_of_their_partners_that_has_gone_by():
    stage = Stage()
    stage.give([(0, 40)])
    given = [(1, {"ts": 30, "k": 1, "v": 0}), (1, {"ts": 0, "k": 1, "v": 0})]
    taken = stage.intake.take(chunk_of(stage.plan, numbered(given)))
    ts = stage.rows.add(taken, False).ts
    reached = stage.rows.reached(Emitted(taken.codes, ts, np.ones(2, np.bool_), np.arange(2)))
    assert stage.join.follow(reached.tuples).tolist() == [0.75, 1.0]
    assert stage.join.now == 40


def test_no_more_is_held_than_the_memory_allows_and_each_row_left_is_named_once():
    stage = Stage(shedding={"strategy": "random", "memory": 6}, window="10s")
    sizes = stage.give([(k % 2, k) for k in range(40)])
    assert stage.join.live() <= 6
    assert len(stage.evicted) == len(set(stage.evicted)) == 40 - stage.join.live()
    assert sum(sizes) == len(stage.found)
    assert stage.join.shadow is not None
    assert stage.accounting.shed + len(stage.found) == sum((k + 1) // 2 for k in range(40))


def test_under_a_limit_a_part_without_rows_can_let_tuples_leave():
    stage = Stage(shedding={"strategy": "random", "memory": 6}, window="10s")
    stage.give([(k % 2, k) for k in range(20)])
    none = Emitted(*(np.empty(0, dtype) for dtype in (np.int64, np.int64, np.bool_, np.int64)))
    (part,) = stage.join.parts(Ordered(none, np.empty(0, np.int64), 4))
    assert part[1].tolist() == [4]
    before = stage.join.live()
    tuples = stage.rows.reached(part[0]).tuples
    stage.join.step(tuples, None, part[1], stage.take)
    assert stage.join.live() == 2 < before
    assert list(Stage().join.parts(Ordered(none, np.empty(0, np.int64), 4))) == []


def test_a_number_that_does_not_fit_names_the_condition():
    stage = Stage(where="a.ts * 4611686018427387904 + b.ts > 0")
    with pytest.raises(
        SlackwaterError, match=r"where: .* computes a whole number that does not fit into 64 bits"
    ):
        stage.give([(0, 5), (1, 5)])


@pytest.mark.parametrize("shedding", [{"strategy": "none"}, {"strategy": "prob", "memory": 8}])
def test_the_stage_goes_on_from_its_snapshot(shedding):
    rows = [(k % 2, 2 * k) for k in range(60)]
    whole = Stage(shedding=shedding)
    expected = whole.give(rows[:31]), whole.give(rows[31:])
    first = Stage(shedding=shedding)
    assert first.give(rows[:31]) == expected[0]
    again = Stage(first.snapshot(), shedding=shedding)
    assert again.join.now == first.join.now == 60
    assert again.join.live() == first.join.live() > 0
    assert again.give(rows[31:]) == expected[1]
