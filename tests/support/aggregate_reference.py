"""Window extents read literally, one tuple and one extent after the other (ADC sec. 6), and data to run it on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from slackwater.transforms.operators.aggregate.operator import Aggregator
from slackwater.transforms.operators.aggregate.plan import AggregatePlan, bind_aggregate
from slackwater.transforms.operators.join import Chunk
from slackwater.transforms.settings.models import AggregateConfig
from slackwater.transforms.state import snapshot as snapshots

Row = dict[str, Any]
Group = tuple[Any, ...]

AGGREGATES = {
    "n": "count(*)",
    "nv": "count(v)",
    "sv": "sum(v)",
    "av": "avg(v)",
    "lo": "min(v)",
    "hi": "max(v)",
    "sx": "sum(x)",
    "ax": "avg(x)",
    "lx": "min(x)",
    "hx": "max(x)",
    "twice": "sum(2 * v + 1)",
}
SCHEMA = pa.schema(
    [("id", pa.int64()), ("ts", pa.int64()), ("w", pa.int64()), ("k", pa.string()), ("j", pa.int64()),
     ("v", pa.int64()), ("x", pa.float64())]
)  # fmt: skip


def values(rows: Sequence[Row]) -> tuple[Any, ...]:
    """The values of AGGREGATES over some rows."""
    v = [row["v"] for row in rows if row["v"] is not None]
    x = [row["x"] for row in rows if row["x"] is not None]
    return (
        len(rows),
        len(v),
        sum(v) if v else None,
        sum(v) / len(v) if v else None,
        min(v, default=None),
        max(v, default=None),
        math.fsum(x) if x else None,
        math.fsum(x) / len(x) if x else None,
        min(x, default=None),
        max(x, default=None),
        sum(2 * n + 1 for n in v) if v else None,
    )


@dataclass
class Extents:
    """What comes out, in order."""

    groups: dict[int, dict[Group, tuple[Any, ...]]] = field(default_factory=dict)
    """The groups of each extent, by their key; extents in the order in which they came."""
    syncs: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    """``id`` of the late rows."""


def reference(
    rows: Sequence[Row],
    size: int,
    slide: int,
    keys: Sequence[str] = (),
    slack: int | str = 0,
    having: Callable[[tuple[Any, ...]], bool] = lambda values: True,
) -> Extents:
    """Return the extents of rows in arrival order.

    ``slack`` is K of K-slack, where rows of the newest time are never late; ``"w"`` takes the column ``w`` as
    punctuations; None never has one.
    """
    out = Extents()
    seen: list[Row] = []
    newest, tau, produced = None, None, None

    def extents_of(ts: int) -> range:
        first = next(i for i in range(ts // slide - 1, ts // slide + 2) if (i + 1) * slide > ts)
        last = first - 1
        while (last + 2) * slide - size <= ts:
            last += 1
        return range(first, last + 1)

    def produce(done: int) -> None:
        nonlocal produced
        holding = {i for row in seen for i in extents_of(row["ts"]) if i <= done}
        if produced is not None:
            holding = {i for i in holding if i > produced}
        last = produced
        for i in sorted(holding):
            if last is not None and i > last + 1:
                out.syncs.append(i - 1)
            groups: dict[Group, list[Row]] = {}
            for row in seen:
                if (i + 1) * slide - size <= row["ts"] < (i + 1) * slide:
                    groups.setdefault(tuple(row[key] for key in keys), []).append(row)
            found = {key: values(members) for key, members in groups.items()}
            out.groups[i] = {key: value for key, value in found.items() if having(value)}
            out.syncs.append(i)
            last = i
        if last is not None and last < done:
            out.syncs.append(done)
        produced = done

    for row in rows:
        ts = row["ts"]
        if produced is not None and any(i <= produced for i in extents_of(ts)):
            out.late.append(row["id"])
        seen.append(row)
        newest = ts if newest is None else max(newest, ts)
        bound = row["w"] if slack == "w" else newest - max(slack, 1)
        if bound is not None:
            tau = bound if tau is None else max(tau, bound)
        if tau is not None:
            done = next(i for i in range((tau + 1) // slide + 1, -(1 << 60), -1) if tau >= (i + 1) * slide - 1)
            if produced is None or done > produced:
                produce(done)
    last = max((i for row in seen for i in extents_of(row["ts"])), default=None)
    if last is not None and (produced is None or last > produced):
        produce(last)
    out.groups = {i: groups for i, groups in out.groups.items() if groups}
    return out


def plan_of(schema: pa.Schema = SCHEMA, **settings: Any) -> AggregatePlan:
    """Bind an aggregate of AGGREGATES over the column ``ts``, without a guard, unless told."""
    given = {"time": "ts", "aggregates": AGGREGATES, "guard": "none", **settings}
    return bind_aggregate(AggregateConfig.read(given), {"input": schema})


@dataclass
class Run:
    """What an operator gave."""

    operator: Aggregator
    outputs: list[Any] = field(default_factory=list)

    def rows(self, output: str = "results") -> list[Row]:
        """All rows of an output, in order."""
        return [row for out in self.outputs for batch in getattr(out, output) for row in batch.to_pylist()]

    def extents(self, keys: Sequence[str] = (), aggregates: Sequence[str] = tuple(AGGREGATES)) -> Extents:
        """The outputs in the form of the reference."""
        import json

        found = Extents(syncs=[row["extent"] for row in self.rows("syncs")])
        for row in self.rows():
            groups = found.groups.setdefault(row["extent"], {})
            key = tuple(row[k] for k in keys)
            assert key not in groups, "a group is twice in an extent"
            groups[key] = tuple(row[name] for name in aggregates)
        found.late = [json.loads(row["row"])["id"] for row in self.rows("late")]
        return found


def run(
    plan: AggregatePlan, rows: Sequence[Row], cut: int | None = None, restart: bool = False, bounded: bool = True
) -> Run:
    """Run rows to the end in chunks of ``cut``; with ``restart``, through a snapshot after each chunk."""
    (schema,) = plan.schemas.values()
    gathered = Run(Aggregator(plan))
    size = cut or max(1, len(rows))
    for start in range(0, len(rows), size):
        batch = pa.RecordBatch.from_pylist(list(rows[start : start + size]), schema=schema)
        n = batch.num_rows
        clock = start + np.arange(n)
        if plan.arrival_columns is not None:
            clock = np.array([row[plan.arrival_columns[0]] for row in rows[start : start + size]])
        chunk = Chunk(np.zeros(n, np.int8), clock.astype(np.int64), [batch], bounded=bounded)
        gathered.outputs.append(gathered.operator.push(chunk))
        if restart:
            saved = snapshots.loads(snapshots.dumps(gathered.operator.snapshot()))
            gathered.operator = Aggregator(plan, saved)
    gathered.outputs.append(gathered.operator.finish())
    return gathered
