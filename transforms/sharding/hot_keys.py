"""Hot keys: as by key, but the rows of some values are spread over several shards.

Rows of one input that have such a value are spread by their arrival numbers; rows of the other inputs that have
it are copied to all of these shards. Every result has one row of the input that is spread, so it is found once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Int64s
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.sharding.by_key import ByKey, key_hashes
from slackwater.transforms.sharding.scheme import Routes, choice

if TYPE_CHECKING:
    from slackwater.transforms.settings.models import HotKeysConfig
    from slackwater.transforms.settings.plan import JoinPlan


class HotKeys(ByKey):
    """Goes by hashes of the hot values too: another key with the same hash is spread in vain, and found.

    Args:
        plan: the join, whose inputs share a key.
        given: the hot values, and the input whose rows are spread.
    """

    name = "hot keys"

    def __init__(self, plan: JoinPlan, given: HotKeysConfig) -> None:
        super().__init__(plan, [plan.shard_cells(i) for i in range(len(plan.inputs))])
        if given.input not in plan.members:
            fault = f"{given.input!r} is no input that is joined; these are {', '.join(plan.members)}"
            raise ConfigError(fault, "hot_keys", "input")
        self.split = self.shards if given.split is None else given.split
        if self.split > self.shards > 1:
            raise ConfigError(
                f"must be at most the number of shards, {self.shards}, got {self.split}", "hot_keys", "split"
            )
        self._given = given
        self._spread = plan.members.index(given.input)
        self._hot = self._hashes()

    def routes(self, which: int, batch: pa.RecordBatch) -> Routes:
        hashes = key_hashes(batch, self.cells[which])
        home = self.of_key(hashes)
        hot = np.flatnonzero(np.isin(hashes, self._hot))
        if not hot.size:
            return Routes.to_home(home)
        first = home[hot]
        home[hot] = (first + choice(self.scattered(which, batch.take(pa.array(hot))), self.split)) % self.shards
        if which == self._spread:
            return Routes.to_home(home)
        others = np.delete(np.arange(home.size), hot)
        shards = [(first + k) % self.shards for k in range(self.split)]
        rows = np.concatenate([others, np.tile(hot, self.split)])
        return Routes.to_several(home, rows, np.concatenate([home[others], *shards]))

    def factors(self) -> tuple[float, ...]:
        """As if all keys were hot."""
        copied = float(self.split)
        return tuple(1.0 if i == self._spread else copied for i in range(len(self.plan.members)))

    def shards_per_row(self, which: int) -> str:
        return "1" if which == self._spread else f"1, {self.split} for hot keys"

    def explain(self) -> Iterator[tuple[str, str]]:
        values = ", ".join(map(repr, self._given.values))
        others = [name for i, name in enumerate(self.plan.members) if i != self._spread]
        yield from super().explain()
        yield (
            "hot keys",
            f"rows of {self._given.input} with {values} are spread over {self.split} shards by arrival, those of "
            f"{', '.join(others)} with one of these values are copied to each",
        )

    def _hashes(self) -> Int64s:
        (cell,) = self.cells[self._spread]
        type_ = self.plan.schemas[self._given.input].field(cell.column).type
        if pa.types.is_dictionary(type_):
            type_ = type_.value_type
        try:
            values = pa.array(self._given.values, type_)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            listed = ", ".join(map(repr, self._given.values))
            fault = f"must be values of {self._given.input}.{cell.column}, which is {type_}, got {listed}"
            raise ConfigError(fault, "hot_keys", "values") from None
        batch = pa.RecordBatch.from_arrays([values], [cell.column])
        return np.unique(key_hashes(batch, [cell]))
