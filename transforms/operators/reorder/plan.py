"""Reorder bound to its input: settings checked against the columns that are really there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from slackwater.plugins.contract import Pattern
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.punctuation.metadata import ForeignKey
from slackwater.transforms.settings.columns import bind_times
from slackwater.transforms.settings.explanation import described
from slackwater.transforms.settings.models import ReorderConfig
from slackwater.transforms.settings.plan import DisorderPlan, bind_disorder


@dataclass(frozen=True)
class OrderPlan(DisorderPlan):
    """A plan whose results are the rows of its one input, in order."""

    @property
    def derived(self) -> list[tuple[str, Pattern]]:
        """The kinds of punctuations that follow from promises: without any, there are none."""
        return []

    @property
    def foreign_keys(self) -> tuple[ForeignKey, ...]:
        """There is one input, which refers to no other."""
        return ()

    @property
    def result_schema(self) -> pa.Schema:
        (schema,) = self.schemas.values()
        return schema

    @property
    def result_time(self) -> str:
        return self.time_columns[0]

    def in_time_order(self, output: str = "") -> bool:
        return output in ("", "punctuations")


@dataclass(frozen=True)
class ReorderPlan(OrderPlan):
    """A plan that adds nothing to the rows."""

    config: ReorderConfig

    side_outputs = ("late", "metrics")


def bind_reorder(
    config: ReorderConfig, schemas: Mapping[str, pa.Schema], equal: Collection[Collection[str]] = ()
) -> ReorderPlan:
    """Check settings against the input; raise ConfigError with the path of the setting at fault."""
    if len(schemas) != 1:
        raise ConfigError(f"needs one input, got {len(schemas)}", "input")
    time_columns, arrival, unit = bind_times(config, schemas)
    return ReorderPlan(
        config=config,
        schemas=dict(schemas),
        time_columns=time_columns,
        arrival_columns=arrival,
        unit=unit,
        disorder=bind_disorder(config, schemas),
    )


def describe(plan: OrderPlan) -> Iterator[tuple[str, str]]:
    """Yield how rows are put in order, as (what, text)."""
    yield plan.disorder.stage, described(plan.disorder)
