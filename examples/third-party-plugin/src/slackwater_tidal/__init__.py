"""Strategies for Slackwater, one of each stage: a plugin to copy from."""

from slackwater.plugins import DisorderStrategy, JoinStrategy, SheddingStrategy, hookimpl


@hookimpl
def slackwater_disorder_strategies() -> list[type[DisorderStrategy]]:
    from slackwater_tidal.percentile import PercentileSlack

    return [PercentileSlack]


@hookimpl
def slackwater_join_strategies() -> list[type[JoinStrategy]]:
    from slackwater_tidal.nested_loop import NestedLoopJoin

    return [NestedLoopJoin]


@hookimpl
def slackwater_shedding_strategies() -> list[type[SheddingStrategy]]:
    from slackwater_tidal.oldest_first import OldestFirst

    return [OldestFirst]
