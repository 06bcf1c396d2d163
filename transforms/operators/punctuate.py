"""Punctuate: what a stream says of its own future, for whoever is to know when something is over.

One input goes through guard and K-slack as in ``Reorder``. Rows that are punctuations, and what tuples say in the
light of static promises, become rows of the output ``punctuations``; tuples that contradict one are late.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.plugins.contract import Finished, Matches, Punctuations, Released, Setting, Snapshot
from slackwater.plugins.shedding.none import NoShedding
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.expressions.tree import ExpressionError
from slackwater.transforms.operators.reorder import INPUT, PassOn, PassOnLogic, ReorderPlan
from slackwater.transforms.punctuation.marks import check_punctuations
from slackwater.transforms.punctuation.metadata import check_metadata
from slackwater.transforms.rows.encoder import CellEncoder
from slackwater.transforms.rows.json_text import rows_to_json
from slackwater.transforms.settings.columns import bind_times, kind_of_times, whole_ticks
from slackwater.transforms.settings.models import DisorderConfig, JoinConfig, PunctuateConfig
from slackwater.transforms.settings.plan import bind_disorder

FIXED: Final = ("ts", "pattern")
"""Columns that every punctuation has, before those with what it speaks of."""


class PassOnPunctuated(PassOn):
    """Let every row through that comes in order, and every punctuation once its time has passed."""

    name: ClassVar[str] = "pass_on_punctuated"
    every: int | None = None
    """Ticks from one punctuation of the last kind to the next, at least; None gives all of them out."""

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> PassOnPunctuatedLogic:
        return PassOnPunctuatedLogic(self.every, setting, snapshot)


class PassOnPunctuatedLogic(PassOnLogic):
    """A join of one input that has nothing to add to what is said of it."""

    def __init__(self, every: int | None, setting: Setting, snapshot: Snapshot | None = None) -> None:
        super().__init__(setting)
        self._every, self._kinds = every, len(setting.patterns)
        self._span: int | None = snapshot["span"] if snapshot else None
        """Number of the stretch of time of which something has been given out last."""

    def punctuated_step(self, released: Released, punctuations: Punctuations) -> Iterator[Matches]:
        """Pass on rows, and punctuations kind by kind."""
        yield from self.step(released)
        none = np.empty(0, np.int64)
        for kind in range(self._kinds):
            at = np.flatnonzero(punctuations.pattern == kind)
            if kind == self._kinds - 1:
                at = self._thinned(at, punctuations)
            if at.size:
                said = Punctuations._make(array[at] for array in punctuations)
                finished = Finished(said.at, said.ts, (kind,), said.low, said.high)
                nothing = (none.reshape(0, 1), none, none, np.empty(0))
                yield Matches(released.ts.size, released.ts.size, *nothing, finished=finished)

    def snapshot(self) -> Snapshot:
        return {"span": self._span}

    def _thinned(self, at: Any, punctuations: Punctuations) -> Any:
        """Of each stretch of time, keep the first."""
        if self._every is None or not at.size:
            return at
        span = punctuations.ts[at] // self._every
        first = np.append(True, span[1:] != span[:-1])
        first[0] = self._span is None or span[0] != self._span
        self._span = int(span[-1])
        return at[first]


class PunctuatePlan(ReorderPlan):
    """A plan whose results are the rows of its one input, with what they say of later ones."""

    @property
    def side_outputs(self) -> tuple[str, ...]:
        return ("late", "punctuations", "metrics")

    @cached_property
    def named(self) -> list[dict[str, tuple[int, str]]]:
        """For each kind of punctuation its columns: the cell each is of, and if it has its value or an end."""
        return [dict(self._columns_of(kind)) for kind in range(len(self.setting.patterns))]

    @cached_property
    def punctuation_schema(self) -> pa.Schema:
        """When, the pattern, and what it names in columns of its own; null where a kind does not name them."""
        cells = {column: cell for columns in self.named for column, (cell, _) in columns.items()}
        fields = [pa.field(column, self._type(cell)) for column, cell in cells.items()]
        return pa.schema([pa.field("ts", self.time_type), pa.field("pattern", pa.string()), *fields])

    def punctuation_batch(self, encoder: CellEncoder, finished: Sequence[Finished]) -> pa.RecordBatch:
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
            position = self.setting.patterns[kind].cells.index(cell)
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
        pattern = self.setting.patterns[kind]
        promise = self.derived[kind - len(self.marks)][0] if kind >= len(self.marks) else ""
        end = {"ascending": "to", "descending": "from"}.get(promise)
        for cell in pattern.cells:
            column = self.condition.columns[0][cell].column
            yield (column, (cell, "value")) if end is None else (f"{column}_{end}", (cell, end))

    def _type(self, cell: int) -> pa.DataType:
        type_ = self.schemas[INPUT].field(self.condition.columns[0][cell].column).type
        return type_.value_type if pa.types.is_dictionary(type_) else type_


def bind_punctuate(config: PunctuateConfig, schemas: Mapping[str, pa.Schema]) -> PunctuatePlan:
    """Check settings against the input; raise ConfigError with the path of the setting at fault."""
    if len(schemas) != 1:
        raise ConfigError(f"needs one input, got {len(schemas)}", "input")
    ((_, schema),) = schemas.items()
    time_columns, arrival, unit = bind_times(config, schemas)
    joined = _as_join(config, schema, time_columns[0], unit)
    try:
        check_punctuations(joined, schemas)
    except ConfigError as error:
        raise ConfigError(error.fault, *(error.path[1:] or ("key",))) from None
    check_metadata(joined, schemas)
    every = None if config.progress is None else whole_ticks(config.progress, unit, "progress")
    plan = PunctuatePlan(
        config=joined,
        schemas=dict(schemas),
        time_columns=time_columns,
        arrival_columns=arrival,
        unit=unit,
        windows=(0,),
        disorder=bind_disorder(config, schemas),
        join=PassOnPunctuated(every=every),
        shedding=NoShedding(),
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


def _as_join(config: PunctuateConfig, schema: pa.Schema, time: str, unit: str) -> JoinConfig:
    """Return the settings as those of a join of one input."""
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
    marks = [] if config.when is None else [{"input": INPUT, "when": config.when, "key": config.key}]
    shared = {name: getattr(config, name) for name in DisorderConfig.model_fields}
    return JoinConfig(
        **shared,
        window={"size": f"1{unit}"},
        punctuations=marks,
        unique=[_prefixed(columns) for columns in config.unique],
        clustered=[_prefixed(columns) for columns in config.clustered],
        ordered=ordered,
    )


def _prefixed(columns: str | list[str]) -> str | list[str]:
    return f"{INPUT}.{columns}" if isinstance(columns, str) else [f"{INPUT}.{column}" for column in columns]
