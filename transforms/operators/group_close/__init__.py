"""GroupClose: aggregates per group, out as soon as the group is over."""

from slackwater.transforms.operators.inputs import FixedInputs
from slackwater.transforms.operators.spec import OperatorSpec
from slackwater.transforms.settings.models import GROUP_CLOSE_INPUTS, GroupCloseConfig

SPEC = OperatorSpec(
    name="GroupClose",
    settings=GroupCloseConfig,
    inputs=FixedInputs(
        required=GROUP_CLOSE_INPUTS,
        optional=(),
        about="what to group, and what closes the groups: a join, and its output punctuations",
        example="a join and its punctuations",
    ),
    plan="slackwater.transforms.operators.group_close.plan:GroupClosePlan",
    binder="slackwater.transforms.operators.group_close.plan:bind_group_close",
    operator="slackwater.transforms.operators.group_close.operator:GroupCloser",
    describer="slackwater.transforms.operators.group_close.plan:describe",
)
