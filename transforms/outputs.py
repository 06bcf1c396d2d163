"""The outputs of an operator: late rows with their reasons, counts per timestamp."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Int64s
from slackwater.transforms.jsonrows import rows_to_json
from slackwater.transforms.plan import LATE_SCHEMA, JoinPlan


class Outputs(NamedTuple):
    """What a step of the operator gave, as lists of batches."""

    results: list[pa.RecordBatch]
    late: list[pa.RecordBatch]
    metrics: list[pa.RecordBatch]
    syncs: list[pa.RecordBatch]
    """Ends of window extents, of an aggregate."""


def late_batch(
    name: str, reason: str, ts: Int64s | None, arrival: Int64s, rows: pa.RecordBatch
) -> pa.RecordBatch:
    """Return rows of input ``name`` as rows of the late output; ``ts`` is None if they have no time."""
    n = rows.num_rows
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(name, n),
            pa.repeat(reason, n),
            pa.nulls(n, pa.int64()) if ts is None else pa.array(ts, pa.int64()),
            pa.array(arrival, pa.int64()),
            rows_to_json(rows),
        ],
        schema=LATE_SCHEMA,
    )


class Counts:
    """Adds up results per timestamp. The newest timestamp stays open: more results may come for it."""

    def __init__(self, plan: JoinPlan, pending: list[int] | None = None) -> None:
        self._plan = plan
        self.pending = list(pending or [])
        """[timestamp, count so far], or nothing."""

    def add(self, out: Outputs, ts: Int64s, sizes: Int64s) -> None:
        """Count the results of tuples in timestamp order; emit the timestamps that are complete."""
        found = sizes > 0
        ts, sizes = ts[found], sizes[found]
        if not ts.size:
            return
        if self.pending:
            ts = np.concatenate([self.pending[:1], ts])
            sizes = np.concatenate([self.pending[1:], sizes])
        first = np.flatnonzero(np.concatenate([[True], ts[1:] != ts[:-1]]))
        totals = np.add.reduceat(sizes, first)
        self.pending = [int(ts[-1]), int(totals[-1])]
        self._emit(out, ts[first[:-1]], totals[:-1])

    def finish(self, out: Outputs) -> None:
        """Emit the last timestamp."""
        self._emit(out, self.pending[:1], self.pending[1:])
        self.pending = []

    def _emit(self, out: Outputs, ts: Any, counts: Any) -> None:
        if len(ts):
            columns = [pa.array(ts, pa.int64()).cast(self._plan.time_type), pa.array(counts, pa.int64())]
            out.results.append(pa.RecordBatch.from_arrays(columns, schema=self._plan.result_schema))
