"""PWJoin's experiments on ``slackwater generate punct``: state, output rate, punctuations out (its Fig. 8 to 12).

State and punctuations are sampled every two seconds of event time. Times are CPU times of the operator, from
arrivals to result rows, and of the join strategy alone on what reaches it.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from slackwater.pipelines.bench.experiments import Row
from slackwater.pipelines.bench.side_by_side import side_by_side
from slackwater.pipelines.generate import generate
from slackwater.plugins.contract import JoinLogic, JoinStrategy, Setting, Snapshot
from slackwater.plugins.join.punctuated.cost_model import expected_state
from slackwater.transforms.arrival.merge import in_arrival_order
from slackwater.transforms.operators.join import Chunk, Operator
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import JoinPlan, bind

STEP_MS = 2_000
CHUNK = 1 << 15
"""Rows of the chunks that are timed: what the runners give an operator at least."""
TIMED = 5
"""How many times as long the streams are that are timed: at first, arrays grow."""
PAIR: dict[str, Any] = {"a": "punct-asc-30-40", "b": "punct-random-30-40"}


class Watched(JoinStrategy):
    """Another join strategy, whose logic can be looked at, with what it was given."""

    name: ClassVar[str] = "watched"
    inner: JoinStrategy
    logics: list[Any]

    @property
    def needs_window(self) -> bool:
        return self.inner.needs_window

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> JoinLogic:
        logic: Any = WatchedLogic(self.inner.build(setting, snapshot))
        self.logics.append(logic)
        return logic


class WatchedLogic:
    """Passes everything on; keeps what it is given."""

    def __init__(self, logic: Any) -> None:
        self._logic = logic
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._logic, name)
        return partial(self._noted, name, found) if name in ("step", "punctuated_step") else found

    def _noted(self, name: str, method: Callable[..., Any], *given: Any) -> Any:
        self.calls.append((name, given))
        return method(*given)


class States(NamedTuple):
    """What was seen at each sampling step."""

    seconds: Any
    held: Any
    """``[steps, inputs]``."""
    told: Any
    """Punctuations out so far."""
    results: int


class Subject:
    """A generated pair of streams in memory."""

    def __init__(self, rows: int, seed: int, **knobs: Any) -> None:
        import pyarrow.parquet as pq

        with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as folder:
            made = generate("punct", Path(folder), rows=rows, seed=seed, **knobs)
            self._tables = {stream: pq.read_table(path) for stream, path in made.files.items()}
        self._query = made.query
        self.results = made.results
        times = [table.column("ts").to_numpy() for table in self._tables.values()]
        self._span = int(max(ts[-1] for ts in times) - min(ts[0] for ts in times))

    def plan(self, strategy: str, output: str = "rows", window: bool = True) -> JoinPlan:
        """Bind a strategy to the query; rows come in order, so nothing has to wait."""
        settings: dict[str, Any] = {
            "time": "ts",
            "arrival": "arrived",
            "where": self._query.where,
            "output": output,
            "disorder": {"strategy": "none"},
            "join": {"strategy": strategy},
            "punctuations": [
                {"input": marks.input, "when": marks.when, "key": marks.key} for marks in self._query.punctuations
            ],
        }
        if window:
            settings["window"] = self._query.duration
        return bind(JoinConfig.read(settings), {name: table.schema for name, table in self._tables.items()})

    def chunks(self, every: int) -> Iterator[Chunk]:
        """Yield all rows in arrival order, which is that of event time, cut every so many ms."""
        batches = [table.combine_chunks().to_batches()[0] for table in self._tables.values()]
        arrived = [batch.column("arrived").to_numpy() for batch in batches]
        times = [batch.column("ts").to_numpy() for batch in batches]
        first, last = min(ts[0] for ts in times), max(ts[-1] for ts in times)
        edges = np.arange(first + every, last + every + 1, every)
        places = [np.concatenate([[0], np.searchsorted(ts, edges)]) for ts in times]
        for k in range(len(edges)):
            parts = [slice(at[k], at[k + 1]) for at in places]
            yield in_arrival_order(
                [
                    batch.slice(part.start, part.stop - part.start)
                    for batch, part in zip(batches, parts, strict=True)
                ],
                [a[part] for a, part in zip(arrived, parts, strict=True)],
            )

    def states(self, strategy: str, window: bool = True) -> States:
        """Run a strategy and look at it at every sampling step."""
        plan = self.plan(strategy, "counts", window)
        watched = Watched.model_construct(inner=plan.join, logics=[])
        operator = Operator(dataclasses.replace(plan, join=watched))
        held, told = [], []
        for chunk in self.chunks(STEP_MS):
            operator.push(chunk)
            held.append(np.bincount(watched.logics[0].held().input, minlength=2))
            told.append(operator.accounting.finished)
        operator.finish()
        seconds = STEP_MS / 1000 * np.arange(1, len(told) + 1)
        return States(seconds, np.array(held), np.array(told), operator.accounting.results)

    def rates(self, strategy: str, base: str, repeat: int) -> tuple[float, float]:
        """Return the output rate of a strategy over that of another: whole operator, and join alone."""
        rows = sum(table.num_rows for table in self._tables.values())
        chunks = list(self.chunks(max(1, self._span * CHUNK // rows)))
        plans = [self.plan(name) for name in (strategy, base)]
        calls = [_reaching(plan, chunks) for plan in plans]
        operators, joins = [], []
        for _ in range(repeat):
            operators.append(side_by_side(plans, chunks)[0])
            joins.append([_seconds(partial(_replay, *both)) for both in zip(plans, calls, strict=True)])
        ratios = [float(np.median([other / own for own, other in times])) for times in (operators, joins)]
        return ratios[0], ratios[1]


def _seconds(work: Callable[[], None]) -> float:
    started = time.thread_time()
    work()
    return time.thread_time() - started


def _run(plan: JoinPlan, chunks: list[Chunk]) -> None:
    operator = Operator(plan)
    for chunk in chunks:
        operator.push(chunk)
    operator.finish()


def _reaching(plan: JoinPlan, chunks: list[Chunk]) -> list[tuple[str, tuple[Any, ...]]]:
    """Return what reaches the join."""
    watched = Watched.model_construct(inner=plan.join, logics=[])
    _run(dataclasses.replace(plan, join=watched), chunks)
    calls: list[tuple[str, tuple[Any, ...]]] = watched.logics[0].calls
    return calls


def _replay(plan: JoinPlan, calls: list[tuple[str, tuple[Any, ...]]]) -> None:
    logic = plan.join.build(plan.setting)
    for name, given in calls:
        for _ in getattr(logic, name)(*given):
            pass


def section(rows: int = 60_000, repeat: int = 9, seed: int = 7) -> list[Row]:
    """Run all experiments; ``rows`` are those of each stream. Without repetitions nothing is timed."""
    return [
        *_windows(rows, repeat, seed),
        *_irrelevant(rows, repeat, seed),
        *_without(rows, repeat, seed),
        _both_punctuated(rows, seed),
        _one_punctuated(rows, seed),
        _equation(rows, seed),
    ]


def _rates(case: str, subject: Subject, base: str, repeat: int, wanted: float | None = None) -> Iterator[Row]:
    if repeat:
        whole, join = subject.rates("pwjoin", base, repeat)
        figures = {f"output rate / {base}": whole, "join alone": join}
        shape = "" if wanted is None else f"output rate above {wanted:g} of {base}"
        yield Row(case, figures, shape, None if wanted is None else whole > wanted, timed=True)


def _windows(rows: int, repeat: int, seed: int) -> Iterator[Row]:
    """Fig. 8 and 9: the larger the window, the more is saved."""
    saved = 0.0
    for seconds in (1, 5, 15):
        case = f"punct-asc-100-40, {seconds} s"
        subject = Subject(rows, seed, window=1_000 * seconds)
        own, other = subject.states("pwjoin"), subject.states("wjoin")
        sizes, others = own.held.sum(axis=1), other.held.sum(axis=1)
        share = 1 - sizes.mean() / others.mean()
        met = bool((sizes <= others).all()) and share > saved and own.results == other.results == subject.results
        yield Row(case, _state(own, other) | {"saved": f"{share:.0%}"}, "below wjoin, more with the window", met)
        saved = share
        if repeat:
            subject = Subject(TIMED * rows, seed, window=1_000 * seconds)
        yield from _rates(case, subject, "wjoin", repeat, 1.0 if seconds == 15 else None)
    if repeat:
        # The paper's streams leave a state that lies in the nearest cache, where a smaller one gains nothing.
        subject = Subject(TIMED * rows, seed, window=15_000, gap=0.1)
        yield from _rates("the same, 15 s, 10,000 rows/s", subject, "wjoin", repeat, 1.0)


def _state(own: States, other: States) -> dict[str, float | str]:
    sizes, others = own.held.sum(axis=1), other.held.sum(axis=1)
    return {
        "state": float(sizes.mean()),
        "largest": int(sizes.max()),
        "of wjoin": float(others.mean()),
        "its largest": int(others.max()),
    }


def _irrelevant(rows: int, repeat: int, seed: int) -> Iterator[Row]:
    """Fig. 10: punctuations that match nothing cost little."""
    case = "asc-30-40 and random-30-40, irrelevant, 5 s"
    subject = Subject(rows, seed, irrelevant=1.0, **PAIR)
    own, other = subject.states("pwjoin"), subject.states("wjoin")
    met = bool((own.held == other.held).all()) and own.results == other.results
    yield Row(case, _state(own, other), "the state of wjoin", met)
    if repeat:
        subject = Subject(TIMED * rows, seed, irrelevant=1.0, **PAIR)
    yield from _rates(case, subject, "wjoin", repeat, 0.95)


def _without(rows: int, repeat: int, seed: int) -> Iterator[Row]:
    subject = Subject(TIMED * rows if repeat else rows, seed, punctuations="none")
    yield from _rates("asc-100-40 without punctuations, 5 s", subject, "mswj", repeat, 0.97)


def _both_punctuated(rows: int, seed: int) -> Row:
    """Fig. 11: early propagation does not wait for the other input, which punctuates in another order."""
    subject = Subject(rows, seed, window=1_000, values=rows // 20, **PAIR)
    early, regular = subject.states("pwjoin").told, subject.states("pjoin", window=False).told
    middle = len(early) // 2
    figures: dict[str, float | str] = {
        "out, half-way": int(early[middle]),
        "out": int(early[-1]),
        "of pjoin, half-way": int(regular[middle]),
        "of pjoin": int(regular[-1]),
    }
    met = bool((early[1:] > regular[1:]).all())
    return Row("asc-30-40 and random-30-40, 1 s", figures, "more out than pjoin at every step", met)


def _one_punctuated(rows: int, seed: int) -> Row:
    """Fig. 12: punctuations leave where only one input has them."""
    subject = Subject(rows, seed, a="uniform", b="punct-asc-30-40", window=5_000)
    early, regular = subject.states("pwjoin").told, subject.states("pjoin", window=False).told
    middle = len(early) // 2
    figures: dict[str, float | str] = {
        "out, half-way": int(early[middle]),
        "out": int(early[-1]),
        "of pjoin, half-way": int(regular[middle]),
        "of pjoin": int(regular[-1]),
    }
    # About 6.5 segments of 30 rows end in a step; once the windows are full, one that brings nothing is rare.
    steady = float((np.diff(early[5:]) > 0).mean())
    met = steady > 0.95 and int(regular[-1]) == 0
    return Row("uniform and asc-30-40, 5 s", figures, "some out at every step, none from pjoin", met)


def _equation(rows: int, seed: int) -> Row:
    """Eq. (1) where its assumptions hold: values of one input uniform, punctuations from the other alone."""
    values = rows // 25
    subject = Subject(rows, seed, a="uniform", b="punct-asc-30-40", values=values, window=5_000)
    own, other = subject.states("pwjoin"), subject.states("wjoin")
    # From when every value has been seen a few times.
    seen = own.seconds > values / 20
    rate = other.held[seen, 0].mean() / 5
    predicted = np.array([expected_state(rate, 5, 100 / 31, t, values) for t in own.seconds[seen]])
    measured = own.held[seen, 0]
    apart = measured.mean() / predicted.mean() - 1
    quarters = [
        abs(m.mean() / p.mean() - 1)
        for m, p in zip(np.array_split(measured, 4), np.array_split(predicted, 4), strict=True)
    ]
    figures: dict[str, float | str] = {
        "state": float(measured.mean()),
        "of wjoin": float(other.held[seen, 0].mean()),
        "Eq. (1)": float(predicted.mean()),
        "apart": f"{apart:+.1%}",
    }
    case = f"uniform over {values:,} (its state) and asc-30-40, 5 s"
    return Row(case, figures, "within 10 % of Eq. (1), in each quarter of the run", bool(max(quarters) < 0.1))
