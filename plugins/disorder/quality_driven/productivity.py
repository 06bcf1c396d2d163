"""What tuples gave, by delay and over time: QDDH's Tuple-Productivity Profiler and Result-Size Monitor."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from slackwater.plugins.contract import Feedback, Float64s, Int64s, Snapshot
from slackwater.plugins.disorder.histogram import coarse, tally

_CELLS: Final = 1024


class Productivity(NamedTuple):
    """Results by coarse delay of the tuples that completed them, over one adaptation interval."""

    delays: Int64s
    """Coarse delays that occur, ascending: the keys of both maps."""
    joined: Float64s
    """M⋈: results of the tuples of each delay."""
    crossed: Float64s
    """M×: results of the cross join of the tuples of each delay."""

    @property
    def true(self) -> float:
        """Estimated true results of the interval."""
        return float(self.joined.sum())

    def selectivity_ratios(self) -> Float64s:
        """sel(K) / sel of Eq. (6) for K below the first delay, and from each delay on.

        Where no tuple has a delay of at most K, or those gave no cross results, nothing is known: 1.
        """
        joined, crossed = np.cumsum(self.joined), np.cumsum(self.crossed)
        ratios = np.ones(self.delays.size + 1)
        if self.true > 0:
            scale = crossed * joined[-1]
            np.divide(joined * crossed[-1], scale, out=ratios[1:], where=scale > 0)
        return ratios


def completed(feedback: Feedback) -> tuple[Float64s, Float64s]:
    """Return the results and the cross results that each tuple gave or, if it was late, might have given.

    A late tuple is taken to be as productive as the most productive tuple of the interval that came in order
    (QDDH sec. IV-B): rather too much slack than too little.
    """
    late = feedback.late
    joined, crossed = feedback.join_size.astype(np.float64), feedback.cross_size.astype(np.float64)
    if late.any():
        for sizes in (joined, crossed):
            sizes[late] = sizes[~late].max(initial=0.0)
    return joined, crossed


def profile(feedback: Feedback, joined: Float64s, crossed: Float64s, step: int) -> Productivity:
    """Sum what tuples completed by coarse delay."""
    return Productivity(*tally(coarse(feedback.delay, step), joined, crossed))


class ResultSizes:
    """Results produced, and estimated true results, with timestamps in the last stretch of the join's time.

    Both are kept by timestamp, in at most 1,024 cells, so that they speak of the same stretch even while a
    change of K makes the join stand still or hurry.
    """

    def __init__(self, length: int, snapshot: Snapshot | None = None) -> None:
        self._ticks = max(1, -(-length // _CELLS))
        self._cells = np.zeros((2, -(-length // self._ticks)))
        self._newest: int | None = None
        if snapshot:
            self._cells[:] = snapshot["cells"]
            self._newest = snapshot["newest"]

    def add(self, feedback: Feedback, joined: Float64s) -> None:
        """Take what tuples produced, and what they would have produced in order."""
        size = self._cells.shape[1]
        if not feedback.ts.size or not size:
            return
        cell = feedback.ts // self._ticks
        newest = int(cell.max())
        if self._newest is None:
            self._newest = newest
        moved = min(max(0, newest - self._newest), size)
        if moved:
            self._cells = np.concatenate([self._cells[:, moved:], np.zeros((2, moved))], axis=1)
            self._newest = newest
        at = cell - (self._newest - size + 1)
        kept = at >= 0
        for k, sizes in enumerate((feedback.join_size, joined)):
            self._cells[k] += np.bincount(at[kept], sizes[kept], size)

    @property
    def produced(self) -> float:
        """Results produced."""
        return float(self._cells[0].sum())

    @property
    def true(self) -> float:
        """Estimated true results."""
        return float(self._cells[1].sum())

    def snapshot(self) -> Snapshot:
        return {"cells": self._cells.copy(), "newest": self._newest}
