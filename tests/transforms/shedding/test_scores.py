"""What tuples are worth: strategies are asked about those that windows still reach, and lifetimes count."""

import numpy as np
import pytest
from running import SCHEMA, plan_of

from slackwater.plugins.contract import Held, Released
from slackwater.plugins.guard.calls import guarded
from slackwater.transforms.rows.encoder import CellEncoder
from slackwater.transforms.shedding.scores import Scores

ARRIVING = Released(
    np.array([0, 1, 0], np.int8), np.arange(3), np.array([10, 20, 100]), np.zeros(3, np.bool_),
    np.ones((3, 1), np.int64), np.zeros(3, np.uint64),
)  # fmt: skip


def scores_of(strategy, now):
    shedding = {"strategy": strategy, "memory": 9}
    plan = plan_of(SCHEMA, window="50ms", where="a.k = b.k", shedding=shedding)
    logic = guarded(plan.shedding, plan.setting)
    return Scores(plan, logic, CellEncoder(plan.condition), now), logic


def held(released):
    return Held(released.input, released.seq, released.ts, released.cells, released.nulls)


def test_what_windows_will_drop_is_worth_nothing_and_not_asked_about():
    scores, _ = scores_of("prob", 65)
    scores.of_arriving(ARRIVING)
    worth = scores.of_held(held(ARRIVING))
    assert worth[0] == -np.inf, "its window has passed it"
    assert np.isfinite(worth[1:]).all()


def test_a_score_that_decays_is_for_each_tick_of_what_is_left():
    scores, logic = scores_of("life", 20)
    assert logic.decays
    pairs = ARRIVING._replace(input=np.array([0, 1, 0], np.int8), ts=np.array([30, 30, 50]))
    for _ in range(50):
        scores.of_arriving(ARRIVING)
    worth = scores.of_held(held(pairs))
    assert worth[2] / worth[0] == pytest.approx(80 / 60), "both find as many partners per tick"
    scores.now = 80
    assert scores.of_held(held(pairs))[0] == 0


@pytest.mark.parametrize(("strategy", "expected"), [("random", [1, 1, 1]), ("prob", None)])
def test_results_are_expected_by_chances_where_a_strategy_knows_them(strategy, expected):
    scores, logic = scores_of(strategy, 65)
    scores.of_arriving(ARRIVING)
    found = scores.expected(held(ARRIVING))
    assert logic.scores_are_chances == (expected is None)
    assert found.tolist() == expected if expected else (found[0] == 0 and (found >= 0).all())
