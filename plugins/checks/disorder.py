"""Checks of disorder strategies: the same bounds however the stream is cut, stopped and taken up again.

The sample spans several of the strategy's own intervals, so that ``adapt`` is called whatever its options are.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, zip_longest
from typing import Any, NamedTuple

import numpy as np

from slackwater.plugins.checks import other_process as checks_apart
from slackwater.plugins.checks.frame import checks, demand, same, sample_setting, snapshot_bytes, stored
from slackwater.plugins.checks.observer import (
    PIECES,
    STRETCH,
    Watched,
    at_noon,
    demand_no_growth,
    disturbed,
    growth,
)
from slackwater.plugins.contract import NEVER, Arrivals, Feedback, Setting

ROWS = 300
_LOOKS = (100, 190, 191)
"""Arrivals before which ``bounds_at`` is asked; chunks end there."""
_INTERVALS = 6
"""Intervals that the sample spans at least."""
_FAR = 2**9 * 3**4 * 5**6 * 7**2
"""A time far from 0 that is a multiple of most steps."""


def sample_arrivals(n: int = ROWS, m: int = 2, scale: int = 1, seed: int = 7, start: int = 0) -> Arrivals:
    """Rows in arrival order, a third of them delayed, some by a lot; ties within and between inputs.

    Args:
        n: how many.
        m: inputs.
        scale: ticks from one time to the next.
        seed: of the dice.
        start: the time that they are counted from.
    """
    rng = np.random.default_rng(seed)
    delays = rng.choice([0, 0, 0, 0, 1, 3, 12, 40], n)
    inputs = rng.integers(0, m, n).astype(np.int8)
    ts = start + (np.arange(n) // 2 - delays) * scale
    progress, frontier = np.empty(n, np.int64), np.empty(n, np.int64)
    newest = np.full(m, NEVER)
    for k in range(n):
        newest[inputs[k]] = max(newest[inputs[k]], ts[k])
        progress[k], frontier[k] = newest[inputs[k]], newest.min()
    clock = start + np.arange(n) * scale
    watermark = np.where(np.arange(n) % 5 == 0, progress - 10 * scale, NEVER)
    cells, nulls = rng.integers(0, 5, (n, 1)), np.zeros(n, np.uint64)
    return Arrivals(inputs, ts, clock, progress, progress - ts, frontier, watermark, cells, nulls)


def _shown(strategy: Any, logic: Any, arrivals: Arrivals) -> Arrivals:
    """Leave out what the strategy has not asked to see."""
    if strategy.watermark_columns is None:
        arrivals = arrivals._replace(watermark=None)
    if not logic.needs_cells:
        arrivals = arrivals._replace(cells=None, nulls=None)
    return arrivals


def _feedback(arrivals: Arrivals, start: int, stop: int, sheds: bool) -> Feedback:
    """Feedback as if arrivals had reached the join at once, some late, and given one result of four possible."""
    n = stop - start
    late = arrivals.delay[start:stop] > 20
    return Feedback(
        now=int(arrivals.progress[: stop + 1].max()),
        input=arrivals.input[start:stop],
        ts=arrivals.ts[start:stop],
        delay=arrivals.delay[start:stop],
        late=late,
        join_size=(~late).astype(np.int64),
        cross_size=np.where(late, 0.0, 4.0),
        shed_size=np.full(n, 0.125) if sheds else None,
    )


class _Course(NamedTuple):
    """How a stream is cut, and what happens between its chunks."""

    chunk: int = 1 << 30
    restarts: int = 0
    """After so many chunks the logic is stored, and another one goes on; 0 for never."""
    snapshots: bool = False
    """Whether snapshots are taken that nobody uses."""
    empty: bool = False
    """Whether there is an empty chunk before every other."""
    sheds: bool = False
    """Whether feedback tells of results that were lost by shedding."""


class Outcome(NamedTuple):
    bounds: Any
    at: list[Any]
    """What ``bounds_at`` said."""
    report: Any


class Drive:
    """Drives a disorder logic as operators do: chunks, cut where an interval ends, feedback between."""

    def __init__(self, strategy: Any, setting: Setting, arrivals: Arrivals, course: _Course) -> None:
        self._strategy, self._setting, self._arrivals, self._course = strategy, setting, arrivals, course
        self.watched = Watched(strategy, setting)
        self._shown = _shown(strategy, self.watched.logic, arrivals)
        self._bounds: list[Any] = [np.empty(0, np.int64)]
        self._at: list[Any] = []

    def run(self) -> Outcome:
        """Go through the whole stream."""
        with at_noon():
            for _ in self.pieces():
                pass
            return self.outcome()

    def outcome(self) -> Outcome:
        self.watched.settle()
        return Outcome(np.concatenate(self._bounds), self._at, self.watched.call("report"))

    def pieces(self) -> Iterator[None]:
        """Go on by a chunk each time."""
        n, course, shown = self._arrivals.ts.size, self._course, self._shown
        newest = np.maximum.accumulate(self._arrivals.progress)
        interval = self.watched.logic.interval
        due = None if interval is None else int(newest[0]) + interval
        learned = start = count = 0
        while start < n:
            self._between(count)
            if start in _LOOKS:
                self._at.append(self.watched.call("bounds_at", self._reached(start)))
            stop = min(start + course.chunk - start % course.chunk, n, *(k for k in _LOOKS if k > start), n)
            if interval is not None and due is not None:
                if newest[start] >= due:
                    told = _feedback(self._arrivals, learned, start, course.sheds)
                    self.watched.call("adapt", told)
                    learned = start
                    due += (int(newest[start]) - due) // interval * interval + interval
                stop = min(stop, int(np.searchsorted(newest, due)))
            self._bounds.append(self.watched.call("bounds", shown.part(slice(start, stop))))
            start, count = stop, count + 1
            yield

    def forget(self) -> None:
        """Keep nothing of what came so far."""
        self._bounds.clear()
        self._at.clear()

    def _between(self, count: int) -> None:
        course = self._course
        if course.empty:
            self.watched.call("bounds", self._shown.part(slice(0)))
        if course.snapshots:
            stored(self.watched.snapshot())
        if course.restarts and count % course.restarts == course.restarts - 1:
            kept = self.watched.snapshot()
            self.watched.settle()
            self.watched = Watched(self._strategy, self._setting, stored(kept))

    def _reached(self, start: int) -> Any:
        """How far each input has come, the last one with nothing new."""
        progress = np.full(len(self._setting.inputs), NEVER)
        for i in range(max(1, progress.size - 1)):
            mine = np.flatnonzero(self._arrivals.input[:start] == i)
            progress[i] = self._arrivals.progress[mine[-1]] if mine.size else NEVER
        return progress


def _scale(strategy: Any) -> int:
    """Ticks between times of the sample, so that it spans some intervals."""
    interval = strategy.build(sample_setting()).interval
    # What is no interval is for another check to tell.
    return max(1, _INTERVALS * interval * 2 // ROWS) if type(interval) is int else 1


def _run(strategy: Any, course: _Course = _Course(), m: int = 2, start: int = 0) -> Outcome:  # noqa: B008
    arrivals = sample_arrivals(m=m, scale=_scale(strategy), start=start)
    return Drive(strategy, sample_setting(m, None if m != 2 else "a.k = b.k"), arrivals, course).run()


def same_outcome(got: Outcome, expected: Outcome, what: str) -> None:
    """Raise unless two drives came to the same."""
    same(got.bounds, expected.bounds, f"bounds {what}")
    for mine, wanted in zip(got.at, expected.at, strict=True):
        same(mine, wanted, f"bounds_at {what}")
    same(got.report, expected.report, f"report {what}")


@checks("disorder")
def check_disorder_logic_keeps_to_the_contract(strategy: Any) -> None:
    """The logic has all members, of the right types, and an interval that is None or a positive int."""
    Watched(strategy, sample_setting()).call("held_cells")


@checks("disorder")
def check_bounds_shape_and_dtype(strategy: Any) -> None:
    """One int64 bound per arrival, also for no arrivals, of any number of inputs; given arrays are left alone."""
    for n in (ROWS, 1, 0):
        watched = Watched(strategy, sample_setting())
        arrivals = _shown(strategy, watched.logic, sample_arrivals(n, scale=_scale(strategy)))
        watched.call("bounds", arrivals)
        watched.call("slacks", arrivals)
    _run(strategy, _Course(50, sheds=True))
    for m in (1, 3) if not strategy.learns_from_results else (3,):
        _run(strategy, m=m)


@checks("disorder")
def check_bounds_are_not_ahead(strategy: Any) -> None:
    """No input is released further than it has come: what has not arrived would be late by decree."""
    clocked = strategy.reads_clock or strategy.system_clock(sample_setting()) is not None
    if strategy.watermark_columns is not None or clocked:
        # A watermark, or the time of arrival, may say more of an input than its rows.
        return
    for m in (2, 3):
        arrivals = sample_arrivals(m=m, scale=_scale(strategy))
        bounds = _run(strategy, m=m).bounds
        at = np.flatnonzero(bounds > arrivals.progress)
        where = f"arrival {at[0]} has the bound {bounds[at[0]]}" if at.size else ""
        demand(not at.size, f"{where}, and its input has come to {arrivals.progress[at[:1]]}")


@checks("disorder")
def check_bounds_are_deterministic(strategy: Any) -> None:
    """The same arrivals give the same bounds, whatever the dice, clocks and other logics of the process do."""
    first = _run(strategy)
    same_outcome(_run(strategy), first, "of a second run")
    with disturbed():
        same_outcome(_run(strategy), first, "of a run with other clocks and dice")
    scale = _scale(strategy)
    one = Drive(strategy, sample_setting(), sample_arrivals(scale=scale), _Course(20))
    other = Drive(strategy, sample_setting(), sample_arrivals(scale=scale, seed=8), _Course(20))
    with at_noon():
        for _ in zip_longest(other.pieces(), one.pieces()):
            pass
        same_outcome(one.outcome(), first, "beside another logic")


@checks("disorder")
def check_bounds_far_from_zero(strategy: Any) -> None:
    """Times of nanoseconds since 1970 are times like all others: no bit of them is lost."""
    if strategy.clock_nanos is not None:
        # Times of arrival are in another unit then, and do not move with event times.
        return
    interval = strategy.build(sample_setting()).interval or 1
    far = (1 << 60) // (_FAR * interval) * (_FAR * interval)
    near, moved = _run(strategy), _run(strategy, start=far)
    expected = np.where(near.bounds == NEVER, NEVER, near.bounds + far)
    same(moved.bounds, expected, f"bounds of times from {far} on")


@checks("disorder")
def check_bounds_are_the_same_elsewhere(strategy: Any) -> None:
    """Another process, with other hashes, clocks and dice, comes to the same bounds."""
    expected = _run(strategy)
    checks_apart.compare(_run, (strategy,), lambda got: same_outcome(got, expected, "in another process"))


@checks("disorder")
def check_chunking_does_not_change_bounds(strategy: Any) -> None:
    """Where the operator cuts its chunks must not show."""
    whole = _run(strategy)
    for chunk in (1, 7, 64):
        same_outcome(_run(strategy, _Course(chunk)), whole, f"by {chunk}")


@checks("disorder")
def check_disorder_survives_empty_chunk(strategy: Any) -> None:
    """A chunk without arrivals changes nothing."""
    same_outcome(_run(strategy, _Course(25, empty=True)), _run(strategy), "after empty chunks")


@checks("disorder")
def check_disorder_snapshot_resumes_identically(strategy: Any) -> None:
    """A logic built from a snapshot goes on like the one that was stopped, wherever that was and how often."""
    whole = _run(strategy)
    for course in (_Course(150, 1), _Course(20, 3), _Course(11, 1)):
        same_outcome(_run(strategy, course), whole, "after a restart")


@checks("disorder")
def check_disorder_snapshot_changes_nothing(strategy: Any) -> None:
    """To take a snapshot, and to build from one, changes neither the logic nor the snapshot."""
    same_outcome(_run(strategy, _Course(20, snapshots=True)), _run(strategy), "after snapshots")
    arrivals = sample_arrivals(scale=_scale(strategy))
    drive = Drive(strategy, sample_setting(), arrivals.part(slice(0, 90)), _Course())
    drive.run()
    kept = stored(drive.watched.snapshot())
    first, second = (Drive(strategy, sample_setting(), arrivals, _Course(40)) for _ in range(2))
    for again in (first, second):
        again.watched = Watched(strategy, sample_setting(), kept)
        again.run()
    same_outcome(second.outcome(), first.outcome(), "of a second logic from one snapshot")


@checks("disorder")
def check_disorder_state_is_bounded(strategy: Any) -> None:
    """What is held does not grow with the stream."""
    chunk = 10
    arrivals = sample_arrivals(2 * chunk * PIECES, scale=_scale(strategy))
    drive = Drive(strategy, sample_setting(), arrivals, _Course(chunk))
    drive.watched.notes = False

    def pieces() -> Iterator[None]:
        for _ in islice(drive.pieces(), PIECES):
            drive.forget()
            yield

    with at_noon():
        grown = growth(
            drive.watched.logic, pieces(), lambda: {"the snapshot": snapshot_bytes(drive.watched.snapshot())}
        )
    demand_no_growth(grown, chunk * STRETCH)
