"""The strategies that come with Slackwater, registered through the same hooks as everybody's."""

from typing import Final

from slackwater.plugins.contract import DisorderStrategy, JoinStrategy, SheddingStrategy
from slackwater.plugins.hookspecs import hookimpl

DISORDER: Final = "max"
"""The disorder strategy of settings that say nothing of disorder: it loses least on any scale of time."""
RECALL: Final = "result_slack"
"""The disorder strategy of settings that state a recall and name none: it needs the smallest buffer."""
IN_ORDER: Final = "none"
"""The disorder strategy for rows that are in order."""
JOIN: Final = "mswj"
"""The join strategy of settings that name none."""
SHEDDING: Final = "none"
"""The shedding strategy of settings that name none."""
LOAD: Final = "random"
"""The shedding strategy of a queue without a join, if its settings name none."""


@hookimpl
def slackwater_disorder_strategies() -> list[type[DisorderStrategy]]:
    from slackwater.plugins.disorder.drop_ratio.strategy import DropRatio
    from slackwater.plugins.disorder.external import ExternalWatermarks
    from slackwater.plugins.disorder.fixed import FixedSlack
    from slackwater.plugins.disorder.heartbeat import HeartbeatSlack
    from slackwater.plugins.disorder.max import MaxSlack
    from slackwater.plugins.disorder.none import NoSlack
    from slackwater.plugins.disorder.quality_driven.strategy import QualityDriven
    from slackwater.plugins.disorder.result_slack.strategy import ResultSlack

    return [
        NoSlack,
        FixedSlack,
        MaxSlack,
        ResultSlack,
        QualityDriven,
        DropRatio,
        HeartbeatSlack,
        ExternalWatermarks,
    ]


@hookimpl
def slackwater_join_strategies() -> list[type[JoinStrategy]]:
    from slackwater.plugins.join.one_to_many.mjoin import MetadataJoin
    from slackwater.plugins.join.overflow.xjoin import XJoin
    from slackwater.plugins.join.punctuated.pjoin import PunctuatedJoin
    from slackwater.plugins.join.punctuated.pwjoin import PunctuatedWindowJoin
    from slackwater.plugins.join.window.mswj import SlidingWindowJoinStrategy
    from slackwater.plugins.join.window.symmetric_hash import SymmetricHashJoin
    from slackwater.plugins.join.window.wjoin import WindowJoin

    return [
        SlidingWindowJoinStrategy,
        PunctuatedWindowJoin,
        WindowJoin,
        PunctuatedJoin,
        MetadataJoin,
        SymmetricHashJoin,
        XJoin,
    ]


@hookimpl
def slackwater_shedding_strategies() -> list[type[SheddingStrategy]]:
    from slackwater.plugins.shedding.life import LifeShedding
    from slackwater.plugins.shedding.none import NoShedding
    from slackwater.plugins.shedding.prob import ProbShedding
    from slackwater.plugins.shedding.random import RandomShedding

    return [NoShedding, RandomShedding, ProbShedding, LifeShedding]
