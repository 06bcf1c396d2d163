"""Punctuate: rows in order of event time, and punctuations that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from slackwater.transforms.beam.rows import RowSchema
from slackwater.transforms.beam.transform import OperatorTransform
from slackwater.transforms.operators.punctuate.plan import bind_punctuate
from slackwater.transforms.settings.models import PunctuateConfig
from slackwater.transforms.settings.plan import INPUT, Plan


class Punctuate(OperatorTransform):
    """Puts rows in order of event time and emits punctuations: values that no later row will have.

    Takes a PCollection of rows with a schema. The main output has the same columns, in order, without the rows
    that are punctuations themselves. The output ``punctuations`` has ``ts``, ``pattern``, such as {"item": 7} or
    {"day": {"to": 3}}, and what it names in columns of its own, ``item`` or ``day_to``: no row after ``ts``
    matches. GroupClose reads this output, or a join as a source of punctuations. Rows that come too late for the
    order, or contradict a punctuation, are in the output ``late``.

    Raises:
        ConfigError: A setting is wrong, or does not fit the input.
    """

    settings = PunctuateConfig
    passes_on = INPUT

    def bind(self, schemas: dict[str, pa.Schema], inputs: Any) -> Plan:
        return bind_punctuate(self._config, schemas)

    def result_types(self, plan: Plan, schemas: Mapping[str, RowSchema]) -> dict[str, Any]:
        return schemas[INPUT].types
