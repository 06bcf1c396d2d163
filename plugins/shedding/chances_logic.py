"""Chances of a match, from how often values have arrived: what PROB and LIFE go by (SAJ 4.2)."""

from __future__ import annotations

from typing import Any

import numpy as np

from slackwater.plugins.contract import Float64s, Setting, Snapshot, Tuples
from slackwater.plugins.shedding.prob import ByChance
from slackwater.transforms.kernels import frequencies as kernel

NEGLIGIBLE = 1 / 16
"""A decayed count below this many new observations is forgotten when room is needed."""


class ChancesLogic:
    """Scores a tuple by the chance that an arriving tuple of each other input matches it, multiplied.

    An input that shares no key with the tuple's counts for nothing: its chance is the same for all.
    """

    def __init__(
        self, options: ByChance, setting: Setting, decays: bool, snapshot: Snapshot | None = None
    ) -> None:
        self.memory: int | None = options.memory
        self.allocation = options.allocation
        self.decays = decays
        self.renewal = 0 if decays else max(2 * options.memory, options.half_life // 4)
        """Tuples for which scores stay good: chances change slowly, lifetimes do not."""
        own, partners = _keys(setting)
        self._forgets = options.estimate == "decayed"
        growth = 1.0 if options.estimate == "exact" else 2.0 ** (1 / options.half_life)
        sketch = options.estimate == "sketch"
        width = 1 << (options.width - 1).bit_length()
        self._f = kernel.Frequencies(
            hashes=np.zeros(0 if sketch else 1024, np.uint64),
            counts=np.zeros(kernel.ROWS * width if sketch else 1024),
            used=np.zeros(1, np.int64),
            totals=np.zeros(len(setting.inputs)),
            weights=np.array([1.0, growth]),
            own=own,
            partners=partners,
        )
        if snapshot:
            kept = {name: np.array(snapshot[name]) for name in ("hashes", "counts", "used", "totals", "weights")}
            self._f = self._f._replace(**kept)

    def scores(self, tuples: Tuples) -> Float64s:
        return self._chances(tuples, False)

    def observe(self, tuples: Tuples) -> Float64s:
        """Return the chance of each tuple as it was when it came; each is counted in turn."""
        if self._f.hashes.size:
            self._reserve(tuples.ts.size * self._f.own.shape[1])
        return self._chances(tuples, True)

    def snapshot(self) -> Snapshot:
        names = ("hashes", "counts", "used", "totals", "weights")
        return {name: getattr(self._f, name).copy() for name in names}

    @property
    def nbytes(self) -> int:
        """Bytes of the counts."""
        return int(self._f.hashes.nbytes + self._f.counts.nbytes)

    def _chances(self, tuples: Tuples, learn: bool) -> Float64s:
        out = np.empty(tuples.ts.size)
        kernel.chances(self._f, tuples.input, tuples.cells, tuples.nulls, learn, out)
        return out

    def _reserve(self, n: int) -> None:
        """Make room for ``n`` more values, by forgetting what has become negligible, or by growing."""
        size = self._f.hashes.size
        if 2 * (int(self._f.used[0]) + n) <= size:
            return
        least = NEGLIGIBLE * self._f.weights[kernel.GAIN] if self._forgets else 0.0
        stay = int(np.count_nonzero((self._f.hashes != 0) & (self._f.counts >= least)))
        while size < 4 * (stay + n):
            size *= 2
        hashes, counts = np.zeros(size, np.uint64), np.zeros(size)
        self._f.used[0] = kernel.refill(self._f.hashes, self._f.counts, least, hashes, counts)
        self._f = self._f._replace(hashes=hashes, counts=counts)


def _keys(setting: Setting) -> tuple[Any, Any]:
    """Return which keys of each input are counted, and which keys of others its tuples match."""
    classes, m = setting.condition.classes, len(setting.inputs)
    own: list[list[tuple[int, ...]]] = [[] for _ in range(m)]
    partners: list[list[tuple[int, ...]]] = [[] for _ in range(m)]
    for i in range(m):
        for j in range(m):
            shared = tuple(c for c, members in enumerate(classes) if i in members and j in members)
            if i != j and shared:
                key = (j, len(shared), sum(1 << c for c in shared))
                counted = (*key, *(classes[c][j] for c in shared))
                if counted not in own[j]:
                    own[j].append(counted)
                partners[i].append((*key, *(classes[c][i] for c in shared)))
    width = kernel.CELLS + max(1, len(classes))
    return _table(own, width), _table(partners, width)


def _table(keys: list[list[tuple[int, ...]]], width: int) -> Any:
    table = np.zeros((len(keys), max(1, *map(len, keys)), width), np.int64)
    for i, mine in enumerate(keys):
        for n, key in enumerate(mine):
            table[i, n, : len(key)] = key
    return table
