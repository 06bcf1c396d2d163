"""SlidingWindowJoin for Beam pipelines in Python and in YAML."""

# Annotations stay objects here: Beam YAML makes the config schema of the constructor's.

from typing import Any, Final

import apache_beam as beam
import pyarrow as pa
from apache_beam.typehints.decorators import no_annotations

from slackwater.transforms.archive_directory import prepare
from slackwater.transforms.beam.join import join_batches, refuse_unbounded
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
from slackwater.transforms.config import JoinConfig
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.plan import MAX_INPUTS, METRICS_SCHEMA, MIN_INPUTS, JoinPlan, bind

LATE_TYPES: Final[dict[str, Any]] = {
    "input": str,
    "reason": str,
    "ts": optional(int),
    "arrival": optional(int),
    "row": str,
}
PUNCTUATION_TYPES: Final[dict[str, Any]] = {"ts": int, "pattern": str}
"""Columns of the punctuations."""
METRIC_TYPES: Final[dict[str, Any]] = {field.name: beam_type(field.type) for field in METRICS_SCHEMA}


class SlidingWindowJoin(beam.PTransform):  # type: ignore[misc, unused-ignore]
    """Joins 2 to 8 inputs whose rows may come out of order, over sliding windows of event time.

    Takes ``{input name: PCollection}`` of rows with a schema. The main output has every column of every input
    as ``<input>_<column>`` and ``ts``, the result's timestamp; rows that could not be joined in time are in
    the output ``late`` with their reason. Bounded inputs are joined in order of arrival when all is there; where
    one is unbounded, rows are joined as they arrive. Rows join within a Beam window, in which the results stay.

    Args:
        time: Event-time column, one name for all inputs or {input: column}; integer, timestamp or date.
        window: How far back a row may be to be joined, such as 5s, or {input: duration}; some joins have none.
        where: Join condition in SQL, such as orders.id = clicks.order_id; none joins all within the windows.
        arrival: Integer column with the order of arrival over all inputs, or {input: column}; default is the
            order in which the runner delivers the rows, which only in-process runners keep. Of unbounded inputs
            it orders the rows that come together.
        time_unit: Unit of integer event times: s, ms, us or ns.
        disorder: Disorder strategy and its options, such as {recall: 0.99} or {strategy: fixed, slack: 2s}.
        join: Join strategy and its options.
        shedding: Shedding strategy and its options.
        output: Joined rows, or counts for the number of results per timestamp.
        shards: Parts that the join is split into by key, worked on in parallel.
        guard: Limits on event times, {past: duration, future: duration}; rows beyond them are late.
        metrics: Stream time between rows of the output metrics; strategies that adapt report whenever they do.
        punctuations: Rows that are punctuations, {input: name, when: condition, key: column}, or a list of such;
            {source: name, input: name, key: column} for an input that has nothing else.
        unique: Columns of which no value comes twice, as input.column or a list.
        clustered: Columns whose equal values follow each other, as input.column or a list.
        ordered: Columns whose values never fall, as input.column or a list; input.column desc for never rise.
        foreign_key: Columns that refer to others, such as bids.item -> auctions.id, or a list.
        archive: Directory that gets every row of which results were missed, for slackwater reconcile.
        idle_timeout: In live runs, how long an input may be silent before nothing is held back for it any more;
            default is for ever.

    Raises:
        ConfigError: A setting is wrong, or does not fit the inputs.
    """

    def __init__(
        self,
        *,
        time: Any,
        window: Any = None,
        where: str | None = None,
        arrival: Any = None,
        time_unit: str = "ms",
        disorder: dict[str, Any] | None = None,
        join: dict[str, Any] | None = None,
        shedding: dict[str, Any] | None = None,
        output: str = "rows",
        shards: int = 1,
        guard: dict[str, Any] | None = None,
        metrics: str | None = None,
        punctuations: dict[str, Any] | list[dict[str, Any]] | None = None,
        unique: Any = None,
        clustered: Any = None,
        ordered: Any = None,
        foreign_key: Any = None,
        archive: str | None = None,
        idle_timeout: str | None = None,
    ) -> None:
        super().__init__()
        settings = {
            "time": time,
            "window": window,
            "where": where,
            "arrival": arrival,
            "time_unit": time_unit,
            "disorder": disorder,
            "join": join,
            "shedding": shedding,
            "output": output,
            "shards": shards,
            "guard": guard,
            "metrics": metrics,
            "punctuations": punctuations,
            "unique": unique,
            "clustered": clustered,
            "ordered": ordered,
            "foreign_key": foreign_key,
            "archive": archive,
            "idle_timeout": idle_timeout,
        }
        self._config = JoinConfig.read({key: value for key, value in settings.items() if value is not None})
        self._schemas: dict[str, pa.Schema] = {}
        self.equal_columns: list[list[str]] = []
        """Columns of the main output that are equal in every row; known once the join has been applied."""

    def with_schemas(self, schemas: dict[str, pa.Schema]) -> "SlidingWindowJoin":
        """Give the columns of inputs whose elements have no schema: dicts, or Arrow record batches."""
        self._schemas = dict(schemas)
        return self

    @no_annotations
    def expand(self, inputs: dict[str, beam.PCollection]) -> JoinOutputs:
        if not isinstance(inputs, dict):
            raise ConfigError(
                f"needs {MIN_INPUTS} to {MAX_INPUTS} inputs with names: {{name: PCollection, …}}", "input"
            )
        if self._config.archive is not None:
            refuse_unbounded(inputs, "an archive")
        schemas = {name: self._row_schema(name, pcollection) for name, pcollection in inputs.items()}
        plan = bind(self._config, {name: schema.arrow for name, schema in schemas.items()})
        prepare(plan)
        self.equal_columns = plan.equal_columns
        readers = {
            name: RowReader(name, schemas[name].arrow)
            for name, pcollection in inputs.items()
            if pcollection.element_type is not pa.RecordBatch
        }
        batches = join_batches(inputs, plan, readers)
        return JoinOutputs(
            {
                MAIN: unpack(batches[MAIN], "Rows", _result_types(plan, schemas)),
                "late": unpack(batches["late"], "Late rows", LATE_TYPES),
                "punctuations": unpack(batches["punctuations"], "Punctuation rows", PUNCTUATION_TYPES),
                "metrics": unpack(batches["metrics"], "Metric rows", METRIC_TYPES),
            }
        )

    def _row_schema(self, name: str, pcollection: beam.PCollection) -> RowSchema:
        if name in self._schemas:
            return arrow_row_schema(self._schemas[name])
        config = self._config
        whole = {
            column if isinstance(column, str) else column.get(name, "")
            for column in (config.time, config.arrival)
            if column is not None
        }
        return row_schema(name, pcollection.element_type, whole)


def _result_types(plan: JoinPlan, schemas: dict[str, RowSchema]) -> dict[str, Any]:
    """Columns of the main output: the inputs' own types, as Beam knows them."""
    if plan.config.output == "counts":
        return {"ts": _time_type(plan), "count": int}
    types = {f"{name}_{column}": type_ for name in plan.members for column, type_ in schemas[name].types.items()}
    return {**types, "ts": _time_type(plan)}


def _time_type(plan: JoinPlan) -> Any:
    return int if pa.types.is_integer(plan.time_type) else beam_type(plan.time_type)
