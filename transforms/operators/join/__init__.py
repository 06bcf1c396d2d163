"""The join of a shard: ``operator`` shows the path of its rows, ``stage`` joins them within their memory."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from slackwater.transforms.operators.inputs import NamedInputs
from slackwater.transforms.operators.spec import OperatorSpec
from slackwater.transforms.settings.models import MAX_INPUTS, MIN_INPUTS, JoinConfig

if TYPE_CHECKING:
    from slackwater.transforms.arrival.intake import Chunk
    from slackwater.transforms.operators.join.operator import Operator
    from slackwater.transforms.output.outputs import Outputs

__all__ = ["SPEC", "Chunk", "Operator", "Outputs"]

SPEC = OperatorSpec(
    name="SlidingWindowJoin",
    settings=JoinConfig,
    inputs=NamedInputs(MIN_INPUTS, MAX_INPUTS),
    plan="slackwater.transforms.settings.plan:JoinPlan",
    binder="slackwater.transforms.settings.plan:bind",
    operator="slackwater.transforms.operators.join.operator:Operator",
    describer="slackwater.transforms.settings.explanation:describe_join",
)
_ELSEWHERE = {
    "Chunk": "slackwater.transforms.arrival.intake",
    "Operator": "slackwater.transforms.operators.join.operator",
    "Outputs": "slackwater.transforms.output.outputs",
}


def __getattr__(name: str) -> Any:
    """Import on first use: who reads the registry needs none of it."""
    if name in _ELSEWHERE:
        return getattr(import_module(_ELSEWHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
