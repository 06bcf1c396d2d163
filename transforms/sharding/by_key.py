"""By key: rows with the same value of the key that all inputs share are in one shard; none is copied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Int64s
from slackwater.transforms.expressions.condition import Cell
from slackwater.transforms.kernels.rows import dictionary as strings
from slackwater.transforms.rows.encoder import lasting_words, valid_mask
from slackwater.transforms.rows.words import decoded
from slackwater.transforms.sharding.scheme import Partitioning, Routes, choice

if TYPE_CHECKING:
    from slackwater.transforms.settings.plan import Plan

_POSITIVE = np.int64(0x7FFFFFFFFFFFFFFF)


class ByKey(Partitioning):
    """Goes by a hash of some columns; rows without a key are in one shard.

    Args:
        plan: the operator.
        cells: these columns of each input.
    """

    name = "key"

    def __init__(self, plan: Plan, cells: Sequence[Sequence[Cell]]) -> None:
        super().__init__(plan)
        self.cells = cells

    def routes(self, which: int, batch: pa.RecordBatch) -> Routes:
        return Routes.to_home(self.of_key(key_hashes(batch, self.cells[which])))

    def factors(self) -> tuple[float, ...]:
        return (1.0,) * len(self.plan.inputs)

    def explain(self) -> Iterator[tuple[str, str]]:
        yield "split", f"by key {self.key_text()}, which all inputs share"

    def of_key(self, hashes: Int64s) -> Int64s:
        """Return the shard of keys with these hashes."""
        return np.asarray((hashes & _POSITIVE) % self.shards, np.int64)

    def key_text(self) -> str:
        """The columns that rows are split by."""
        members = self.plan.members
        return " = ".join(f"{name}.{cell.column}" for i, name in enumerate(members) for cell in self.cells[i])


class ByPartOfKey(ByKey):
    """Goes by a key that some inputs share; rows of the others go to every shard.

    Args:
        plan: the join.
        members: one of its key classes, the cell of each input that shares it.
    """

    name = "part key"

    def __init__(self, plan: Plan, members: dict[int, int]) -> None:
        columns = plan.condition.columns
        super().__init__(plan, [[columns[i][members[i]]] if i in members else [] for i in range(len(columns))])

    def routes(self, which: int, batch: pa.RecordBatch) -> Routes:
        if self.cells[which]:
            return super().routes(which, batch)
        return Routes.to_all(choice(self.scattered(which, batch), self.shards), self.shards)

    def factors(self) -> tuple[float, ...]:
        return tuple(1.0 if cells else float(self.shards) for cells in self.cells)

    def explain(self) -> Iterator[tuple[str, str]]:
        others = [name for name, cells in zip(self.plan.members, self.cells, strict=True) if not cells]
        yield "split", f"by key {self.key_text()}; rows of {', '.join(others)} go to every shard"
        yield "because", "no key is shared by all inputs, and this way a shard has the fewest rows to compare"


def key_hashes(batch: pa.RecordBatch, cells: Sequence[Cell]) -> Int64s:
    """Return a hash of each row's key in these columns, alike in every process; 0 where there is none."""
    n = batch.num_rows
    total = np.zeros(n, np.int64)
    for cell in cells:
        column = decoded(batch.column(cell.column))
        words, known = lasting_words(cell, column)
        if cell.kind == "text":
            hashes = words.copy()
        else:
            hashes = np.empty(n, np.int64)
            strings.hash_ints(words, hashes)
        hashes[~valid_mask(column)] = 0
        if known is not None:
            hashes[~known] = 0
        total = total * 31 + hashes
    return total


def cross(rows: Int64s, shards: int) -> tuple[Int64s, Int64s]:
    """Return (row, shard) for each of these rows and every shard."""
    return np.tile(rows, shards), np.repeat(np.arange(shards), rows.size)
