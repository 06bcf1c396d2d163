"""The conformance suite: built-in strategies pass it, and every check fails on a strategy made to fail it."""

from typing import ClassVar

import pytest
from built_in import BUILT_IN
from wrong_frame import Wrong
from wrong_strategies import COUNTER, WRONG

from slackwater.plugins import DisorderStrategy, JoinStrategy
from slackwater.plugins.checks import CHECKS, CheckFailed, check_strategy, checks_for
from slackwater.plugins.join.window.mswj import SlidingWindowJoinStrategy


@pytest.mark.parametrize(
    ("name", "check"),
    [
        pytest.param(name, check, id=f"{strategy.stage}-{strategy.name}-{name}")
        for strategy in BUILT_IN
        for name, check in checks_for(strategy)
    ],
)
def test_built_in_strategies_conform(name, check):
    check()


@pytest.mark.parametrize(
    ("check", "strategy", "message"),
    [
        pytest.param(check, strategy, message, id=f"{check.__name__}-{k}")
        for stage, checks in CHECKS.items()
        for check in checks
        for k, (strategy, message) in enumerate(WRONG[stage][check.__name__])
    ],
)
def test_every_check_can_fail_and_says_what_differs(check, strategy, message):
    with pytest.raises(CheckFailed) as caught:
        check(strategy)
    text = str(caught.value)
    assert text.startswith(f"{strategy.stage} strategy {strategy.name!r} fails {check.__name__}: ")
    assert message in text


def test_every_check_has_a_strategy_that_fails_it():
    for stage, checks in CHECKS.items():
        assert {check.__name__ for check in checks} == set(WRONG[stage])
    assert all(check.__doc__ for checks in CHECKS.values() for check in checks)


class TwoInputsOnly(JoinStrategy):
    """Serves key joins of two inputs."""

    name: ClassVar[str] = "two_inputs_only"
    most: int = 2

    def build(self, setting, snapshot=None):
        if len(setting.inputs) > self.most or not setting.condition.classes:
            raise ValueError("joins two inputs on keys only")
        return SlidingWindowJoinStrategy().build(setting, snapshot)


def test_a_join_strategy_may_serve_some_joins_only():
    check_strategy(TwoInputsOnly())
    with pytest.raises(
        CheckFailed, match="build refuses every sample join, the last with: joins two inputs on keys"
    ):
        check_strategy(TwoInputsOnly(most=1))


class Restless(DisorderStrategy):
    """Adapts to the feedback: waits as long as the mean delay of the last interval."""

    name: ClassVar[str] = "restless"

    def build(self, setting, snapshot=None):
        return RestlessLogic(snapshot["slack"] if snapshot else 0)


class RestlessLogic:
    interval = 10

    def __init__(self, slack):
        self.slack = slack

    def bounds(self, arrivals):
        return arrivals.progress - self.slack

    def adapt(self, feedback):
        self.slack = int(feedback.delay.mean())

    def snapshot(self):
        return {"slack": self.slack}


def test_strategies_that_adapt_are_driven_through_intervals():
    check_strategy(Restless())
    once = Wrong(Restless(), "once", adapt=lambda self, feedback: setattr(self.logic, "slack", next(COUNTER)))
    with pytest.raises(CheckFailed, match="bounds of a second run differ"):
        check_strategy_of(once)


def check_strategy_of(strategy):
    for check in CHECKS[strategy.stage]:
        check(strategy)
