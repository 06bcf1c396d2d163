"""Reorder: rows out in order of event time."""

from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.typehints.decorators import no_annotations

from slackwater.transforms.beam.join import join_batches
from slackwater.transforms.beam.outputs import MAIN, JoinOutputs
from slackwater.transforms.beam.rows import RowReader, arrow_row_schema, row_schema, unpack
from slackwater.transforms.beam.sliding_window_join import LATE_TYPES, METRIC_TYPES
from slackwater.transforms.config import ReorderConfig
from slackwater.transforms.reordering import INPUT, bind_reorder


class Reorder(beam.PTransform):  # type: ignore[misc, unused-ignore]
    """Puts rows in order of event time; rows that come too late for it go to the output ``late``.

    Takes a PCollection of rows with a schema. The main output has the same columns; its elements are emitted
    in order, which in-process runners keep.

    Args:
        time: Event-time column; integer, timestamp or date.
        arrival: Integer column with the order of arrival; default is the order in which the runner delivers
            the rows, which only in-process runners keep.
        time_unit: Unit of integer event times: s, ms, us or ns.
        disorder: Disorder strategy and its options, such as {strategy: fixed, slack: 2s}.
        guard: Limits on event times, {past: duration, future: duration}; rows beyond them are late.
        metrics: Stream time between rows of the output metrics; strategies that adapt report whenever they do.
        idle_timeout: In live runs, how long an input may be silent before nothing is held back for it any more;
            default is for ever.

    Raises:
        ConfigError: A setting is wrong, or does not fit the input.
    """

    def __init__(
        self,
        *,
        time: str,
        arrival: str | None = None,
        time_unit: str = "ms",
        disorder: dict[str, Any] | None = None,
        guard: dict[str, Any] | None = None,
        metrics: str | None = None,
        idle_timeout: str | None = None,
    ) -> None:
        super().__init__()
        settings = {
            "time": time,
            "arrival": arrival,
            "time_unit": time_unit,
            "disorder": disorder,
            "guard": guard,
            "metrics": metrics,
            "idle_timeout": idle_timeout,
        }
        self._config = ReorderConfig.read({key: value for key, value in settings.items() if value is not None})
        self._schema: pa.Schema | None = None

    def with_schema(self, schema: pa.Schema) -> "Reorder":
        """Give the columns of an input whose elements have no schema: dicts, or Arrow record batches."""
        self._schema = schema
        return self

    @no_annotations
    def expand(self, rows: beam.PCollection) -> JoinOutputs:
        inputs = {INPUT: rows}
        whole = {str(self._config.time), str(self._config.arrival)}
        given = self._schema
        schema = row_schema(INPUT, rows.element_type, whole) if given is None else arrow_row_schema(given)
        plan = bind_reorder(self._config, {INPUT: schema.arrow})
        readers = {} if rows.element_type is pa.RecordBatch else {INPUT: RowReader(INPUT, schema.arrow)}
        batches = join_batches(inputs, plan, readers)
        return JoinOutputs(
            {
                MAIN: unpack(batches[MAIN], "Rows", schema.types),
                "late": unpack(batches["late"], "Late rows", LATE_TYPES),
                "metrics": unpack(batches["metrics"], "Metric rows", METRIC_TYPES),
            }
        )
