"""The whole plugin contract: one hook per stage, called once per process before any template is read."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from slackwater.plugins.contract import DisorderStrategy, JoinStrategy, SheddingStrategy

hookspec = pluggy.HookspecMarker("slackwater")
hookimpl = pluggy.HookimplMarker("slackwater")


@hookspec
def slackwater_disorder_strategies() -> Iterable[type["DisorderStrategy"]]:  # type: ignore[empty-body]
    """Return the disorder strategies this plugin provides.

    A disorder strategy decides, after each arrival, up to which event time its input may be released.
    """


@hookspec
def slackwater_join_strategies() -> Iterable[type["JoinStrategy"]]:  # type: ignore[empty-body]
    """Return the join strategies this plugin provides.

    A join strategy owns the windows of one shard and turns released tuples into results.
    """


@hookspec
def slackwater_shedding_strategies() -> Iterable[type["SheddingStrategy"]]:  # type: ignore[empty-body]
    """Return the shedding strategies this plugin provides.

    A shedding strategy scores tuples; the operator drops the lowest scores when memory is short.
    """
