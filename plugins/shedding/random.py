"""Shed whatever the dice say."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from slackwater.plugins.contract import Float64s, Limit, Setting, Snapshot, Tuples
from slackwater.plugins.shedding.limits import LimitedMemory


class RandomShedding(LimitedMemory):
    """Drop tuples at random when memory is short.

    RAND (SAJ 5.2; RANDV with ``allocation: variable``): all that can be done without looking at values, and the
    baseline for the others. The same arrivals and the same seed drop the same tuples.
    """

    name: ClassVar[str] = "random"
    seed: int = 0
    """where the dice start"""

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> RandomLogic:
        return RandomLogic(self, snapshot)


class RandomLogic:
    """Throws the dice anew for all tuples whenever they are scored, so that age is no merit."""

    decays = False

    def __init__(self, options: RandomShedding, snapshot: Snapshot | None = None) -> None:
        self.memory: Limit = options.memory
        self.allocation = options.allocation
        self._seed = options.seed
        self._throws = int(snapshot["throws"]) if snapshot else 0

    def scores(self, tuples: Tuples) -> Float64s:
        self._throws += 1
        return self.observe(tuples)

    def observe(self, tuples: Tuples) -> Float64s:
        """Return a number from 0 to 1 for each tuple, by its identity and the number of throws."""
        start = np.random.SeedSequence([self._seed & (2**63 - 1), self._throws]).generate_state(1, np.uint64)[0]
        # The compiler, which takes a while to load.
        from slackwater.transforms.kernels.strings import spread

        codes = tuples.seq.astype(np.uint64) * np.uint64(8) + tuples.input.astype(np.uint64)
        return np.asarray(spread(codes + start) / 2.0**64, np.float64)

    def snapshot(self) -> Snapshot:
        return {"throws": self._throws}
