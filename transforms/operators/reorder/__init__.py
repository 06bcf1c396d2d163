"""Reorder: rows out in order of event time."""

from slackwater.transforms.operators.inputs import OneInput
from slackwater.transforms.operators.spec import OperatorSpec
from slackwater.transforms.settings.models import ReorderConfig

SPEC = OperatorSpec(
    name="Reorder",
    settings=ReorderConfig,
    inputs=OneInput(),
    plan="slackwater.transforms.operators.reorder.plan:ReorderPlan",
    binder="slackwater.transforms.operators.reorder.plan:bind_reorder",
    operator="slackwater.transforms.operators.reorder.operator:ReorderOperator",
    describer="slackwater.transforms.operators.reorder.plan:describe",
)
