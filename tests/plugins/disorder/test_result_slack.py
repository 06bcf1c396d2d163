"""The slack that each result needs: what is learnt is exact, and K follows from it."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import SCHEMA, chunk_of, numbered, plan_of
from slack_cases import OPTIONS, slack_over_time, stream

from slackwater.plugins.contract import NEVER
from slackwater.plugins.disorder.result_slack.logic import slack_steps
from slackwater.plugins.disorder.result_slack.strategy import ResultSlack
from slackwater.plugins.registry.manager import OptionError, manager
from slackwater.transforms.operators.join import Operator
from slackwater.transforms.state import snapshot as snapshots


def needed(arrivals, m, windows, holds):
    """Every result's needed slack, by trying all combinations of rows."""
    progress, frontiers = [NEVER] * m, []
    for which, row in arrivals:
        progress[which] = max(progress[which], row["ts"])
        frontiers.append(min(progress))
    of_input = [[(k, row) for k, (i, row) in enumerate(arrivals) if i == j] for j in range(m)]
    for members in product(*of_input):
        newest = max(row["ts"] for _, row in members)
        if all(row["ts"] >= newest - w for (_, row), w in zip(members, windows, strict=True)) and holds(members):
            last = max(k for k, _ in members)
            if frontiers[last] != NEVER:
                yield newest, max(0, frontiers[last] - newest)


CONDITIONS = {
    "a.k = b.k": (2, lambda ms: ms[0][1]["k"] == ms[1][1]["k"]),
    "abs(a.v - b.v) < 2": (2, lambda ms: abs(ms[0][1]["v"] - ms[1][1]["v"]) < 2),
    "a.k = b.k AND b.k = c.k": (3, lambda ms: len({row["k"] for _, row in ms}) == 1),
    "a.k = b.k AND b.v = c.v": (
        3,
        lambda ms: ms[0][1]["k"] == ms[1][1]["k"] and ms[1][1]["v"] == ms[2][1]["v"],
    ),
}
ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 300), st.integers(0, 2), st.integers(0, 3)), max_size=30
)


@given(ROWS, st.sampled_from(sorted(CONDITIONS)), st.integers(1, 30))
def test_every_result_that_needs_slack_is_learnt_exactly(rows, where, cut):
    m, holds = CONDITIONS[where]
    arrivals = numbered((i % m, {"ts": ts, "k": k, "v": v}) for i, ts, k, v in rows)
    windows = [60, 40, 80][:m]
    named = dict(zip("abc", (f"{w}ms" for w in windows), strict=False))
    plan = plan_of(SCHEMA, m, window=named, where=where, disorder=OPTIONS)
    operator = Operator(plan)
    for start in range(0, len(arrivals), cut):
        operator.push(chunk_of(plan, arrivals[start : start + cut], start))
    logic = operator.order.pace.logic.logic
    assert logic._horizon > 300
    learnt = logic._histogram.sum(axis=0)
    slacks = slack_steps(1, 1000)
    expected = np.zeros(slacks.size)
    for _, need in needed(arrivals, m, windows, holds):
        expected[np.searchsorted(slacks, need)] += 1
    assert learnt[1:] == pytest.approx(expected[1:])


def test_slack_covers_the_delay_when_the_recall_needs_it_and_not_otherwise():
    arrivals = list(stream(6000, 0.3, 50))
    demanding, _ = slack_over_time(arrivals, recall=0.99)
    easy, _ = slack_over_time(arrivals, recall=0.3)
    assert 45 <= demanding[-1] <= 55
    assert easy[-1] <= 5


def test_slack_shrinks_when_the_disorder_is_over():
    arrivals = list(stream(4000, 0.5, 60))
    arrivals += [(i, {**row, "ts": row["ts"] + 4000}) for i, row in stream(40_000, 0.0, 0)]
    slack, _ = slack_over_time(arrivals, recall=0.95)
    assert slack[35] >= 55
    assert slack[-1] == 0


def test_a_single_outlier_moves_nothing():
    arrivals = list(stream(6000, 0.2, 10))
    plain, _ = slack_over_time(arrivals, recall=0.95)
    arrivals[8000] = (arrivals[8000][0], {**arrivals[8000][1], "ts": 10})
    arrivals[9000] = (arrivals[9000][0], {**arrivals[9000][1], "ts": 10**7})
    disturbed, _ = slack_over_time(arrivals[:9000], recall=0.95)
    assert disturbed[-1] <= plain[-1] + 2


def test_an_idle_time_leaves_the_slack_as_it_was():
    arrivals = list(stream(5000, 0.3, 30))
    before, _ = slack_over_time(arrivals, recall=0.95)
    later = [(i, {**row, "ts": row["ts"] + 10**7}) for i, row in stream(50, 0.0, 0)]
    after, _ = slack_over_time(arrivals + later, recall=0.95)
    assert after[-1] == before[-1]


def test_memory_is_bounded():
    _, operator = slack_over_time(stream(5000, 0.1, 20), recall=0.9, memory=300)
    inputs, _ = operator.order.pace.logic.held_cells()
    assert np.bincount(inputs).max() <= 300


@pytest.mark.parametrize("cut", [37, 500])
def test_snapshots_and_chunks_change_nothing(cut):
    arrivals = numbered(stream(1500, 0.3, 40))
    plan = plan_of(SCHEMA, window="20ms", where="a.k = b.k", disorder=OPTIONS, output="counts")

    def run(cut, restart):
        operator, rows = Operator(plan), []
        for start in range(0, len(arrivals), cut):
            rows += operator.push(chunk_of(plan, arrivals[start : start + cut], start)).metrics
            if restart:
                operator = Operator(plan, snapshots.loads(snapshots.dumps(operator.snapshot())))
        rows += operator.finish().metrics
        return [row for batch in rows for row in batch.to_pylist()]

    assert run(cut, True) == run(len(arrivals), False)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({}, "strategy 'result_slack' needs the option 'recall'; add it"),
        ({"recall": 0}, "option 'recall' of strategy 'result_slack': input should be greater than 0, got 0"),
        ({"recall": 1.5}, "input should be less than or equal to 1, got 1.5"),
        ({"recall": 0.9, "granularity": 0}, "option 'granularity' of strategy 'result_slack'"),
        ({"recall": 0.9, "interval": "2m"}, r"period must be at least as long as interval \(2m\), got 1m"),
        ({"recall": 0.9, "memory": 0}, "option 'memory' of strategy 'result_slack'"),
    ],
)
def test_bad_options_are_refused(options, fault):
    with pytest.raises(OptionError, match=fault):
        manager().create("disorder", {"strategy": "result_slack", **options})


def test_defaults_are_those_of_the_papers_setting():
    options = ResultSlack(recall=0.95)
    assert (str(options.period), str(options.interval), str(options.granularity)) == ("1m", "1s", "10ms")
