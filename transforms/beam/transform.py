"""What the transforms of ours have in common: settings, schemas, steps and outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, Self

import apache_beam as beam
import pyarrow as pa
from apache_beam.typehints.decorators import no_annotations

from slackwater.transforms.beam.join import join_batches
from slackwater.transforms.beam.outputs import MAIN, JoinOutputs
from slackwater.transforms.beam.rows import (
    RowReader,
    RowSchema,
    arrow_row_schema,
    beam_type,
    optional,
    row_schema,
    unpack,
)
from slackwater.transforms.beam.runners import refuse_streaming_on_spark
from slackwater.transforms.beam.stamps import EventTime
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.operators.registry import operator_of
from slackwater.transforms.settings.models import OperatorConfig
from slackwater.transforms.settings.plan import INPUT, METRICS_SCHEMA, Plan
from slackwater.transforms.settings.signatures import takes_settings, with_settings

LATE_TYPES: Final[dict[str, Any]] = {
    "input": str,
    "reason": str,
    "ts": optional(int),
    "arrival": optional(int),
    "row": str,
}
METRIC_TYPES: Final[dict[str, Any]] = {field.name: beam_type(field.type) for field in METRICS_SCHEMA}


class OperatorTransform(beam.PTransform):  # type: ignore[misc, unused-ignore]
    """A transform around an operator; a subclass states its settings and what it is given.

    A subclass that names its settings gets a constructor with their signature, and their descriptions in its
    docstring. Beam YAML makes the config schema from both.

    Args:
        settings: those of the template; None means that a setting is left out.
    """

    settings: ClassVar[type[OperatorConfig]]
    named_inputs: ClassVar[str | None] = None
    """What to give where the inputs have names; None for one PCollection."""
    passes_on: ClassVar[str | None] = None
    """Input whose rows are those of the main output, if they are; they keep their class."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self._config: Any = self.settings.of_keywords(settings)
        self._schemas: dict[str, pa.Schema] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "settings" in cls.__dict__:
            cls.__init__ = _constructor(cls)  # type: ignore[method-assign]
            cls.__doc__ = with_settings(cls.__doc__ or "", cls.settings)

    def with_schemas(self, schemas: Mapping[str, pa.Schema]) -> Self:
        """Give the columns of inputs whose elements have no schema: dicts, or Arrow record batches."""
        self._schemas = dict(schemas)
        return self

    def with_schema(self, schema: pa.Schema) -> Self:
        """As ``with_schemas``, of a transform with one input."""
        return self.with_schemas({INPUT: schema})

    @no_annotations
    def expand(self, given: Any) -> JoinOutputs:
        inputs = self.named(given)
        refuse_streaming_on_spark(inputs)
        schemas = {name: self._row_schema(name, rows.element_type) for name, rows in inputs.items()}
        plan = self.bind({name: schema.arrow for name, schema in schemas.items()}, inputs)
        readers = {
            name: RowReader(name, schemas[name].arrow)
            for name, rows in inputs.items()
            if rows.element_type is not pa.RecordBatch
        }
        batches = join_batches(inputs, plan, readers)
        main = self.result_types(plan, schemas)
        types = {MAIN: main, "syncs": main, "late": LATE_TYPES, "metrics": METRIC_TYPES}
        if "punctuations" in plan.side_outputs:
            types["punctuations"] = _punctuation_types(plan)
        outputs = (MAIN, *plan.side_outputs)
        passed = None if self.passes_on is None else schemas[self.passes_on].like
        rows = {}
        for tag in outputs:
            time = EventTime(plan.result_time if tag == MAIN else "ts", plan.unit)
            rows[tag] = unpack(batches[tag], _label(tag), types[tag], time, passed if tag == MAIN else None)
        handling = self._config.error_handling
        return JoinOutputs(rows, "late" if handling is None else handling.output)

    def named(self, given: Any) -> dict[str, beam.PCollection]:
        """Return the inputs by name; raise ConfigError unless they are what the transform takes."""
        if self.named_inputs is None and isinstance(given, beam.PCollection):
            return {INPUT: given}
        if self.named_inputs is None or not isinstance(given, dict):
            raise ConfigError(f"needs {self.named_inputs or 'one PCollection'}", "input")
        return given

    def bind(self, schemas: dict[str, pa.Schema], inputs: Mapping[str, beam.PCollection]) -> Plan:
        """Check settings against the columns of the inputs; raise ConfigError if they do not fit."""
        return operator_of(self._config).bind(self._config, schemas)

    def result_types(self, plan: Plan, schemas: Mapping[str, RowSchema]) -> dict[str, Any]:
        """Return Beam's type of each column of the main output."""
        passed = schemas.get(self.passes_on or "")
        return arrow_row_schema(plan.result_schema).types if passed is None else passed.types

    def integer_columns(self, name: str) -> Iterator[str]:
        """Yield the columns of an input that are integers even where a reader made floats of them."""
        for column in (self._config.time, getattr(self._config, "arrival", None)):
            if column is not None:
                yield column if isinstance(column, str) else column.get(name, "")

    def _row_schema(self, name: str, element_type: Any) -> RowSchema:
        if name in self._schemas:
            return arrow_row_schema(self._schemas[name])
        return row_schema(name, element_type, set(self.integer_columns(name)))


def _label(tag: str) -> str:
    """Return the label of the step that makes rows of an output: ``Late rows``, ``Metric rows``."""
    return "Rows" if tag == MAIN else f"{tag.removesuffix('s').capitalize()} rows"


def _constructor(transform: type[OperatorTransform]) -> Any:
    """Return a constructor whose signature lists the settings: Beam reads that of ``__init__``."""

    @takes_settings(transform.settings)
    def __init__(self: OperatorTransform, **settings: Any) -> None:
        super(transform, self).__init__(**settings)

    __init__.__qualname__, __init__.__doc__ = f"{transform.__qualname__}.__init__", None
    return __init__


def time_type(plan: Plan) -> Any:
    """Return Beam's type of a time that is never missing, such as that of a result."""
    return int if pa.types.is_integer(plan.time_type) else beam_type(plan.time_type)


def _punctuation_types(plan: Plan) -> dict[str, Any]:
    schema = plan.output_schema("punctuations")
    types = arrow_row_schema(schema).types
    is_number = pa.types.is_integer(schema.field("ts").type)
    return {**types, "ts": int if is_number else types["ts"], "pattern": str}
