"""How many tuples fit into a memory in bytes: what rows weigh, and what everything beside them takes.

Bytes are turned into tuples in order of arrival, before arrays are made. So kernels know tuples only, and every
runner evicts the same ones.
"""

from __future__ import annotations

from bisect import bisect_right

from slackwater.plugins.contract import Int64s, Snapshot
from slackwater.plugins.guard.calls import JoinGuard, SheddingGuard
from slackwater.transforms.arrival.intake import Taken
from slackwater.transforms.disorder.buffer import ReorderBuffer
from slackwater.transforms.rows.shard_rows import ShardRows
from slackwater.transforms.settings.plan import JoinPlan
from slackwater.transforms.shedding.allocator import trim_unused
from slackwater.transforms.shedding.memory import MARGIN, SPARE, Weights

UNUSED = 8
"""The part of a memory in bytes that may be freed and not given back."""
ASIDE = 1 << 17
"""Bytes for the sample of what was shed, where memory is in bytes."""


class ByteBudget:
    """The bytes of one shard, and what they are spent on.

    Args:
        plan: the join.
        logic: of the shedding strategy.
        join: of the join strategy.
        rows: the rows of the shard.
        buffer: its reorder buffer.
        heaps: how many rankings the join keeps (``Limited.bytes_for``).
        snapshot: a mapping with what ``snapshot`` returned, or without.
    """

    def __init__(
        self,
        plan: JoinPlan,
        logic: SheddingGuard,
        join: JoinGuard,
        rows: ShardRows,
        buffer: ReorderBuffer,
        heaps: int,
        snapshot: Snapshot,
    ) -> None:
        self._logic, self._join, self._rows, self._buffer = logic, join, rows, buffer
        self._heaps = heaps
        self._bytes = 0
        """The memory as it was last told."""
        self._deepest = int(snapshot.get("deepest", 0))
        """The most rows that have waited in the buffer."""
        width = plan.condition.width
        beside = 8 * (5 + width) + 2
        self._weights = Weights(list(plan.schemas.values()), beside, snapshot.get("weights"))
        texts = any(rows.encoder.text_cells(i) for i in range(len(plan.members)))
        self._working = 80 + 8 * width * (2 if texts else 1)

    def working(self, tuples: int) -> int:
        """Return the bytes that it takes to give so many tuples new scores."""
        return self._working * tuples

    def arrive(self, taken: Taken) -> None:
        """Take note of the rows of a chunk, and give freed memory back."""
        trim_unused(self._bytes // UNUSED)
        self._weights.arrive(taken.source, taken.rows, taken.of_input)

    def deepen(self, level: Int64s) -> None:
        """Take note of what the buffer held when each of some tuples had left it."""
        self._deepest = max(self._deepest, int(level.max(initial=-1)) + 1)

    def fitting(self, amount: int, arrived: int, before: int) -> int:
        """Return how many tuples fit into bytes.

        Args:
            amount: the bytes.
            arrived: rows of the chunk at hand that have come.
            before: tuples that fitted so far.
        """
        self._bytes = amount
        join = self._join
        row, run = self._weights.row(arrived), before // 4
        self._deepest = max(self._deepest, len(self._buffer))
        amount -= self._logic.bytes_after(run) + self._buffer.bytes_for(self._deepest) + ASIDE
        if self._weights.varies:
            held, codes = join.held(), self._buffer.held()
            sizes, texts = join.blaming("held", self._rows.weigh, self._rows.needed(codes, held))
            row = max(row, sizes / max(1, held.ts.size + codes.size))
            amount -= amount // MARGIN + texts + texts // SPARE

        def taken(tuples: int) -> int:
            rows = int(self._weights.rows(tuples, row))
            return join.bytes_for(tuples, self._heaps) + rows + self.working(tuples)

        return max(1, bisect_right(range(1, max(2, amount // 64)), amount, key=taken))

    def snapshot(self) -> Snapshot:
        return {"deepest": self._deepest, "weights": self._weights.snapshot()}
