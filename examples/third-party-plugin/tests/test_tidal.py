"""The conformance suite of Slackwater on the strategies of this plugin, and what is special about them."""

import numpy as np
import pytest
from slackwater_tidal.nested_loop import NestedLoopJoin
from slackwater_tidal.oldest_first import OldestFirst
from slackwater_tidal.percentile import PercentileLogic, PercentileSlack

from slackwater.plugins import Feedback
from slackwater.plugins.checks import checks_for

STRATEGIES = [PercentileSlack(level=0.9, interval="20ms"), NestedLoopJoin(), OldestFirst(memory=100)]


@pytest.mark.parametrize(("name", "check"), [pair for strategy in STRATEGIES for pair in checks_for(strategy)])
def test_conformance(name, check):
    check()


def test_the_slack_is_the_percentile_of_the_last_interval():
    logic = PercentileLogic(0.5, 10, 0)
    delay = np.array([0, 1, 2, 30, 40])
    nothing = np.zeros(5, np.int64)
    logic.adapt(Feedback(10, nothing.astype(np.int8), nothing, delay, nothing > 0, nothing, nothing * 1.0))
    assert logic.snapshot() == {"slack": 2}
