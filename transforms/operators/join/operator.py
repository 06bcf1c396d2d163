"""The join of one shard, chunk by chunk: the path of a row is the path through these stages.

    arrive → (queue) → guard → order → judge → join ⇄ shed → deliver

Engines feed it arrivals, keep its snapshot and write what it returns; it knows nothing of them. Every stage is an
object with a state of its own. What they share is handed to them: the rows of the shard, and the account of what
becomes of them. The law that they keep together: where chunks are cut changes no result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Int64s, Punctuations, Released, Snapshot
from slackwater.plugins.guard.calls import guarded
from slackwater.transforms.arrival.entry import Entry
from slackwater.transforms.arrival.intake import Chunk, Taken
from slackwater.transforms.disorder.order import Order, Ordered
from slackwater.transforms.disorder.schedule import Schedule
from slackwater.transforms.operators.base import Operator as ShardOperator
from slackwater.transforms.operators.join.stage import Join
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.output.delivery import Delivery
from slackwater.transforms.output.outputs import Outputs
from slackwater.transforms.output.step import Joined
from slackwater.transforms.punctuation.judge import Judge
from slackwater.transforms.rows.shard_rows import ShardRows
from slackwater.transforms.settings.plan import JoinPlan, strategies_of


class Operator(ShardOperator):
    """One shard of a sliding window join."""

    def __init__(self, plan: JoinPlan, snapshot: Snapshot | None = None, shard: int = 0) -> None:
        state: dict[str, Any] = dict(snapshot or {})
        self._plan = plan
        self.seconds = {"kernel": 0.0, "materialise": 0.0, "adapt": 0.0}
        """Time spent buffering and joining, making result rows of what was found, and adapting."""
        self.accounting = Accounting(plan.inputs, state.get("accounting"))
        self.rows = ShardRows(plan, state)
        logic = guarded(plan.join, plan.setting, state.get("join"))
        shedding = guarded(plan.shedding, plan.setting, state["shedding"]["logic"] if snapshot else None)

        self.entry = Entry(plan, self.rows.encoder, self.accounting, state)
        self.order = Order(plan, self.accounting, self.seconds, state, shedding.memory is not None)
        self.join = Join(
            plan, logic, shedding, self.rows, self.order.buffer, self.accounting, self.seconds, state
        )
        self.delivery = Delivery(plan, self.rows, logic, self.accounting, self.seconds, shard, state)
        # Where others ask which tuples contradict, it has to be known before they are joined.
        asked = plan.derived or self.join.shedder.limited or self.delivery.archive is not None
        judges = None if asked else logic.judges
        self.judge = Judge(plan, self.rows, judges, state.get("promises"))

        self.queue = self.entry.queue
        self._no_tuples = Released.none(plan.condition.width)
        self._schedule = Schedule(self.order.pace, self.join.shedder.limit)
        self.rows.check(self.order.buffer.held(), self.join.held())

    def push(self, chunk: Chunk) -> Outputs:
        """Take arrivals; return the results they complete and the rows they prove late."""
        self._let_in(self.entry.take(chunk, self.join.logic, lambda: self.join.now))
        return self._close_step()

    def idle(self, members: Sequence[int]) -> Outputs:
        """Hold nothing back for ``members``, which are all that bring no rows (``ReorderBuffer.idle``)."""
        all_of_them = len(members) == len(self._plan.members)
        if all_of_them:
            self._let_in(self.entry.served())
        self._go_on(self.order.idle(members))
        if all_of_them:
            self.order.pace.measure()
        return self._close_step()

    def advance(self, progress: Int64s) -> Outputs:
        """Go on to where rows of other shards have brought each input, unless rows wait in the queue."""
        if not self.queue:
            self._go_on(self.order.advance(self.entry.intake.advance(progress)))
        return self._close_step()

    def finish(self) -> Outputs:
        """Release everything that is held, in timestamp order: the inputs have ended."""
        return Outputs.together(self.finishing())

    def finishing(self) -> Iterator[Outputs]:
        """As ``finish``, in parts: what a join has on disk may be more than fits into memory."""
        self._let_in(self.entry.rest())
        self._go_on(self.order.drain())
        self._keep_promises()
        self._account_step()
        self.join.close_run()
        self.delivery.close_archive()
        yield from self.delivery.finish(self.join.finish())
        self.order.pace.measure()
        yield self.delivery.collect(self.order.pace.metrics())

    def _let_in(self, turns: Iterable[Taken]) -> None:
        """Let rows in whose turn has come, but for those that are refused."""
        for taken in turns:
            self.delivery.refuse(taken.refused)
            arrivals = self.rows.add(taken, self.order.pace.needs_cells)
            self.join.shedder.arrive(taken)
            codes, newest = taken.codes, self.order.pace.follow(arrivals.progress)
            for part in self._schedule.parts(newest):
                if self.join.shedder.limited:
                    self._make_room(newest[part])
                self._go_on(self.order.take(arrivals.part(part), codes[part], newest[part]))

    def _make_room(self, newest: Int64s) -> None:
        """Let rows and tuples go for which there is no room any more, since there is less memory."""
        ordered = self.order.give_up(newest[:1])
        if ordered.rows.ts.size or self.join.shedder.shrunk:
            self._go_on(ordered)

    def _go_on(self, ordered: Ordered) -> None:
        """Judge rows that have left the buffer, join the tuples among them and deliver what they complete."""
        for part, peaks in self.join.parts(ordered):
            if not part.ts.size:
                self._step(self._no_tuples, None, peaks)
                continue
            judged = self.judge.judge(self.rows.reached(part))
            self.delivery.take_late(judged)
            joined = self._step(judged.tuples, judged.punctuations, self.join.levels(peaks, judged.joins))
            outcome = judged.outcome(joined, self.join.follow(judged.reached.tuples))
            self.delivery.account(outcome)
            self.order.learn(outcome)

    def _step(self, tuples: Released, punctuations: Punctuations | None, peaks: Int64s) -> Joined:
        self.delivery.release(tuples)
        joined = self.join.step(tuples, punctuations, peaks, self.delivery.take)
        self.delivery.put_in_order(tuples)
        return joined

    def _keep_promises(self) -> None:
        """Put in force what is pending, as no row comes any more, and hold the tuples to it."""
        if self.judge.promised:
            self._step(self._no_tuples, self.judge.finish(), np.zeros(1, np.int64))
            if self._plan.config.window is None and self._plan.foreign_keys:
                held = self.join.held()
                self.join.logic.blaming("held", self.delivery.recall, held, self.judge.unmatched(held))

    def _close_step(self) -> Outputs:
        self._account_step()
        return self.delivery.collect(self.order.pace.metrics())

    def _account_step(self) -> None:
        """Write what was found in this step, and forget what is not needed any more."""
        self.delivery.close_step(self.join.owes())
        if self.join.shedder.in_bytes:
            self._compact()
        self.accounting.waited.hold(len(self.order), self.entry.progress)
        self.accounting.state(len(self.order) + self.join.live(), self.nbytes)
        self.join.close_step()
        self._compact()

    def _compact(self, force: bool = False) -> None:
        """Forget rows that nothing refers to, once they are the larger part of what is stored."""
        live = len(self.order) + self.join.live()
        if not force and len(self.rows) < live + self.join.shedder.spare(live):
            return
        codes, held = self.order.buffer.held(), self.join.held()
        self.join.logic.blaming("held", self.rows.keep, codes, held, self.delivery.archive)
        joined = self.join.held_cells(self.judge.promised)
        self.rows.forget_texts(chain(self.order.held_cells(), self.judge.held_cells(), joined))

    def hand_over(self, take: Callable[[pa.RecordBatch], None]) -> None:
        """Let results go before their step is over, where they are many bytes."""
        self.delivery.hand_over(take)

    def drop_late(self) -> None:
        """Count late rows and make none: nobody reads them."""
        self.delivery.drop_late()

    @property
    def warnings(self) -> list[str]:
        """What the user should know of the data, at most one line of each kind."""
        return self.entry.intake.warnings

    @property
    def nbytes(self) -> int:
        """Bytes of everything held."""
        stages = (self.entry, self.order, self.judge, self.join, self.delivery)
        return self.rows.nbytes + sum(stage.nbytes for stage in stages)

    def snapshot(self) -> Snapshot:
        """Everything needed to go on in another process, as ``transforms.state.snapshot`` writes it."""
        self._compact(force=True)
        stages = (self.entry, self.order, self.judge, self.join, self.delivery, self.rows)
        state: dict[str, Any] = {
            "strategies": strategies_of(self._plan),
            "accounting": self.accounting.snapshot(),
        }
        for stage in stages:
            state |= stage.snapshot()
        return state

    def close(self) -> None:
        """Remove what is on disk; the operator is of no use any more."""
        self.join.close()
