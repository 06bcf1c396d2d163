"""Counting join results on complete, sorted data.

Kept plain, and apart from the join kernels of the operator: these counts are what those are judged by.
Importing this module loads Numba.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slackwater.pipelines.generate.spec import Int64s
from slackwater.transforms.kernels.compiler import kernel

Float64s = NDArray[np.float64]


@kernel
def equal_keys(stream: Int64s, ts: Int64s, key: Int64s, reach: int, streams: int) -> Int64s:
    """Return, for each row, the results of a join on one common key that it completes.

    Rows come by ascending ``ts``; keys are whole numbers from 0 on, and memory grows with the largest. A row
    completes one result for every choice of one earlier row from each other stream with its key and at most
    ``reach`` older than it. One pass: a count for each stream and key grows as a row enters the window and
    shrinks as it leaves.
    """
    inside = np.zeros((streams, key.max() + 1), np.int64)
    completed = np.zeros(len(ts), np.int64)
    oldest = 0
    for row in range(len(ts)):
        while ts[oldest] < ts[row] - reach:
            inside[stream[oldest], key[oldest]] -= 1
            oldest += 1
        results = 1
        for other in range(streams):
            if other != stream[row]:
                results *= inside[other, key[row]]
        completed[row] = results
        inside[stream[row], key[row]] += 1
    return completed


@kernel
def star(stream: Int64s, ts: Int64s, key: Int64s, reach: int, streams: int) -> Int64s:
    """Return, for each row, the results of a star join that it completes.

    As :func:`equal_keys`, but ``key`` is ``[rows, streams - 1]``. Stream 0 is the centre: its column j is to
    equal the key of leaf stream j + 1, which stands in the same column of the leaf's rows. A leaf's row adds
    up what every centre row in the window with its key gives with the other leaves.
    """
    inside = np.zeros((streams, key.max() + 1), np.int64)
    completed = np.zeros(len(ts), np.int64)
    oldest = 0
    for row in range(len(ts)):
        while ts[oldest] < ts[row] - reach:
            if stream[oldest] > 0:
                inside[stream[oldest], key[oldest, stream[oldest] - 1]] -= 1
            oldest += 1
        leaf = stream[row]
        for centre in range(oldest if leaf > 0 else row, row + 1):
            if stream[centre] > 0 or (leaf > 0 and key[centre, leaf - 1] != key[row, leaf - 1]):
                continue
            results = 1
            for other in range(1, streams):
                if other != leaf:
                    results *= inside[other, key[centre, other - 1]]
            completed[row] += results
        if leaf > 0:
            inside[leaf, key[row, leaf - 1]] += 1
    return completed


@kernel
def near(ts: Int64s, x: Float64s, y: Float64s, of: Int64s, at: Float64s, high: Float64s, reach: int,
         square: float, ties: bool) -> Int64s:  # fmt: skip
    """Return, for each row of one stream, the rows of another stream that are near it and no newer.

    Both streams come by ascending time: ``ts, x, y`` and ``of, at, high``. A pair is near if the square of its
    distance is at most ``square``, and counts if the other row is at most ``reach`` older; one of the same
    time counts only with ``ties``. Takes time in proportion to rows times rows in a window.
    """
    found = np.zeros(len(ts), np.int64)
    oldest, newest = 0, 0
    for row in range(len(ts)):
        while oldest < len(of) and of[oldest] < ts[row] - reach:
            oldest += 1
        while newest < len(of) and (of[newest] < ts[row] or (ties and of[newest] == ts[row])):
            newest += 1
        pairs = 0
        for other in range(oldest, newest):
            across, along = x[row] - at[other], y[row] - high[other]
            pairs += across * across + along * along <= square
        found[row] = pairs
    return found
