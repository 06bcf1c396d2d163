"""Checks of join strategies that keep to a memory limit, or to the disk; for others there is nothing to check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from slackwater.plugins.checks.frame import checks, demand, same
from slackwater.plugins.checks.observer import Watched
from slackwater.plugins.checks.samples import Results, brute_force, cut, sample_released, served
from slackwater.plugins.contract import Int64s, Keep, Released, Setting, Snapshot, Stored
from slackwater.plugins.guard.calls import guarded

_LIMIT = 12
_TUPLES = 120
_ROWS = 5
"""Rows of a window, where windows are of rows."""
_BESIDE = 1024
"""Bytes that do not depend on how many tuples are held."""


class _Kept(NamedTuple):
    """What a join under a limit did."""

    results: list[Results]
    """Of each tuple."""
    evicted: list[tuple[int, int]]
    """Input and seq, sorted."""
    live: list[int]


def _limited(strategy: Any, rows: bool = False) -> Iterator[tuple[Any, Setting]]:
    """The sample joins of a strategy that keeps to limits; with windows of rows if they are asked for."""
    for sample, setting in served(strategy):
        if rows:
            setting = setting._replace(rows=(_ROWS,) * sample.m, windows=(1 << 61,) * sample.m)
        if not sample.unique and guarded(strategy, setting).keeps_limit:
            yield sample, setting


def _keep(logic: Watched, released: Released, limit: int, chunk: int = 1 << 30) -> _Kept:
    """Step through tuples under a limit, with scores by row number."""
    out = _Kept([Results() for _ in released.ts], [], [])
    for start in range(0, released.ts.size, chunk):
        part = cut(released, start, min(start + chunk, released.ts.size))
        n = part.ts.size
        scores = (part.seq * 7 % 11).astype(np.float64)
        held = np.empty(0) if start == 0 else None
        keep = Keep(scores, held, np.full((n, 1), limit), np.empty(n, np.int64))
        if start == 0:
            logic.call("held")
        for run in logic.call("limited_step", part, keep):
            for row, k in zip(run.rows, run.probe, strict=True):
                out.results[start + int(k)][tuple(int(seq) for seq in row)] += 1
            if run.evicted is not None:
                out.evicted.extend(zip(run.evicted.input.tolist(), run.evicted.seq.tolist(), strict=True))
        out.live.extend(logic.written.tolist())
    logic.settle()
    return out._replace(evicted=sorted(out.evicted))


@checks("join")
def check_a_limit_that_is_never_reached_changes_no_result(strategy: Any) -> None:
    """With room for all, ``limited_step`` gives the results of Alg. 2 and evicts nothing."""
    for sample, setting in _limited(strategy):
        released = sample_released(setting, _TUPLES)
        logic = Watched(strategy, setting)
        got = _keep(logic, released, _TUPLES)
        expected, windows = brute_force(setting, sample, released)
        where = f"where {sample.where}, with room for all"
        for k, (rows, _, live) in enumerate(expected):
            same(got.results[k], rows, f"{where}, tuple {k}: results")
            same(got.live[k], live, f"{where}, tuple {k}: Keep.live")
        same(got.evicted, [], f"{where}: evicted")
        same(logic.call("live"), len(windows), f"{where}: live()")


@checks("join")
def check_a_limit_is_kept_tuple_by_tuple(strategy: Any) -> None:
    """Under a limit, no more are held than may be, no result is new, and chunks do not show."""
    for sample, setting in _limited(strategy):
        released = sample_released(setting, _TUPLES)
        expected, windows = brute_force(setting, sample, released)
        where = f"where {sample.where}, with room for {_LIMIT}"
        whole = _keep(Watched(strategy, setting), released, _LIMIT)
        demand(max(whole.live) <= _LIMIT, f"{where}: {max(whole.live)} tuples were held")
        for k, (rows, _, _) in enumerate(expected):
            same(whole.results[k] - rows, Results(), f"{where}, tuple {k}: results that Alg. 2 does not find")
        demand(len(windows) <= _LIMIT or whole.evicted, f"{where}: nothing was evicted")
        twice = [who for who, n in Counter(whole.evicted).items() if n > 1]
        same(twice, [], f"{where}: tuples evicted twice")
        for chunk in (1, 13):
            got = _keep(Watched(strategy, setting), released, _LIMIT, chunk)
            same(got.results, whole.results, f"{where}, by {chunk}: results")
            same(got.evicted, whole.evicted, f"{where}, by {chunk}: evicted")
            same(got.live, whole.live, f"{where}, by {chunk}: Keep.live")


@checks("join")
def check_bytes_for_is_enough(strategy: Any) -> None:
    """Where the strategy ``knows_bytes``, a logic that was told how many will ``fit`` takes what it has said."""
    for sample, setting in _limited(strategy) if strategy.knows_bytes else ():
        released = sample_released(setting, _TUPLES)
        logic = Watched(strategy, setting)
        logic.call("fit", _LIMIT, 1)
        told = logic.call("bytes_for", _LIMIT, 1)
        more = logic.call("bytes_for", 100 * _LIMIT, 1)
        demand(told <= more, f"bytes_for {_LIMIT} tuples is {told}, and {more} for a hundred times as many")
        _keep(logic, released, _LIMIT)
        taken, where = logic.logic.nbytes, f"where {sample.where}, with room for {_LIMIT}"
        demand(taken <= told + _BESIDE, f"{where}: nbytes is {taken}, and bytes_for said {told}")


@checks("join")
def check_lifetimes_are_rows_that_tuples_stay(strategy: Any) -> None:
    """In windows of rows, ``lifetimes`` says for how many more rows of its input each tuple held stays."""
    for sample, setting in _limited(strategy, rows=True) if strategy.takes_rows else ():
        released = sample_released(setting, _TUPLES)._replace(late=np.zeros(_TUPLES, np.bool_))
        released = released._replace(ts=np.sort(released.ts))
        logic = Watched(strategy, setting)
        _keep(logic, released, _TUPLES)
        held = logic.call("held")
        came = [released.seq[released.input == i] for i in range(sample.m)]
        after = [np.count_nonzero(came[i] > seq) for i, seq in zip(held.input, held.seq, strict=True)]
        same(logic.call("lifetimes"), _ROWS - 1 - np.array(after, np.int64), f"where {sample.where}: lifetimes")


class _Rows(NamedTuple):
    """Rows as a disk gives them, known by their seq."""

    seq: Int64s

    @property
    def num_rows(self) -> int:
        return int(self.seq.size)

    def take(self, at: Any) -> _Rows:
        return _Rows(self.seq[at])


class _MemoryDisk:
    """A disk for sample joins, in memory; cells have no texts, so that words are cells."""

    def __init__(self, released: Released) -> None:
        self._released = released
        self._parts: dict[tuple[int, int], list[Stored]] = {}
        self.nbytes = 0

    def row_bytes(self) -> float:
        return 100.0

    def lasting(self, which: int, cells: Int64s, columns: list[int]) -> Int64s:
        return np.ascontiguousarray(cells[:, columns])

    def write(self, which: int, partitions: Int64s, seqs: Int64s, notes: Int64s) -> None:
        for k, partition in enumerate(partitions.tolist()):
            stored = self.in_memory(which, seqs[k : k + 1], notes[k : k + 1])
            self._parts.setdefault((which, partition), []).append(stored)
        self.nbytes += 100 * len(seqs)

    def rewrite(self, which: int, partition: int, kept: Iterable[Stored]) -> None:
        self._parts[which, partition] = list(kept)

    def values(self, which: int, cell: int, words: Int64s) -> Any:
        return words.copy()

    def words(self, which: int, cell: int, values: Any) -> Int64s:
        return np.asarray(values, np.int64)

    def reader(self) -> _MemoryDisk:
        return self

    def blocks(self, which: int, partition: int, size: int) -> Iterator[Stored]:
        yield from list(self._parts.get((which, partition), []))

    def in_memory(self, which: int, seqs: Int64s, notes: Int64s) -> Stored:
        place = {int(seq): k for k, seq in enumerate(self._released.seq) if self._released.input[k] == which}
        at = np.array([place[int(seq)] for seq in seqs], np.int64)
        return Stored(_Rows(seqs.copy()), notes.copy(), self._released.cells[at], self._released.nulls[at])

    def keep(self, which: int, cells: Int64s) -> None:
        """Nothing is encoded."""

    def snapshot(self) -> Snapshot:
        return {}

    def restore(self, snapshot: Snapshot) -> None:
        """Nothing was written."""

    def close(self) -> None:
        self._parts.clear()


@checks("join")
def check_the_disk_changes_no_result(strategy: Any) -> None:
    """With a disk, results that come later and those that come at once are together those of Alg. 2."""
    for sample, setting in served(strategy):
        logic = Watched(strategy, setting)
        if not logic.logic.uses_disk:
            continue
        released, found = sample_released(setting, _TUPLES), Results()
        demand(logic.logic.directory is None or logic.logic.directory, "directory is an empty text")
        logic.logic.use_disk(_MemoryDisk(released))
        runs = [
            run for start in range(0, _TUPLES, 7) for run in logic.call("step", cut(released, start, start + 7))
        ]
        spilled, owes = logic.logic.spilled, logic.call("owes")
        for run in (*runs, *logic.logic.finish()):
            found.update(tuple(row) for row in run.rows.tolist())
            if run.settled is not None:
                members = [batch.seq.tolist() for batch in run.settled.rows or ()]
                found.update(zip(*members, strict=True))
        expected, _ = brute_force(setting, sample, released)
        where = f"where {sample.where}, with a disk that {spilled} tuples went to"
        same(found, sum((rows for rows, _, _ in expected), Results()), f"{where}: results")
        demand(spilled or not owes, f"{where}: results are owed")
