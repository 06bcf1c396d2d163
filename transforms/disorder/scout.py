"""One slack for all shards of a live join (QDDH sec. V): scouts.

Shards that learn a slack each, from the rows they happen to have, learn less the more of them there are. So every
shard is given the same sample of the rows of all (``sampling``), and has a scout: a join of its own without
results, whose disorder strategy learns from the sample. Scouts are given the same, so they learn the
same. A shard lets a row go no sooner than its scout would, and after a micro-batch has let go what the scout has.

Where rows are few, the sample is all of them, and the scout does what a single shard would do. So whatever the
shard has joined at an arrival, a single shard has joined by then; a row that is late in the shard is late there;
and every result that a single shard finds is found, by the same micro-batch. Shards may find more, as a row that
is late for others need not be late for those of its own shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import (
    NEVER,
    Arrivals,
    DisorderLogic,
    DisorderStrategy,
    Feedback,
    Held,
    Int8s,
    Int64s,
    Setting,
    Snapshot,
)
from slackwater.plugins.guard.calls import guarded
from slackwater.plugins.registry import builtin
from slackwater.transforms.arrival.intake import Chunk, Intake
from slackwater.transforms.arrival.merge import arrival_numbers
from slackwater.transforms.arrival.ties import in_stable_order
from slackwater.transforms.disorder.buffer import ReorderBuffer
from slackwater.transforms.disorder.order import Order, Ordered
from slackwater.transforms.disorder.sample import Sample, Sampler, at_level
from slackwater.transforms.disorder.schedule import Schedule
from slackwater.transforms.kernels.disorder.shared_bounds import follow
from slackwater.transforms.operators.join.operator import Operator
from slackwater.transforms.operators.join.stage import Join
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.output.outputs import Outputs
from slackwater.transforms.punctuation.judge import Judged
from slackwater.transforms.rows.shard_rows import ShardRows
from slackwater.transforms.settings.plan import ARRIVAL, JoinPlan, Plan, bind

_LEFT_OUT: dict[str, Any] = {
    "archive": None, "error_handling": None, "hot_keys": None, "id": None, "join": {"strategy": builtin.JOIN},
    "metrics": None, "output": "counts", "shards": 1,
}  # fmt: skip


def scout_plan(plan: Plan) -> JoinPlan | None:
    """Return the join of the scouts of a plan; None where every shard decides for itself.

    That is so where a strategy has nothing to learn or goes by more than delays and results (``shares``), where
    rows are shed, without windows of time, and with punctuations or metadata.
    """
    if not isinstance(plan, JoinPlan) or plan.shards == 1 or not plan.disorder.shares:
        return None
    config = plan.config
    limited = plan.shedding.sheds or plan.setting.rows or config.window is None
    if limited or plan.setting.patterns or len(plan.members) < len(plan.inputs):
        return None
    return bind(
        config.model_copy(update=_LEFT_OUT), {name: _narrow(plan, i) for i, name in enumerate(plan.members)}
    )


def sampler(plan: Plan, which: int) -> Sampler:
    """Return what chooses the rows of one input that scouts of a plan get."""
    assert isinstance(plan, JoinPlan), "only joins have scouts"
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
    watermarks: str | dict[str, str] | None

    @property
    def watermark_columns(self) -> str | dict[str, str] | None:
        return self.watermarks

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> DisorderLogic:
        logic: DisorderLogic = self.logic
        return logic


def led_by(plan: JoinPlan, logic: DisorderLogic) -> JoinPlan:
    """Return a plan for one operator whose disorder logic is this one."""
    return replace(plan, disorder=Led(logic=logic, watermarks=plan.disorder.watermark_columns))


class LedOperator(Operator):
    """The join of a shard that follows its scout."""

    def __init__(self, plan: JoinPlan, scout: Scout, snapshot: Snapshot | None = None, shard: int = 0) -> None:
        super().__init__(led_by(plan, scout.follower), snapshot, shard)
        self._scout = scout
        self.order.buffer.leader = scout.follower
        self._tells = scout.adapts and not self.order.pace.measured
        """Whether there is a row of metrics for every micro-batch, rather than for so much stream time."""
        self.order.pace.measured |= self._tells

    def advance(self, progress: Int64s) -> Outputs:
        """Go on to where the scout is; what it has not released, no shard has."""
        self.order.buffer.catch_up(self._scout.buffer)
        out = super().advance(progress)
        if self._tells:
            self.order.pace.measure()
            out.metrics.extend(self.order.pace.metrics())
        return out


class Scout:
    """Learns slacks from samples, micro-batch by micro-batch.

    It has the stages of a join up to the join itself, and nothing to deliver. It joins only if the strategy has
    to know what joins.

    Args:
        plan: what ``scout_plan`` returned.
        snapshot: what ``snapshot`` returned, or None.
    """

    def __init__(self, plan: JoinPlan, snapshot: Snapshot | None = None) -> None:
        state: dict[str, Any] = dict(snapshot) if snapshot else {}
        before: dict[str, Any] = dict(state.get("operator", {}))
        logic = guarded(plan.disorder, plan.setting, before.get("disorder"))
        self._plan = plan
        self._leader = Leader(logic, len(plan.members), state.get("leader"))
        led, accounting, seconds = (
            led_by(plan, self._leader),
            Accounting(plan.inputs),
            {"kernel": 0.0, "adapt": 0.0},
        )
        self._rows = ShardRows(led, before)
        self._intake = Intake(led, before.get("intake"))
        self._order = Order(led, accounting, seconds, before)
        self._order.pace.measured = False
        self._schedule = Schedule(self._order.pace)
        self._join: Join | None = None
        if self.adapts and plan.disorder.needs_feedback:
            joined = guarded(plan.join, plan.setting, before.get("join"))
            shedding = guarded(plan.shedding, plan.setting)
            self._join = Join(led, joined, shedding, self._rows, self._order.buffer, accounting, seconds, before)
        self.follower = Follower(self._leader, self._order.buffer)

    def take(self, samples: Sequence[Sequence[Sample]], first: int) -> None:
        """Learn from a micro-batch; until ``settle``, ``follower`` tells the bounds at each of its arrivals.

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
        self._push(in_stable_order(self._plan, batches, arrivals))
        self._compact()

    def _push(self, chunk: Chunk) -> None:
        taken = self._intake.take(chunk)
        arrivals, codes = self._rows.add(taken, self._order.pace.needs_cells), taken.codes
        newest = self._order.pace.follow(arrivals.progress)
        bounds = np.empty(newest.size, np.int64)
        for part in self._schedule.parts(newest):
            bounds[part] = self._order.pace.bounds(arrivals.part(part))
            if self._join is not None:
                released = self._order.release(arrivals.part(part), codes[part], newest[part], bounds[part])
                self._learn(self._join, released)
        if self._join is None:
            # Nothing is learnt from what leaves, so it may leave at once.
            self._order.release(arrivals, codes, newest, bounds)

    def _go_on(self, ordered: Ordered) -> None:
        if self._join is not None:
            self._learn(self._join, ordered)
        self._compact()

    def _learn(self, join: Join, ordered: Ordered) -> None:
        """Let the strategy know what rows find that have left the buffer."""
        for part, peaks in join.parts(ordered):
            judged = Judged(self._rows.reached(part))
            joined = join.step(judged.tuples, None, peaks, lambda released, matches: None)
            self._order.learn(judged.outcome(joined, join.follow(judged.tuples)))

    def _compact(self, force: bool = False) -> None:
        """Forget rows that nothing refers to, once they are the larger part of what is stored."""
        held = Held.none(self._plan.condition.width) if self._join is None else self._join.held()
        if force or len(self._rows) >= 2 * (len(self._order) + held.ts.size) + _SPARE:
            self._rows.keep(self._order.buffer.held(), held)
            self._rows.forget_texts(self._order.held_cells())

    def advance(self, progress: Int64s) -> None:
        """Go on to where all rows have brought the inputs (``Order.advance``)."""
        self._go_on(self._order.advance(self._intake.advance(progress)))

    def idle(self, members: Sequence[int]) -> None:
        """Hold nothing back for inputs that bring no rows (``Order.idle``)."""
        self._go_on(self._order.idle(members))

    def settle(self) -> None:
        """Forget where in a micro-batch bounds have moved."""
        self._leader.settle()
        self.follower.settle()

    @property
    def adapts(self) -> bool:
        """Whether the strategy learns in intervals of stream time."""
        return self._leader.interval is not None

    @property
    def buffer(self) -> ReorderBuffer:
        """What is held of the samples."""
        return self._order.buffer

    @property
    def nbytes(self) -> int:
        """Bytes of everything held."""
        joined = 0 if self._join is None else self._join.nbytes
        return self._rows.nbytes + self._order.nbytes + joined

    def snapshot(self) -> Snapshot:
        """Everything needed to go on in another process, once a micro-batch is settled."""
        self._compact(force=True)
        joined = {} if self._join is None else self._join.snapshot()
        stages = {**self._order.snapshot(), **self._rows.snapshot(), **joined}
        return {"operator": {"intake": self._intake.snapshot(), **stages}, "leader": self._leader.kept()}


_SPARE: Final = 4096
"""Rows that nothing refers to any more, at most, besides as many as are needed."""
_FIRST: Final = np.iinfo(np.int64).min
_LAST: Final = np.iinfo(np.int64).max


class Noted(NamedTuple):
    """What arrivals of one input have met, in order; the first entry stands for all before the micro-batch."""

    clock: Int64s
    """Number of the arrival."""
    bound: Int64s
    slack: Int64s
    """How far the bound was behind the progress of the input; 0 where nothing could be released yet."""


class Leader(DisorderLogic):
    """The logic of a disorder strategy, and what arrivals of each input have met in the micro-batch."""

    def __init__(self, logic: DisorderLogic, inputs: int, kept: Sequence[Sequence[int]] | None = None) -> None:
        self.logic = logic
        self._parts: list[list[Noted]] = []
        self._begin([(NEVER, 0)] * inputs if kept is None else kept)

    @property
    def interval(self) -> int | None:
        return self.logic.interval

    @property
    def needs_cells(self) -> bool:
        return self.logic.needs_cells

    def adapt(self, feedback: Feedback) -> None:
        self.logic.adapt(feedback)

    def report(self) -> dict[str, float]:
        return self.logic.report()

    def held_cells(self) -> tuple[Int8s, Int64s]:
        return self.logic.held_cells()

    def snapshot(self) -> Snapshot:
        return self.logic.snapshot()

    def bounds(self, arrivals: Arrivals) -> Int64s:
        bounds = self.logic.bounds(arrivals)
        self.note(arrivals, bounds)
        return bounds

    def note(self, arrivals: Arrivals, bounds: Int64s) -> None:
        """Note the bounds that arrivals have met."""
        slack = np.where(bounds == NEVER, 0, np.maximum(arrivals.progress - bounds, 0))
        for i, parts in enumerate(self._parts):
            at = arrivals.input == i
            parts.append(Noted(arrivals.clock[at], bounds[at], slack[at]))

    def bounds_at(self, progress: Int64s) -> Int64s | None:
        bounds = self.logic.bounds_at(progress)
        if bounds is None:
            return None
        for i in np.flatnonzero(progress != NEVER).tolist():
            self._parts[i].append(_note(_LAST, bounds[i], max(0, int(progress[i]) - int(bounds[i]))))
        return bounds

    @property
    def noted(self) -> list[Noted]:
        """What arrivals of each input have met."""
        self._parts = [
            parts if len(parts) == 1 else [Noted._make(map(np.concatenate, zip(*parts, strict=True)))]
            for parts in self._parts
        ]
        return [noted for (noted,) in self._parts]

    def settle(self) -> None:
        """Forget all but the last of what was noted."""
        self._begin(self.kept())

    def kept(self) -> list[list[int]]:
        """Return what ``kept`` of a new one has to be to go on after a micro-batch."""
        return [[int(noted.bound[-1]), int(noted.slack[-1])] for noted in self.noted]

    def _begin(self, kept: Sequence[Sequence[int]]) -> None:
        self._parts = [[_note(_FIRST, *last)] for last in kept]


def _note(*values: int) -> Noted:
    return Noted._make(np.array([value], np.int64) for value in values)


class Follower(DisorderLogic):
    """The disorder logic of a shard that has a scout: a row is let go once the scout would have done so."""

    def __init__(self, leader: Leader, buffer: ReorderBuffer) -> None:
        self._leader, self._buffer = leader, buffer
        self.held_bounds: Int64s = np.empty(0, np.int64)
        self.settle()

    def settle(self) -> None:
        """Begin with another micro-batch."""
        self._seen = [0] * len(self._leader.noted)
        """Of each input the last entry of the leader's notes that has been looked at."""

    def bounds(self, arrivals: Arrivals) -> Int64s:
        bounds, self.held_bounds = np.empty((2, arrivals.ts.size), np.int64)
        for i, noted in enumerate(self._leader.noted):
            at = np.flatnonzero(arrivals.input == i)
            met, held = np.empty((2, at.size), np.int64)
            self._seen[i] = follow(arrivals.clock[at], noted.clock, noted.bound, self._seen[i], met, held)
            bounds[at], self.held_bounds[at] = met, held
        return bounds

    def bounds_at(self, progress: Int64s) -> Int64s:
        """The largest bounds since the last arrivals here, as far as they have let rows go."""
        largest = [
            noted.bound[min(seen + 1, noted.bound.size - 1) :].max()
            for seen, noted in zip(self._seen, self._leader.noted, strict=True)
        ]
        return np.minimum(largest, self._buffer.released)

    def slacks(self, arrivals: Arrivals) -> Int64s:
        """The slack that arrivals meet. Bounds do not tell it: the shard has not seen all progress."""
        slacks = np.empty(arrivals.ts.size, np.int64)
        for i, noted in enumerate(self._leader.noted):
            at = np.flatnonzero(arrivals.input == i)
            slacks[at] = noted.slack[np.searchsorted(noted.clock, arrivals.clock[at], side="right") - 1]
        return slacks

    def report(self) -> dict[str, float]:
        """What the scout's strategy thinks but for the slack, which may have changed since."""
        return {name: value for name, value in self._leader.report().items() if name != "slack"}

    def snapshot(self) -> Snapshot:
        return {}
