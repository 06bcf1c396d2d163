"""Seeded draws shared by the data sets."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from slackwater.pipelines.generate.spec import Int64s


def zipf_ranks(rng: Generator, size: int, ranks: int, skew: float) -> Int64s:
    """Draw ``size`` ranks from 0 to ``ranks - 1``, rank r with a weight of ``(r + 1) ** -skew``.

    Skew 0 is uniform. One uniform draw is spent on each rank, through the inverse of the distribution
    function; so the skew never shifts what later draws get.
    """
    reach = np.cumsum(np.arange(1, ranks + 1, dtype=np.float64) ** -skew)
    reach /= reach[-1]
    return np.searchsorted(reach, rng.random(size), side="right").astype(np.int64)


def varying_zipf_ranks(
    rng: Generator,
    changes: Generator,
    clock: Int64s,
    *,
    ranks: int,
    skew: float,
    max_skew: float,
    interval: tuple[int, int],
) -> Int64s:
    """Draw one rank for each row, with a skew that changes from time to time.

    Args:
        rng: For the ranks.
        changes: For the times of change and the skews; apart from ``rng``, so that fewer rows are a prefix.
        clock: Generation time of each row, ascending, counted from 0.
        ranks: Number of ranks.
        skew: Skew until the first change.
        max_skew: Each change draws a new skew uniformly from 0 to this.
        interval: Shortest and longest time between two changes; drawn uniformly, in whole units of the clock.
    """
    pieces: list[Int64s] = []
    start, until = 0, 0
    while start < len(clock):
        until += int(changes.integers(interval[0], interval[1], endpoint=True))
        stop = int(np.searchsorted(clock, until, side="left"))
        pieces.append(zipf_ranks(rng, stop - start, ranks, skew))
        skew = float(changes.uniform(0.0, max_skew))
        start = stop
    return np.concatenate(pieces)


def shuffled_in_groups(rng: Generator, size: int, group: int) -> Int64s:
    """Return the numbers from 0 to ``size - 1``, those of each ``group`` in turn in random order.

    One uniform draw is spent on each number; so a smaller multiple of the group gives a prefix.
    """
    numbers = np.arange(size)
    if group == 1:
        return numbers
    return np.lexsort((rng.random(size), numbers // group))
