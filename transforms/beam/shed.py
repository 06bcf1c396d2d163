"""Shed: no more rows than can be worked on, those that are worth most."""

# Annotations stay objects here: Beam YAML makes the config schema of the constructor's.

from collections.abc import Mapping
from typing import Any

import apache_beam as beam
import pyarrow as pa

from slackwater.transforms.beam.rows import RowSchema
from slackwater.transforms.beam.transform import OperatorTransform
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.operators.shed.plan import ROWS, bind_shed
from slackwater.transforms.settings.models import SHED_INPUTS, ShedConfig
from slackwater.transforms.settings.plan import JoinPlan


class Shed(OperatorTransform):
    """Lets so many rows per second pass, and drops those that are worth least when too many wait.

    Takes a PCollection of rows with a schema, or ``{rows: PCollection, partners: PCollection}``, of which the
    second is only looked at: what a row is worth may depend on how often partners match it. The main output has
    the rows that pass, of the type they had, in order of arrival; those that were shed are in the output
    ``late``.

    Args:
        time: Event-time column, one name for all inputs or {input: column}; integer, timestamp or date.
        rate: Rows that pass per second of the arrival column, or of event time where none is named.
        queue: Rows that may wait for their turn; when there is one too many, the one worth least is shed.
        shedding: Shedding strategy, which says what a row is worth, and its options but for memory and queue:
            {strategy: random}, {strategy: prob, weight: price}, or {strategy: prob} where there are partners.
        where: Condition in SQL that a row and its partners meet, such as rows.id = partners.id.
        arrival: Column with the order and the time of arrival, or {input: column}; default is the order of event
            time of bounded inputs, and of unbounded ones that in which the runner delivers the rows.
        arrival_unit: Unit of an arrival column of integers; default is the unit of the event times.
        time_unit: Unit of integer event times: s, ms, us or ns.
        idle_timeout: In live runs, how long inputs may be silent before all rows that wait pass; default is for
            ever.
        error_handling: {output: name} calls the output late by another name, as Beam YAML has it for rows that
            could not be processed; something must read it.

    Raises:
        ConfigError: A setting is wrong, or does not fit the inputs.
    """

    settings = ShedConfig
    passes_on = ROWS
    named_inputs = "a PCollection, or two with names: {rows: PCollection, partners: PCollection}"

    def __init__(
        self,
        *,
        time: Any,
        rate: float,
        queue: int = 1000,
        shedding: dict[str, Any] | None = None,
        where: str | None = None,
        arrival: Any = None,
        arrival_unit: str | None = None,
        time_unit: str = "ms",
        idle_timeout: str | None = None,
        error_handling: dict[str, str] | None = None,
    ) -> None:
        super().__init__(locals())

    def with_schema(self, schema: pa.Schema) -> "Shed":
        """As ``with_schemas``, where there are no partners."""
        return self.with_schemas({ROWS: schema})

    def named(self, given: Any) -> dict[str, beam.PCollection]:
        found = {ROWS: given} if isinstance(given, beam.PCollection) else super().named(given)
        if not {ROWS} <= set(found) <= set(SHED_INPUTS):
            raise ConfigError(f"needs {self.named_inputs}", "input")
        return {name: found[name] for name in SHED_INPUTS if name in found}

    def bind(self, schemas: dict[str, pa.Schema], inputs: Any) -> JoinPlan:
        return bind_shed(self._config, schemas)

    def result_types(self, plan: JoinPlan, schemas: Mapping[str, RowSchema]) -> dict[str, Any]:
        return schemas[ROWS].types
