"""The operators that there are. Adding one takes a package and its name in ``PACKAGES``, or ``register``."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

from slackwater.plugins.contract import Snapshot
from slackwater.transforms.errors import ConfigError, StateError
from slackwater.transforms.operators.spec import OperatorSpec
from slackwater.transforms.settings.models import OperatorConfig

if TYPE_CHECKING:
    from slackwater.transforms.operators.base import Operator
    from slackwater.transforms.settings.plan import Plan

PACKAGES: Final = (
    "aggregate",
    "choose_values",
    "group_close",
    "join",
    "punctuate",
    "reorder",
    "shed",
)
"""Packages beside this module, each with its ``SPEC``."""


@cache
def _registered() -> dict[type[OperatorConfig], OperatorSpec]:
    specs = [import_module(f"{__package__}.{name}").SPEC for name in PACKAGES]
    return {spec.settings: spec for spec in specs}


def register(spec: OperatorSpec) -> None:
    """Add an operator, for templates on every runner; the module that calls this is imported by workers too.

    Raises:
        ValueError: Another has its name or its settings.
    """
    for other in operators():
        if other != spec and (other.name == spec.name or other.settings is spec.settings):
            raise ValueError(
                f"operator {spec.name!r} has the name or the settings of {other.name!r}; change them"
            )
    _registered()[spec.settings] = spec


def operators() -> list[OperatorSpec]:
    """Return all operators in order of their names."""
    return sorted(_registered().values(), key=lambda spec: spec.name)


def operator_of(config: OperatorConfig) -> OperatorSpec:
    """Return the operator that has these settings; raise ConfigError if there is none."""
    spec = _registered().get(type(config))
    if spec is None:
        raise ConfigError(f"no operator has the settings {type(config).__name__}; register it")
    return spec


def open_operator(plan: Plan, snapshot: Snapshot | None = None, shard: int = 0) -> Operator:
    """Return the operator of a shard of a plan, new or as it was when the snapshot was taken.

    Raises:
        StateError: The snapshot is of another plan.
    """
    spec = operator_of(plan.config)
    if snapshot is None:
        return spec.open(plan, snapshot, shard)
    from slackwater.transforms.settings.plan import strategies_of
    from slackwater.transforms.state.snapshot import ANEW, restoring

    strategies = strategies_of(plan)
    noted = snapshot.get("strategies", strategies)
    if noted != strategies:
        raise StateError(
            f"the stored state is of a shard with the strategies {', '.join(noted)}, and this one has "
            f"{', '.join(strategies)}; {ANEW}"
        )
    with restoring():
        return spec.open(plan, snapshot, shard)
