"""From what a join has found to rows of the main output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Int64s
from slackwater.transforms.outputs import Outputs
from slackwater.transforms.plan import JoinPlan
from slackwater.transforms.rowstore import RowStore

RESULTS_AT_ONCE: Final = 1 << 17


class Delivery:
    """Gathers results as row numbers and makes rows of many at once."""

    def __init__(self, plan: JoinPlan, stores: Sequence[RowStore]) -> None:
        self._plan, self._stores = plan, stores
        self._found: list[tuple[Int64s, Int64s]] = []
        self._size = 0

    @property
    def full(self) -> bool:
        """Whether it is time to deliver."""
        return self._size >= RESULTS_AT_ONCE

    def add(self, rows: Int64s, ts: Int64s) -> None:
        """Take results, ``[results, inputs]``, with their times."""
        self._found.append((rows, ts))
        self._size += len(ts)

    def add_in_order(self, found: Sequence[tuple[Int64s, Int64s]], ts: Int64s) -> None:
        """Take results as they were found, each with the tuple that completed it, in the order of these.

        Args:
            found: results and, for each, the index of the tuple.
            ts: times of the tuples.
        """
        if not found:
            return
        rows, probe = map(np.concatenate, zip(*found, strict=True))
        order = np.argsort(probe, kind="stable")
        self.add(rows[order], ts[probe[order]])

    def deliver(self, out: Outputs) -> None:
        """Make rows of what was taken."""
        if not self._found:
            return
        rows, ts = map(np.concatenate, zip(*self._found, strict=True))
        self._found.clear()
        self._size = 0
        members = enumerate(self._stores[: rows.shape[1]])
        self.write(out, [store.take(store.locate(rows[:, i])) for i, store in members], ts)

    def write(self, out: Outputs, members: Sequence[Sequence[Any]], ts: Int64s) -> None:
        """Write results of which the columns of each input's members are known."""
        columns = [column for mine in members for column in mine]
        out.results.append(self._plan.result_batch(columns, pa.array(ts).cast(self._plan.time_type)))
