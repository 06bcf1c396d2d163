"""Checks of join strategies, against a word-by-word reading of Alg. 2 on small samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from slackwater.plugins.checks import other_process as checks_apart
from slackwater.plugins.checks.frame import checks, demand, same, snapshot_bytes, stored
from slackwater.plugins.checks.observer import (
    PIECES,
    STRETCH,
    Watched,
    at_noon,
    demand_no_growth,
    disturbed,
    growth,
)
from slackwater.plugins.checks.samples import (
    EVICTIONS,
    STREAMS,
    WINDOWS,
    Results,
    Rule,
    Sample,
    Stream,
    brute_force,
    sample_released,
    served,
    useful_of,
)
from slackwater.plugins.contract import UNBOUNDED, Released, Setting


class Course(NamedTuple):
    """How tuples are cut into chunks, and what happens between these."""

    chunk: int = 1 << 30
    restarts: int = 0
    """After so many chunks the logic is stored, and another one goes on; 0 for never."""
    snapshots: bool = False
    """Whether snapshots are taken that nobody uses."""
    evictions: Mapping[int, Rule] = MappingProxyType({})


class Outcome(NamedTuple):
    """What became of one tuple."""

    rows: list[tuple[int, ...]]
    """The seq of every input's member, in the order in which results came."""
    join_size: int
    cross_size: float

    @property
    def results(self) -> Results:
        return Results(self.rows)


class Drive:
    """Steps a join logic through tuples as operators do."""

    def __init__(self, strategy: Any, setting: Setting, released: Released, course: Course = Course()) -> None:  # noqa: B008
        self._strategy, self._setting, self._released, self._course = strategy, setting, released, course
        self.watched = Watched(strategy, setting)
        self.out: list[Outcome] = []
        self.live: dict[int, int] = {}
        """How many tuples were held after so many."""

    def run(self) -> list[Outcome]:
        """Go through all tuples; return what became of each."""
        with at_noon():
            for _ in self.pieces():
                pass
            self.watched.settle()
        return self.out

    def pieces(self) -> Iterator[None]:
        """Go on by a chunk each time."""
        n, course = self._released.ts.size, self._course
        start = count = 0
        while start < n or not count:
            self._between(count)
            if start in course.evictions:
                self.evict(course.evictions[start])
            stop = min(
                start + course.chunk - start % course.chunk, n, *(k for k in course.evictions if k > start), n
            )
            self.out += self.step(self._released.part(slice(start, stop)))
            self.live[stop] = self.watched.call("live")
            start, count = stop, count + 1
            yield

    def step(self, part: Released) -> list[Outcome]:
        """Join some tuples."""
        reorders, at = self.watched.logic.reorders, 0
        found: list[list[tuple[int, ...]]] = [[] for _ in range(part.ts.size)]
        sizes: list[tuple[int, float]] = []
        for run in self.watched.call("step", part):
            demand(reorders or run.stop > run.start, f"a run from {run.start} to {run.stop} covers nothing")
            for k, row in zip(run.probe.tolist(), run.rows.tolist(), strict=True):
                found[k].append(tuple(row))
            sizes += zip(run.join_size.tolist(), run.cross_size.tolist(), strict=True)
            at = run.stop
        same(at, part.ts.size, "tuples covered by the runs of a chunk")
        return [Outcome(rows, *size) for rows, size in zip(found, sizes, strict=True)]

    def evict(self, rule: Rule) -> None:
        """Evict the tuples that a rule names."""
        held = self.watched.call("held")
        victims = [rule(i, seq) for i, seq in zip(held.input.tolist(), held.seq.tolist(), strict=True)]
        self.watched.call("evict", np.array(victims, np.bool_))

    def _between(self, count: int) -> None:
        course = self._course
        if course.snapshots:
            stored(self.watched.snapshot())
        if course.restarts and count % course.restarts == course.restarts - 1:
            kept = self.watched.snapshot()
            self.watched.settle()
            self.watched = Watched(self._strategy, self._setting, stored(kept))


def _same_as_alg2(got: list[Outcome], expected: Any, where: str, counts_only: bool = False) -> None:
    for k, (mine, (rows, cross, _)) in enumerate(zip(got, expected, strict=True)):
        same(mine.results, Results() if counts_only else rows, f"{where}, tuple {k}: results")
        sizes = (mine.join_size, mine.cross_size)
        same(sizes, (rows.total(), cross), f"{where}, tuple {k}: join size and cross size")


def _same_live(drive: Drive, sample: Sample, expected: Any, where: str) -> None:
    """Raise unless as many tuples were held after every chunk as windows hold."""
    for stop, live in () if sample.unique else drive.live.items():
        same(live, expected[stop - 1][2], f"{where}, after tuple {stop - 1}: live()")


def _same_results(got: list[Outcome], expected: list[Outcome], where: str) -> None:
    for k, (mine, wanted) in enumerate(zip(got, expected, strict=True)):
        same(mine.results, wanted.results, f"{where}, tuple {k}: results")
        same(mine[1:], wanted[1:], f"{where}, tuple {k}: join size and cross size")


@checks("join")
def check_join_logic_keeps_to_the_contract(strategy: Any) -> None:
    """The logic has all members, of the right types, before the first tuple too."""
    for _, setting in served(strategy):
        watched = Watched(strategy, setting)
        same(watched.call("live"), 0, "live() of a new logic")
        _ = watched.call("held"), watched.logic.nbytes, watched.snapshot()


@checks("join")
def check_join_matches_brute_force(strategy: Any) -> None:
    """Results, join sizes and cross sizes of every tuple are those of Alg. 2: ties, late tuples and both ends of
    every window included."""
    for windows in WINDOWS:
        for sample, setting in served(strategy, windows=windows):
            if windows != WINDOWS[0] and UNBOUNDED in setting.windows:
                continue
            for stream in STREAMS:
                released = sample_released(setting, stream=stream)
                expected, _ = brute_force(setting, sample, released)
                got = Drive(strategy, setting, released).run()
                _same_as_alg2(got, expected, f"where {sample.where}, windows {setting.windows}")


@checks("join")
def check_counts_match_rows(strategy: Any) -> None:
    """With ``counts_only`` there are no rows, and the join sizes are the same, whatever the chunks."""
    for sample, setting in served(strategy, counts_only=True):
        released = sample_released(setting)
        expected, _ = brute_force(setting, sample, released)
        for course in (Course(), Course(17, 2)):
            got = Drive(strategy, setting, released, course).run()
            _same_as_alg2(got, expected, f"counts where {sample.where}", counts_only=True)


@checks("join")
def check_chunking_does_not_change_results(strategy: Any) -> None:
    """Where the operator cuts its chunks must not show; empty chunks neither."""
    for sample, setting in served(strategy):
        released = sample_released(setting)
        whole = Drive(strategy, setting, released).run()
        for chunk in (1, 13):
            drive = Drive(strategy, setting, released, Course(chunk))
            drive.step(released.part(slice(0)))
            _same_results(drive.run(), whole, f"where {sample.where}, by {chunk}")
            drive.step(released.part(slice(0)))


@checks("join")
def check_join_state_is_bounded(strategy: Any) -> None:
    """What is held does not grow with the stream where windows do not, whatever becomes of tuples."""
    chunk = 10
    for sample, setting in served(strategy):
        if UNBOUNDED in setting.windows or sample.m > 2 or sample.where is None:
            continue
        drive = Drive(strategy, setting, _long_stream(setting, chunk * PIECES), Course(chunk))
        drive.watched.notes = False
        demand_no_growth(_growth(drive), chunk * STRETCH)


def _long_stream(setting: Setting, rows: int) -> Released:
    """Tuples whose keys move on with time, some late, some null, some that nothing matches."""
    released = sample_released(setting, rows, stream=Stream(3, True, 4))
    for i, columns in enumerate(setting.condition.columns):
        for c, cell in enumerate(columns):
            mine = released.input == i
            if cell.column == "k":
                released.cells[mine, c] += 5 * (released.ts[mine] // 7)
    return released


def _growth(drive: Drive) -> dict[str, list[int]]:
    """Return by how many bytes memory, snapshot and nbytes grow; now and then tuples are evicted."""

    def pieces() -> Iterator[None]:
        for n, _ in enumerate(drive.pieces()):
            drive.out.clear()
            if n % 10 == 5:
                drive.evict(lambda i, seq: seq % 2 == 0)
            yield

    def sizes() -> dict[str, int]:
        return {"the snapshot": snapshot_bytes(drive.watched.snapshot()), "nbytes": drive.watched.logic.nbytes}

    with at_noon():
        return growth(drive.watched.logic, pieces(), sizes)


@checks("join")
def check_held_and_evict(strategy: Any) -> None:
    """``held`` is what windows hold, as it came, ``live`` their number; what is evicted is in no later result."""
    for windows in WINDOWS[:2]:
        for sample, setting in served(strategy, windows=windows):
            where = f"where {sample.where}"
            if windows != WINDOWS[0] and UNBOUNDED in setting.windows:
                continue
            for stream in STREAMS if windows == WINDOWS[0] else STREAMS[1:2]:
                released = sample_released(setting, nulls=False, stream=stream)
                for size in (30, 60):
                    drive = Drive(strategy, setting, released.part(slice(0, size)), Course(15))
                    drive.run()
                    _check_held(drive, sample, setting, released.part(slice(0, size)), where)
                expected, _ = brute_force(setting, sample, released, EVICTIONS)
                for course in (Course(5, evictions=EVICTIONS), Course(15, 1, evictions=EVICTIONS)):
                    drive = Drive(strategy, setting, released, course)
                    for k, (mine, (rows, _, _)) in enumerate(zip(drive.run(), expected, strict=True)):
                        same(mine.results, rows, f"{where}, tuple {k}: results after evict")
                    _same_live(drive, sample, expected, f"{where}, with evictions")


def _check_held(drive: Drive, sample: Sample, setting: Setting, released: Released, where: str) -> None:
    _, windows = brute_force(setting, sample, released)
    held, live = drive.watched.call("held"), drive.watched.call("live")
    tuples = list(zip(held.input.tolist(), held.seq.tolist(), strict=True))
    if sample.unique:
        useful = useful_of(windows, released)
        demand(useful <= set(tuples) <= windows, f"{where}: tuples held of a one-to-many join")
    else:
        same(sorted(tuples), sorted(windows), f"{where}: tuples held")
    same(live, len(tuples), f"{where}: live()")
    at = {who: k for k, who in enumerate(zip(released.input.tolist(), released.seq.tolist(), strict=True))}
    came = np.array([at[who] for who in tuples], np.int64)
    same(held.ts, released.ts[came], f"{where}: Held.ts")
    same(held.nulls, released.nulls[came], f"{where}: Held.nulls")
    for n, (i, k) in enumerate(zip(held.input.tolist(), came.tolist(), strict=True)):
        used = len(setting.condition.columns[i])
        same(held.cells[n, :used], released.cells[k, :used], f"{where}: Held.cells of tuple {k}")


@checks("join")
def check_join_snapshot_resumes_identically(strategy: Any) -> None:
    """A logic built from a snapshot goes on like the one that was stopped, wherever that was and how often."""
    for sample, setting in served(strategy):
        for stream in STREAMS[:2]:
            released = sample_released(setting, stream=stream)
            expected, _ = brute_force(setting, sample, released)
            for course in (Course(60, 1), Course(7, 3), Course(1, 5)):
                drive = Drive(strategy, setting, released, course)
                _same_as_alg2(drive.run(), expected, f"after a restart, where {sample.where}")
                _same_live(drive, sample, expected, f"after a restart, where {sample.where}")


@checks("join")
def check_join_snapshot_changes_nothing(strategy: Any) -> None:
    """To take a snapshot, and to build from one, changes neither the logic nor the snapshot."""
    for sample, setting in served(strategy):
        released, where = sample_released(setting), f"where {sample.where}"
        whole = Drive(strategy, setting, released).run()
        drive = Drive(strategy, setting, released.part(slice(0, 60)), Course(20, snapshots=True))
        got, kept = drive.run(), stored(drive.watched.snapshot())
        _same_results(got, whole[:60], f"{where}, after snapshots")
        for _ in range(2):
            again = Drive(strategy, setting, released.part(slice(60, 120)), Course(20))
            again.watched = Watched(strategy, setting, kept)
            _same_results(again.run(), whole[60:], f"{where}, of one of two logics from one snapshot")


@checks("join")
def check_results_are_deterministic(strategy: Any) -> None:
    """The same calls give the same results in the same order, whatever the dice, clocks and other logics do."""
    for sample, setting in served(strategy):
        released, where = sample_released(setting), f"where {sample.where}"
        first = Drive(strategy, setting, released, Course(20)).run()
        with disturbed():
            got = Drive(strategy, setting, released, Course(20)).run()
        same(got, first, f"{where}, results of a run with other clocks and dice")
        one = Drive(strategy, setting, released, Course(20))
        other = Drive(strategy, setting, sample_released(setting, stream=STREAMS[1]), Course(20))
        for _ in zip_longest(other.pieces(), one.pieces()):
            pass
        same(one.out, first, f"{where}, results beside another logic")


def results_of(strategy: Any) -> list[list[Outcome]]:
    """Return what becomes of the tuples of every sample join."""
    return [Drive(strategy, s, sample_released(s), Course(40)).run() for _, s in served(strategy)]


@checks("join")
def check_results_are_the_same_elsewhere(strategy: Any) -> None:
    """Another process, with other hashes, clocks and dice, comes to the same results in the same order."""
    expected = results_of(strategy)
    checks_apart.compare(results_of, (strategy,), lambda got: same(got, expected, "results in another process"))
