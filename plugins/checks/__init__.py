"""The conformance suite for strategies: what the operator takes for granted, as small named checks.

In the tests of a plugin, three lines are enough::

    @pytest.mark.parametrize(("name", "check"), checks_for(MyStrategy(slack="1s")))
    def test_conformance(name, check):
        check()

A check that fails raises CheckFailed with the strategy, the check and what differed. A join strategy that
serves some joins only (two inputs, keys only) says so by raising ValueError from ``build``; the checks then
use those it serves. The built-in strategies pass the same checks.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator
from functools import partial

from slackwater.plugins.checks import disorder as checks_disorder
from slackwater.plugins.checks import join as checks_join
from slackwater.plugins.checks import punctuation as checks_punctuated
from slackwater.plugins.checks import shedding as checks_shedding
from slackwater.plugins.checks.disorder import sample_arrivals
from slackwater.plugins.checks.frame import CHECKS, CheckFailed, Differs, checks, demand, same, sample_setting
from slackwater.plugins.contract import Strategy

__all__ = [
    "CHECKS",
    "CheckFailed",
    "check_strategy",
    "checks_disorder",
    "checks_for",
    "checks_join",
    "checks_punctuated",
    "checks_shedding",
    "sample_arrivals",
    "sample_setting",
]


def checks_for(strategy: Strategy) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield (name, check) for every check that applies to ``strategy``, ready to be called."""
    for check in CHECKS["any"] + CHECKS.get(strategy.stage, []):
        yield check.__name__, partial(check, strategy)


def check_strategy(strategy: Strategy) -> None:
    """Run every check that applies to ``strategy``; raise CheckFailed at the first that fails."""
    for _, check in checks_for(strategy):
        check()


# Any stage


@checks("any")
def check_has_name_and_purpose(strategy: Strategy) -> None:
    """The name can stand in a template, and the docstring starts with a line that says what it is for."""
    demand(re.fullmatch("[a-z][a-z0-9_]*", strategy.name), f"the name {strategy.name!r} must be lower_case")
    demand((type(strategy).__doc__ or "").strip(), "the class has no docstring; its first line is the purpose")


@checks("any")
def check_options_are_frozen(strategy: Strategy) -> None:
    """Options are shared by all shards, so nobody may change them."""
    for option, value in strategy:
        try:
            setattr(strategy, option, value)
        except (ValueError, AttributeError):
            continue
        raise Differs(f"option {option!r} can be changed; keep model_config of the base class")


@checks("any")
def check_options_survive_a_template(strategy: Strategy) -> None:
    """Options can be written as plain JSON values and read back."""
    same(type(strategy).model_validate(strategy.model_dump(mode="json")), strategy, "options read back")


@checks("any")
def check_options_travel_to_workers(strategy: Strategy) -> None:
    """Options can be pickled: engines send them to their workers."""
    same(pickle.loads(pickle.dumps(strategy)), strategy, "options after pickling")  # noqa: S301
