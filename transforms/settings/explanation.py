"""What a join does, in words: for whoever wants to know before it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from slackwater.plugins.contract import Strategy
from slackwater.plugins.registry.options import Duration
from slackwater.transforms.expressions.sql import text_of
from slackwater.transforms.settings.time_unit import NANOS

if TYPE_CHECKING:
    from slackwater.transforms.settings.plan import JoinPlan, Plan


def explained(plan: Plan) -> str:
    """Return what an operator does, a line for each part."""
    from slackwater.transforms.settings.plan import JoinPlan

    parts = (getattr(plan, field.name) for field in fields(plan))
    strategies = sorted((part.stage, described(part)) for part in parts if isinstance(part, Strategy))
    window = [("window", windows(plan))] if isinstance(plan, JoinPlan) else []
    lines = [("inputs", ", ".join(plan.inputs)), *window, *split_rows(plan), *strategies]
    return "\n".join(f"{what}: {text}" for what, text in lines)


def split_rows(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield how rows are split over shards, and why so, as (what, text)."""
    yield "shards", str(plan.shards)
    yield from plan.partitioning.explain()
    reached = (f"{name} {plan.partitioning.shards_per_row(i)}" for i, name in enumerate(plan.inputs))
    yield "shards per row", ", ".join(reached)


def windows(plan: JoinPlan) -> str:
    """Return the window of each input."""
    rows = plan.setting.rows
    sizes = [f"{n} rows" for n in rows] or [str(Duration(ticks * NANOS[plan.unit])) for ticks in plan.windows]
    return ", ".join(f"{name} {size}" for name, size in zip(plan.members, sizes, strict=True))


def describe_join(plan: JoinPlan) -> Iterator[tuple[str, str]]:
    """Yield what a join does, as (what, text)."""
    yield "window", windows(plan)
    inputs, condition = plan.members, plan.condition
    keys = [
        " = ".join(f"{inputs[i]}.{condition.columns[i][cell].column}" for i, cell in members.items())
        for members in condition.classes
    ]
    yield "keys", "; ".join(keys) or "none: every row meets every row of the windows"
    if condition.predicates:
        yield "predicates", "; ".join(text_of(predicate.tree) for predicate in condition.predicates)
    for strategy in (plan.disorder, plan.join, plan.shedding):
        yield strategy.stage, described(strategy)
    yield "output", plan.config.output


def described(strategy: Strategy) -> str:
    """Return a strategy with its options."""
    options = ", ".join(f"{name} {getattr(strategy, name)}" for name in type(strategy).model_fields)
    return f"{strategy.name} ({options})" if options else strategy.name
