"""An operator that nobody has heard of: gives every row out once for each time it says, in order of arrival."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import Field

from slackwater.plugins.contract import Snapshot
from slackwater.plugins.disorder.none import NoSlack
from slackwater.transforms.arrival.intake import Chunk, Intake
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.operators.base import Operator
from slackwater.transforms.operators.inputs import OneInput
from slackwater.transforms.operators.registry import register
from slackwater.transforms.operators.spec import OperatorSpec
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.output.late_rows import refuse
from slackwater.transforms.output.outputs import Outputs
from slackwater.transforms.settings.columns import bind_times
from slackwater.transforms.settings.models import OperatorConfig
from slackwater.transforms.settings.plan import Plan


class RepeatConfig(OperatorConfig):
    """Settings of Repeat: every row several times."""

    times: str
    """column with how often a row comes out"""
    most: int = Field(default=10, ge=1)
    """how often at most"""


@dataclass(frozen=True)
class RepeatPlan(Plan):
    """A plan whose results are the rows of its one input, each several times."""

    config: RepeatConfig

    @property
    def result_schema(self) -> pa.Schema:
        (schema,) = self.schemas.values()
        return schema

    @property
    def result_time(self) -> str:
        return self.time_columns[0]


def bind(config: RepeatConfig, schemas: Mapping[str, pa.Schema], equal: Collection[Any] = ()) -> RepeatPlan:
    ((name, schema),) = schemas.items()
    if config.times not in schema.names:
        raise ConfigError(f"input {name!r} has no column {config.times!r}; name another", "times")
    time_columns, arrival, unit = bind_times(config, schemas)
    return RepeatPlan(config, dict(schemas), time_columns, arrival, unit, NoSlack())


def describe(plan: RepeatPlan) -> Iterator[tuple[str, str]]:
    yield "repeats", f"{plan.config.times}, at most {plan.config.most}"


class Repeater(Operator):
    """One shard of Repeat; it holds nothing."""

    def __init__(self, plan: RepeatPlan, snapshot: Snapshot | None = None, shard: int = 0) -> None:
        state: dict[str, Any] = dict(snapshot or {})
        self._plan = plan
        self._intake = Intake(plan, state.get("intake"))
        self.accounting = Accounting(plan.inputs, state.get("accounting"))
        self.seconds = {"kernel": 0.0, "materialise": 0.0, "adapt": 0.0}

    def push(self, chunk: Chunk) -> Outputs:
        out = Outputs.empty()
        self.accounting.receive(chunk.input)
        taken = self._intake.take(chunk)
        refuse(self._plan, self.accounting, taken.refused, out)
        (rows,) = taken.rows
        times = np.minimum(rows.column(self._plan.config.times).to_numpy(), self._plan.config.most)
        self.accounting.in_order[0] += rows.num_rows
        self.accounting.results += int(times.sum())
        if times.sum():
            out.results.append(rows.take(pa.array(np.repeat(np.arange(rows.num_rows), times))))
        return out

    def idle(self, members: Sequence[int]) -> Outputs:
        return Outputs.empty()

    def finish(self) -> Outputs:
        return Outputs.empty()

    @property
    def nbytes(self) -> int:
        return 0

    def snapshot(self) -> Snapshot:
        return {"intake": self._intake.snapshot(), "accounting": self.accounting.snapshot()}


SPEC = OperatorSpec(
    name="Repeat",
    settings=RepeatConfig,
    inputs=OneInput(),
    plan=f"{__name__}:RepeatPlan",
    binder=f"{__name__}:bind",
    operator=f"{__name__}:Repeater",
    describer=f"{__name__}:describe",
)
register(SPEC)
