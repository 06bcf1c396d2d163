"""Shed: no more rows than can be worked on."""

from slackwater.transforms.operators.inputs import FixedInputs
from slackwater.transforms.operators.spec import OperatorSpec
from slackwater.transforms.settings.models import SHED_INPUTS, ShedConfig

SPEC = OperatorSpec(
    name="Shed",
    settings=ShedConfig,
    inputs=FixedInputs(
        required=SHED_INPUTS[:1],
        optional=SHED_INPUTS[1:],
        about="what to shed from, and where its rows may find partners, which is only looked at",
    ),
    plan="slackwater.transforms.operators.shed.plan:ShedPlan",
    binder="slackwater.transforms.operators.shed.plan:bind_shed",
    operator="slackwater.transforms.operators.shed.operator:LoadShedder",
    describer="slackwater.transforms.operators.shed.plan:describe",
)
