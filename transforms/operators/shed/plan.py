"""Shed: no more rows of a stream than can be worked on, and of these the ones that are worth most.

The queue of a join (``input_queue``) with nothing behind it, to stand before whatever is slow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import pyarrow as pa

from slackwater.plugins.contract import Setting, SheddingStrategy
from slackwater.plugins.disorder.none import NoSlack
from slackwater.plugins.registry.manager import fitting, instead
from slackwater.plugins.registry.options import Duration
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.expressions.condition import Condition
from slackwater.transforms.expressions.tree import ExpressionError
from slackwater.transforms.settings.columns import bind_times
from slackwater.transforms.settings.explanation import described
from slackwater.transforms.settings.frequencies import key_frequencies, read_frequencies
from slackwater.transforms.settings.models import SHED_INPUTS, ShedConfig
from slackwater.transforms.settings.plan import SheddingPlan, make_strategy

ROWS, PARTNERS = SHED_INPUTS
_LIMITS: Final = {"memory": "rate and queue", "queue": "rate and queue beside shedding"}


@dataclass(frozen=True)
class ShedPlan(SheddingPlan):
    """A plan whose results are rows of its first input."""

    config: ShedConfig

    @property
    def idle_timeout(self) -> Duration | None:
        return self.config.idle_timeout

    @cached_property
    def condition(self) -> Condition:
        """When a row has a partner, and what rows are worth to the shedding strategy."""
        return self.weighed(Condition(self.config.where, self.schemas))

    @cached_property
    def setting(self) -> Setting:
        found = super().setting
        return found._replace(frequencies=key_frequencies(self.frequencies, self.condition, self.schemas))

    @property
    def result_schema(self) -> pa.Schema:
        return self.schemas[ROWS]

    @property
    def result_time(self) -> str:
        return self.time_columns[0]


def bind_shed(
    config: ShedConfig, schemas: Mapping[str, pa.Schema], equal: Collection[Collection[str]] = ()
) -> ShedPlan:
    """Check settings against the inputs; raise ConfigError with the path of the setting at fault."""
    if tuple(schemas) not in (SHED_INPUTS, SHED_INPUTS[:1]):
        raise ConfigError(f"must be {ROWS}, or {ROWS} and {PARTNERS}, got {', '.join(schemas)}", "input")
    time_columns, arrival, unit = bind_times(config, schemas)
    plan = ShedPlan(
        config=config,
        schemas=dict(schemas),
        time_columns=time_columns,
        arrival_columns=arrival,
        unit=unit,
        disorder=NoSlack(),
        shedding=_strategy(config, schemas),
    )
    assert plan.queue is not None
    try:
        condition = plan.condition
    except ExpressionError as error:
        raise ConfigError(str(error), "where") from None
    if len(schemas) > 1 and not condition.connected:
        raise ConfigError("does not say when a row has a partner; write rows.id = partners.id, or so", "where")
    given = plan.shedding.stated_frequencies
    return replace(plan, frequencies=read_frequencies(given, condition, schemas))


def _strategy(config: ShedConfig, schemas: Mapping[str, pa.Schema]) -> SheddingStrategy:
    """Return the strategy, with the queue among its options."""
    for option, setting in _LIMITS.items():
        if option in config.shedding:
            raise ConfigError(f"is no option here; use {setting}", "shedding", option)
    name = config.shedding.get("strategy")
    if name in fitting("shedding", lambda s: not s.sheds):
        raise ConfigError(
            f"strategy {name!r} keeps everything; use {instead('shedding', lambda s: s.sheds)}", "shedding"
        )
    queue = {"rows": config.queue, "service_rate": config.rate, "arrival_unit": config.arrival_unit}
    strategy: SheddingStrategy = make_strategy("shedding", {**config.shedding, "queue": queue})
    if len(schemas) == 1 and strategy.needs_partners:
        raise ConfigError(
            f"strategy {strategy.name!r} goes by what rows may find; add an input {PARTNERS} and where, give a "
            f"weight, or use {instead('shedding', lambda s: s.sheds and not s.needs_partners)}",
            "shedding",
        )
    return strategy


def describe(plan: ShedPlan) -> Iterator[tuple[str, str]]:
    """Yield what rows are worth, as (what, text)."""
    yield plan.shedding.stage, described(plan.shedding)
