"""What windows of rows and memory in bytes ask of the other settings of a join."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.plugins.registry.manager import instead
from slackwater.plugins.registry.options import MemoryLimit
from slackwater.transforms.errors import ConfigError

if TYPE_CHECKING:
    from slackwater.transforms.settings.plan import JoinPlan


def check_limits(plan: JoinPlan) -> None:
    """Raise ConfigError where the join cannot count the rows of its windows, or keep to memory in bytes."""
    setting, config, join = plan.setting, plan.config, plan.join
    if setting.rows:
        if not join.takes_rows:
            raise ConfigError(
                f"strategy {join.name!r} has no windows of rows; use {instead('join', lambda j: j.takes_rows)}",
                "window",
            )
        if config.shards > 1:
            raise ConfigError("a window of rows counts the rows of all keys; use shards: 1", "shards")
        if plan.disorder.models_windows:
            raise ConfigError(
                f"strategy {plan.disorder.name!r} goes by windows of time, and these are of rows; use another, "
                f"such as {instead('disorder', lambda d: d.has_target and not d.models_windows)}",
                "disorder",
            )
        if setting.patterns:
            raise ConfigError(
                "windows of rows and punctuations, unique, clustered, ordered or foreign_key do not go together; "
                "use a window of time",
                "window",
            )
    if plan.shedding.sheds and join.keeps_all:
        raise ConfigError(
            f"strategy {join.name!r} has a memory of its own and loses nothing, what is too much goes to disk; "
            f"leave out shedding, or use {instead('join', lambda j: not j.keeps_all)}",
            "shedding",
        )
    memory = plan.shedding.stated_memory
    if isinstance(memory, MemoryLimit) and any(m.in_bytes for _, m in memory.steps):
        if not join.knows_bytes:
            raise ConfigError(
                f"strategy {join.name!r} cannot tell how many bytes its tuples take; give a number of tuples, or "
                f"use {instead('join', lambda j: j.knows_bytes)}",
                "shedding",
                "memory",
            )
        if setting.patterns:
            raise ConfigError(
                "what is remembered of punctuations is not limited by it; give a number of tuples, not bytes",
                "shedding",
                "memory",
            )
