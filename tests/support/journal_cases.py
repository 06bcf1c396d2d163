"""A join and its arrivals for tests of stored state."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.operators.aggregate.plan import bind_aggregate
from slackwater.transforms.settings.models import AggregateConfig, JoinConfig
from slackwater.transforms.settings.plan import JoinPlan, bind

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("k", pa.string()), ("at", pa.int64())])


N = 300


JOINS: dict[str, dict[str, Any]] = {
    "fixed": {"disorder": {"strategy": "fixed", "slack": "40ms"}},
    "quality_driven": {"disorder": {"strategy": "quality_driven", "recall": 0.9, "interval": "100ms"}},
    "result_slack": {
        "disorder": {"strategy": "result_slack", "recall": 0.9, "interval": "100ms", "period": "1s"}
    },
    "heartbeat": {"disorder": {"strategy": "heartbeat"}, "arrival": "at"},
    "wall": {"disorder": {"strategy": "heartbeat", "clock": "wall"}},
    "prob": {"shedding": {"strategy": "prob", "memory": 20}, "metrics": "100ms"},
    "queue": {
        "shedding": {"strategy": "random", "queue": {"rows": 5, "service_rate": 300}},
        "arrival": "at",
    },
    "xjoin": {"join": {"strategy": "xjoin", "memory": 30}, "window": None},
    "unique": {"join": {"strategy": "pwjoin"}, "unique": "b.id", "window": "1s"},
}


@cache
def plan_of(name: str, **settings: Any) -> JoinPlan:
    if name == "aggregate":
        count = {
            "time": "ts",
            "range": "200ms",
            "slide": "50ms",
            "group_by": "k",
            "aggregates": {"n": "count(*)"},
        }
        return bind_aggregate(AggregateConfig.read(count), {"a": SCHEMA})
    config = {"time": "ts", "window": "100ms", "where": "a.k = b.k", **JOINS[name], **settings}
    config = {key: value for key, value in config.items() if value is not None}
    return bind(JoinConfig.read(config), {"a": SCHEMA, "b": SCHEMA})


def arrivals(plan: JoinPlan, seed: int, n: int = N, keys: int = 8, step: int = 5) -> Chunk:
    """Rows that come out of order, at one tick after the other by their arrival column."""
    rng = np.random.default_rng(seed)
    which = rng.integers(0, len(plan.inputs), n).astype(np.int8)
    ts = step * np.arange(n) - np.where(rng.random(n) < 0.3, rng.integers(0, 120, n), 0)
    columns = {"id": np.arange(n), "ts": ts, "k": rng.integers(0, keys, n).astype(str), "at": step * np.arange(n)}
    whole = pa.RecordBatch.from_pydict(columns, schema=SCHEMA)
    batches = [whole.filter(pa.array(which == i)) for i in range(len(plan.inputs))]
    return Chunk(which, np.arange(n) if plan.arrival_columns is None else step * np.arange(n), batches)
