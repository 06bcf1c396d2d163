"""Shed: no more rows than the next step can process, those that are worth most."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import pyarrow as pa

from slackwater.transforms.beam.transform import OperatorTransform
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.operators.shed.plan import ROWS
from slackwater.transforms.settings.models import SHED_INPUTS, ShedConfig


class Shed(OperatorTransform):
    """Passes a limited number of rows per second, and drops the rows worth least when too many wait.

    Takes a PCollection of rows with a schema, or ``{rows: PCollection, partners: PCollection}``. Partners are a
    reference only: what a row is worth may depend on how often partners match it. The main output has the rows
    that pass, of the type they had, in order of arrival. Rows that were shed are in the output ``late``.

    Raises:
        ConfigError: A setting is wrong, or does not fit the inputs.
    """

    settings = ShedConfig
    passes_on = ROWS
    named_inputs = "a PCollection, or two with names: {rows: PCollection, partners: PCollection}"

    def with_schema(self, schema: pa.Schema) -> Shed:
        """As ``with_schemas``, where there are no partners."""
        return self.with_schemas({ROWS: schema})

    def named(self, given: Any) -> dict[str, beam.PCollection]:
        found = {ROWS: given} if isinstance(given, beam.PCollection) else super().named(given)
        if not {ROWS} <= set(found) <= set(SHED_INPUTS):
            raise ConfigError(f"needs {self.named_inputs}", "input")
        return {name: found[name] for name in SHED_INPUTS if name in found}
