"""Checks of join strategies that make use of punctuations; for others there is nothing to check.

The sample's values move on with time, and inputs punctuate most of them some time after the last tuple that has
them: the promises are kept, so results must be those of a join that knows nothing of punctuations.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from slackwater.plugins.checks.frame import checks, demand, same, stored
from slackwater.plugins.checks.observer import Watched
from slackwater.plugins.checks.samples import Results, Sample, brute_force, cut, sample_released, served
from slackwater.plugins.contract import Bools, JoinLogic, Pattern, Punctuations, Released, Setting
from slackwater.plugins.guard.adoption import lacking
from slackwater.plugins.guard.calls import guarded


class _Case(NamedTuple):
    sample: Sample
    setting: Setting
    released: Released
    punctuations: Punctuations


class _Outcome(NamedTuple):
    results: list[Results]
    """Of each tuple."""
    join_sizes: list[int]
    finished: list[tuple[int, int, tuple[int, ...], tuple[int, ...]]]
    """Tuples before, time, key classes, values."""


def sample_punctuations(setting: Setting, released: Released) -> Punctuations:
    """Punctuations that the tuples keep: of each pattern, those of most values, where the time has moved on."""
    rng = np.random.default_rng(5)
    n = released.ts.size
    newest = np.maximum.accumulate(released.ts)
    moves = np.append(np.flatnonzero(newest[1:] > newest[:-1]) + 1, n)
    found = []
    for number, (which, (cell,), _) in enumerate(setting.patterns):
        known = _known(released, which, cell)
        for value in np.unique(released.cells[known, cell]):
            last = int(np.flatnonzero(known & (released.cells[:, cell] == value))[-1])
            places = moves[moves > last]
            if rng.random() < 0.8:
                place = int(places[min(int(rng.integers(0, 6)), len(places) - 1)])
                found.append((place, int(newest[place - 1]), number, int(value)))
    at, ts, pattern, low = (np.array(column, np.int64) for column in zip(*sorted(found), strict=True))
    return Punctuations(at, ts, pattern.astype(np.int8), low.reshape(-1, 1), np.zeros_like(at))


def _known(released: Released, which: int, cell: int) -> Bools:
    """Which tuples are of an input and have a value in a cell."""
    return (released.input == which) & ((released.nulls >> np.uint64(cell)) & np.uint64(1) == 0)


def _cases(strategy: Any, counts_only: bool = False) -> Iterator[_Case]:
    """The sample joins on k that the strategy serves, if it makes use of punctuations, with these."""
    for sample, plain in served(strategy, counts_only):
        members = next((c for c in plain.condition.classes if len(c) == sample.m), None)
        if members is None:
            continue
        setting = plain._replace(patterns=tuple(Pattern(i, (cell,), False) for i, cell in members.items()))
        if guarded(strategy, setting).uses_punctuations:
            released = sample_released(setting)
            for i, cell in () if sample.unique else members.items():
                mine = released.input == i
                released.cells[mine, cell] += released.ts[mine] // 6
            yield _Case(sample, setting, released, sample_punctuations(setting, released))


def _stepped(logic: Watched, case: _Case, start: int, stop: int, chunk: int = 1 << 30) -> _Outcome:
    """Step through tuples and punctuations by chunks; each punctuation comes with the tuple it stands before."""
    out = _Outcome([], [], [])
    n, given = case.released.ts.size, case.punctuations
    for first in range(start, stop, chunk):
        last = min(first + chunk, stop)
        now = (given.at >= first) & ((given.at < last) | (last == n))
        coming = Punctuations._make(array[now].copy() for array in given)._replace(at=given.at[now] - first)
        part = cut(case.released, first, last)
        out.results.extend(Results() for _ in range(first, last))
        at = 0
        for run in logic.call("punctuated_step", part, coming):
            same(run.start, at, "start of a run")
            for row, k in zip(run.rows, run.probe, strict=True):
                out.results[first - start + int(k)][tuple(int(seq) for seq in row)] += 1
            out.join_sizes.extend(int(size) for size in run.join_size)
            at = run.stop
            if run.finished is not None:
                told = run.finished
                for place, ts, values in zip(told.at, told.ts, told.values, strict=True):
                    found = (first + int(place), int(ts), tuple(told.classes), tuple(map(int, values)))
                    out.finished.append(found)
        same(at, last - first, "tuples covered by the runs of a chunk with punctuations")
    return out


@checks("join")
def check_punctuated_logic_keeps_to_the_contract(strategy: Any) -> None:
    """A logic with ``punctuated_step`` has all that goes with it."""
    for case in _cases(strategy):
        lacks = lacking(Watched(strategy, case.setting).logic.logic, JoinLogic, ("held_cells",))
        demand(not lacks, f"the logic lacks {', '.join(lacks)}")


@checks("join")
def check_punctuations_change_no_result(strategy: Any) -> None:
    """Tuples that keep what punctuations say give the results of Alg. 2, and no more than its tuples are held."""
    for counts_only in (False, True):
        for case in _cases(strategy, counts_only):
            where = f"where {case.sample.where}, with punctuations"
            logic = Watched(strategy, case.setting)
            got = _stepped(logic, case, 0, case.released.ts.size)
            expected, windows = brute_force(case.setting, case.sample, case.released)
            for k, (rows, _, _) in enumerate(expected):
                same(got.results[k], Results() if counts_only else rows, f"{where}, tuple {k}: results")
                same(got.join_sizes[k], rows.total(), f"{where}, tuple {k}: join size")
            held = logic.call("held")
            kept = {(int(i), int(seq)) for i, seq in zip(held.input, held.seq, strict=True)}
            same(sorted(kept - windows), [], f"{where}: tuples held that no window holds")


@checks("join")
def check_finished_values_are_in_no_later_result(strategy: Any) -> None:
    """What is passed on as finished is true: of tuples that come after it, and of times after its own."""
    for case in _cases(strategy):
        released = case.released
        expected, _ = brute_force(case.setting, case.sample, released)
        got = _stepped(Watched(strategy, case.setting), case, 0, released.ts.size)
        for at, ts, classes, values in got.finished:
            members = [case.setting.condition.classes[c] for c in classes]
            for k, (rows, _, _) in enumerate(expected):
                own = [released.cells[k, m[int(released.input[k])]] for m in members]
                later = k >= at or released.ts[k] > ts
                what = f"{values} was finished after {at} tuples, at {ts}, but is in a result of tuple {k}"
                demand(not (rows and later and tuple(own) == values), f"where {case.sample.where}: {what}")


@checks("join")
def check_tuples_that_contradict_are_told(strategy: Any) -> None:
    """A logic that ``judges`` tells of tuples whose value their input has punctuated, and does not join them."""
    for case in _cases(strategy):
        logic = Watched(strategy, case.setting)
        judges = logic.logic.judges
        if judges is None:
            continue
        released, given = case.released, case.punctuations
        _stepped(logic, case, 0, released.ts.size)
        none = Punctuations._make(array[:0] for array in given)
        for number, (value,) in zip(given.pattern, given.low, strict=True):
            which, (cell,), _ = case.setting.patterns[number]
            last = np.flatnonzero(_known(released, which, cell) & (released.cells[:, cell] == value))[-1:]
            again = released._replace(ts=np.full_like(released.ts, released.ts.max()), late=released.late & False)
            before = logic.call("live")
            runs = logic.call("punctuated_step", Released._make(array[last] for array in again), none)
            told = [run.contradicts is not None and bool(run.contradicts.any()) for run in runs]
            where = f"where {case.sample.where}: a tuple that contradicts"
            same(any(told), bool(judges[number]), f"{where}: is told")
            if any(told):
                same(sum(int(run.join_size.sum()) for run in runs), 0, f"{where}: results")
                same(logic.call("live"), before, f"{where}: tuples held with it")


@checks("join")
def check_chunking_does_not_change_what_punctuations_do(strategy: Any) -> None:
    """Where the operator cuts its chunks shows neither in results nor in finished values."""
    for case in _cases(strategy):
        n = case.released.ts.size
        logic = Watched(strategy, case.setting)
        whole, reorders = _stepped(logic, case, 0, n), logic.logic.reorders
        for chunk in (1, 13):
            got = _stepped(Watched(strategy, case.setting), case, 0, n, chunk)
            _same_outcome(got, whole, f"where {case.sample.where}, with punctuations, by {chunk}", reorders)


@checks("join")
def check_punctuated_snapshot_resumes_identically(strategy: Any) -> None:
    """A logic built from a snapshot knows the punctuations that came before."""
    for case in _cases(strategy):
        n = case.released.ts.size
        for stop in (n // 3, n // 2, 3 * n // 4):
            logic = Watched(strategy, case.setting)
            _stepped(logic, case, 0, stop)
            resumed = Watched(strategy, case.setting, stored(logic.snapshot()))
            where = f"where {case.sample.where}, with punctuations, after a restart"
            _same_outcome(_stepped(resumed, case, stop, n), _stepped(logic, case, stop, n), where)


def _same_outcome(got: _Outcome, expected: _Outcome, where: str, reorders: bool = False) -> None:
    same(got.results, expected.results, f"{where}: results")
    same(got.join_sizes, expected.join_sizes, f"{where}: join sizes")
    told, wanted = (sorted(outcome.finished) for outcome in (got, expected))
    if reorders:
        # Such a logic has an order of its own within a step, and may tell at its end.
        told, wanted = (sorted((0, *found[1:]) for found in outcome) for outcome in (told, wanted))
    same(told, wanted, f"{where}: finished values")
