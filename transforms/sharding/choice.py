"""Which scheme a join is split by: the key that all inputs share, else where a shard compares the fewest rows."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from slackwater.transforms.errors import ConfigError
from slackwater.transforms.punctuation.marks import check_shards
from slackwater.transforms.punctuation.metadata import check_promises_of_shards, promised
from slackwater.transforms.sharding.by_cell import by_cell
from slackwater.transforms.sharding.by_key import ByKey, ByPartOfKey
from slackwater.transforms.sharding.hot_keys import HotKeys
from slackwater.transforms.sharding.one_bucket import OneBucket
from slackwater.transforms.sharding.scheme import OneShard, Partitioning

if TYPE_CHECKING:
    from slackwater.transforms.settings.models import HotKeysConfig
    from slackwater.transforms.settings.plan import JoinPlan


def choose_partitioning(plan: JoinPlan) -> Partitioning:
    """Return how a join is split; raise ConfigError where no scheme can do what its settings ask for."""
    config = plan.config
    hot = None if config.hot_keys is None else _hot_keys(plan, config.hot_keys)
    if config.shards == 1:
        return OneShard(plan)
    condition = plan.condition
    if condition.shard_columns is not None:
        return hot or ByKey(plan, [plan.shard_cells(i) for i in range(len(plan.inputs))])
    parts = [ByPartOfKey(plan, members) for members in condition.classes]
    return min([*parts, *by_cell(plan), OneBucket(plan)], key=lambda scheme: prod(scheme.factors()))


def _hot_keys(plan: JoinPlan, given: HotKeysConfig) -> HotKeys:
    if plan.condition.shard_columns is None:
        raise ConfigError(
            "needs a key that all inputs share, and the condition has none; leave it out", "hot_keys"
        )
    return HotKeys(plan, given)


def check_split(plan: JoinPlan) -> None:
    """Raise ConfigError where the rows of a join cannot be split over shards."""
    by_key = plan.condition.shard_columns
    if by_key is None or plan.config.hot_keys is not None:
        _check_copies(plan)
    if plan.config.shards > 1 and by_key is not None:
        check_shards(plan.config, by_key, plan.members)
        check_promises_of_shards(plan.config, by_key, plan.members)


def _check_copies(plan: JoinPlan) -> None:
    """Raise ConfigError where settings ask for what shards that share rows cannot know."""
    config = plan.config
    if not any(map(plan.partitioning.copies, range(len(plan.members)))):
        return
    promise = next(promised(config), None)
    settings = {
        "punctuations": bool(config.punctuations),
        "archive": config.archive is not None,
        promise.path[0] if promise is not None else "": promise is not None,
    }
    setting = next((name for name, given in settings.items() if given), None)
    if setting is not None:
        remedy = "hot_keys" if config.hot_keys is not None else f"shards: {config.shards}"
        raise ConfigError(
            "speaks of rows that must be in one shard, and some are copied to several of "
            f"{config.shards}; leave out {remedy}, or {setting}",
            setting,
        )
