"""SlidingWindowJoin for Beam pipelines in Python and in YAML."""

# Annotations stay objects here: Beam YAML makes the config schema of the constructor's.

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from slackwater.transforms.beam.join import refuse_unbounded
from slackwater.transforms.beam.rows import RowSchema
from slackwater.transforms.beam.transform import OperatorTransform, time_type
from slackwater.transforms.output.archive_directory import prepare
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import MAX_INPUTS, MIN_INPUTS, JoinPlan, bind


class SlidingWindowJoin(OperatorTransform):
    """Joins 2 to 8 inputs whose rows may come out of order, over sliding windows of event time.

    Takes ``{input name: PCollection}`` of rows with a schema. The main output has every column of every input
    as ``<input>_<column>`` and ``ts``, the result's timestamp; rows that could not be joined in time are in
    the output ``late`` with their reason. Bounded inputs are joined in order of arrival when all is there; where
    one is unbounded, rows are joined as they arrive. Rows join within a Beam window, in which the results stay;
    a result has its event time, ``ts``, as Beam's timestamp.

    Args:
        time: Event-time column, one name for all inputs or {input: column}; integer, timestamp or date.
        window: How far back a row may be to be joined, such as 5s, or {input: duration}; some joins have none.
        where: Join condition in SQL, such as orders.id = clicks.order_id; none joins all within the windows.
        arrival: Column with the order of arrival over all inputs, or {input: column}, integers or times; default
            is the order of event time of bounded inputs, in which nothing is late, and of unbounded ones that in
            which the runner delivers the rows. Of unbounded inputs it orders the rows that come together.
        time_unit: Unit of integer event times: s, ms, us or ns.
        disorder: Disorder strategy and its options, such as {recall: 0.99} or {strategy: fixed, slack: 2s}.
        join: Join strategy and its options.
        shedding: Shedding strategy and its options.
        output: Joined rows, or counts for the number of results per timestamp.
        id: Name of a text column that tells every result of a Beam window from all others, the same after a
            failure: the shard, and the number of each member among its input's rows in that shard.
        shards: Parts that the join is split into, by key or else by bands of numbers or by arrival, worked on in
            parallel.
        hot_keys: Frequent values of the key to be spread over shards, such as {input: orders, values: [17, 42]}.
        guard: Limits on event times, {past: duration, future: duration}; rows beyond them are late. Or none.
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
        error_handling: {output: name} calls the output late by another name, as Beam YAML has it for rows that
            could not be processed; something must read it.

    Raises:
        ConfigError: A setting is wrong, or does not fit the inputs.
    """

    settings = JoinConfig
    named_inputs = f"{MIN_INPUTS} to {MAX_INPUTS} inputs with names: {{name: PCollection, …}}"

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
        id: str | None = None,
        shards: int = 1,
        hot_keys: dict[str, Any] | None = None,
        guard: Any = None,
        metrics: str | None = None,
        punctuations: dict[str, Any] | list[dict[str, Any]] | None = None,
        unique: Any = None,
        clustered: Any = None,
        ordered: Any = None,
        foreign_key: Any = None,
        archive: str | None = None,
        idle_timeout: str | None = None,
        error_handling: dict[str, str] | None = None,
    ) -> None:
        super().__init__(locals())
        self.equal_columns: list[list[str]] = []
        """Columns of the main output that are equal in every row; known once the join has been applied."""

    def bind(self, schemas: dict[str, pa.Schema], inputs: Any) -> JoinPlan:
        if self._config.archive is not None:
            refuse_unbounded(inputs, "an archive")
        plan = bind(self._config, schemas)
        prepare(plan)
        self.equal_columns = plan.equal_columns
        return plan

    def result_types(self, plan: JoinPlan, schemas: Mapping[str, RowSchema]) -> dict[str, Any]:
        ts = time_type(plan)
        if plan.config.output == "counts":
            return {"ts": ts, "count": int}
        own = {f"{name}_{column}": t for name in plan.members for column, t in schemas[name].types.items()}
        return {**own, "ts": ts} | ({} if plan.config.id is None else {plan.config.id: str})
