"""Reorder: the operator with nothing to join, for whoever only wants order.

One input goes through guard and K-slack as in a join. Rows come out in order of event time with the columns
they came with; a row that is older than one that has left is in the late output, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Bools, Held, JoinLogic, JoinStrategy, Matches, Released, Setting, Snapshot
from slackwater.plugins.shedding.none import NoShedding
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.settings.columns import bind_times
from slackwater.transforms.settings.models import JoinConfig, ReorderConfig
from slackwater.transforms.settings.plan import JoinPlan, bind_disorder

INPUT = "input"
"""Name of the one input, in messages and in the late output."""


class PassOn(JoinStrategy):
    """Let every row through that comes in order; hold none."""

    name: ClassVar[str] = "pass_on"

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> PassOnLogic:
        return PassOnLogic(setting)


class PassOnLogic(JoinLogic):
    """A join of one input: each row in order is a result of its own."""

    def __init__(self, setting: Setting) -> None:
        self._width = setting.condition.width

    def step(self, released: Released) -> Iterator[Matches]:
        in_order = np.flatnonzero(~released.late)
        size = (~released.late).astype(np.int64)
        rows = released.seq[in_order].reshape(-1, 1)
        yield Matches(0, len(released.ts), rows, in_order, size, size.astype(np.float64))

    def live(self) -> int:
        return 0

    def held(self) -> Held:
        none = np.empty(0, np.int64)
        return Held(
            none.astype(np.int8), none, none, np.empty((0, self._width), np.int64), none.astype(np.uint64)
        )

    def evict(self, victims: Bools) -> None:
        """Nothing is held."""

    def snapshot(self) -> Snapshot:
        return {}


class ReorderPlan(JoinPlan):
    """A plan whose results are the rows of its one input."""

    @property
    def side_outputs(self) -> tuple[str, ...]:
        return ("late", "metrics")

    @property
    def result_schema(self) -> pa.Schema:
        (schema,) = self.schemas.values()
        return schema

    def result_batch(self, columns: list[Any], *beside: pa.Array) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(columns, schema=self.result_schema)


def bind_reorder(config: ReorderConfig, schemas: Mapping[str, pa.Schema]) -> ReorderPlan:
    """Check settings against the input; raise ConfigError with the path of the setting at fault."""
    if len(schemas) != 1:
        raise ConfigError(f"needs one input, got {len(schemas)}", "input")
    time_columns, arrival, unit = bind_times(config, schemas)
    settings = config.model_dump(exclude={"guard", "metrics", "idle_timeout"})
    paces = {"guard": config.guard, "metrics": config.metrics, "idle_timeout": config.idle_timeout}
    joined = JoinConfig(**settings, **paces, window={"size": f"1{unit}"})
    return ReorderPlan(
        config=joined,
        schemas=dict(schemas),
        time_columns=time_columns,
        arrival_columns=arrival,
        unit=unit,
        windows=(0,),
        disorder=bind_disorder(config, schemas),
        join=PassOn(),
        shedding=NoShedding(),
    )
