"""One slack for all shards of a live join (QDDH sec. V): scouts.

Shards that learn a slack each, from the rows they happen to have, learn less the more of them there are. So every
shard is given the same sample of the rows of all (``sampling``), and has a scout: a join of its own that only
counts results, whose disorder strategy learns from the sample. Scouts are given the same, so they learn the
same. A shard holds its own rows as far behind the progress of their inputs as its scout does. Where rows are few,
the sample is all of them, and the slack at any arrival is the one that a single shard would have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import (
    NEVER,
    Arrivals,
    DisorderLogic,
    DisorderStrategy,
    Feedback,
    Int64s,
    Setting,
    Snapshot,
)
from slackwater.transforms.intake import Chunk
from slackwater.transforms.operator import Operator
from slackwater.transforms.plan import ARRIVAL, JoinPlan, bind
from slackwater.transforms.replay import arrival_numbers, in_arrival_order
from slackwater.transforms.sampling import Sample, Sampler, at_level

_UNKNOWN = -1
"""Slack of an input of which nothing may be released yet."""
_LEFT_OUT: dict[str, Any] = {
    "archive": None, "error_handling": None, "hot_keys": None, "id": None, "join": {"strategy": "mswj"},
    "metrics": None, "output": "counts", "shards": 1,
}  # fmt: skip


def scout_plan(plan: JoinPlan) -> JoinPlan | None:
    """Return the join of the scouts of a plan; None where every shard decides for itself.

    That is so where a strategy has nothing to learn or goes by more than delays and results (``shares``), where
    rows are shed, without windows of time, and with punctuations or metadata.
    """
    config = plan.config
    if type(plan) is not JoinPlan or config.shards == 1 or not plan.disorder.shares:
        return None
    limited = plan.shedding.name != "none" or plan.setting.rows or config.window is None
    if limited or plan.setting.patterns or len(plan.members) < len(plan.inputs):
        return None
    return bind(
        config.model_copy(update=_LEFT_OUT), {name: _narrow(plan, i) for i, name in enumerate(plan.members)}
    )


def sampler(plan: JoinPlan, which: int) -> Sampler:
    """Return what chooses the rows of one input that scouts of a plan get."""
    return Sampler(plan, which, [*_narrow(plan, which).names, ARRIVAL])


def _narrow(plan: JoinPlan, which: int) -> pa.Schema:
    """Return the columns of an input that a scout needs."""
    wanted = {plan.time_columns[which], *(cell.column for cell in plan.condition.columns[which])}
    wanted |= {columns[which] for columns in (plan.arrival_columns, plan.watermark_columns) if columns}
    return pa.schema([field for field in plan.schemas[plan.inputs[which]] if field.name in wanted])


class Led(DisorderStrategy):
    """The logic that is given."""

    name: ClassVar[str] = "led"
    logic: Any

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> DisorderLogic:
        logic: DisorderLogic = self.logic
        return logic


def led_by(plan: JoinPlan, logic: DisorderLogic) -> JoinPlan:
    """Return a plan for one operator whose disorder logic is this one."""
    return replace(plan, disorder=Led(logic=logic))


class Scout:
    """Learns slacks from samples, micro-batch by micro-batch.

    Args:
        plan: what ``scout_plan`` returned.
        snapshot: what ``snapshot`` returned, or None.
    """

    def __init__(self, plan: JoinPlan, snapshot: Snapshot | None = None) -> None:
        state: dict[str, Any] = dict(snapshot) if snapshot else {}
        before = state.get("operator")
        logic = plan.disorder.build(plan.setting, before["disorder"] if before else None)
        self._plan = plan
        self._leader = Leader(logic, len(plan.members))
        self._operator = Operator(led_by(plan, self._leader), before)
        self.follower = Follower(self._leader, state.get("slacks"))

    def take(self, samples: Sequence[Sequence[Sample]], first: int) -> None:
        """Learn from a micro-batch; until ``settle``, ``follower`` tells the slack at each of its arrivals.

        Args:
            samples: of every input those of its batches, in order.
            first: number of the first arrival, which the others are counted from; 0 where a column has them.
        """
        level = max((sample.level for of_input in samples for sample in of_input), default=0)
        batches, arrivals = [], []
        for i, (name, of_input) in enumerate(zip(self._plan.inputs, samples, strict=True)):
            empty = pa.RecordBatch.from_pylist([], self._plan.schemas[name].append(pa.field(ARRIVAL, pa.int64())))
            rows = pa.concat_batches([empty, *(at_level(sample.rows, level) for sample in of_input)])
            batches.append(rows)
            arrivals.append(arrival_numbers(self._plan, i, rows) + first)
        self._push(in_arrival_order(batches, arrivals))

    def advance(self, progress: Int64s) -> None:
        """Go on to where all rows have brought the inputs (``Operator.advance``)."""
        self._operator.advance(progress)
        self.follower.follow(self._leader.noted())

    def idle(self, members: Sequence[int]) -> None:
        """Hold nothing back for inputs that bring no rows (``Operator.idle``)."""
        self._operator.idle(members)

    def settle(self) -> None:
        """Forget where in a micro-batch slacks have changed."""
        self.follower.settle()

    @property
    def nbytes(self) -> int:
        """Bytes of everything held."""
        return self._operator.nbytes

    def snapshot(self) -> Snapshot:
        """Everything needed to go on in another process."""
        return {"operator": self._operator.snapshot(), "slacks": self.follower.slacks}

    def _push(self, chunk: Chunk) -> None:
        self._operator.push(chunk)
        self.follower.follow(self._leader.noted())


Schedule = list[tuple[Int64s, Int64s]]
"""For each input, numbers of arrivals and the slack from each of them on."""
_FIRST, _LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class Leader:
    """The logic of a disorder strategy, and how far behind progress it has held every input."""

    def __init__(self, logic: DisorderLogic, inputs: int) -> None:
        self._logic = logic
        self._noted: list[list[tuple[Int64s, Int64s]]] = [[] for _ in range(inputs)]
        if hasattr(logic, "bounds_at"):
            self.bounds_at = self._bounds_at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logic, name)

    def bounds(self, arrivals: Arrivals) -> Int64s:
        bounds = np.asarray(self._logic.bounds(arrivals), np.int64)
        slack = np.where(bounds == NEVER, _UNKNOWN, np.maximum(arrivals.progress - bounds, 0))
        for i, noted in enumerate(self._noted):
            at = np.flatnonzero(arrivals.input == i)
            changes = at[np.diff(slack[at], prepend=_FIRST) != 0]
            noted.append((arrivals.clock[changes], slack[changes]))
        return bounds

    def _bounds_at(self, progress: Int64s) -> Int64s:
        bounds = np.asarray(self._logic.bounds_at(progress), np.int64)  # type: ignore[attr-defined]
        for i in np.flatnonzero(progress != NEVER).tolist():
            slack = max(0, int(progress[i]) - int(bounds[i]))
            self._noted[i].append((np.array([_LAST]), np.array([slack])))
        return bounds

    def noted(self) -> Schedule:
        """Return where slacks have changed since the last call."""
        none = np.empty(0, np.int64)
        found = [
            tuple(np.concatenate(arrays) for arrays in zip((none, none), *noted, strict=True))
            for noted in self._noted
        ]
        self._noted = [[] for _ in self._noted]
        return found  # type: ignore[return-value]


class Follower:
    """The disorder logic of a shard that has a scout: the slack of each arrival is that of the scout's."""

    def __init__(self, leader: Leader, slacks: Int64s | None = None) -> None:
        self._leader = leader
        self.interval: int | None = leader.interval
        start = np.full(len(leader.noted()), _UNKNOWN) if slacks is None else slacks
        self._schedule: Schedule = [(np.array([_FIRST]), np.array([slack])) for slack in start]

    @property
    def slacks(self) -> Int64s:
        """The slack of each input now."""
        return np.array([slack[-1] for _, slack in self._schedule])

    def follow(self, schedule: Schedule) -> None:
        """Learn where slacks change among arrivals to come."""
        self._schedule = [
            (np.append(a, c), np.append(b, d)) for (a, b), (c, d) in zip(self._schedule, schedule, strict=True)
        ]

    def settle(self) -> None:
        """Forget where slacks have changed."""
        self._schedule = [(np.array([_FIRST]), slack[-1:]) for _, slack in self._schedule]

    def bounds(self, arrivals: Arrivals) -> Int64s:
        bounds = np.full(arrivals.ts.size, NEVER, np.int64)
        for i, (first, slack) in enumerate(self._schedule):
            at = np.flatnonzero(arrivals.input == i)
            met = slack[np.searchsorted(first, arrivals.clock[at], side="right") - 1]
            at = at[met != _UNKNOWN]
            bounds[at] = arrivals.progress[at] - met[met != _UNKNOWN]
        return bounds

    def bounds_at(self, progress: Int64s) -> Int64s:
        return np.where((progress == NEVER) | (self.slacks == _UNKNOWN), NEVER, progress - self.slacks)

    def adapt(self, feedback: Feedback) -> None:
        """The scout learns."""

    def report(self) -> dict[str, float]:
        """What the scout's strategy thinks but for the slack, which may have changed since."""
        said: dict[str, float] = getattr(self._leader, "report", dict)()
        return {name: value for name, value in said.items() if name != "slack"}

    def snapshot(self) -> Snapshot:
        return {}
