"""For any condition: shards are the cells of a box with one side per input (Okcan and Riedewald, 1-Bucket-Theta).

A row is given a place on its input's side by its arrival number, and goes to all cells with that place. Any rows,
one of each input, meet in exactly one cell. With two inputs this is their matrix of rows and columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from slackwater.transforms.sharding.scheme import Partitioning, Routes, choice

if TYPE_CHECKING:
    from slackwater.transforms.settings.plan import JoinPlan


class OneBucket(Partitioning):
    """Compares every pair somewhere, whatever the values: no skew, many copies."""

    name = "one bucket"

    def __init__(self, plan: JoinPlan) -> None:
        super().__init__(plan)
        self.sides = sides(self.shards, len(plan.members))

    def routes(self, which: int, batch: pa.RecordBatch) -> Routes:
        numbers = self.scattered(which, batch)
        side, used = self.sides[which], prod(self.sides)
        step = prod(self.sides[which + 1 :])
        place, numbers = choice(numbers, side), numbers // np.uint64(side)
        cells = np.arange(used)
        at = cells // step % side
        # The cells of each place, as many for every one.
        of_place = cells[np.argsort(at, kind="stable")].reshape(side, -1)
        home = of_place[place, choice(numbers, of_place.shape[1])]
        row = np.repeat(np.arange(place.size), of_place.shape[1])
        return Routes.to_several(home, row, of_place[place].ravel())

    def factors(self) -> tuple[float, ...]:
        return tuple(float(prod(self.sides) // side) for side in self.sides)

    def explain(self) -> Iterator[tuple[str, str]]:
        used = prod(self.sides)
        box = " x ".join(f"{side} of {name}" for side, name in zip(self.sides, self.plan.members, strict=True))
        idle = "" if used == self.shards else f"; {self.shards - used} of {self.shards} shards stay empty"
        yield "split", f"one bucket: {box}, rows are placed by arrival{idle}"
        yield (
            "because",
            "the condition has no key and no band of numbers by which rows could go to fewer shards",
        )


def sides(shards: int, inputs: int) -> tuple[int, ...]:
    """Return the sides of the box with at most ``shards`` cells in which a shard gets the fewest rows."""
    found = [1] * inputs
    while True:
        for side in sorted(range(inputs), key=found.__getitem__):
            if prod(found) // found[side] * (found[side] + 1) <= shards:
                found[side] += 1
                break
        else:
            return tuple(found)
