"""How far inputs have come in order of arrival, and the rows that wait for that.

The law: a row is taken once no input can bring one that comes before it. Rows with equal numbers of arrival come
in the order of the inputs. So the order in which rows are taken does not depend on how far one input was read
before the other (``tests/transforms/engine/test_frontier.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Int64s
from slackwater.transforms.arrival.merge import Merged, merge, without_arrival
from slackwater.transforms.arrival.order import in_order
from slackwater.transforms.arrival.ties import stable_order
from slackwater.transforms.rows import ipc
from slackwater.transforms.rows.encoder import int64s
from slackwater.transforms.rows.sorted_rows import SortedRows
from slackwater.transforms.settings.plan import ARRIVAL, Plan

NOTHING_YET: Final = -(1 << 64)
"""Before all numbers of arrival, which have 64 bits."""
ENDED: Final = 1 << 64
"""After all of them."""


class Reach(NamedTuple):
    """The first arrival that is outstanding.

    Rows before it may be taken, and those of its own input that have its number.
    """

    number: int
    which: int

    @classmethod
    def of(cls, frontier: Sequence[int]) -> Reach:
        """Return how far inputs have come together, given the smallest number that each may still bring."""
        return cls(*min((number, i) for i, number in enumerate(frontier)))

    def last(self, which: int) -> int:
        """Return the largest number with which rows of an input may be taken."""
        return self.number if which <= self.which else self.number - 1


EVERYTHING: Final = Reach(ENDED, 0)
"""Nothing is outstanding."""


class WaitingRows:
    """Rows of all inputs of a shard until they may be taken.

    Args:
        plan: what the shard does.
        snapshot: what ``snapshot`` returned, or None.
    """

    def __init__(self, plan: Plan, snapshot: Sequence[bytes] | None = None) -> None:
        self._plan = plan
        self._schemas = list(plan.schemas.values())
        self._rows: list[list[tuple[Int64s, pa.RecordBatch]]] = [[] for _ in self._schemas]
        for which, blob in enumerate(snapshot or ()):
            for batch in ipc.from_bytes(blob) if blob else ():
                self.add(which, int64s(batch.column(ARRIVAL)), batch)

    def __len__(self) -> int:
        return sum(numbers.size for rows in self._rows for numbers, _ in rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows and of their numbers."""
        return sum(numbers.nbytes + batch.nbytes for rows in self._rows for numbers, batch in rows)

    def add(self, which: int, numbers: Int64s, batch: pa.RecordBatch) -> None:
        """Take rows of an input with their numbers of arrival; equal ones are in the order of the input."""
        if batch.num_rows:
            self._rows[which].append((numbers, without_arrival(batch)))

    def take(self, reach: Reach = EVERYTHING, *, settle_ties: bool = False) -> Merged:
        """Remove the rows that may be taken, and return them in order of arrival.

        Args:
            reach: how far the inputs have come.
            settle_ties: whether rows of one input with equal numbers may have come in any order (``ties``).
        """
        rows, arrivals = [], []
        for which, schema in enumerate(self._schemas):
            taken = list(self._taken(which, reach.last(which)))
            batches = [batch for _, batch in taken]
            arrival = np.concatenate([np.empty(0, np.int64), *(numbers for numbers, _ in taken)])
            order = None
            if settle_ties and batches:
                order = stable_order(self._plan, which, batches, arrival)
            elif not in_order(arrival):
                order = np.argsort(arrival, kind="stable")
            rows.append(SortedRows(schema, batches, order))
            arrivals.append(arrival if order is None else arrival[order])
        return merge(rows, arrivals)

    def snapshot(self) -> list[bytes]:
        """Of each input the rows that wait, with their numbers."""
        blobs = []
        for rows in self._rows:
            batches = [batch.append_column(ARRIVAL, pa.array(numbers)) for numbers, batch in rows]
            blobs.append(ipc.to_bytes(*batches) if batches else b"")
        return blobs

    def _taken(self, which: int, last: int) -> Iterator[tuple[Int64s, pa.RecordBatch]]:
        """Remove the rows of an input with numbers up to ``last``."""
        waiting, self._rows[which] = self._rows[which], []
        for numbers, batch in waiting:
            if int(numbers.max()) <= last:
                yield numbers, batch
            elif int(numbers.min()) > last:
                self._rows[which].append((numbers, batch))
            else:
                early = numbers <= last
                yield numbers[early], batch.filter(pa.array(early))
                self._rows[which].append((numbers[~early], batch.filter(pa.array(~early))))
