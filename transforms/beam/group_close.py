"""GroupClose: aggregates per group, out as soon as the group is over."""

# Annotations stay objects here: Beam YAML makes the config schema of the constructor's.

from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.typehints.decorators import no_annotations

from slackwater.transforms.beam.join import join_batches
from slackwater.transforms.beam.outputs import MAIN, JoinOutputs
from slackwater.transforms.beam.rows import RowReader, arrow_row_schema, row_schema, unpack
from slackwater.transforms.beam.sliding_window_join import LATE_TYPES, SlidingWindowJoin
from slackwater.transforms.closing import ROWS, bind_group_close
from slackwater.transforms.config import GROUP_CLOSE_INPUTS, GroupCloseConfig
from slackwater.transforms.errors import ConfigError


class GroupClose(beam.PTransform):  # type: ignore[misc, unused-ignore]
    """Groups and aggregates rows, and closes a group when a punctuation or its window says that it is over.

    Takes ``{rows: PCollection, punctuations: PCollection}`` of rows with a schema, such as the main output of a
    join and its output ``punctuations``. The main output has the columns of ``by``, the aggregates, ``ts``, when
    the group was closed, and ``closed_by``: punctuation, window or end. Rows of a group that is over are in the
    output ``late``. Rows and punctuations are taken in order of event time, rows first.

    Args:
        time: Event-time column of the rows; integer, timestamp or date.
        by: Column or columns to group by.
        aggregates: New columns, {name: aggregate}, such as {bids: count(*), best: max(bids_price)}; there are
            count, sum, avg, min and max of a column or an expression.
        window: How long after its first row a group is open at most, such as 12h; none has no limit.
        same: Columns that always have the value of a column of by, {column: by column}; known where rows come
            straight from a join.
        time_unit: Unit of integer event times: s, ms, us or ns.
        shards: Parts that the groups are split into, worked on in parallel.
        idle_timeout: In live runs, how long inputs may be silent before punctuations close groups without waiting
            for a row after them; default is for ever.

    Raises:
        ConfigError: A setting is wrong, or does not fit the inputs.
    """

    def __init__(
        self,
        *,
        time: str,
        by: Any,
        aggregates: dict[str, str],
        window: str | None = None,
        same: dict[str, str] | None = None,
        time_unit: str = "ms",
        shards: int = 1,
        idle_timeout: str | None = None,
    ) -> None:
        super().__init__()
        settings = {
            "time": time,
            "by": by,
            "aggregates": aggregates,
            "window": window,
            "same": same,
            "time_unit": time_unit,
            "shards": shards,
            "idle_timeout": idle_timeout,
        }
        self._config = GroupCloseConfig.read({key: value for key, value in settings.items() if value is not None})
        self._schemas: dict[str, pa.Schema] = {}

    def with_schemas(self, schemas: dict[str, pa.Schema]) -> "GroupClose":
        """Give the columns of inputs whose elements have no schema: dicts, or Arrow record batches."""
        self._schemas = dict(schemas)
        return self

    @no_annotations
    def expand(self, inputs: dict[str, beam.PCollection]) -> JoinOutputs:
        if not isinstance(inputs, dict) or set(inputs) != set(GROUP_CLOSE_INPUTS):
            raise ConfigError(
                "needs two inputs with names: {rows: PCollection, punctuations: PCollection}", "input"
            )
        whole = {self._config.time}, {"ts"}
        schemas = {
            name: arrow_row_schema(self._schemas[name])
            if name in self._schemas
            else row_schema(name, inputs[name].element_type, columns)
            for name, columns in zip(GROUP_CLOSE_INPUTS, whole, strict=True)
        }
        arrow = {name: schema.arrow for name, schema in schemas.items()}
        plan = bind_group_close(self._config, arrow, _equal_columns(inputs[ROWS]))
        readers = {
            name: RowReader(name, arrow[name])
            for name in GROUP_CLOSE_INPUTS
            if inputs[name].element_type is not pa.RecordBatch
        }
        batches = join_batches(inputs, plan, readers)
        return JoinOutputs(
            {
                MAIN: unpack(batches[MAIN], "Rows", arrow_row_schema(plan.result_schema).types),
                "late": unpack(batches["late"], "Late rows", LATE_TYPES),
            }
        )


def _equal_columns(rows: beam.PCollection) -> list[list[str]]:
    """Columns that are equal in every row because they are the main output of a join."""
    step = rows.producer
    while step is not None:
        if isinstance(step.transform, SlidingWindowJoin):
            return step.transform.equal_columns
        step = step.parent
    return []
