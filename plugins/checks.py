"""The conformance suite for strategies: what the operator takes for granted, as small named checks.

In the tests of a plugin, three lines are enough::

    @pytest.mark.parametrize(("name", "check"), checks_for(MyStrategy(slack="1s")))
    def test_conformance(name, check):
        check()

A check that fails raises CheckFailed with the strategy, the check and what differed. A join strategy that
serves some joins only (two inputs, keys only) says so by raising ValueError from ``build``; the checks then
use those it serves. The built-in strategies pass the same checks.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from slackwater.plugins import checks_join, checks_punctuated
from slackwater.plugins.checks_frame import (
    CHECKS,
    CheckFailed,
    Differs,
    checks,
    demand,
    has_members,
    same,
    sample_setting,
    stored,
)
from slackwater.plugins.contract import (
    NEVER,
    Arrivals,
    DisorderLogic,
    Feedback,
    SheddingLogic,
    Strategy,
    Tuples,
)
from slackwater.plugins.options import Memory, MemoryLimit

__all__ = [
    "CHECKS",
    "CheckFailed",
    "check_strategy",
    "checks_for",
    "checks_join",
    "checks_punctuated",
    "sample_setting",
]


def checks_for(strategy: Strategy) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield (name, check) for every check that applies to ``strategy``, ready to be called."""
    for check in CHECKS["any"] + CHECKS.get(strategy.stage, []):
        yield check.__name__, partial(check, strategy)


def check_strategy(strategy: Strategy) -> None:
    """Run every check that applies to ``strategy``; raise CheckFailed at the first that fails."""
    for _, check in checks_for(strategy):
        check()


# Any stage


@checks("any")
def check_has_name_and_purpose(strategy: Strategy) -> None:
    """The name can stand in a template, and the docstring starts with a line that says what it is for."""
    demand(re.fullmatch("[a-z][a-z0-9_]*", strategy.name), f"the name {strategy.name!r} must be lower_case")
    demand((type(strategy).__doc__ or "").strip(), "the class has no docstring; its first line is the purpose")


@checks("any")
def check_options_are_frozen(strategy: Strategy) -> None:
    """Options are shared by all shards, so nobody may change them."""
    for option, value in strategy:
        try:
            setattr(strategy, option, value)
        except (ValueError, AttributeError):
            continue
        raise Differs(f"option {option!r} can be changed; keep model_config of the base class")


@checks("any")
def check_options_survive_a_template(strategy: Strategy) -> None:
    """Options can be written as plain JSON values and read back."""
    same(type(strategy).model_validate(strategy.model_dump(mode="json")), strategy, "options read back")


@checks("any")
def check_options_travel_to_workers(strategy: Strategy) -> None:
    """Options can be pickled: engines send them to their workers."""
    same(pickle.loads(pickle.dumps(strategy)), strategy, "options after pickling")  # noqa: S301


# Disorder


def sample_arrivals(n: int = 300, m: int = 2) -> Arrivals:
    """Rows in arrival order, a third of them delayed, some by a lot; ties within and between inputs."""
    rng = np.random.default_rng(7)
    delays = rng.choice([0, 0, 0, 0, 1, 3, 12, 40], n)
    inputs = rng.integers(0, m, n).astype(np.int8)
    ts = np.arange(n) // 2 - delays
    progress, frontier = np.empty(n, np.int64), np.empty(n, np.int64)
    newest = np.full(m, NEVER)
    for k in range(n):
        newest[inputs[k]] = max(newest[inputs[k]], ts[k])
        progress[k], frontier[k] = newest[inputs[k]], newest.min()
    watermark = np.where(np.arange(n) % 5 == 0, progress - 10, NEVER)
    cells, nulls = rng.integers(0, 5, (n, 1)), np.zeros(n, np.uint64)
    return Arrivals(inputs, ts, np.arange(n), progress, progress - ts, frontier, watermark, cells, nulls)


def _part(arrivals: Arrivals, start: int, stop: int) -> Arrivals:
    arrays: Any = (array if array is None else array.copy() for array in arrivals.part(slice(start, stop)))
    return Arrivals(*arrays)


def _feedback(arrivals: Arrivals, start: int, stop: int) -> Feedback:
    """Feedback as if every arrival had reached the join at once and given one result of four possible."""
    n = stop - start
    return Feedback(
        now=int(arrivals.progress[: stop + 1].max()),
        input=arrivals.input[start:stop].copy(),
        ts=arrivals.ts[start:stop].copy(),
        delay=arrivals.delay[start:stop].copy(),
        late=np.zeros(n, np.bool_),
        join_size=np.ones(n, np.int64),
        cross_size=np.full(n, 4.0),
    )


def _bounds(logic: DisorderLogic, arrivals: Arrivals, chunk: int) -> Any:
    """Drive a disorder logic as the operator does: chunks, cut where the interval ends, feedback between."""
    out: list[Any] = [np.empty(0, np.int64)]
    newest = np.maximum.accumulate(arrivals.progress)
    interval = logic.interval
    due = None if interval is None else int(newest[0]) + interval
    learned = start = 0
    while start < newest.size:
        stop = min(start + chunk - start % chunk, newest.size)
        if interval is not None and due is not None:
            if newest[start] >= due:
                logic.adapt(_feedback(arrivals, learned, start))
                learned = start
                due += (int(newest[start]) - due) // interval * interval + interval
            stop = min(stop, int(np.searchsorted(newest, due)))
        out.append(logic.bounds(_part(arrivals, start, stop)))
        start = stop
    return np.concatenate(out)


@checks("disorder")
def check_disorder_logic_keeps_to_the_contract(strategy: Any) -> None:
    """The logic has all members, and an interval that is None or a positive number of ticks."""
    logic = strategy.build(sample_setting())
    has_members(logic, DisorderLogic)
    interval = logic.interval
    demand(
        interval is None or (isinstance(interval, int) and interval > 0),
        f"interval must be None or a positive int, got {interval!r}",
    )


@checks("disorder")
def check_bounds_shape_and_dtype(strategy: Any) -> None:
    """One int64 bound per arrival, also for no arrivals."""
    for n in (300, 1, 0):
        arrivals = sample_arrivals(n)
        bounds = strategy.build(sample_setting()).bounds(arrivals)
        demand(isinstance(bounds, np.ndarray), f"bounds must be an array, got {type(bounds).__name__}")
        same(bounds.dtype, np.dtype(np.int64), "type of bounds")
        same(bounds.shape, (n,), "shape of bounds")


@checks("disorder")
def check_arrivals_are_left_alone(strategy: Any) -> None:
    """The arrays given to ``bounds`` belong to the operator."""
    arrivals, untouched = sample_arrivals(), sample_arrivals()
    strategy.build(sample_setting()).bounds(arrivals)
    for name, array in arrivals._asdict().items():
        same(array, getattr(untouched, name), f"arrivals.{name} after the call")


@checks("disorder")
def check_bounds_are_deterministic(strategy: Any) -> None:
    """The same arrivals give the same bounds."""
    first, second = (_bounds(strategy.build(sample_setting()), sample_arrivals(), 300) for _ in range(2))
    same(second, first, "bounds of a second run")


@checks("disorder")
def check_chunking_does_not_change_bounds(strategy: Any) -> None:
    """Where the operator cuts its chunks must not show."""
    whole = _bounds(strategy.build(sample_setting()), sample_arrivals(), 300)
    for chunk in (1, 7, 64):
        same(_bounds(strategy.build(sample_setting()), sample_arrivals(), chunk), whole, f"bounds by {chunk}")


@checks("disorder")
def check_disorder_survives_empty_chunk(strategy: Any) -> None:
    """A chunk without arrivals changes nothing."""
    whole = _bounds(strategy.build(sample_setting()), sample_arrivals(), 300)
    logic = strategy.build(sample_setting())
    logic.bounds(sample_arrivals(0))
    same(_bounds(logic, sample_arrivals(), 300), whole, "bounds after an empty chunk")


@checks("disorder")
def check_disorder_snapshot_resumes_identically(strategy: Any) -> None:
    """A logic built from a snapshot goes on like the one that was stopped."""
    arrivals = sample_arrivals()
    first, rest = _part(arrivals, 0, 150), _part(arrivals, 150, 300)
    logic = strategy.build(sample_setting())
    _bounds(logic, first, 300)
    resumed = strategy.build(sample_setting(), stored(logic.snapshot()))
    same(_bounds(resumed, rest, 300), _bounds(logic, rest, 300), "bounds after a restart")


# Shedding


def sample_tuples(n: int = 50, seed: int = 3) -> Tuples:
    """Tuples of two windows, oldest first."""
    rng = np.random.default_rng(seed)
    ts = np.sort(rng.integers(0, 9, n))
    cells, nulls = rng.integers(0, 4, (n, 1)), rng.integers(0, 2, n).astype(np.uint64)
    return Tuples(rng.integers(0, 2, n).astype(np.int8), ts, ts + 1, cells, nulls, np.arange(n))


@checks("shedding")
def check_shedding_logic_keeps_to_the_contract(strategy: Any) -> None:
    """The logic has all members; memory is None or a positive number of tuples."""
    logic = strategy.build(sample_setting())
    has_members(logic, SheddingLogic)
    memory = logic.memory
    demand(
        memory is None or (isinstance(memory, int) and memory > 0) or isinstance(memory, Memory | MemoryLimit),
        f"memory must be None, a positive int, a Memory or a MemoryLimit, got {memory!r}",
    )
    demand(isinstance(logic.decays, bool), f"decays must be True or False, got {logic.decays!r}")


@checks("shedding")
def check_scores_are_finite_numbers(strategy: Any) -> None:
    """One finite float64 per tuple, also for no tuples; the tuples are left alone."""
    for n in (50, 1, 0):
        tuples = sample_tuples(n)
        scores = strategy.build(sample_setting()).scores(tuples)
        demand(isinstance(scores, np.ndarray), f"scores must be an array, got {type(scores).__name__}")
        same((scores.dtype, scores.shape), (np.dtype(np.float64), (n,)), "type and shape of scores")
        demand(np.isfinite(scores).all(), "scores must be finite")
        for name, array in tuples._asdict().items():
            same(array.ravel(), getattr(sample_tuples(n), name).ravel(), f"tuples.{name} after the call")


@checks("shedding")
def check_scores_are_deterministic(strategy: Any) -> None:
    """The same calls give the same scores."""
    first, second = strategy.build(sample_setting()), strategy.build(sample_setting())
    for seed in (3, 4):
        same(second.scores(sample_tuples(seed=seed)), first.scores(sample_tuples(seed=seed)), "scores")


@checks("shedding")
def check_shedding_snapshot_resumes_identically(strategy: Any) -> None:
    """A logic built from a snapshot goes on like the one that was stopped."""
    logic = strategy.build(sample_setting())
    logic.scores(sample_tuples())
    resumed = strategy.build(sample_setting(), stored(logic.snapshot()))
    same(resumed.scores(sample_tuples(seed=5)), logic.scores(sample_tuples(seed=5)), "scores after a restart")
