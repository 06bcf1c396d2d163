"""Runs a join shard by shard, as engines do, and puts together what the shards give."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from slackwater.transforms.arrival.merge import arrival_numbers, in_arrival_order, split_by_shard
from slackwater.transforms.operators.join import Operator
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.settings.plan import ARRIVAL, JoinPlan
from slackwater.transforms.state import snapshot as snapshots


@dataclass
class Sharded:
    """What all shards gave together."""

    account: Accounting
    results: Counter[tuple[int, ...]] = field(default_factory=Counter)
    """Results by the ids of their members."""
    late: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Late rows by input and id."""
    rows: list[int] = field(default_factory=list)
    """Rows that each shard was given."""

    def check_accounts(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Assert that every row is accounted for once, and every late one is written by the shards that it was
        late in."""
        assert self.account.received.tolist() == [batch.num_rows for batch in batches]
        assert all(map(self.account.balanced, range(len(batches))))
        assert max(self.late.values(), default=0) <= len(self.rows)
        assert self.account.late_rows().total() == self.late.total()
        assert self.late.total() - sum(self.account.late.values()) == sum(self.account.late_copies.values())


def run_shards(plan: JoinPlan, batches: Sequence[pa.RecordBatch], cuts: Iterable[int] = ()) -> Sharded:
    """Run numbered rows to the end; before each arrival of ``cuts`` every operator goes through bytes."""
    shards = range(plan.config.shards)
    operators = [Operator(plan, shard=shard) for shard in shards]
    done = Sharded(Accounting(plan.inputs), rows=[0] * plan.config.shards)
    parts = [{part.shard: part.rows for part in split_by_shard(plan, i, b)} for i, b in enumerate(batches)]
    edges = [-1, *sorted(cuts), 1 << 60]
    for start, stop in pairwise(edges):
        for shard in shards:
            given = [part.get(shard, batch.slice(0, 0)) for part, batch in zip(parts, batches, strict=True)]
            given = [_between(plan, i, batch, start, stop) for i, batch in enumerate(given)]
            arrivals = [arrival_numbers(plan, i, batch) for i, batch in enumerate(given)]
            if start >= 0:
                operators[shard] = Operator(
                    plan, snapshots.loads(snapshots.dumps(operators[shard].snapshot())), shard
                )
            _take(done, plan, operators[shard].push(in_arrival_order(given, arrivals)))
            done.rows[shard] += sum(batch.num_rows for batch in given)
    for operator in operators:
        _take(done, plan, operator.finish())
        done.account += operator.accounting
    return done


def _between(plan: JoinPlan, which: int, batch: pa.RecordBatch, start: int, stop: int) -> pa.RecordBatch:
    arrival = arrival_numbers(plan, which, batch)
    return batch.filter(pa.array((arrival >= start) & (arrival < stop)))


def _take(done: Sharded, plan: JoinPlan, out: Any) -> None:
    for batch in out.results:
        done.results.update(zip(*(batch.column(f"{name}_id").to_pylist() for name in plan.members), strict=True))
    for batch in out.late:
        ids = [json.loads(row)["id"] for row in batch.column("row").to_pylist()]
        done.late.update(zip(batch.column("input").to_pylist(), ids, strict=True))


def points(rng: np.random.Generator, m: int, n: int) -> list[pa.RecordBatch]:
    """Rows of ``m`` inputs with keys and places, some of them missing or odd; times are out of order."""
    arrival = rng.permutation(m * n)
    found = []
    for i in range(m):
        x = rng.normal(0, 20, n).round(1)
        odd = rng.random(n) < 0.1
        x[odd] = rng.choice([np.nan, np.inf, -np.inf, 1e300, 2.0**60, -(2.0**60)], odd.sum())
        columns = {
            "id": np.arange(n),
            "ts": 2 * np.arange(n) + rng.integers(-30, 30, n),
            "k": pa.array(rng.integers(0, 6, n), mask=rng.random(n) < 0.05),
            "x": pa.array(x, mask=rng.random(n) < 0.05),
            "y": rng.integers(-40, 40, n),
            ARRIVAL: np.sort(arrival[i * n : (i + 1) * n]),
        }
        found.append(pa.RecordBatch.from_pydict(columns))
    return found
