"""Shed tuples at random."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from slackwater.plugins.contract import Float64s, Limit, Setting, SheddingLogic, Snapshot, Tuples
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
        return RandomLogic(self)


class RandomLogic(SheddingLogic):
    """Throws the dice once per tuple, so that its age is no merit: every tuple of a window may be held alike."""

    renewal: int = 1 << 16
    """Numbers stay good for ever; what was lost is booked as often."""

    def __init__(self, options: RandomShedding) -> None:
        self.memory: Limit = options.memory
        self.allocation: str = options.allocation
        seed = np.random.SeedSequence(options.seed & (2**63 - 1))
        self._start = seed.generate_state(1, np.uint64)[0]

    def scores(self, tuples: Tuples) -> Float64s:
        """Return a number from 0 to 1 for each tuple, by its identity."""
        # The compiler, which takes a while to load.
        from slackwater.transforms.kernels.rows.dictionary import spread

        codes = tuples.seq.astype(np.uint64) * np.uint64(8) + tuples.input.astype(np.uint64)
        return np.asarray(spread(codes + self._start) / 2.0**64, np.float64)

    def snapshot(self) -> Snapshot:
        return {}
