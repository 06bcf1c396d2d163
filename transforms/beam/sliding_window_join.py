"""SlidingWindowJoin for Beam pipelines in Python and in YAML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from slackwater.transforms.beam.join import refuse_unbounded
from slackwater.transforms.beam.rows import RowSchema
from slackwater.transforms.beam.transform import OperatorTransform, time_type
from slackwater.transforms.output.archive_directory import prepare
from slackwater.transforms.settings.models import MAX_INPUTS, MIN_INPUTS, JoinConfig
from slackwater.transforms.settings.plan import JoinPlan, Plan, bind


class SlidingWindowJoin(OperatorTransform):
    """Joins 2 to 8 inputs whose rows may come out of order, over sliding windows of event time.

    Takes ``{input name: PCollection}`` of rows with a schema. The main output has every column of every input
    as ``<input>_<column>`` and ``ts``, the result's timestamp; rows that could not be joined in time are in
    the output ``late`` with their reason. Bounded inputs are gathered first and joined in order of arrival; if
    one is unbounded, rows are joined as they arrive. Rows join within a Beam window, in which the results stay;
    a result has its event time, ``ts``, as Beam's timestamp.

    Raises:
        ConfigError: A setting is wrong, or does not fit the inputs.
    """

    settings = JoinConfig
    named_inputs = f"{MIN_INPUTS} to {MAX_INPUTS} inputs with names: {{name: PCollection, …}}"
    equal_columns: Sequence[Sequence[str]] = ()
    """Columns of the main output that are equal in every row; known once the join has been applied."""

    def bind(self, schemas: dict[str, pa.Schema], inputs: Any) -> JoinPlan:
        if self._config.archive is not None:
            refuse_unbounded(inputs, "an archive")
        plan = bind(self._config, schemas)
        prepare(plan)
        self.equal_columns = plan.equal_columns
        return plan

    def result_types(self, plan: Plan, schemas: Mapping[str, RowSchema]) -> dict[str, Any]:
        assert isinstance(plan, JoinPlan)
        ts = time_type(plan)
        if plan.config.output == "counts":
            return {"ts": ts, "count": int}
        own = {f"{name}_{column}": t for name in plan.members for column, t in schemas[name].types.items()}
        return {**own, "ts": ts} | ({} if plan.config.id is None else {plan.config.id: str})
