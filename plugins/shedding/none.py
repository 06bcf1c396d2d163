"""Keep everything."""

from typing import ClassVar

import numpy as np

from slackwater.plugins.contract import Float64s, Setting, SheddingLogic, SheddingStrategy, Snapshot, Tuples


class NoShedding(SheddingStrategy):
    """Never drop a row that the windows could still use; memory follows the data."""

    name: ClassVar[str] = "none"

    @property
    def sheds(self) -> bool:
        return False

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> "KeepAllLogic":
        return KeepAllLogic()


class KeepAllLogic(SheddingLogic):
    """Every tuple is worth the same, and there is no limit."""

    def scores(self, tuples: Tuples) -> Float64s:
        return np.ones(tuples.ts.size)

    def snapshot(self) -> Snapshot:
        return {}
