"""Punctuate bound to its input: what rows say of later ones, and the columns in which it comes out."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.plugins.contract import Finished, Pattern, Setting
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.expressions.condition import Condition
from slackwater.transforms.expressions.tree import ExpressionError
from slackwater.transforms.operators.reorder.plan import OrderPlan
from slackwater.transforms.punctuation.marks import Mark, bind_marks, check_punctuations, named_columns
from slackwater.transforms.punctuation.metadata import (
    bind_metadata,
    check_metadata,
    derived_patterns,
    promised_columns,
)
from slackwater.transforms.rows.encoder import CellEncoder
from slackwater.transforms.rows.json_text import rows_to_json
from slackwater.transforms.settings.columns import bind_times, kind_of_times, whole_ticks
from slackwater.transforms.settings.explanation import described
from slackwater.transforms.settings.models import PromisesConfig, PunctuateConfig, PunctuationConfig
from slackwater.transforms.settings.plan import INPUT, bind_disorder

FIXED: Final = ("ts", "pattern")
"""Columns that every punctuation has, before those with what it speaks of."""


@dataclass(frozen=True)
class PunctuatePlan(OrderPlan):
    """A plan whose results are the rows of its one input, with what they say of later ones."""

    config: PunctuateConfig
    promises: PromisesConfig
    """What the settings say of later rows, in the words of a join."""
    every: int | None
    """Ticks from one punctuation of the last kind to the next, at least; None gives all of them out."""

    side_outputs: ClassVar[tuple[str, ...]] = ("late", "punctuations", "metrics")

    @cached_property
    def condition(self) -> Condition:
        """The columns that punctuations and promises speak of."""
        also = [*named_columns(self.promises), *promised_columns(self.promises)]
        return Condition(None, self.schemas, also)

    @cached_property
    def marks(self) -> tuple[Mark, ...]:
        return bind_marks(self.promises, self.schemas, self.condition)

    @cached_property
    def derived(self) -> list[tuple[str, Pattern]]:
        """The kinds of punctuations that follow from promises; they come after those of ``marks``."""
        return derived_patterns(bind_metadata(self.promises, self.condition))

    @cached_property
    def patterns(self) -> tuple[Pattern, ...]:
        """All kinds of punctuations."""
        return (*(mark.pattern for mark in self.marks), *(pattern for _, pattern in self.derived))

    @cached_property
    def setting(self) -> Setting:
        metadata = bind_metadata(self.promises, self.condition)
        return super().setting._replace(patterns=self.patterns, metadata=metadata)

    def output_schema(self, output: str = "") -> pa.Schema:
        return self.punctuation_schema if output == "punctuations" else super().output_schema(output)

    @cached_property
    def named(self) -> list[dict[str, tuple[int, str]]]:
        """For each kind of punctuation its columns: the cell each is of, and if it has its value or an end."""
        return [dict(self._columns_of(kind)) for kind in range(len(self.patterns))]

    @cached_property
    def punctuation_schema(self) -> pa.Schema:
        """When, the pattern, and what it names in columns of its own; null where a kind does not name them."""
        cells = {column: cell for columns in self.named for column, (cell, _) in columns.items()}
        fields = [pa.field(column, self._type(cell)) for column, cell in cells.items()]
        return pa.schema([pa.field("ts", self.time_type), pa.field("pattern", pa.string()), *fields])

    def punctuation_batch(self, encoder: CellEncoder, finished: Sequence[Finished]) -> pa.RecordBatch:
        """Return punctuations as rows of their output, in order of time."""
        parts = [self._batch_of_kind(encoder, part) for part in finished]
        whole = pa.Table.from_batches(parts, schema=self.punctuation_schema).combine_chunks()
        order = np.argsort(np.concatenate([part.ts for part in finished]), kind="stable")
        return whole.take(pa.array(order)).to_batches()[0]

    def _batch_of_kind(self, encoder: CellEncoder, finished: Finished) -> pa.RecordBatch:
        (kind,) = finished.classes
        shown: dict[str, pa.Array] = {}
        texts: dict[str, pa.Array] = {}
        for column, (cell, part) in self.named[kind].items():
            assert finished.high is not None
            position = self.patterns[kind].cells.index(cell)
            words = finished.high if part == "to" else finished.values[:, position]
            layout = self.condition.columns[0][cell]
            shown[column] = encoder.values(layout, self._type(cell), np.ascontiguousarray(words))
            texts[layout.column] = shown[column]
        pattern = rows_to_json(pa.RecordBatch.from_pydict(texts))
        ends = {part for _, part in self.named[kind].values()} - {"value"}
        if ends:
            ((name, values),) = texts.items()
            range_ = rows_to_json(pa.RecordBatch.from_pydict({ends.pop(): values}))
            label = json.dumps(name, ensure_ascii=False)
            pattern = pc.binary_join_element_wise(f"{{{label}: ", range_, "}", "")
        n = len(finished.ts)
        columns = {"ts": pa.array(finished.ts).cast(self.time_type), "pattern": pattern, **shown}
        arrays = [columns.get(f.name, pa.nulls(n, f.type)) for f in self.punctuation_schema]
        arrays = [a.cast(f.type) for a, f in zip(arrays, self.punctuation_schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.punctuation_schema)

    def _columns_of(self, kind: int) -> Iterator[tuple[str, tuple[int, str]]]:
        pattern = self.patterns[kind]
        promise = self.derived[kind - len(self.marks)][0] if kind >= len(self.marks) else ""
        end = {"ascending": "to", "descending": "from"}.get(promise)
        for cell in pattern.cells:
            column = self.condition.columns[0][cell].column
            yield (column, (cell, "value")) if end is None else (f"{column}_{end}", (cell, end))

    def _type(self, cell: int) -> pa.DataType:
        type_ = self.schemas[INPUT].field(self.condition.columns[0][cell].column).type
        return type_.value_type if pa.types.is_dictionary(type_) else type_


def bind_punctuate(
    config: PunctuateConfig, schemas: Mapping[str, pa.Schema], equal: Collection[Collection[str]] = ()
) -> PunctuatePlan:
    """Check settings against the input; raise ConfigError with the path of the setting at fault."""
    if len(schemas) != 1:
        raise ConfigError(f"needs one input, got {len(schemas)}", "input")
    ((_, schema),) = schemas.items()
    time_columns, arrival, unit = bind_times(config, schemas)
    promises = _promises(config, schema, time_columns[0])
    try:
        check_punctuations(promises, schemas)
    except ConfigError as error:
        raise ConfigError(error.fault, *(error.path[1:] or ("key",))) from None
    check_metadata(promises, schemas)
    every = None if config.progress is None else whole_ticks(config.progress, unit, "progress")
    plan = PunctuatePlan(
        config=config,
        schemas=dict(schemas),
        time_columns=time_columns,
        arrival_columns=arrival,
        unit=unit,
        disorder=bind_disorder(config, schemas),
        promises=promises,
        every=every,
    )
    try:
        columns = plan.punctuation_schema.names
    except ExpressionError as error:
        raise ConfigError(str(error), "key") from None
    clash = next((column for column in columns[len(FIXED) :] if column in FIXED), None)
    if clash is not None:
        raise ConfigError(
            f"column {clash!r} is one that every punctuation has; rename it with MapToFields", "key"
        )
    return plan


def _promises(config: PunctuateConfig, schema: pa.Schema, time: str) -> PromisesConfig:
    """Return what the settings say of later rows as a join says it of its inputs."""
    names = [name for name in ("unique", "clustered", "ordered") if getattr(config, name)]
    if config.when is None and not names and config.progress is None:
        raise ConfigError(
            "says nothing of later rows; set when and key, unique, clustered, ordered or progress", "when"
        )
    if (config.when is None) != (not config.key):
        missing = "when" if config.key else "key"
        raise ConfigError("is missing; when and key go together, add it or leave both out", missing)
    ordered = [f"{INPUT}.{column}" for column in config.ordered]
    if config.progress is not None:
        if time in config.ordered:
            raise ConfigError(f"says what ordered says of column {time!r}; leave one of them out", "progress")
        if kind_of_times(schema.field(time).type) == "any":
            raise ConfigError(
                f"needs times that are numbers or timestamps, and column {time!r} is {schema.field(time).type}; "
                "leave it out, or make them so with MapToFields",
                "progress",
            )
        ordered.append(f"{INPUT}.{time}")
    said = [] if config.when is None else [PunctuationConfig(input=INPUT, when=config.when, key=config.key)]
    return PromisesConfig(
        punctuations=said,
        unique=[_prefixed(columns) for columns in config.unique],
        clustered=[_prefixed(columns) for columns in config.clustered],
        ordered=ordered,
    )


def _prefixed(columns: str | list[str]) -> str | list[str]:
    return f"{INPUT}.{columns}" if isinstance(columns, str) else [f"{INPUT}.{column}" for column in columns]


def describe(plan: PunctuatePlan) -> Iterator[tuple[str, str]]:
    """Yield how rows are put in order, and the columns of punctuations, as (what, text)."""
    yield plan.disorder.stage, described(plan.disorder)
    yield "punctuations", ", ".join(plan.punctuation_schema.names)
