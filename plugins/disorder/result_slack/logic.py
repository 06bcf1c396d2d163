"""The logic of ``result_slack``: a histogram of needed slacks by result time, and the choice of K."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from slackwater.plugins.arrays import opened_all
from slackwater.plugins.contract import (
    NEVER,
    Arrivals,
    DisorderLogic,
    Feedback,
    Float64s,
    Held,
    Int64s,
    Released,
    Setting,
    Snapshot,
)
from slackwater.plugins.disorder.budget import NEARLY, ShedShare, recall_left
from slackwater.plugins.join.window.logic import SlidingWindowJoinLogic
from slackwater.transforms.kernels.disorder import needed_slack as kernel

if TYPE_CHECKING:
    from slackwater.plugins.disorder.result_slack.strategy import ResultSlack

_RUN: Final = 1 << 13
"""Arrivals looked up at once: windows have room for as many more, and more would not fit the cache."""
FINE_STEPS: Final = 128
"""Slacks that are told apart by the granularity; larger ones by a share of themselves."""
GROWTH: Final = 1.02
BEYOND: Final = 1 << 62
"""More than any slack."""
CANDIDATES: Final = {2: 64, 3: 16, 4: 8}
"""Tuples of each group that a lookup takes, by the number of inputs; 4 for more inputs."""
LOOKUPS_PER_INTERVAL: Final = 800
"""Of n arrivals in an interval, one in n / 1,600 of the late ones is looked up, and one in n / 400 of the others,
which only tell how many results there are."""
KEPT_PER_INTERVAL: Final = 2000
"""Arrivals of each input that are kept in an interval, at least, if there are as many."""
HISTORY_PERIODS: Final = 120
"""Periods whose needs decide on K."""
MAY_MISS: Final = 0.025
"""Share of the periods that may be missed."""
MARGIN, CAUTION = 0.15, 0.2
"""Shares by which K exceeds what history asks for: always, and once a period more is missed than may be."""
FIRST_CREDIT, MOST_CREDIT, MOST_DEBT = -0.2, 0.3, 1.0
"""Periods in the account at first, and at most."""
CREDIT_LASTS: Final = 2
"""Periods over which credit is spent."""
IDLE_SHARE: Final = 0.01
"""Of the results that may be missed, the share that is given up where it costs slack that gains nothing else."""


def slack_steps(granularity: int, horizon: int) -> Int64s:
    """Return the slacks to tell apart: multiples of the granularity, from some size on two per cent apart.

    The last but one is the horizon; the last stands for all that is beyond it.
    """
    steps = [k * granularity for k in range(FINE_STEPS + 1) if k * granularity < horizon]
    while steps[-1] < horizon:
        steps.append(min(horizon, max(steps[-1] + granularity, int(steps[-1] * GROWTH))))
    return np.array([*steps, BEYOND], np.int64)


class Learner(SlidingWindowJoinLogic):
    """Tuples in arrival order, kept past their windows, and what lookups among them teach."""

    def __init__(self, setting: Setting, snapshot: Snapshot | None = None) -> None:
        super().__init__(setting._replace(counts_only=False))
        self._turn = int(snapshot["turn"]) if snapshot else 0
        self._weights = np.ones(len(self._w.slots))
        """How many arrivals the tuple of each slot stands for."""
        if snapshot:
            held = Held._make(np.ascontiguousarray(snapshot[name]) for name in Held._fields)
            self._fill(held, np.zeros(len(held.ts), np.bool_))
            self._weights = np.ones(len(self._w.slots))
            self._weights[self._list()[0]] = snapshot["weights"]

    def learn(
        self, arrivals: Arrivals, limits: tuple[int, int, int], samples: tuple[int, ...], first_row: int,
        interval: int, slacks: Int64s, slack: int, histogram: Float64s, met: Float64s,
    ) -> None:  # fmt: skip
        """Look arrivals up and keep them; see ``kernels.disorder.needed_slack`` for what is recorded."""
        seen = (arrivals.input, arrivals.ts, arrivals.progress, arrivals.frontier, arrivals.cells, arrivals.nulls)
        data = opened_all(seen)
        for start in range(0, arrivals.ts.size, _RUN):
            end = min(start + _RUN, arrivals.ts.size)
            self._reserve(end - start)
            self._turn = kernel.learn(
                self._w, self._plan, self._weights, data, start, end, limits, samples, self._turn, first_row,
                interval, slacks, slack, self._search, self._scratch, histogram, met,
            )  # fmt: skip

    def step(self, released: Released) -> Any:
        """Not a join: arrivals come through ``learn``."""
        raise NotImplementedError

    def snapshot(self) -> Snapshot:
        return {**self.held()._asdict(), "weights": self._weights[self._list()[0]], "turn": self._turn}

    def _reserve(self, n: int) -> None:
        super()._reserve(n)
        grown = len(self._w.slots) - len(self._weights)
        if grown:
            self._weights = np.append(self._weights, np.ones(grown))


class ResultSlackLogic(DisorderLogic):
    """Chooses K every interval from the slacks that recent results needed.

    K is what nearly all periods of the recent past needed, or what the newest one needs if that is more, and a
    margin. How many is "nearly all" is a matter of account: every period that is known to be complete earns the
    share of periods that may be missed, and costs a whole one if it was missed. Credit is spent by going without
    the periods that needed most, debt is paid back by keeping to all of them with a larger margin. Until a first
    period is complete, K is the largest need so far.

    Where rows are shed, the recall that is left for disorder to reach is higher than the target. The past is
    judged by the target all the same; the slack that makes the difference in the latest two periods is added.
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
        rows = self._period + max(self._period, -(-self._horizon // self._interval)) + ahead + 2
        state: dict[str, Any] = dict(snapshot) if snapshot else {}
        self._learner = Learner(setting, state.get("learner"))
        self._histogram = np.array(state.get("histogram", np.zeros((rows, self._slacks.size))), np.float64)
        self._newest_row: int | None = state.get("newest_row")
        self._judged: int | None = state.get("judged")
        self._needs: deque[int] = deque()
        """Steps of ``_slacks`` that the periods of the recent past needed, oldest first."""
        self._needed = np.zeros(self._slacks.size, np.int64)
        """How many of these are which step."""
        for step in np.searchsorted(self._slacks, np.asarray(state.get("needs", []), np.int64)).tolist():
            self._remember(step)
        self._frontier = int(state.get("frontier", NEVER))
        self._arrived = int(state.get("arrived", 0))
        self._samples: tuple[int, ...] = tuple(state.get("samples", (1, 1, 1)))
        self._kept = KEPT_PER_INTERVAL * len(setting.inputs)
        self._met = np.array(state.get("met", np.zeros(rows)), np.float64)
        """Weight of the results of each row of the histogram that the slack in force allowed for."""
        self._credit = float(state.get("credit", FIRST_CREDIT))
        """Periods that may be missed, more than have been."""
        self._first_row: int | None = state.get("first_row")
        self._slack = int(state.get("slack", 0))
        self._base = int(state.get("base", 0))
        """The slack that the target asks for."""
        self._shed = ShedShare(self._period, state.get("shed"))
        self._left = float(state.get("left", self._recall))
        """The recall that disorder handling must reach, given what is shed."""
        self._said: dict[str, float] = dict(state.get("said", {}))

    def bounds(self, arrivals: Arrivals) -> Int64s:
        if arrivals.ts.size:
            self._learn(arrivals)
        return arrivals.progress - self._slack

    def bounds_at(self, progress: Int64s) -> Int64s:
        return progress - self._slack

    def adapt(self, feedback: Feedback) -> None:
        self._samples = (
            max(1, self._arrived // (2 * LOOKUPS_PER_INTERVAL)),
            max(1, self._arrived // (LOOKUPS_PER_INTERVAL // 2)),
            max(1, self._arrived // self._kept),
        )
        self._arrived = 0
        self._shed.add(feedback)
        self._left = recall_left(self._recall, self._shed.share)
        if self._newest_row is None or self._first_row is None:
            return
        last = (self._frontier - self._maturity()) // self._interval - 1
        oldest = max(self._first_row, self._newest_row - len(self._histogram) + 1)
        judged = last - 1 if self._judged is None else self._judged
        for row in range(max(oldest + self._period - 1, judged + 1), last + 1):
            need = self._need(row)
            if need is not None:
                self._remember(need)
                if row >= self._first_row + 2 * self._period:
                    self._settle(row)
        self._judged = max(last, judged)
        now = int(self._slacks[self._need(self._frontier // self._interval) or 0])
        if self._needs:
            share = min(1.0, max(0.5, 1 - MAY_MISS - self._credit / CREDIT_LASTS))
            usual = self._usual(share)
            margin = MARGIN + CAUTION * max(0.0, -self._credit)
            self._base = self._spared(int(max(usual, now) * (1 + margin)))
        else:
            self._base = max(self._base, int(now * (1 + MARGIN)))
        self._slack = min(self._horizon, self._base + self._makes_up())
        self._report(last)

    def report(self) -> dict[str, float]:
        """What the strategy thinks: K, the recall asked for, the recall it gets, the true results."""
        return {"slack": float(self._slack), "required_recall": self._left, **self._said}

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
            "needs": self._slacks[list(self._needs)],
            "frontier": self._frontier,
            "arrived": self._arrived,
            "samples": list(self._samples),
            "first_row": self._first_row,
            "slack": self._slack,
            "base": self._base,
            "shed": self._shed.snapshot(),
            "left": self._left,
            "met": self._met.copy(),
            "credit": self._credit,
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
            arrivals, self._limits, self._samples, first_row, self._interval, self._slacks, self._slack,
            self._histogram, self._met,
        )  # fmt: skip

    def _make_rows(self, newest: int) -> None:
        """Empty the rows of intervals that the frontier has brought into reach."""
        before = newest - len(self._histogram) if self._newest_row is None else self._newest_row
        for row in range(max(before + 1, newest - len(self._histogram) + 1), newest + 1):
            self._histogram[row % len(self._histogram)] = self._met[row % len(self._met)] = 0.0
        self._newest_row = max(before, newest)

    def _summed(self, last: int, n: int) -> Float64s:
        """Weight of the results in the ``n`` intervals up to ``last`` that need at most each slack."""
        return np.asarray(kernel.summed(self._histogram, last, n))

    def _need(self, last: int) -> int | None:
        """Step of the slack that gives the period up to interval ``last`` its recall; None without results."""
        summed = self._summed(last, self._period)
        return self._enough(summed, self._recall) if summed[-1] > 0 else None

    def _enough(self, summed: Float64s, recall: float) -> int:
        """Return the step of the smallest slack, at most the horizon, with which ``recall`` counts as met."""
        level = NEARLY * recall * summed[-1] * (1 - 1e-12)
        return min(int(np.searchsorted(summed, level)), self._slacks.size - 2)

    def _remember(self, need: int) -> None:
        """Add what a period needed to the history, and forget what is too long ago."""
        self._needs.append(need)
        self._needed[need] += 1
        if len(self._needs) > HISTORY_PERIODS * self._period:
            self._needed[self._needs.popleft()] -= 1

    def _usual(self, share: float) -> int:
        """Return the smallest slack that a share of the remembered periods needed at most."""
        rank = math.ceil(share * (len(self._needs) - 1))
        return int(self._slacks[np.searchsorted(np.cumsum(self._needed), rank, side="right")])

    def _makes_up(self) -> int:
        """Return how much slack it takes to lose that much less by disorder as is lost by shedding."""
        if self._left <= self._recall:
            return 0
        summed = self._summed(self._frontier // self._interval, 2 * self._period)
        more, usual = (self._slacks[self._enough(summed, recall)] for recall in (self._left, self._recall))
        return int((more - usual) * (1 + MARGIN))

    def _settle(self, last: int) -> None:
        """Book the period that ends with interval ``last``, which is complete: one of many that overlap."""
        met = self._met[np.arange(last - self._period + 1, last + 1) % len(self._met)].sum()
        missed = met < NEARLY * self._left * self._summed(last, self._period)[-1]
        self._credit += (MAY_MISS - float(missed)) / self._period
        self._credit = min(MOST_CREDIT, max(-MOST_DEBT, self._credit))

    def _spared(self, slack: int) -> int:
        """Return the smallest slack that gives as much as ``slack`` in the last two periods, but for a little.

        Delays often come in steps; between two of them a larger slack only costs.
        """
        summed = self._summed(self._frontier // self._interval, 2 * self._period)
        if summed[-1] <= 0:
            return slack
        at = int(np.searchsorted(self._slacks, slack, side="right")) - 1
        enough = summed[at] - IDLE_SHARE * (1 - self._recall) * summed[-1]
        return min(slack, int(self._slacks[np.searchsorted(summed, enough * (1 - 1e-12))]))

    def _maturity(self) -> int:
        """How far the frontier must be past a result until its kind is complete, but for a tenth of the loss."""
        assert self._newest_row is not None
        summed = self._summed(self._newest_row, len(self._histogram))
        if summed[-1] <= 0:
            return self._horizon
        level = 1 - (1 - self._recall) / 10
        reached = int(self._slacks[np.searchsorted(summed, level * summed[-1] * (1 - 1e-12))])
        return min(self._horizon, max(reached, self._slack))

    def _report(self, last: int) -> None:
        period = self._summed(last, self._period)
        total = float(period[-1])
        if total > 0:
            within = float(period[np.searchsorted(self._slacks, self._slack, side="right") - 1])
            self._said = {"recall": within / total, "true": float(self._summed(last, 1)[-1])}
