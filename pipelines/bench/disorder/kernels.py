"""Counting the results that a constant slack leaves, by each row's frontier at arrival.

Let a row's *entry* be the first result time that can still have it: its own event time, or its frontier at
arrival less the slack where that is later. A row that enters at its own time completes results; one that
enters later is only seen by results from then on. Kept apart from the join kernels of the operator and from
those that count complete results. Importing this module loads Numba.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slackwater.plugins.contract import Int64s
from slackwater.transforms.kernels.compiler import kernel

Float64s = NDArray[np.float64]


@kernel
def equal_entered(
    order: Int64s, by_ts: Int64s, entry: Int64s, stream: Int64s, ts: Int64s, key: Int64s, reach: int, streams: int
) -> Int64s:
    """Return, for each row, the results of a join on one common key that it completes.

    ``order`` lists the rows by entry, those that complete results after others of the same entry; ``by_ts``
    lists them by event time. Keys are whole numbers from 0 on. Windows are closed at both ends.
    """
    inside = np.zeros((streams, key.max() + 1), np.int64)
    entered = np.zeros(len(ts), np.bool_)
    completed = np.zeros(len(ts), np.int64)
    oldest = 0
    for row in order:
        now = entry[row]
        while ts[by_ts[oldest]] < now - reach:
            gone = by_ts[oldest]
            if entered[gone]:
                inside[stream[gone], key[gone]] -= 1
            oldest += 1
            if oldest == len(ts):
                return completed
        if ts[row] < now - reach:
            continue
        if ts[row] == now:
            results = 1
            for other in range(streams):
                if other != stream[row]:
                    results *= inside[other, key[row]]
            completed[row] = results
        inside[stream[row], key[row]] += 1
        entered[row] = True
    return completed


@kernel
def star_entered(
    order: Int64s, by_ts: Int64s, entry: Int64s, stream: Int64s, ts: Int64s, key: Int64s, reach: int, streams: int
) -> Int64s:
    """Return, for each row, the results of a star join that it completes.

    As :func:`equal_entered`, but ``key`` is ``[rows, streams - 1]`` and stream 0 is the centre, whose column j
    is to equal that of leaf stream j + 1. Takes time in proportion to rows times centre rows in a window.
    """
    inside = np.zeros((streams, key.max() + 1), np.int64)
    entered = np.zeros(len(ts), np.bool_)
    completed = np.zeros(len(ts), np.int64)
    centres = np.empty(len(ts), np.int64)
    place = np.empty(len(ts), np.int64)
    held = 0
    oldest = 0
    for row in order:
        now = entry[row]
        while ts[by_ts[oldest]] < now - reach:
            gone = by_ts[oldest]
            if entered[gone] and stream[gone] > 0:
                inside[stream[gone], key[gone, stream[gone] - 1]] -= 1
            elif entered[gone]:
                held -= 1
                centres[place[gone]] = centres[held]
                place[centres[held]] = place[gone]
            oldest += 1
            if oldest == len(ts):
                return completed
        if ts[row] < now - reach:
            continue
        leaf = stream[row]
        if leaf == 0:
            centres[held] = row
            place[row] = held
            held += 1
        if ts[row] == now:
            for at in range(held - 1 if leaf == 0 else 0, held):
                centre = centres[at]
                if leaf > 0 and key[centre, leaf - 1] != key[row, leaf - 1]:
                    continue
                results = 1
                for other in range(1, streams):
                    if other != leaf:
                        results *= inside[other, key[centre, other - 1]]
                completed[row] += results
        if leaf > 0:
            inside[leaf, key[row, leaf - 1]] += 1
        entered[row] = True
    return completed


@kernel
def near_needs(
    ts: Int64s, place: Float64s, frontier: Int64s, others: Int64s, there: Float64s, beyond: Int64s,
    reach: int, distance: float, ties: bool, first: int, interval: int, step: int, counts: Int64s,
) -> None:  # fmt: skip
    """Add the pairs of two streams that are near each other to ``counts[interval, slack needed]``.

    Both streams come by ascending time, with ``[rows, 2]`` places and frontiers at arrival: ``ts, place,
    frontier`` and ``others, there, beyond``. Pairs are counted whose second row is at most ``reach`` older than
    the first; one of the same time counts only with ``ties``. Intervals are ``interval`` long from ``first``
    on; slacks are in steps of ``step``, rounded up.
    """
    oldest, newest = 0, 0
    # Few pairs are near; the square root decides only about those that almost are.
    square = distance * distance * 1.0001
    for row in range(len(ts)):
        now = ts[row]
        while oldest < len(others) and others[oldest] < now - reach:
            oldest += 1
        while newest < len(others) and (others[newest] < now or (ties and others[newest] == now)):
            newest += 1
        at = (now - first) // interval
        for other in range(oldest, newest):
            x, y = place[row, 0] - there[other, 0], place[row, 1] - there[other, 1]
            if x * x + y * y < square and np.sqrt(x * x + y * y) < distance:
                last = max(frontier[row], beyond[other])
                needed = -((now - last) // step) if last > now else 0
                counts[at, needed] += 1
