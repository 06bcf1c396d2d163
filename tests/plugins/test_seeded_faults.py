"""The conformance suite finds the mistakes of ``seeded_faults``, and nothing in strategies that are right."""

import pytest
from plain_strategies import PlainJoin, PlainShedding, PlainSlack
from seeded_join_faults import FAULTS

from slackwater.plugins.checks import CheckFailed, check_strategy

LEAST = {"wrong order": 5, "lost state": 9, "non-determinism": 7, "mutation": 10}
LEAST |= {"window edge": 4, "dtype": 12, "late": 3, "leak": 5}


@pytest.mark.parametrize("strategy", [PlainSlack(), PlainJoin(), PlainShedding()], ids=lambda s: s.name)
def test_what_is_right_passes(strategy):
    check_strategy(strategy)


@pytest.mark.parametrize("kind", FAULTS)
def test_faults_are_found(kind):
    missed = []
    for name, strategy in FAULTS[kind].items():
        try:
            check_strategy(strategy)
        except CheckFailed:
            continue
        missed.append(name)
    assert missed == []


def test_there_are_many_of_every_kind():
    assert set(FAULTS) == set(LEAST)
    assert all(len(FAULTS[kind]) >= least for kind, least in LEAST.items())
    assert sum(map(len, FAULTS.values())) >= 75
