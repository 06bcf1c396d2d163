"""ChooseValues: which tuples of stored relations to request."""

from slackwater.transforms.operators.inputs import NamedInputs
from slackwater.transforms.operators.spec import OperatorSpec
from slackwater.transforms.settings.models import MAX_INPUTS, MIN_INPUTS, ChooseValuesConfig

SPEC = OperatorSpec(
    name="ChooseValues",
    settings=ChooseValuesConfig,
    inputs=NamedInputs(MIN_INPUTS, MAX_INPUTS),
    plan="slackwater.transforms.operators.choose_values.plan:ChooseValuesPlan",
    binder="slackwater.transforms.operators.choose_values.plan:bind_choose_values",
    operator="slackwater.transforms.operators.choose_values.operator:ValueChooser",
    describer="slackwater.transforms.operators.choose_values.plan:describe",
)
