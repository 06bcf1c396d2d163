"""What is known of an operator before any template names it: its entry in the registry."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from slackwater.plugins.contract import Snapshot
from slackwater.transforms.operators.inputs import Inputs
from slackwater.transforms.settings.models import OperatorConfig

if TYPE_CHECKING:
    from slackwater.transforms.operators.base import Operator
    from slackwater.transforms.settings.plan import Plan


@dataclass(frozen=True)
class OperatorSpec:
    """An operator by the name that templates use. Its code is named by ``module:object`` and imported on use."""

    name: str
    """Type of the transform in templates."""
    settings: type[OperatorConfig]
    """Model of its settings; no two operators have the same."""
    inputs: Inputs
    plan: str
    """Subclass of ``Plan``."""
    binder: str
    """Function of settings, schemas of the inputs, and columns of the first input that are equal in every row;
    it returns a plan, or raises ConfigError."""
    operator: str
    """Function, or subclass of ``Operator``, of a plan, a snapshot or None, and the number of the shard."""
    describer: str
    """Function of a plan that yields what there is to tell of it, as (what, text)."""

    @property
    def side_outputs(self) -> tuple[str, ...]:
        """Names of the outputs besides the main one."""
        kind: type[Plan] = resolve_name(self.plan)
        return kind.side_outputs

    def bind(
        self,
        config: OperatorConfig,
        schemas: Mapping[str, pa.Schema],
        equal: Collection[Collection[str]] = (),
    ) -> Plan:
        """Check settings against the inputs; raise ConfigError with the path of the setting at fault."""
        plan: Plan = resolve_name(self.binder)(config, schemas, equal)
        return plan

    def open(self, plan: Plan, snapshot: Snapshot | None, shard: int) -> Operator:
        """Return the operator of a shard, new or as it was when the snapshot was taken."""
        operator: Operator = resolve_name(self.operator)(plan, snapshot, shard)
        return operator

    def describe(self, plan: Plan) -> Iterable[tuple[str, str]]:
        """Return what there is to tell of a plan besides its inputs and shards, as (what, text)."""
        told: Any = resolve_name(self.describer)(plan)
        return told
