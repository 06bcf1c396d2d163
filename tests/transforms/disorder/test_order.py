"""The stage that orders: bounds, buffer, and what the strategy is told."""

import numpy as np
from running import SCHEMA, plan_of

from slackwater.plugins.contract import Arrivals
from slackwater.transforms.disorder.order import Order
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.rows import row_code
from slackwater.transforms.state import snapshot as snapshots


def order_of(snapshot=None, **settings):
    plan = plan_of(SCHEMA, window="50ms", **{"disorder": {"strategy": "fixed", "slack": "10ms"}, **settings})
    state = {} if snapshot is None else snapshots.loads(snapshots.dumps(snapshot))
    return Order(plan, Accounting(plan.inputs), {"kernel": 0.0, "adapt": 0.0}, state)


class Source:
    """Gives rows (input, time) to the stage; knows how far each input has come."""

    def __init__(self):
        self.reached, self.rows = [-(10**6)] * 2, 0

    def take(self, order, rows):
        """Return what leaves, as (input, time, late)."""
        return left(self.ordered(order, rows))

    def ordered(self, order, rows):
        which, ts = (np.array(column) for column in zip(*rows, strict=True))
        which, ts = which.astype(np.int8), ts.astype(np.int64)
        progress = np.empty(ts.size, np.int64)
        for k, (i, t) in enumerate(rows):
            self.reached[i] = progress[k] = max(self.reached[i], t)
        clock = self.rows + np.arange(ts.size)
        self.rows += ts.size
        arrivals = Arrivals(which, ts, clock, progress, progress - ts, progress)
        return order.take(arrivals, row_code.pack(clock, which), order.pace.follow(progress))


def left(ordered):
    rows = ordered.rows
    return list(zip(row_code.input_of(rows.code).tolist(), rows.ts.tolist(), rows.late.tolist(), strict=True))


def test_rows_leave_in_order_once_the_bounds_of_all_inputs_have_passed_them():
    order, source = order_of(), Source()
    assert source.take(order, [(0, 30), (1, 25), (0, 20), (0, 45)]) == []
    assert len(order) == 4
    assert source.take(order, [(1, 50)]) == [(0, 20, False), (1, 25, False)]
    assert source.take(order, [(1, 5)]) == [(1, 5, True)]
    assert left(order.drain()) == [(0, 30, False), (0, 45, False), (1, 50, False)]
    assert len(order) == 0


def test_what_stands_beside_rows_is_what_the_buffer_held_when_each_had_left():
    order, source = order_of(disorder={"strategy": "fixed", "slack": "0ms"}), Source()
    source.take(order, [(0, 1), (0, 2), (0, 3)])
    ordered = source.ordered(order, [(1, 2), (1, 3)])
    assert ordered.rows.ts.tolist() == [1, 2, 2, 3, 3]
    assert ordered.level.tolist() == [3, 2, 1, 1, 0]
    assert ordered.held == 0
    assert ordered.peaks.tolist() == [3, 3, 2, 1, 1, 0]


def test_idle_inputs_hold_nothing_back():
    order = order_of()
    Source().take(order, [(0, 30), (0, 60)])
    assert left(order.idle([1])) == [(0, 30, False)]
    assert left(order.idle([0, 1])) == [(0, 60, False)]


def test_progress_elsewhere_lets_rows_go():
    order = order_of()
    Source().take(order, [(0, 30), (1, 31)])
    assert left(order.advance(np.array([100, 40]))) == [(0, 30, False)]


def test_the_stage_goes_on_from_its_snapshot():
    rows = [(k % 2, 3 * k - (k * 7) % 20) for k in range(60)]
    settings = {
        "disorder": {"strategy": "quality_driven", "recall": 0.9, "period": "1s", "interval": "20ms"},
        "metrics": "20ms",
    }
    whole, source = order_of(**settings), Source()
    expected = source.take(whole, rows[:30]) + source.take(whole, rows[30:]) + left(whole.drain())
    first, source = order_of(**settings), Source()
    got = source.take(first, rows[:30])
    second = order_of(first.snapshot(), **settings)
    assert len(second) == len(first) > 0
    assert second.pace.newest == first.pace.newest
    assert got + source.take(second, rows[30:]) + left(second.drain()) == expected
