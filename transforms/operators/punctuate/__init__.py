"""Punctuate: rows in order, and what they say of later ones."""

from slackwater.transforms.operators.inputs import OneInput
from slackwater.transforms.operators.spec import OperatorSpec
from slackwater.transforms.settings.models import PunctuateConfig

SPEC = OperatorSpec(
    name="Punctuate",
    settings=PunctuateConfig,
    inputs=OneInput(),
    plan="slackwater.transforms.operators.punctuate.plan:PunctuatePlan",
    binder="slackwater.transforms.operators.punctuate.plan:bind_punctuate",
    operator="slackwater.transforms.operators.punctuate.operator:PunctuateOperator",
    describer="slackwater.transforms.operators.punctuate.plan:describe",
)
