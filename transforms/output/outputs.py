"""The outputs of an operator: late rows with their reasons, counts per timestamp."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import NEVER, Int64s
from slackwater.transforms.arrival.bad_rows import BAD, has_bad
from slackwater.transforms.rows.json_text import rows_to_json
from slackwater.transforms.rows.size import pieces
from slackwater.transforms.settings.plan import LATE_SCHEMA, JoinPlan


class Outputs(NamedTuple):
    """What a step of the operator gave, as lists of batches."""

    results: list[pa.RecordBatch]
    late: list[pa.RecordBatch]
    metrics: list[pa.RecordBatch]
    syncs: list[pa.RecordBatch]
    """Ends of window extents, of an aggregate."""
    punctuations: list[pa.RecordBatch]
    """Values that no later result has."""

    @classmethod
    def empty(cls) -> Outputs:
        """Return outputs to add to."""
        return cls([], [], [], [], [])

    @classmethod
    def together(cls, parts: Iterable[Outputs]) -> Outputs:
        """Return several outputs as one."""
        whole = cls.empty()
        for part in parts:
            for gathered, batches in zip(whole, part, strict=True):
                gathered += batches
        return whole


def late_batches(
    name: str, reason: str, ts: Int64s | None, arrival: Int64s | None, rows: pa.RecordBatch
) -> Iterator[pa.RecordBatch]:
    """Yield rows of input ``name`` as rows of the late output; ``ts`` and ``arrival`` are None if unknown."""
    start = 0
    for piece in pieces(rows):
        part = slice(start, start + piece.num_rows)
        start = part.stop
        times = None if ts is None else ts[part]
        yield _late_batch(name, reason, times, None if arrival is None else arrival[part], piece)


def _late_batch(
    name: str, reason: str, ts: Int64s | None, arrival: Int64s | None, rows: pa.RecordBatch
) -> pa.RecordBatch:
    """A number of arrival that is NEVER becomes null: nothing is known of when the row came."""
    n = rows.num_rows
    return pa.RecordBatch.from_arrays(
        [
            _repeated(name, n),
            _repeated(reason, n),
            pa.nulls(n, pa.int64()) if ts is None else pa.array(ts, pa.int64()),
            pa.nulls(n, pa.int64()) if arrival is None else pa.array(arrival, pa.int64(), mask=arrival == NEVER),
            rows.column(BAD) if has_bad(rows) else rows_to_json(rows),
        ],
        schema=LATE_SCHEMA,
    )


def _repeated(text: str, n: int) -> pa.Array:
    return _repeated_often(text, max(1024, 1 << (n - 1).bit_length())).slice(0, n)


@lru_cache(maxsize=32)
def _repeated_often(text: str, n: int) -> pa.Array:
    return pa.repeat(text, n)


class Counts:
    """Adds up results per timestamp; one leaves when no more results may come for it.

    That is the case for all but the newest, unless the join says that it owes results of any time.
    """

    def __init__(self, plan: JoinPlan, pending: list[Any] | None = None) -> None:
        self._plan = plan
        self._waiting: list[tuple[Int64s, Int64s]] = []
        ts, counts = pending or ([], [])
        self._keep(np.array(ts, np.int64), np.array(counts, np.int64))

    @property
    def pending(self) -> list[Any]:
        """Timestamps that are open, and the count of each so far."""
        return list(self._merged())

    def add(self, ts: Int64s, sizes: Int64s) -> None:
        """Count results, of tuples in timestamp order or owed ones."""
        found = sizes > 0
        if found.any():
            self._waiting.append((ts[found], sizes[found]))
            self._size += len(self._waiting[-1][0])
        if self._size > 2 * self._merged_size + 1024:
            self._keep(*self._merged())

    def emit(self, out: Outputs, owing: bool = False) -> None:
        """Let the timestamps go that are complete; none where the join is ``owing`` results of any time."""
        if self._waiting and not owing:
            ts, counts = self._merged()
            self._keep(ts[-1:], counts[-1:])
            self._emit(out, ts[:-1], counts[:-1])

    def finish(self, out: Outputs) -> None:
        """Emit what is left."""
        self._emit(out, *self._merged())
        self._keep(np.empty(0, np.int64), np.empty(0, np.int64))

    def _keep(self, ts: Int64s, counts: Int64s) -> None:
        self._waiting = [(ts, counts)]
        self._size = self._merged_size = len(ts)

    def _merged(self) -> tuple[Int64s, Int64s]:
        ts, counts = map(np.concatenate, zip(*self._waiting, strict=True))
        if (np.diff(ts) < 0).any():
            order = np.argsort(ts, kind="stable")
            ts, counts = ts[order], counts[order]
        first = np.flatnonzero(np.diff(ts, prepend=ts[:1] - 1))
        return ts[first], np.add.reduceat(counts, first) if len(first) else counts

    def _emit(self, out: Outputs, ts: Int64s, counts: Int64s) -> None:
        if len(ts):
            columns = [pa.array(ts, pa.int64()).cast(self._plan.time_type), pa.array(counts, pa.int64())]
            out.results.append(pa.RecordBatch.from_arrays(columns, schema=self._plan.result_schema))
