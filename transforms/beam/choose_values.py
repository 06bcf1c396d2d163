"""ChooseValues: which tuples of stored relations to request when not all can be."""

# Annotations stay objects here: Beam YAML makes the config schema of the constructor's.

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa

from slackwater.transforms.beam.join import refuse_unbounded
from slackwater.transforms.beam.transform import OperatorTransform
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.operators.choose_values.plan import bind_choose_values
from slackwater.transforms.settings.models import ChooseValuesConfig
from slackwater.transforms.settings.plan import MAX_INPUTS, MIN_INPUTS, JoinPlan


class ChooseValues(OperatorTransform):
    """Chooses which tuples to request from relations of which only summaries are known (SAJ 3).

    Takes ``{name: PCollection, …}`` of summaries: rows with a join value, how many tuples the relation has of it,
    and a time. The main output has the values to request, a column with the number of tuples for each input, and
    ``ts``, the largest time. Rows that are no summaries are in the output ``late``. Inputs must be bounded.

    Args:
        time: Time column of the summaries, one name or {input: column}; integer, timestamp or date.
        k: How many tuples to request, overall or as {input: number}.
        value: Column with the join value.
        count: Column with the number of tuples that have it.
        method: adg or optdp for a number overall; ndg, optdp or each for a number of each input. Default: adg,
            ndg, and each for more than two inputs.
        leave_out: Whether k is how many tuples not to request.
        time_unit: Unit of integer times: s, ms, us or ns.
        error_handling: {output: name} calls the output late by another name, as Beam YAML has it for rows that
            could not be processed; something must read it.

    Raises:
        ConfigError: A setting is wrong, or does not fit the inputs.
    """

    settings = ChooseValuesConfig
    named_inputs = f"{MIN_INPUTS} to {MAX_INPUTS} inputs with names: {{name: PCollection}}"

    def __init__(
        self,
        *,
        time: Any,
        k: Any,
        value: str = "value",
        count: str = "count",
        method: str | None = None,
        leave_out: bool = False,
        time_unit: str = "ms",
        error_handling: dict[str, str] | None = None,
    ) -> None:
        super().__init__(locals())

    def named(self, given: Any) -> dict[str, beam.PCollection]:
        found = super().named(given)
        if not MIN_INPUTS <= len(found) <= MAX_INPUTS:
            raise ConfigError(f"needs {self.named_inputs}", "input")
        return found

    def bind(self, schemas: dict[str, pa.Schema], inputs: Any) -> JoinPlan:
        refuse_unbounded(inputs, "ChooseValues")
        return bind_choose_values(self._config, schemas)

    def integer_columns(self, name: str) -> Iterator[str]:
        yield from super().integer_columns(name)
        yield self._config.count
