"""SlidingWindowAggregate: aggregates over the extents of a sliding window."""

from slackwater.transforms.operators.inputs import OneInput
from slackwater.transforms.operators.spec import OperatorSpec
from slackwater.transforms.settings.models import AggregateConfig

SPEC = OperatorSpec(
    name="SlidingWindowAggregate",
    settings=AggregateConfig,
    inputs=OneInput(),
    plan="slackwater.transforms.operators.aggregate.plan:AggregatePlan",
    binder="slackwater.transforms.operators.aggregate.plan:bind_aggregate",
    operator="slackwater.transforms.operators.aggregate.operator:Aggregator",
    describer="slackwater.transforms.operators.aggregate.plan:describe",
)
