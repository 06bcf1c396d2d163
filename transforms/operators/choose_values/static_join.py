"""Static join approximation: which tuples of stored relations to fetch when not all can be (SAJ 3).

An equi-join falls apart into one *component* for each value, K(m, n), in which all m tuples of A join all n
tuples of B. Only these counts matter, so summaries of the relations go in and counts for each value come out.

Every function takes either ``retain``, the number of tuples to keep, or ``delete``, the number to leave out;
the two are one problem, since the best choice for the one is the best for the other. SAJ calls deleting the
primal version, which minimises lost results, and retaining the dual one, which maximises results. The choice
is the same, but a factor that holds for the lost results need not hold for the results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slackwater.plugins.contract import Int64s
from slackwater.transforms.errors import SlackwaterError

LARGEST = 1 << 31
"""Bytes that the tables of OPTDP may take."""


@dataclass(frozen=True)
class ValueCounts:
    """How many tuples each relation has of each join value: whole relations, or what is retained of them."""

    values: NDArray[Any]
    counts: Int64s
    """[values, relations]"""

    def __post_init__(self) -> None:
        if self.counts.ndim != 2 or len(self.counts) != len(self.values) or self.counts.shape[1] < 2:
            raise SlackwaterError(
                f"counts: must be a matrix of {len(self.values)} values and two or more relations, "
                f"got {self.counts.shape}"
            )
        if self.counts.dtype != np.int64 or (self.counts < 0).any():
            raise SlackwaterError("counts: must be whole numbers (int64), 0 or more")
        if self.counts.astype(np.float64).prod(axis=1).sum() >= 2.0**62:
            raise SlackwaterError("counts: the join has more results than a 64-bit number can count")

    @classmethod
    def of_values(cls, *relations: ArrayLike) -> ValueCounts:
        """Count the join values of the tuples of each relation; they are listed in ascending order."""
        columns = [np.asarray(values) for values in relations]
        # An empty list has a type of its own, which must not become that of all values.
        filled = [values for values in columns if values.size] or [np.empty(0, np.int64)]
        found, code = np.unique(np.concatenate(filled), return_inverse=True, equal_nan=False)
        counts = np.zeros((len(found), len(columns)), np.int64)
        owner = np.repeat(np.arange(len(columns)), [values.size for values in columns])
        np.add.at(counts, (code, owner), 1)
        return cls(found, counts)

    @classmethod
    def of_summaries(cls, *relations: Mapping[Any, int]) -> ValueCounts:
        """Take counts by value, as a sensor would send them (SAJ 1); values are listed as they first come."""
        found = list(dict.fromkeys(value for counts in relations for value in counts))
        counts = np.array([[own.get(value, 0) for own in relations] for value in found])
        return cls(np.array(found), counts if found else np.zeros((0, len(relations)), np.int64))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Tuples of each relation."""
        return tuple(int(size) for size in self.counts.sum(axis=0))

    @property
    def results(self) -> int:
        """Results of the join."""
        return int(self.counts.prod(axis=1).sum())

    def needed(self) -> ValueCounts:
        """Leave out tuples that have no partner here: the same results from fewer tuples."""
        joined = self.counts.all(axis=1)
        return ValueCounts(self.values[joined], self.counts[joined])


def best_edges(m: ArrayLike, n: ArrayLike, p: ArrayLike) -> Int64s:
    """Return the most results that ``p`` tuples of K(m, n) can have: Lemma 1, C_{m,n}(p)."""
    fewer = np.minimum(np.minimum(m, n), np.asarray(p) // 2)
    return np.asarray(fewer * (p - fewer), np.int64)


def optdp(
    relations: ValueCounts,
    *,
    retain: int | tuple[int, int] | None = None,
    delete: int | tuple[int, int] | None = None,
) -> ValueCounts:
    """Choose optimally by dynamic programming (SAJ 3.2): ``k`` tuples overall, or ``(kA, kB)`` of A and B.

    With ``n`` tuples and ``c`` values in all, ``k`` overall takes O(n k) time, which is at most the paper's
    O(c k²), and O(c k) space. A pair takes O(kA kB) time for every result and O(c kA kB) space: for small
    relations.
    """
    a, b = _two(relations)
    k = _to_retain(relations, retain, delete)
    from slackwater.transforms.kernels.operators.static_join import retain_of_each, retain_overall

    if isinstance(k, tuple):
        _check_table(8 * len(a) * (k[0] + 1) * (k[1] + 1), "ndg")
        return ValueCounts(relations.values, retain_of_each(a, b, *k))
    _check_table(4 * len(a) * (k + 1), "adg")
    return ValueCounts(relations.values, _shared_out(a, b, retain_overall(a, b, k)))


def adg(relations: ValueCounts, *, retain: int | None = None, delete: int | None = None) -> ValueCounts:
    """Retain components by their average degree m n / (m + n), the highest first: ADG (SAJ 3.3.2).

    The component that does not fit is used in part, as Lemma 1 has it. At least half the results of the best
    choice are retained, and at most twice as many lost (Theorem 2). O(c log c) time and O(c) space.
    """
    a, b = _two(relations)
    k = _to_retain(relations, retain, delete)
    if isinstance(k, tuple):
        raise SlackwaterError("adg: takes a number of tuples overall; use ndg for a number of each relation")
    size = a + b
    order = np.argsort(-(a * b / np.maximum(size, 1)), kind="stable")
    return ValueCounts(relations.values, _shared_out(a, b, _taken(size, order, k)))


def ndg(
    relations: ValueCounts, *, retain: tuple[int, int] | None = None, delete: tuple[int, int] | None = None
) -> ValueCounts:
    """Retain the tuples of A with the most partners, then those of B with the most left: NDG (SAJ 3.3.1).

    At most twice as many results are lost as by the best choice (Theorem 1). The theorem's other half, that at
    least half the results are retained, does not hold: of A = {1, 2, 3, y, y, y}, B = {1, 2, 3: four each,
    y, y, y} with 3 tuples of each retained, NDG takes 1, 2 and 3 of A and has 3 results where 9 are possible.
    O(c log c) time and O(c) space.
    """
    a, b = _two(relations)
    sizes = _to_retain(relations, retain, delete)
    if not isinstance(sizes, tuple):
        raise SlackwaterError("ndg: takes a pair, the tuples of A and of B; use adg for a number overall")
    of_a = _taken(a, np.argsort(-b, kind="stable"), sizes[0])
    of_b = _taken(b, np.argsort(-of_a, kind="stable"), sizes[1])
    return ValueCounts(relations.values, np.stack([of_a, of_b], axis=1))


def of_each(
    relations: ValueCounts, *, retain: Sequence[int] | None = None, delete: Sequence[int] | None = None
) -> ValueCounts:
    """Retain of each relation the tuples with the most results in the full join, on one common value.

    The best choice is NP-hard for three relations and more (SAJ 3.4). This one loses at most as many times the
    results that the best one loses as there are relations. No bound holds for what is retained: nothing may be.
    O(m c log c) time for m relations.
    """
    sizes = _to_retain_of_each(relations.sizes, retain, delete)
    counts = np.zeros_like(relations.counts)
    for i, size in enumerate(sizes):
        own = relations.counts[:, i]
        others = np.where(own > 0, np.delete(relations.counts, i, axis=1).prod(axis=1), 0)
        counts[:, i] = _taken(own, np.argsort(-others, kind="stable"), size)
    return ValueCounts(relations.values, counts)


def of_each_by_results(
    productive: Sequence[ArrayLike], *, retain: Sequence[int] | None = None, delete: Sequence[int] | None = None
) -> list[NDArray[np.bool_]]:
    """Choose as :func:`of_each` does, for any join: return which tuples of each relation to retain.

    ``productive`` has, for each relation, the number of results that each of its tuples is part of.
    """
    gains = [np.asarray(own) for own in productive]
    masks = []
    for own, size in zip(gains, _to_retain_of_each([len(own) for own in gains], retain, delete), strict=True):
        mask = np.zeros(len(own), np.bool_)
        mask[np.argsort(-own, kind="stable")[:size]] = True
        masks.append(mask)
    return masks


def _taken(available: Int64s, order: Int64s, k: int) -> Int64s:
    """Take ``k`` of what is available, going by ``order``."""
    ordered = available[order]
    taken = np.zeros_like(available)
    taken[order] = np.clip(k - (np.cumsum(ordered) - ordered), 0, ordered)
    return taken


def _shared_out(a: Int64s, b: Int64s, p: Int64s) -> Int64s:
    """Return how many of the ``p`` tuples of each component are A's and B's, by the proof of Lemma 1."""
    fewer = np.minimum(np.minimum(a, b), p // 2)
    return np.stack([np.where(a <= b, fewer, p - fewer), np.where(a <= b, p - fewer, fewer)], axis=1)


def _two(relations: ValueCounts) -> tuple[Int64s, Int64s]:
    if relations.counts.shape[1] != 2:
        raise SlackwaterError(f"relations: must be two here, got {relations.counts.shape[1]}; use of_each")
    return relations.counts[:, 0].copy(), relations.counts[:, 1].copy()


def _check_table(size: int, instead: str) -> None:
    if size > LARGEST:
        raise SlackwaterError(f"optdp: its table would take {size / 2**30:.1f} GiB; use {instead} instead")


def _to_retain(
    relations: ValueCounts, retain: int | tuple[int, int] | None, delete: int | tuple[int, int] | None
) -> int | tuple[int, int]:
    if isinstance(retain, tuple) or isinstance(delete, tuple):
        of_a, of_b = _to_retain_of_each(relations.sizes, cast("Any", retain), cast("Any", delete))
        return of_a, of_b
    overall = (None if k is None else [k] for k in (retain, delete))
    return _to_retain_of_each([sum(relations.sizes)], *overall)[0]


def _to_retain_of_each(
    sizes: Sequence[int], retain: Sequence[int] | None, delete: Sequence[int] | None
) -> list[int]:
    """Return how many tuples are retained of each relation, whichever way it was said."""
    if retain is not None and delete is None:
        name, given = "retain", retain
    elif delete is not None and retain is None:
        name, given = "delete", delete
    else:
        raise SlackwaterError("give either retain or delete, and not both")
    if len(given) != len(sizes):
        raise SlackwaterError(f"{name}: must have {len(sizes)} numbers, one for each relation, got {len(given)}")
    for k, size in zip(given, sizes, strict=True):
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 0 <= k <= size:
            raise SlackwaterError(f"{name}: must be a whole number from 0 to {size}, all tuples, got {k!r}")
    return [int(k) if name == "retain" else size - int(k) for k, size in zip(given, sizes, strict=True)]
