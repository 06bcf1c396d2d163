"""What the shards in a checkpoint were made with, and whether a query that goes on from it may be another.

Rows that a shard holds have been placed, encoded and counted by its settings, so most must stay what they were.
These may change: ``metrics``, ``idle_timeout``, and what the disorder strategy says (``may_change``). What was
logged is replayed with the old values then, and the shard goes on from its snapshot with the new ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final

from pydantic import BaseModel

from slackwater.plugins.contract import Strategy
from slackwater.plugins.registry.options import Duration
from slackwater.transforms.errors import SlackwaterError
from slackwater.transforms.settings.plan import Plan, make_strategy
from slackwater.transforms.settings.time_unit import NANOS
from slackwater.transforms.state.snapshot import VERSION

PARTITIONS: Final = "spark.sql.shuffle.partitions"
_PACES: Final = ("metrics", "idle_timeout")
_NO_STATE: Final = ("error_handling", "archive")
"""Settings that leave no trace in the state."""

Settings = Mapping[str, Any]
"""Names to what JSON can hold."""


class CheckpointError(SlackwaterError):
    """A query cannot go on from its checkpoint; the message says what has changed."""


def settings_of(plan: Plan, partitions: str) -> Settings:
    """Return what the state of a plan's shards depends on.

    Args:
        plan: what they do.
        partitions: Spark's number of shuffle partitions, which the shards' keys go by.
    """
    found: dict[str, Any] = {"format": VERSION, "transform": type(plan).__name__.removesuffix("Plan")}
    found["input"] = {
        name: [f"{field.name} {field.type}" for field in schema] for name, schema in plan.schemas.items()
    }
    parts = {field.name: getattr(plan, field.name) for field in fields(plan)}
    for part in parts.values():
        if isinstance(part, BaseModel) and not isinstance(part, Strategy):
            found |= part.model_dump(mode="json", exclude=set(_NO_STATE))
    for name, part in parts.items():
        if isinstance(part, Strategy):
            found[name] = {"strategy": part.name, **part.model_dump(mode="json")}
    settings: Settings = json.loads(json.dumps({**found, PARTITIONS: partitions}))
    return settings


def plan_before(plan: Plan, now: Settings, before: Settings) -> Plan | None:
    """Return the plan that a stored shard was made with, or None if it is this one.

    Raises:
        CheckpointError: The shard cannot go on with this plan.
    """
    before = _as_now(before, now, plan)
    if now == before:
        return None
    may_change = {*_PACES, *(f"disorder.{option}" for option in plan.disorder.may_change)}
    changes = dict(_changes(before, now))
    if changes.keys() - may_change:
        told = "; ".join(f"{name} was {json.dumps(a)} and is {json.dumps(b)}" for name, (a, b) in changes.items())
        raise CheckpointError(
            f"the checkpoint is of a query with other settings: {told}; set it back, or start with a new "
            "checkpoint folder"
        )
    paces: dict[str, Any] = {name: before[name] for name in _PACES if name in before}
    former = {name: None if pace is None else Duration.parse(pace) for name, pace in paces.items()}
    if "disorder" in type(plan.config).model_fields:
        former["disorder"] = before["disorder"]
    config = plan.config.model_copy(update=former)
    return replace(plan, config=config, disorder=make_strategy("disorder", before["disorder"]))


def _as_now(before: Settings, now: Settings, plan: Plan) -> Settings:
    """Return noted settings as they are noted now: once, every transform noted those of a join, and its own.

    What it did not note has a trace in what it did, and is taken to be unchanged.
    """
    if "hot_keys" not in before or "hot_keys" in now:
        return before
    same = {name: before.get(name, value) for name, value in now.items()}
    every = before["join"].get("every")
    if every is not None:
        same["progress"] = str(Duration(every * NANOS[plan.unit]))
    return same


def _changes(before: Settings, now: Settings, path: str = "") -> list[tuple[str, tuple[Any, Any]]]:
    """Return every setting that differs, by its path, with what it was and is; None where there is none."""
    found: list[tuple[str, tuple[Any, Any]]] = []
    for name in dict.fromkeys([*before, *now]):
        a, b = before.get(name), now.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += _changes(a, b, f"{path}{name}.")
        elif a != b:
            found.append((f"{path}{name}", (a, b)))
    return found
