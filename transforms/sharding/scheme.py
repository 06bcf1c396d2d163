"""What schemes have in common: where rows go, and what that costs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Int64s, UInt64s
from slackwater.transforms.kernels.rows import dictionary as strings

if TYPE_CHECKING:
    from slackwater.transforms.settings.plan import Plan

LARGEST_BATCH = 1 << 40
"""More rows than a batch has; more shards than this allows per row number there are not."""


class Routes(NamedTuple):
    """Where the rows of a batch go."""

    home: Int64s
    """For each row the shard that accounts for it."""
    row: Int64s
    shard: Int64s
    """Row ``row[k]`` goes to ``shard[k]``; in order of shards, then of rows."""

    @classmethod
    def to_home(cls, home: Int64s) -> Routes:
        """Send each row to one shard."""
        order = np.argsort(home.astype(np.int16), kind="stable")
        return cls(home, order, home[order])

    @classmethod
    def to_several(cls, home: Int64s, row: Int64s, shard: Int64s) -> Routes:
        """Send rows to shards; what is there twice counts once."""
        shard, row = np.divmod(np.unique(shard * LARGEST_BATCH + row), LARGEST_BATCH)
        return cls(home, row, shard)

    @classmethod
    def to_all(cls, home: Int64s, shards: int) -> Routes:
        """Send each row to every shard."""
        n = home.size
        return cls(home, np.tile(np.arange(n), shards), np.repeat(np.arange(shards), n))


class Partitioning(ABC):
    """Splits the rows of a join's inputs over shards.

    Args:
        plan: the join.
    """

    name: ClassVar[str]

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.shards = plan.shards

    @abstractmethod
    def routes(self, which: int, batch: pa.RecordBatch) -> Routes:
        """Say where rows of input ``which`` go, alike in every process for the same rows and arrival numbers."""

    @abstractmethod
    def factors(self) -> tuple[float, ...]:
        """Return, for each input, how many shards a row goes to, on average if values are spread evenly."""

    @abstractmethod
    def explain(self) -> Iterator[tuple[str, str]]:
        """Yield what is done and why, as (what, text)."""

    def shards_per_row(self, which: int) -> str:
        """Say how many shards a row of an input goes to."""
        return f"{self.factors()[which]:g}"

    def copies(self, which: int) -> bool:
        """Whether rows of an input may go to several shards, so that copies must be told from rows at home."""
        return self.factors()[which] > 1

    def scattered(self, which: int, batch: pa.RecordBatch) -> UInt64s:
        """Return a number for each row that is as good as random, made of its arrival number."""
        from slackwater.transforms.arrival.merge import arrival_numbers

        hashes = np.empty(batch.num_rows, np.int64)
        strings.hash_ints(arrival_numbers(self.plan, which, batch), hashes)
        return hashes.view(np.uint64)


class OneShard(Partitioning):
    """Nothing to split."""

    name = "one shard"

    def routes(self, which: int, batch: pa.RecordBatch) -> Routes:
        return Routes.to_home(np.zeros(batch.num_rows, np.int64))

    def factors(self) -> tuple[float, ...]:
        return (1.0,) * len(self.plan.inputs)

    def explain(self) -> Iterator[tuple[str, str]]:
        yield "split", "one shard has all rows"


def choice(numbers: UInt64s, n: int) -> Int64s:
    """Return numbers below ``n``, of numbers that are spread over all bits."""
    return np.asarray(numbers % np.uint64(n), np.int64)
