"""result_slack keeps an account of missed periods, spares slack that gains nothing, and samples fast streams."""

import numpy as np
import pytest
from running import SCHEMA, chunk_of, numbered, plan_of
from slack_cases import OPTIONS, slack_over_time, stream

from slackwater.plugins.disorder.result_slack import logic as logic_module
from slackwater.plugins.disorder.result_slack.strategy import ResultSlack
from slackwater.transforms.operators.join import Operator
from slackwater.transforms.state import snapshot as snapshots


def test_slack_between_two_steps_of_the_delays_is_spared():
    slack, _ = slack_over_time(stream(8000, 0.3, 50), recall=0.99)
    assert set(slack[-20:]) <= {49.0, 50.0}


def test_periods_that_were_met_earn_credit_up_to_a_limit():
    _, operator = slack_over_time(stream(24_000, 0.2, 20), recall=0.9)
    assert operator.order.pace.logic.logic._credit == logic_module.MOST_CREDIT


def test_a_missed_period_costs_credit_and_debt_raises_the_slack():
    rising = [
        (i, {**row, "ts": row["ts"] + 4000 * step})
        for step, delay in enumerate((10, 40, 100))
        for i, row in stream(4000, 0.4, delay)
    ]
    _, calm = slack_over_time(stream(12_000, 0.4, 10), recall=0.95)
    _, shaken = slack_over_time(rising, recall=0.95)
    assert shaken.order.pace.logic.logic._credit < calm.order.pace.logic.logic._credit - 0.2


def sampled(monkeypatch, kept, lookups):
    monkeypatch.setattr(logic_module, "KEPT_PER_INTERVAL", kept)
    monkeypatch.setattr(logic_module, "LOOKUPS_PER_INTERVAL", lookups)


def test_a_sample_estimates_the_whole_distribution(monkeypatch):
    rng = np.random.default_rng(1)
    arrivals = [
        (which, {"ts": k - int(rng.exponential(15)), "k": int(rng.integers(10)), "v": 0})
        for k in range(12_000)
        for which in (0, 1)
    ]

    def learnt():
        _, operator = slack_over_time(arrivals, period="4s")
        return operator.order.pace.logic.logic._histogram.sum(axis=0), operator

    whole, _ = learnt()
    sampled(monkeypatch, 25, 50)
    part, operator = learnt()
    assert min(operator.order.pace.logic.logic._samples[1:]) > 1
    assert len(operator.order.pace.logic.held_cells()[0]) < 5000
    assert part.sum() == pytest.approx(whole.sum(), rel=0.1)
    assert np.abs(np.cumsum(part) / part.sum() - np.cumsum(whole) / whole.sum()).max() < 0.02


def test_a_sampled_run_goes_on_from_a_snapshot(monkeypatch):
    sampled(monkeypatch, 25, 50)
    arrivals = numbered(stream(3000, 0.3, 40))
    plan = plan_of(SCHEMA, window="20ms", where="a.k = b.k", disorder=OPTIONS, output="counts")

    def run(restart):
        operator, rows = Operator(plan), []
        for start in range(0, len(arrivals), 450):
            rows += operator.push(chunk_of(plan, arrivals[start : start + 450], start)).metrics
            if restart:
                operator = Operator(plan, snapshots.loads(snapshots.dumps(operator.snapshot())))
        return [row for batch in rows for row in batch.to_pylist()], operator.order.pace.logic.logic._samples

    assert run(True) == run(False)
    assert run(False)[1][2] > 1


def test_what_needs_more_than_the_horizon_is_never_counted_as_met():
    slack, operator = slack_over_time(stream(6000, 0.3, 50), recall=0.99, horizon="30ms")
    assert slack[-1] == 30
    assert operator.order.pace.logic.report()["recall"] < 0.8


def test_a_recall_alone_means_result_slack():
    plan = plan_of(SCHEMA, window="20ms", where="a.k = b.k", disorder={"recall": 0.95, "period": "10s"})
    assert plan.disorder == ResultSlack(recall=0.95, period="10s")
