"""The logic of ``result_slack``: a histogram of needed slacks by result time, and the choice of K."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from slackwater.plugins.contract import (
    NEVER,
    Arrivals,
    Feedback,
    Float64s,
    Held,
    Int64s,
    Released,
    Setting,
    Snapshot,
)
from slackwater.plugins.join.mswj_logic import RUN, SlidingWindowJoinLogic
from slackwater.transforms.kernels import needed_slack as kernel

if TYPE_CHECKING:
    from slackwater.plugins.disorder.result_slack import ResultSlack

FINE_STEPS: Final = 128
"""Slacks that are told apart by the granularity; larger ones by a share of themselves."""
GROWTH: Final = 1.02
CANDIDATES: Final = {2: 64, 3: 16, 4: 8}
"""Tuples of each group that a lookup takes, by the number of inputs; 4 for more inputs."""
LOOKUPS_PER_INTERVAL: Final = 1000
"""Arrivals that are looked up in an interval, about; others are only kept."""
HISTORY_PERIODS: Final = 30
"""Periods whose needs decide on K."""
LEVEL: Final = 0.9925
"""The recall that a period is asked for, as a share of the recall that is wanted: fulfilment is judged at
0.99 of it."""
PERIODS_MET: Final = 0.98
"""Share of the recent periods that K would have met."""


def slack_steps(granularity: int, horizon: int) -> Int64s:
    """Return the slacks to tell apart: multiples of the granularity, from some size on two per cent apart."""
    steps = [k * granularity for k in range(FINE_STEPS + 1) if k * granularity < horizon]
    while steps[-1] < horizon:
        steps.append(min(horizon, max(steps[-1] + granularity, int(steps[-1] * GROWTH))))
    return np.array(steps, np.int64)


class Learner(SlidingWindowJoinLogic):
    """Tuples in arrival order, kept past their windows, and what lookups among them teach."""

    def __init__(self, setting: Setting, snapshot: Snapshot | None = None) -> None:
        super().__init__(setting._replace(counts_only=False))
        self._turn = int(snapshot["turn"]) if snapshot else 0
        if snapshot:
            held = Held._make(np.ascontiguousarray(snapshot[name]) for name in Held._fields)
            self._fill(held, np.zeros(len(held.ts), np.bool_))

    def learn(
        self, arrivals: Arrivals, limits: tuple[int, int, int], samples: tuple[int, ...], first_row: int,
        interval: int, slacks: Int64s, histogram: Float64s,
    ) -> None:  # fmt: skip
        """Look arrivals up and keep them; see ``kernels.needed_slack`` for what is recorded."""
        data = (arrivals.input, arrivals.ts, arrivals.progress, arrivals.frontier, arrivals.cells, arrivals.nulls)
        for start in range(0, arrivals.ts.size, RUN):
            end = min(start + RUN, arrivals.ts.size)
            self._reserve(end - start)
            self._turn = kernel.learn(
                self._w, self._plan, data, start, end, limits, samples, self._turn, first_row, interval, slacks,
                self._search, self._scratch, histogram,
            )  # fmt: skip

    def step(self, released: Released) -> Any:
        """Not a join: arrivals come through ``learn``."""
        raise NotImplementedError

    def snapshot(self) -> Snapshot:
        return {**self.held()._asdict(), "turn": self._turn}


class ResultSlackLogic:
    """Chooses K every interval from the slacks that recent results needed.

    K is what nearly all periods of the recent past needed, or what the newest one needs if that is more. Until
    a first period is complete, K is the largest need so far.
    """

    needs_cells = True

    def __init__(self, options: ResultSlack, setting: Setting, snapshot: Snapshot | None = None) -> None:
        ticks = setting.ticks
        self.interval: int | None = ticks(options.interval)
        self._interval = ticks(options.interval)
        self._recall = options.recall
        self._period = -(-ticks(options.period) // self._interval)
        self._horizon = ticks(options.horizon or options.period)
        self._slacks = slack_steps(ticks(options.granularity), self._horizon)
        self._limits = (self._horizon, options.memory, CANDIDATES.get(len(setting.inputs), 4))
        self._window = max(setting.windows)
        ahead = -(-self._window // self._interval) + 2
        rows = self._period + -(-self._horizon // self._interval) + ahead + 2
        state: dict[str, Any] = dict(snapshot) if snapshot else {}
        self._learner = Learner(setting, state.get("learner"))
        self._histogram = np.array(state.get("histogram", np.zeros((rows, self._slacks.size))), np.float64)
        self._newest_row: int | None = state.get("newest_row")
        self._judged: int | None = state.get("judged")
        self._needs: list[float] = list(state.get("needs", []))
        self._frontier = int(state.get("frontier", NEVER))
        self._arrived = int(state.get("arrived", 0))
        self._samples: tuple[int, ...] = tuple(state.get("samples", (1, 1)))
        self._first_row: int | None = state.get("first_row")
        self._slack = int(state.get("slack", 0))
        self._said: dict[str, float] = dict(state.get("said", {}))

    def bounds(self, arrivals: Arrivals) -> Int64s:
        if arrivals.ts.size:
            self._learn(arrivals)
        return arrivals.progress - self._slack

    def adapt(self, feedback: Feedback) -> None:
        self._samples = (
            max(1, self._arrived // (2 * LOOKUPS_PER_INTERVAL)),
            max(1, self._arrived // LOOKUPS_PER_INTERVAL),
        )
        self._arrived = 0
        if self._newest_row is None or self._first_row is None:
            return
        last = (self._frontier - self._maturity()) // self._interval - 1
        oldest = max(self._first_row, self._newest_row - len(self._histogram) + 1)
        judged = last - 1 if self._judged is None else self._judged
        for row in range(max(oldest + self._period - 1, judged + 1), last + 1):
            need = self._need(row)
            if need is not None:
                self._needs.append(need)
        self._judged = max(last, judged)
        del self._needs[: -HISTORY_PERIODS * self._period]
        now = int(self._need(self._frontier // self._interval) or 0)
        if self._needs:
            usual = int(np.quantile(self._needs, PERIODS_MET, method="higher"))
            self._slack = max(usual, int(self._needs[-1]), now)
        else:
            self._slack = max(self._slack, now)
        self._report(last)

    def report(self) -> dict[str, float]:
        """What the strategy thinks: K, the recall asked for, the recall it gets, the true results."""
        return {"slack": float(self._slack), "required_recall": self._recall, **self._said}

    def held_cells(self) -> tuple[Any, Any]:
        """Input and cells of every tuple kept: texts in them must stay known."""
        held = self._learner.held()
        return held.input, held.cells

    def snapshot(self) -> Snapshot:
        return {
            "learner": self._learner.snapshot(),
            "histogram": self._histogram.copy(),
            "newest_row": self._newest_row,
            "judged": self._judged,
            "needs": list(self._needs),
            "frontier": self._frontier,
            "arrived": self._arrived,
            "samples": list(self._samples),
            "first_row": self._first_row,
            "slack": self._slack,
            "said": self._said,
        }

    def _learn(self, arrivals: Arrivals) -> None:
        self._arrived += arrivals.ts.size
        frontier = int(arrivals.frontier[-1])
        if frontier != NEVER:
            self._frontier = frontier
            if self._first_row is None:
                known = arrivals.frontier[arrivals.frontier != NEVER]
                self._first_row = int(known[0]) // self._interval + 1
            self._make_rows((frontier + self._window) // self._interval + 1)
        first_row = 0 if self._newest_row is None else self._newest_row - len(self._histogram) + 1
        self._learner.learn(
            arrivals, self._limits, self._samples, first_row, self._interval, self._slacks, self._histogram
        )

    def _make_rows(self, newest: int) -> None:
        """Empty the rows of intervals that the frontier has brought into reach."""
        before = newest - len(self._histogram) if self._newest_row is None else self._newest_row
        for row in range(max(before + 1, newest - len(self._histogram) + 1), newest + 1):
            self._histogram[row % len(self._histogram)] = 0.0
        self._newest_row = max(before, newest)

    def _rows(self, last: int, n: int) -> Float64s:
        """Sum of the ``n`` rows that end with ``last``."""
        return np.asarray(self._histogram[np.arange(last - n + 1, last + 1) % len(self._histogram)].sum(axis=0))

    def _need(self, last: int) -> float | None:
        """Slack that gives the period that ends with interval ``last`` its recall; None if it had no results."""
        level = LEVEL * self._recall
        summed = np.cumsum(self._rows(last, self._period))
        if summed[-1] <= 0:
            return None
        return float(self._slacks[np.searchsorted(summed, level * summed[-1] * (1 - 1e-12))])

    def _maturity(self) -> int:
        """How far the frontier must be past a result until its kind is complete, but for a tenth of the loss."""
        assert self._newest_row is not None
        summed = np.cumsum(self._rows(self._newest_row, len(self._histogram)))
        if summed[-1] <= 0:
            return self._horizon
        level = 1 - (1 - self._recall) / 10
        reached = int(self._slacks[np.searchsorted(summed, level * summed[-1] * (1 - 1e-12))])
        return min(self._horizon, max(reached, self._slack))

    def _report(self, last: int) -> None:
        period = self._rows(last, self._period)
        total = float(period.sum())
        if total > 0:
            within = float(period[self._slacks <= self._slack].sum())
            self._said = {"recall": within / total, "true": float(self._rows(last, 1).sum())}
