"""What a join does, in words: for whoever wants to know before it runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from slackwater.plugins.contract import Strategy
from slackwater.plugins.registry.options import Duration
from slackwater.transforms.settings.time_unit import NANOS

if TYPE_CHECKING:
    from slackwater.transforms.settings.plan import JoinPlan


def explained(plan: JoinPlan) -> str:
    """Return what a join does, a line for each part."""
    strategies = [(strategy.stage, described(strategy)) for strategy in (plan.disorder, plan.join, plan.shedding)]
    lines = [("inputs", ", ".join(plan.inputs)), ("window", windows(plan)), *split_rows(plan), *strategies]
    return "\n".join(f"{what}: {text}" for what, text in lines)


def split_rows(plan: JoinPlan) -> Iterator[tuple[str, str]]:
    """Yield how rows are split over shards, and why so, as (what, text)."""
    yield "shards", str(plan.config.shards)
    yield from plan.partitioning.explain()
    reached = (f"{name} {plan.partitioning.shards_per_row(i)}" for i, name in enumerate(plan.inputs))
    yield "shards per row", ", ".join(reached)


def windows(plan: JoinPlan) -> str:
    """Return the window of each input."""
    rows = plan.setting.rows
    sizes = [f"{n} rows" for n in rows] or [str(Duration(ticks * NANOS[plan.unit])) for ticks in plan.windows]
    return ", ".join(f"{name} {size}" for name, size in zip(plan.members, sizes, strict=True))


def described(strategy: Strategy) -> str:
    """Return a strategy with its options."""
    options = ", ".join(f"{name} {getattr(strategy, name)}" for name in type(strategy).model_fields)
    return f"{strategy.name} ({options})" if options else strategy.name
