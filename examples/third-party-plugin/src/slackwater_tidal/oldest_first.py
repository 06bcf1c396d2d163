"""Shedding by age."""

from typing import ClassVar

import numpy as np
from pydantic import Field

from slackwater.plugins import Setting, SheddingLogic, SheddingStrategy, Snapshot, Tuples


class OldestFirst(SheddingStrategy):
    """Drop the oldest rows when the windows hold more than their memory."""

    name: ClassVar[str] = "oldest_first"
    memory: int = Field(ge=1)
    """rows that the windows of a shard may hold"""

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> "OldestFirstLogic":
        return OldestFirstLogic(self.memory)


class OldestFirstLogic(SheddingLogic):
    """A tuple is worth its event time."""

    def __init__(self, memory: int) -> None:
        self.memory: int = memory

    def scores(self, tuples: Tuples) -> np.ndarray:
        return tuples.ts.astype(np.float64)

    def snapshot(self) -> Snapshot:
        return {}
