"""ChooseValues bound to its inputs: settings checked against the columns that are really there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa

from slackwater.plugins.disorder.none import NoSlack
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.operators.choose_values.static_join import ValueCounts, adg, ndg, of_each, optdp
from slackwater.transforms.operators.group_columns import check_names
from slackwater.transforms.settings.columns import bind_times
from slackwater.transforms.settings.models import ChooseValuesConfig
from slackwater.transforms.settings.plan import Plan

TS: Final = "ts"


@dataclass(frozen=True)
class ChooseValuesPlan(Plan):
    """A plan whose results are the values to request, with how many tuples of each input."""

    config: ChooseValuesConfig

    @property
    def value_type(self) -> pa.DataType:
        """Type of the values, the same in every input that has any."""
        types = [schema.field(self.config.value).type for schema in self.schemas.values()]
        return next((type_ for type_ in types if not pa.types.is_null(type_)), types[0])

    @cached_property
    def result_schema(self) -> pa.Schema:
        numbers = [pa.field(name, pa.int64()) for name in self.inputs]
        return pa.schema([pa.field(self.config.value, self.value_type), *numbers, pa.field(TS, self.time_type)])

    def choose(self, relations: ValueCounts) -> ValueCounts:
        """Return how many tuples of each value to request; of values that a relation lacks, none."""
        config, sizes = self.config, relations.sizes
        if isinstance(config.k, int):
            k = min(config.k, sum(sizes))
            overall = {"delete" if config.leave_out else "retain": k}
            return (optdp if config.method == "optdp" else adg)(relations, **overall).needed()
        numbers = tuple(min(config.k[name], size) for name, size in zip(self.inputs, sizes, strict=True))
        if config.method == "each" or len(sizes) > 2:
            return of_each(relations, **{"delete" if config.leave_out else "retain": numbers}).needed()
        pair = {"delete" if config.leave_out else "retain": (numbers[0], numbers[1])}
        return (optdp if config.method == "optdp" else ndg)(relations, **pair).needed()


def bind_choose_values(
    config: ChooseValuesConfig, schemas: Mapping[str, pa.Schema], equal: Collection[Collection[str]] = ()
) -> ChooseValuesPlan:
    """Check settings against the inputs; raise ConfigError with the path of the setting at fault."""
    times, _, unit = bind_times(config, schemas)
    for setting, column in (("value", config.value), ("count", config.count)):
        for name, schema in schemas.items():
            if column not in schema.names:
                raise ConfigError(
                    f"input {name!r} has no column {column!r}; it has {', '.join(schema.names)}", setting
                )
            type_ = schema.field(column).type
            if setting == "count" and not (pa.types.is_integer(type_) or pa.types.is_null(type_)):
                raise ConfigError(
                    f"column {column!r} of input {name!r} must be whole numbers, got {type_}", "count"
                )
    check_names(tuple(schemas), (config.value, TS), "input")
    _check_method(config, tuple(schemas))
    plan = ChooseValuesPlan(
        config=config,
        schemas=dict(schemas),
        time_columns=times,
        arrival_columns=None,
        unit=unit,
        disorder=NoSlack(),
    )
    for name, schema in schemas.items():
        type_ = schema.field(config.value).type
        if type_ != plan.value_type and not pa.types.is_null(type_):
            raise ConfigError(
                f"column {config.value!r} of input {name!r} is {type_}, elsewhere {plan.value_type}; make them "
                "alike with MapToFields",
                "value",
            )
    return plan


def _check_method(config: ChooseValuesConfig, inputs: tuple[str, ...]) -> None:
    numbers = {(): config.k} if isinstance(config.k, int) else {(name,): k for name, k in config.k.items()}
    for path, number in numbers.items():
        if number < 0:
            raise ConfigError(f"must be 0 or more, got {number}", "k", *path)
    if isinstance(config.k, int):
        if len(inputs) > 2:
            raise ConfigError(
                f"must give a number for each of {', '.join(inputs)}: one overall is for two inputs", "k"
            )
        if config.method not in (None, "adg", "optdp"):
            raise ConfigError(
                f"{config.method} takes a number of tuples for each input; write k as {{input: number}}, or use "
                "adg or optdp",
                "method",
            )
        return
    for name in (*inputs, *config.k):
        if name not in config.k:
            raise ConfigError(f"says nothing of input {name!r}; add it", "k")
        if name not in inputs:
            raise ConfigError(f"there is no input {name!r}; there are {', '.join(inputs)}", "k", name)
    if config.method == "adg":
        raise ConfigError("adg takes one number of tuples overall; use ndg, or give k as one number", "method")
    if len(inputs) > 2 and config.method not in (None, "each"):
        raise ConfigError(f"{config.method} is for two inputs; use each", "method")


def describe(plan: ChooseValuesPlan) -> Iterator[tuple[str, str]]:
    """Yield how values are chosen, as (what, text)."""
    yield "method", plan.config.method or "greedy"
