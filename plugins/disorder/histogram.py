"""Coarse delays and their sparse histograms: as large as there are different delays, whatever their range."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from slackwater.plugins.contract import Int64s
from slackwater.transforms.kernels.disorder import histogram as kernel


def coarse(delay: Int64s, step: int) -> Int64s:
    """Return delays in steps: 0 for none, d for those in ((d - 1) step, d step] (QDDH sec. IV-A)."""
    return (delay + (step - 1)) // step


class Histogram(NamedTuple):
    """Counts by bin."""

    bins: Int64s
    """Ascending, each once."""
    counts: Int64s
    """None is 0."""

    @classmethod
    def empty(cls) -> Histogram:
        return cls(np.empty(0, np.int64), np.empty(0, np.int64))

    @classmethod
    def of(cls, values: Int64s) -> Histogram:
        """Count values, none of them negative."""
        return cls(*tally(values))

    def __add__(self, other: Any) -> Histogram:
        return Histogram(*kernel.merge(*self, *other, 1))

    def __sub__(self, other: Any) -> Histogram:
        return Histogram(*kernel.merge(*self, *other, -1))


def tally(values: Int64s, *weights: Any) -> tuple[Any, ...]:
    """Return the values that occur, ascending, and the count of each, or else the sum of each of ``weights``.

    Takes time and memory linear in the number of values, or n log n where they are widely scattered.
    """
    if int(values.max(initial=0)) < 4 * values.size + 4096:
        counts = np.bincount(values)
        bins = np.flatnonzero(counts)
        sums = [np.bincount(values, weight)[bins] for weight in weights] or [counts[bins]]
    else:
        bins, at, counts = np.unique(values, return_inverse=True, return_counts=True)
        sums = [np.bincount(at, weight) for weight in weights] or [counts]
    return (bins, *sums)
