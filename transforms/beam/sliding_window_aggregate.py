"""SlidingWindowAggregate: aggregates over the extents of a sliding window."""

# Annotations stay objects here: Beam YAML makes the config schema of the constructor's.

from typing import Any

import pyarrow as pa

from slackwater.transforms.beam.transform import OperatorTransform
from slackwater.transforms.operators.aggregate.plan import bind_aggregate
from slackwater.transforms.settings.models import AggregateConfig
from slackwater.transforms.settings.plan import JoinPlan


class SlidingWindowAggregate(OperatorTransform):
    """Groups and aggregates rows that may come out of order, over sliding windows of event time.

    Takes a PCollection of rows with a schema. The main output has a row for each group of each window extent:
    ``extent`` (i), ``start`` and ``end`` of [(i + 1) * slide - range, (i + 1) * slide), the group columns, the
    aggregates, ``sync`` (false) and ``ts``, which is the end. The output ``syncs`` has the same columns and a row
    for the end of each extent, with ``sync`` true and neither groups nor aggregates; flattened together, the two
    tell another operator how far the stream has come. Rows that came after one of their extents are in the output
    ``late``.

    Args:
        time: Event-time column; integer, timestamp or date.
        range: How much time an extent covers, such as 5m.
        aggregates: New columns, {name: aggregate}, such as {cars: count(*), speed: avg(speed)}; there are
            count, sum, avg, min and max of a column or an expression.
        slide: Time from one extent to the next; default is the range.
        group_by: Columns to group by; none makes one group of all rows.
        having: SQL condition on the group columns and the aggregates; groups that fail it are left out.
        arrival: Column with the order of arrival, integers or times; default is the order of event time of a
            bounded input, in which nothing is late, and of an unbounded one that in which the runner delivers.
        time_unit: Unit of integer event times: s, ms, us or ns.
        disorder: Disorder strategy and its options, such as {strategy: drop_ratio, drop_ratio: 0.01}.
        shards: Parts that the groups are split into, worked on in parallel.
        guard: Limits on event times, {past: duration, future: duration}; rows beyond them are late. Or none.
        metrics: Stream time between rows of the output metrics; strategies that adapt report whenever they do.
        idle_timeout: In live runs, how long an input may be silent before nothing is held back for it any more;
            default is for ever.
        error_handling: {output: name} calls the output late by another name, as Beam YAML has it for rows that
            could not be processed; something must read it.

    Raises:
        ConfigError: A setting is wrong, or does not fit the input.
    """

    settings = AggregateConfig

    def __init__(
        self,
        *,
        time: str,
        range: str,
        aggregates: dict[str, str],
        slide: str | None = None,
        group_by: Any = None,
        having: str | None = None,
        arrival: str | None = None,
        time_unit: str = "ms",
        disorder: dict[str, Any] | None = None,
        shards: int = 1,
        guard: Any = None,
        metrics: str | None = None,
        idle_timeout: str | None = None,
        error_handling: dict[str, str] | None = None,
    ) -> None:
        super().__init__(locals())

    def bind(self, schemas: dict[str, pa.Schema], inputs: Any) -> JoinPlan:
        return bind_aggregate(self._config, schemas)
