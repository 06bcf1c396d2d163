"""Exact result counts of a data set's own query."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from slackwater.pipelines.generate.spec import Columns, Int64s, Truth


def count_equal(dataset: str, streams: Sequence[Columns], column: str, window: int, closed: str) -> Truth:
    """Count the results of joining all streams on equal ``column``.

    Windows are closed at both ends: a result's members are at most ``window`` older than its newest member;
    with ``closed="right"``, less than that, as SAJ has it. Values are whole numbers from 0 on, and memory
    grows with the largest.

    Args:
        dataset: For error messages.
        streams: Two or more, each with ``ts`` in ms and ``column``, in any order.
        column: The column that is to be equal.
        window: In ms, the same for every stream.
        closed: ``both`` or ``right``.

    Raises:
        ValueError: There may be more results than a 64-bit number can count.
    """
    from slackwater.pipelines.generate.kernels import equal_keys

    if not sum(len(columns["ts"]) for columns in streams):
        return Truth(np.zeros(0, np.int64), np.zeros(0, np.int64))
    reach = window if closed == "both" else window - 1
    stream, ts, order = _merged(dataset, streams, reach)
    key = np.concatenate([columns[column] for columns in streams])[order]
    return _per_second(ts, equal_keys(stream, ts, key, reach, len(streams)))


def count_star(dataset: str, streams: Sequence[Columns], columns: Sequence[str], window: int) -> Truth:
    """Count the results of joining the first stream with every other, each on a column of its own.

    Leaf stream j joins on ``columns[j - 1]``, which is a column of both. Windows are closed at both ends; for
    the rest see :func:`count_equal`. Takes time in proportion to rows times rows in a window.
    """
    from slackwater.pipelines.generate.kernels import star

    stream, ts, order = _merged(dataset, streams, window)
    key = np.zeros((len(ts), len(columns)), np.int64)
    for position, column in enumerate(columns):
        absent = [np.zeros(len(leaf["ts"]), np.int64) for leaf in streams]
        key[:, position] = np.concatenate(
            [leaf.get(column, blank) for leaf, blank in zip(streams, absent, strict=True)]
        )[order]
    return _per_second(ts, star(stream, ts, key, window, len(streams)))


def count_near(first: Columns, second: Columns, distance: float, window: int) -> Truth:
    """Count the pairs of rows of two streams that are less than ``distance`` apart.

    Each stream has ``ts`` in ms, ``x`` and ``y``, in any order. Windows are closed at both ends. Takes time in
    proportion to rows times rows in a window.
    """
    from slackwater.pipelines.generate.kernels import near

    one, two = (
        {name: columns[name][np.argsort(columns["ts"], kind="stable")] for name in ("ts", "x", "y")}
        for columns in (first, second)
    )
    square = largest_square(distance)
    # A pair of the same time is completed once, by the first stream's row.
    found = [
        near(*one.values(), *two.values(), window, square, True),
        near(*two.values(), *one.values(), window, square, False),
    ]
    ts, completed = np.concatenate([one["ts"], two["ts"]]), np.concatenate(found)
    order = np.argsort(ts, kind="stable")
    return _per_second(ts[order], completed[order])


def largest_square(distance: float) -> float:
    """Return the largest number whose square root, as computed, is less than ``distance``."""
    square = distance * distance
    while math.sqrt(square) < distance:
        square = math.nextafter(square, math.inf)
    while math.sqrt(square) >= distance:
        square = math.nextafter(square, 0)
    return square


def _merged(dataset: str, streams: Sequence[Columns], reach: int) -> tuple[Int64s, Int64s, Int64s]:
    """Return stream number and ts of all rows by ascending ts, and the order that sorts them so."""
    ts = np.concatenate([columns["ts"] for columns in streams])
    stream = np.repeat(np.arange(len(streams)), [len(columns["ts"]) for columns in streams])
    most = len(ts) * math.prod(sorted(_fullest(columns["ts"], reach) for columns in streams)[1:])
    if most > np.iinfo(np.int64).max:
        raise ValueError(
            f"{dataset}: up to {most:.0e} results, more than a 64-bit number can count. "
            "Shorten the window, widen the step, or ask for fewer rows."
        )
    order = np.argsort(ts, kind="stable")
    return stream[order], ts[order], order


def _fullest(ts: Int64s, reach: int) -> int:
    """Return the most rows that one window holds."""
    ts = np.sort(ts, kind="stable")
    return int((np.arange(1, len(ts) + 1) - np.searchsorted(ts, ts - reach, side="left")).max(initial=0))


def _per_second(ts: Int64s, completed: Int64s) -> Truth:
    seconds, first = np.unique(ts // 1000, return_index=True)
    results = np.add.reduceat(completed, first)
    return Truth(seconds[results > 0], results[results > 0])
