"""ChooseValues: which tuples of stored relations to request when not all can be."""

# Annotations stay objects here: Beam YAML makes the config schema of the constructor's.

from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.typehints.decorators import no_annotations

from slackwater.transforms.beam.join import join_batches, refuse_unbounded
from slackwater.transforms.beam.outputs import MAIN, JoinOutputs
from slackwater.transforms.beam.rows import RowReader, arrow_row_schema, row_schema, unpack
from slackwater.transforms.beam.sliding_window_join import LATE_TYPES
from slackwater.transforms.choosing import bind_choose_values
from slackwater.transforms.config import ChooseValuesConfig
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.plan import MAX_INPUTS, MIN_INPUTS


class ChooseValues(beam.PTransform):  # type: ignore[misc, unused-ignore]
    """Chooses which tuples to request from relations of which only summaries are known (SAJ 3).

    Takes ``{name: PCollection, …}`` of summaries: rows with a join value, how many tuples the relation has of it,
    and a time. The main output has the values to request, a column with the number of tuples for each input, and
    ``ts``, the largest time. Rows that are no summaries are in the output ``late``. Inputs must be bounded.

    Args:
        time: Time column of the summaries, one name or {input: column}; integer, timestamp or date.
        k: How many tuples to request, overall or as {input: number}.
        value: Column with the join value.
        count: Column with the number of tuples that have it.
        method: adg or optdp for a number overall; ndg, optdp or each for a number of each input. Default: adg,
            ndg, and each for more than two inputs.
        leave_out: Whether k is how many tuples not to request.
        time_unit: Unit of integer times: s, ms, us or ns.

    Raises:
        ConfigError: A setting is wrong, or does not fit the inputs.
    """

    def __init__(
        self,
        *,
        time: Any,
        k: Any,
        value: str = "value",
        count: str = "count",
        method: str | None = None,
        leave_out: bool = False,
        time_unit: str = "ms",
    ) -> None:
        super().__init__()
        settings = {
            "time": time,
            "k": k,
            "value": value,
            "count": count,
            "method": method,
            "leave_out": leave_out,
            "time_unit": time_unit,
        }
        self._config = ChooseValuesConfig.read(settings)
        self._schemas: dict[str, pa.Schema] = {}

    def with_schemas(self, schemas: dict[str, pa.Schema]) -> "ChooseValues":
        """Give the columns of inputs whose elements have no schema: dicts, or Arrow record batches."""
        self._schemas = dict(schemas)
        return self

    @no_annotations
    def expand(self, inputs: dict[str, beam.PCollection]) -> JoinOutputs:
        if not isinstance(inputs, dict) or not MIN_INPUTS <= len(inputs) <= MAX_INPUTS:
            raise ConfigError(
                f"needs {MIN_INPUTS} to {MAX_INPUTS} inputs with names: {{name: PCollection}}", "input"
            )
        refuse_unbounded(inputs, "ChooseValues")
        time = self._config.time
        schemas = {
            name: arrow_row_schema(self._schemas[name])
            if name in self._schemas
            else row_schema(
                name,
                rows.element_type,
                {self._config.count, time if isinstance(time, str) else time.get(name, "")},
            )
            for name, rows in inputs.items()
        }
        plan = bind_choose_values(self._config, {name: schema.arrow for name, schema in schemas.items()})
        readers = {
            name: RowReader(name, schemas[name].arrow)
            for name, rows in inputs.items()
            if rows.element_type is not pa.RecordBatch
        }
        batches = join_batches(inputs, plan, readers)
        return JoinOutputs(
            {
                MAIN: unpack(batches[MAIN], "Values", arrow_row_schema(plan.result_schema).types),
                "late": unpack(batches["late"], "Late rows", LATE_TYPES),
            }
        )
