"""The results of a window join as pairs of tuple numbers, for any join condition (SAJ 6.1.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slackwater.pipelines.bench.offline.arrivals import STREAMS, Side
from slackwater.plugins.contract import Int64s
from slackwater.transforms.errors import SlackwaterError

Choice = Callable[[Int64s, Int64s], ArrayLike] | NDArray[Any]
"""Something known of every pair: a function of tuple numbers of R and of S, or a matrix [R, S]."""
Pairs = tuple[Int64s, Int64s]
BLOCK = 1 << 22


def key_codes(keys: tuple[ArrayLike, ArrayLike] | None, sides: tuple[Side, Side]) -> Pairs:
    """Return equal numbers for equal keys, from 0 on; all the same where there are none. NaN equals nothing."""
    if keys is None:
        return np.zeros(len(sides[0].rank), np.int64), np.zeros(len(sides[1].rank), np.int64)
    columns = [np.asarray(column) for column in keys]
    for name, column, side in zip(STREAMS, columns, sides, strict=True):
        if column.shape != side.rank.shape:
            raise SlackwaterError(
                f"keys of {name}: {len(column)} for {len(side.rank)} arrivals; give one for each"
            )
    codes = np.unique(np.concatenate(columns), return_inverse=True, equal_nan=False)[1].astype(np.int64)
    return codes[: len(columns[0])], codes[len(columns[0]) :]


def seen(sides: tuple[Side, Side], pairs: Pairs) -> NDArray[np.bool_]:
    """Return which pairs meet: the older member is still there when the newer one arrives."""
    (r, s), (i, j) = sides, pairs
    return (r.last[i] >= s.rank[j]) & (s.last[j] >= r.rank[i])


def pairs_in_window(sides: tuple[Side, Side], codes: Pairs, first: int, block: int = BLOCK) -> Iterator[Pairs]:
    """Yield all pairs of equal codes that meet at rank ``first`` or later, about ``block`` at a time.

    Takes time and space in proportion to the pairs, and to the candidates where windows vary.
    """
    r, s = sides
    if not len(r.rank) or not len(s.rank):
        return
    ranks = int(max(r.rank.max(), s.rank.max())) + 1
    order = np.lexsort((s.rank, codes[1]))
    placed = codes[1][order] * ranks + s.rank[order]
    reach = np.full(ranks, -1)
    np.maximum.at(reach, s.rank, s.last)
    oldest = np.searchsorted(np.maximum.accumulate(reach), r.rank)
    start = np.searchsorted(placed, codes[0] * ranks + oldest)
    count = np.maximum(np.searchsorted(placed, codes[0] * ranks + r.last, side="right") - start, 0)
    cuts = np.searchsorted(np.cumsum(count), np.arange(block, int(count.sum()), block)) + 1
    for rows in np.split(np.arange(len(count)), np.unique(cuts)):
        i = np.repeat(rows, count[rows])
        step = np.arange(len(i)) - np.repeat(np.cumsum(count[rows]) - count[rows], count[rows])
        j = order[start[i] + step]
        meet = seen(sides, (i, j)) & (np.maximum(r.rank[i], s.rank[j]) >= first)
        yield i[meet], j[meet]


def chosen(pairs: Iterable[Pairs], condition: Choice | None = None, shape: tuple[int, int] = (0, 0)) -> Pairs:
    """Return all pairs for which the condition holds; ``shape`` has the sizes of R and S."""
    found: list[Pairs] = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    for i, j in pairs:
        if condition is None:
            found.append((i, j))
            continue
        holds = _ask("condition", condition, (i, j), shape)
        if holds.dtype != np.bool_:
            raise SlackwaterError(f"condition: must give true or false for each pair, got {holds.dtype}")
        found.append((i[holds], j[holds]))
    return np.concatenate([i for i, _ in found]), np.concatenate([j for _, j in found])


def weights_of(weight: Choice | None, pairs: Pairs, shape: tuple[int, int]) -> NDArray[Any]:
    """Return what each pair is worth: int64 where all are whole numbers, else float64."""
    if weight is None:
        return np.ones(len(pairs[0]), np.int64)
    worth = _ask("weight", weight, pairs, shape)
    if worth.dtype.kind not in "iuf" or not np.isfinite(worth).all():
        raise SlackwaterError("weight: must give a finite number for each pair")
    if worth.dtype.kind == "f" and (worth != np.rint(worth)).any():
        return worth.astype(np.float64)
    if np.abs(worth.astype(np.float64)).sum() >= 2.0**62:
        raise SlackwaterError("weight: values are too large to be added up; scale them down")
    return worth.astype(np.int64)


def _ask(place: str, choice: Choice, pairs: Pairs, shape: tuple[int, int]) -> NDArray[Any]:
    if callable(choice):
        answers = np.asarray(choice(*pairs))
        if answers.shape != pairs[0].shape:
            raise SlackwaterError(f"{place}: {answers.size} answers for {len(pairs[0])} pairs; give one for each")
        return answers
    matrix = np.asarray(choice)
    if matrix.shape != shape:
        raise SlackwaterError(f"{place}: must be a matrix of {shape} for R and S, got {matrix.shape}")
    return matrix[pairs]
