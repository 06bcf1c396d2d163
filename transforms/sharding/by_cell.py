"""By cell: for bands of numbers, such as ``abs(a.x - b.x) <= 5``, in one or two dimensions.

The values of one input, the *hub*, are cut into cells, and a cell belongs to a shard. A row of the hub goes to
the shard of its cell; a row of another input to the shards of all cells that the band lets it reach. Every result
has one row of the hub, so it is found once. Inputs that no band links to the hub go to every shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import isqrt, prod
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Bools, Float64s, Int64s
from slackwater.transforms.expressions.condition import kind_of
from slackwater.transforms.rows.encoder import valid_mask
from slackwater.transforms.rows.words import decoded, reals
from slackwater.transforms.sharding.bands import Band, bands
from slackwater.transforms.sharding.by_key import cross
from slackwater.transforms.sharding.scheme import Partitioning, Routes, choice

if TYPE_CHECKING:
    from slackwater.transforms.settings.plan import JoinPlan

MOST_DIMENSIONS: Final = 2
_LARGEST_CELL: Final = float(1 << 52)
_LARGEST: Final = 1e300
_ROUNDING: Final = 1e-12
"""Share of a value by which rows reach further than the band says: more than rounding may be wrong by."""
_MARGIN: Final = 1e-9
"""Share of a cell, likewise."""


class Dimension(NamedTuple):
    """One column of the hub, and the bands that link other inputs to it."""

    column: str
    links: dict[int, Band]
    """For other inputs, how much the hub's column exceeds theirs."""


class ByCell(Partitioning):
    """Goes by the numbers in the columns of bands; rows without one are spread by arrival, as they join nothing.

    Args:
        plan: the join.
        hub: the input whose values are cut.
        dimensions: its columns.
    """

    name = "cell"

    def __init__(self, plan: JoinPlan, hub: int, dimensions: Sequence[Dimension]) -> None:
        super().__init__(plan)
        self._hub, self._dimensions = hub, tuple(dimensions)
        self._linked = _linked(dimensions)
        # Wider cells mean fewer copies and fewer cells to share out: about two shards for a row are a fair price.
        self._widths = [
            len(dimensions) * max(band.high - band.low for band in dimension.links.values()) or 1.0
            for dimension in dimensions
        ]
        self._stride = isqrt(self.shards - 1) + 1

    def routes(self, which: int, batch: pa.RecordBatch) -> Routes:
        anywhere = choice(self.scattered(which, batch), self.shards)
        if which != self._hub and which not in self._linked:
            return Routes.to_all(anywhere, self.shards)
        lows, highs = [], []
        known = np.ones(batch.num_rows, np.bool_)
        for dimension, width in zip(self._dimensions, self._widths, strict=True):
            low, high, valid = self._reach(dimension, width, which, batch)
            lows.append(low)
            highs.append(high)
            known &= valid
        home = np.where(known, self._shard(lows), anywhere)
        if which == self._hub:
            return Routes.to_home(home)
        return Routes.to_several(home, *self._deliveries(home, lows, highs, known))

    def factors(self) -> tuple[float, ...]:
        return tuple(self._factor(i) for i in range(len(self.plan.members)))

    def explain(self) -> Iterator[tuple[str, str]]:
        names = self.plan.members
        hub = names[self._hub]
        sizes = zip(self._widths, self._dimensions, strict=True)
        cells = " x ".join(f"{width:g} of {hub}.{dimension.column}" for width, dimension in sizes)
        others = [n for i, n in enumerate(names) if i != self._hub and i not in self._linked]
        everywhere = f"; rows of {', '.join(others)} go to every shard" if others else ""
        yield "split", f"by cells of {cells}; other rows go to all cells they can reach{everywhere}"
        found = [str(dimension.links[i]) for dimension in self._dimensions for i in sorted(self._linked)]
        yield "because", f"the condition keeps {', and '.join(found)}"

    def _factor(self, which: int) -> float:
        if which == self._hub:
            return 1.0
        if which not in self._linked:
            return float(self.shards)
        bands = (dimension.links[which] for dimension in self._dimensions)
        reached = (1 + (b.high - b.low) / width for b, width in zip(bands, self._widths, strict=True))
        return min(float(self.shards), prod(reached))

    def _reach(
        self, dimension: Dimension, width: float, which: int, batch: pa.RecordBatch
    ) -> tuple[Int64s, Int64s, Bools]:
        """Return the first and the last cell that each row reaches, and which rows have a value."""
        band = None if which == self._hub else dimension.links[which]
        column = batch.column(dimension.column if band is None else band.right.name)
        column = decoded(column)
        valid = valid_mask(column) & (not pa.types.is_null(column.type))
        if not valid.any():
            return np.zeros(len(valid), np.int64), np.zeros(len(valid), np.int64), valid
        # Conditions take NaN for the largest number. Every step below keeps the order of values.
        values = np.nan_to_num(reals(column), nan=np.inf)
        values = np.clip(values, -_LARGEST, _LARGEST)
        if band is None:
            cell = _cell(values, width)
            return cell, cell, valid
        margin = _MARGIN * width + _ROUNDING * (np.abs(values) + abs(band.low) + abs(band.high))
        low = _cell(values + (band.low - margin), width)
        return low, _cell(values + (band.high + margin), width), valid

    def _shard(self, cells: Sequence[Int64s]) -> Int64s:
        """Return the shards of cells: neighbours are in different ones, as far as there are enough."""
        place = cells[0].copy()
        for other in cells[1:]:
            place += other * self._stride
        return np.asarray(place % self.shards, np.int64)

    def _deliveries(
        self, home: Int64s, lows: Sequence[Int64s], highs: Sequence[Int64s], known: Bools
    ) -> tuple[Int64s, Int64s]:
        spans = [high - low for low, high in zip(lows, highs, strict=True)]
        far = known & np.any([span >= self.shards for span in spans], axis=0)
        near = known & ~far
        rows, shards = [np.flatnonzero(~known)], [home[~known]]
        for steps in np.ndindex(*(int(span[near].max(initial=-1)) + 1 for span in spans)):
            inside = np.all([span >= step for span, step in zip(spans, steps, strict=True)], axis=0)
            reached = np.flatnonzero(near & inside)
            rows.append(reached)
            shards.append(self._shard([low[reached] + step for low, step in zip(lows, steps, strict=True)]))
        every, shard = cross(np.flatnonzero(far), self.shards)
        return np.concatenate([*rows, every]), np.concatenate([*shards, shard])


def _cell(values: Float64s, width: float) -> Int64s:
    with np.errstate(over="ignore"):
        return np.clip(np.floor(values / width), -_LARGEST_CELL, _LARGEST_CELL).astype(np.int64)


def by_cell(plan: JoinPlan) -> Iterator[ByCell]:
    """Yield the ways to split a join by cells, one for each input that can be the hub.

    Its columns are those that link most inputs, two rather than one: more cells share the work more evenly.
    """
    inputs = plan.condition.inputs
    found = [band for band in bands(plan.condition) if _numbers(plan, band)]
    for hub, name in enumerate(inputs):
        dimensions: dict[str, Dimension] = {}
        for band in found:
            link = band if band.left.table == name else band.turned()
            if link.left.table == name:
                dimension = dimensions.setdefault(link.left.name, Dimension(link.left.name, {}))
                dimension.links.setdefault(inputs.index(str(link.right.table)), link)
        ways = [some for n in range(MOST_DIMENSIONS, 0, -1) for some in combinations(dimensions.values(), n)]
        if ways:
            yield ByCell(plan, hub, max(ways, key=lambda some: len(_linked(some))))


def _linked(dimensions: Sequence[Dimension]) -> set[int]:
    """Return the inputs that bands link to the hub in every dimension."""
    return set.intersection(*(set(dimension.links) for dimension in dimensions))


def _numbers(plan: JoinPlan, band: Band) -> bool:
    types = (plan.member_schemas[str(c.table)].field(c.name).type for c in (band.left, band.right))
    return all(kind_of(type_, "") in ("int", "float") for type_ in types)
