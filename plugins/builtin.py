"""The strategies that come with Slackwater, registered through the same hooks as everybody's."""

from slackwater.plugins.contract import DisorderStrategy, JoinStrategy, SheddingStrategy
from slackwater.plugins.hookspecs import hookimpl


@hookimpl
def slackwater_disorder_strategies() -> list[type[DisorderStrategy]]:
    from slackwater.plugins.disorder.fixed import FixedSlack
    from slackwater.plugins.disorder.max import MaxSlack
    from slackwater.plugins.disorder.none import NoSlack

    return [NoSlack, FixedSlack, MaxSlack]


@hookimpl
def slackwater_join_strategies() -> list[type[JoinStrategy]]:
    from slackwater.plugins.join.mswj import SlidingWindowJoinStrategy

    return [SlidingWindowJoinStrategy]


@hookimpl
def slackwater_shedding_strategies() -> list[type[SheddingStrategy]]:
    from slackwater.plugins.shedding.none import NoShedding

    return [NoShedding]
