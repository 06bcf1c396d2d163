"""ChooseValues: which tuples of stored relations to request when not all can be fetched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa

from slackwater.transforms.beam.join import refuse_unbounded
from slackwater.transforms.beam.transform import OperatorTransform
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.settings.models import MAX_INPUTS, MIN_INPUTS, ChooseValuesConfig
from slackwater.transforms.settings.plan import Plan


class ChooseValues(OperatorTransform):
    """Chooses which tuples to request from relations of which only summaries are known (SAJ 3).

    Takes ``{name: PCollection, …}`` of summaries: rows with a join value, how many tuples the relation has of it,
    and a time. The main output has the values to request, a column with the number of tuples for each input, and
    ``ts``, the largest time. Unreadable summaries are in the output ``late``. Inputs must be bounded.

    Raises:
        ConfigError: A setting is wrong, or does not fit the inputs.
    """

    settings = ChooseValuesConfig
    named_inputs = f"{MIN_INPUTS} to {MAX_INPUTS} inputs with names: {{name: PCollection}}"

    def named(self, given: Any) -> dict[str, beam.PCollection]:
        found = super().named(given)
        if not MIN_INPUTS <= len(found) <= MAX_INPUTS:
            raise ConfigError(f"needs {self.named_inputs}", "input")
        return found

    def bind(self, schemas: dict[str, pa.Schema], inputs: Any) -> Plan:
        refuse_unbounded(inputs, "ChooseValues")
        return super().bind(schemas, inputs)

    def integer_columns(self, name: str) -> Iterator[str]:
        yield from super().integer_columns(name)
        yield self._config.count
