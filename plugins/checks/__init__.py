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
from typing import Any

from slackwater.plugins.checks import disorder as checks_disorder
from slackwater.plugins.checks import join as checks_join
from slackwater.plugins.checks import memory as checks_memory
from slackwater.plugins.checks import punctuation as checks_punctuated
from slackwater.plugins.checks import shedding as checks_shedding
from slackwater.plugins.checks.disorder import sample_arrivals
from slackwater.plugins.checks.frame import CHECKS, CheckFailed, Differs, checks, demand, same, sample_setting
from slackwater.plugins.contract import Strategy
from slackwater.plugins.registry.options import Duration, Memory, MemoryLimit
from slackwater.plugins.shedding.queue_options import Queue

__all__ = [
    "CHECKS",
    "CheckFailed",
    "check_strategy",
    "checks_disorder",
    "checks_for",
    "checks_join",
    "checks_memory",
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
def check_declarations_have_their_types(strategy: Strategy) -> None:
    """What is read from a strategy before data is has the type that its base class says."""
    for name, told, types in _declarations(strategy):
        demand(told is None or isinstance(told, types), f"{name} is {told!r}, which is of another type")


def _declarations(strategy: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the value and the types of everything that a strategy declares."""
    if strategy.stage == "disorder":
        yield "clock_nanos", strategy.clock_nanos, int
        yield "has_target", strategy.has_target, bool
        yield "learns_from_results", strategy.learns_from_results, bool
        yield "longest_wait", strategy.longest_wait, Duration
        yield "may_change", strategy.may_change, tuple
        yield "models_windows", strategy.models_windows, bool
        yield "needs_feedback", strategy.needs_feedback, bool
        yield "reads_clock", strategy.reads_clock, bool
        yield "shares", strategy.shares, bool
        yield "stated_buffer", strategy.stated_buffer, int
        yield "stated_interval", strategy.stated_interval, Duration
        yield "stated_late_share", strategy.stated_late_share, (int, float)
        yield "stated_period", strategy.stated_period, Duration
        yield "stated_recall", strategy.stated_recall, (int, float)
        yield "watermark_columns", strategy.watermark_columns, (str, dict)
    elif strategy.stage == "join":
        yield "keeps_all", strategy.keeps_all, bool
        yield "knows_bytes", strategy.knows_bytes, bool
        yield "needs_window", strategy.needs_window, bool
        yield "takes_rows", strategy.takes_rows, bool
        yield "takes_window", strategy.takes_window, bool
    else:
        yield "needs_partners", strategy.needs_partners, bool
        yield "sheds", strategy.sheds, bool
        yield "stated_frequencies", strategy.stated_frequencies, dict
        yield "stated_memory", strategy.stated_memory, (int, Memory, MemoryLimit)
        yield "stated_queue", strategy.stated_queue, Queue
        yield "stated_weight", strategy.stated_weight, str


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
