"""GroupClose: aggregates per group, emitted as soon as the group is finished."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa

from slackwater.transforms.beam.sliding_window_join import SlidingWindowJoin
from slackwater.transforms.beam.transform import OperatorTransform
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.operators.group_close.plan import ROWS
from slackwater.transforms.operators.registry import operator_of
from slackwater.transforms.settings.models import GROUP_CLOSE_INPUTS, GroupCloseConfig
from slackwater.transforms.settings.plan import Plan


class GroupClose(OperatorTransform):
    """Groups and aggregates rows, and emits a group when a punctuation or its window says that it is finished.

    Takes ``{rows: PCollection, punctuations: PCollection}`` of rows with a schema, such as the main output of a
    join and its output ``punctuations``. The main output has the columns of ``by``, the aggregates, ``ts``, when
    the group was closed, and ``closed_by``: punctuation, window or end. Rows of a closed group are in the output
    ``late``. Rows and punctuations are taken in order of event time, rows first.

    Raises:
        ConfigError: A setting is wrong, or does not fit the inputs.
    """

    settings = GroupCloseConfig
    named_inputs = "two inputs with names: {rows: PCollection, punctuations: PCollection}"

    def named(self, given: Any) -> dict[str, beam.PCollection]:
        found = super().named(given)
        if set(found) != set(GROUP_CLOSE_INPUTS):
            raise ConfigError(f"needs {self.named_inputs}", "input")
        return {name: found[name] for name in GROUP_CLOSE_INPUTS}

    def bind(self, schemas: dict[str, pa.Schema], inputs: Mapping[str, beam.PCollection]) -> Plan:
        return operator_of(self._config).bind(self._config, schemas, _equal_columns(inputs[ROWS]))

    def integer_columns(self, name: str) -> Iterator[str]:
        yield self._config.time if name == ROWS else "ts"


def _equal_columns(rows: beam.PCollection) -> Sequence[Sequence[str]]:
    """Columns that are equal in every row because they are the main output of a join."""
    step = rows.producer
    while step is not None:
        if isinstance(step.transform, SlidingWindowJoin):
            return step.transform.equal_columns
        step = step.parent
    return []
