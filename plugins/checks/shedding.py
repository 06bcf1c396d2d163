"""Checks of shedding strategies: scores go by the tuple and by what has been learnt, and by nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, zip_longest
from typing import Any, Final

import numpy as np

from slackwater.plugins.checks import other_process as checks_apart
from slackwater.plugins.checks.frame import checks, same, sample_setting, snapshot_bytes, stored
from slackwater.plugins.checks.observer import (
    PIECES,
    STRETCH,
    Watched,
    at_noon,
    demand_no_growth,
    disturbed,
    growth,
)
from slackwater.plugins.contract import Setting, Tuples

_JOINS: Final = ((2, "a.k = b.k"), (2, "a.v + 1 < b.v"), (3, "a.k = b.k AND b.v = c.v"), (1, None))
"""Inputs and condition of the joins that strategies are asked to score for."""


def sample_tuples(n: int = 50, seed: int = 3, setting: Setting | None = None, first: int = 0) -> Tuples:
    """Tuples of all windows, oldest first, with times and row numbers that no float can hold."""
    rng = np.random.default_rng(seed)
    setting = setting or sample_setting()
    m, far = len(setting.inputs), (1 << 60) + first
    ts = far + np.sort(rng.integers(0, 9, n))
    cells = rng.integers(0, 4, (n, setting.condition.width)) + (1 << 53)
    nulls = rng.integers(0, 2, n).astype(np.uint64)
    seq = (1 << 40) + first + np.arange(n)
    return Tuples(rng.integers(0, m, n).astype(np.int8), ts, ts - far + 1, cells, nulls, seq)


def _cut(tuples: Tuples, which: Any) -> Tuples:
    return Tuples._make(array[which] for array in tuples)


class _Drive:
    """Scores tuples as they arrive, by chunks, and those that are held now and then."""

    def __init__(
        self, strategy: Any, setting: Setting, chunk: int = 1 << 30, restarts: bool = False, seed: int = 3
    ) -> None:
        self._strategy, self._setting, self._restarts, self._seed = strategy, setting, restarts, seed
        self.watched = Watched(strategy, setting)
        self._chunk = chunk
        self.scores: list[Any] = []

    def run(self) -> list[Any]:
        with at_noon():
            for _ in self.pieces():
                pass
            self.watched.settle()
        return self.scores

    def pieces(self, stretches: int = 3, size: int = 60) -> Iterator[None]:
        for stretch in range(stretches):
            first = stretch * size
            arriving = sample_tuples(size, self._seed + stretch, self._setting, first)
            found = [np.empty(0)]
            for start in range(0, size, self._chunk):
                found.append(self.watched.call("observe", _cut(arriving, slice(start, start + self._chunk))))
                if self._restarts:
                    kept = self.watched.snapshot()
                    self.watched.settle()
                    self.watched = Watched(self._strategy, self._setting, stored(kept))
                yield
            held = sample_tuples(40, self._seed + 7, self._setting, first)
            self.scores += [np.concatenate(found), self.watched.call("scores", held)]


def _compare(got: list[Any], expected: list[Any], what: str) -> None:
    for k, (mine, wanted) in enumerate(zip(got, expected, strict=True)):
        same(mine, wanted, f"{'scores of held tuples' if k % 2 else 'scores of arrivals'} {what}")


def _settings() -> list[Setting]:
    return [sample_setting(m, where) for m, where in _JOINS]


def scores_of(strategy: Any) -> list[Any]:
    """Return the scores of the whole sample, for every join."""
    return [scores for setting in _settings() for scores in _Drive(strategy, setting).run()]


@checks("shedding")
def check_shedding_logic_keeps_to_the_contract(strategy: Any) -> None:
    """The logic has all members, of the right types; memory is None or a positive number of tuples."""
    for setting in _settings():
        watched = Watched(strategy, setting)
        _ = watched.logic.memory, watched.logic.nbytes, watched.logic.renewal
        watched.call("bytes_after", 1000)


@checks("shedding")
def check_scores_are_finite_numbers(strategy: Any) -> None:
    """One finite float64 per tuple, also for no tuples; the tuples are left alone."""
    for setting in _settings():
        watched = Watched(strategy, setting)
        for n in (0, 50, 1, 0):
            for method in ("scores", "observe", "scores"):
                watched.call(method, sample_tuples(n, setting=setting))
        watched.settle()


@checks("shedding")
def check_scores_are_of_each_tuple(strategy: Any) -> None:
    """What a tuple is worth depends neither on the others that are asked about, nor on their order, nor on how
    often one asks: ``scores`` learns nothing."""
    rng = np.random.default_rng(1)
    for setting in _settings():
        watched = Watched(strategy, setting)
        watched.call("observe", sample_tuples(60, 5, setting))
        tuples = sample_tuples(40, 6, setting)
        whole = watched.call("scores", tuples)
        order = rng.permutation(40)
        same(watched.call("scores", tuples), whole, "scores, asked for again,")
        same(watched.call("scores", _cut(tuples, order)), whole[order], "scores in another order")
        same(watched.call("scores", _cut(tuples, slice(10, 30))), whole[10:30], "scores of some tuples only")
        watched.settle()


@checks("shedding")
def check_chunking_does_not_change_scores(strategy: Any) -> None:
    """Where the operator cuts its chunks must not show; empty chunks neither."""
    for setting in _settings():
        whole = _Drive(strategy, setting).run()
        for chunk in (1, 7, 30):
            drive = _Drive(strategy, setting, chunk)
            drive.watched.call("observe", sample_tuples(0, setting=setting))
            drive.watched.call("scores", sample_tuples(0, setting=setting))
            _compare(drive.run(), whole, f"by {chunk}")


@checks("shedding")
def check_scores_are_deterministic(strategy: Any) -> None:
    """The same calls give the same scores, whatever the dice, clocks and other logics of the process do."""
    for setting in _settings():
        first = _Drive(strategy, setting).run()
        _compare(_Drive(strategy, setting).run(), first, "of a second run")
        with disturbed():
            _compare(_Drive(strategy, setting).run(), first, "of a run with other clocks and dice")
        one, other = _Drive(strategy, setting, 20), _Drive(strategy, setting, 20, seed=30)
        with at_noon():
            for _ in zip_longest(other.pieces(), one.pieces()):
                pass
        _compare(one.scores, first, "beside another logic")


@checks("shedding")
def check_scores_are_the_same_elsewhere(strategy: Any) -> None:
    """Another process, with other hashes, clocks and dice, comes to the same scores."""
    expected = scores_of(strategy)
    checks_apart.compare(scores_of, (strategy,), lambda got: _compare(got, expected, "in another process"))


@checks("shedding")
def check_shedding_snapshot_resumes_identically(strategy: Any) -> None:
    """A logic built from a snapshot goes on like the one that was stopped, however often."""
    for setting in _settings():
        whole = _Drive(strategy, setting).run()
        for chunk in (60, 11):
            _compare(_Drive(strategy, setting, chunk, restarts=True).run(), whole, "after a restart")


@checks("shedding")
def check_shedding_snapshot_changes_nothing(strategy: Any) -> None:
    """To take a snapshot, and to build from one, changes neither the logic nor the snapshot."""
    for setting in _settings():
        whole = _Drive(strategy, setting).run()
        drive = _Drive(strategy, setting, 20)
        with at_noon():
            for _ in drive.pieces():
                stored(drive.watched.snapshot())
        _compare(drive.scores, whole, "after snapshots")
        kept = stored(drive.watched.snapshot())
        found = []
        for _ in range(2):
            again = _Drive(strategy, setting)
            again.watched = Watched(strategy, setting, kept)
            found.append(again.run())
        _compare(found[1], found[0], "of a second logic from one snapshot")


@checks("shedding")
def check_shedding_state_is_bounded(strategy: Any) -> None:
    """What is learnt does not grow with the stream, where values come again and again."""
    chunk = 10
    drive = _Drive(strategy, sample_setting(), chunk)
    drive.watched.notes = False

    def pieces() -> Iterator[None]:
        for _ in islice(drive.pieces(stretches=PIECES), PIECES):
            drive.scores.clear()
            yield

    def sizes() -> dict[str, int]:
        return {"the snapshot": snapshot_bytes(drive.watched.snapshot()), "nbytes": drive.watched.logic.nbytes}

    with at_noon():
        grown = growth(drive.watched.logic, pieces(), sizes)
    demand_no_growth(grown, chunk * STRETCH)
