"""The operator of Reorder: rows that are in order pass, rows that came too late for it do not.

    arrive → guard → order → (judge) → deliver

The stages are those of a join (``operators.join.operator``). The law that they keep together: where chunks are
cut, or a snapshot is taken, changes no result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import NEVER, Int64s, Matches, Punctuations, Snapshot
from slackwater.transforms.arrival.intake import Chunk, Intake, Taken
from slackwater.transforms.disorder.order import Order, Ordered
from slackwater.transforms.disorder.schedule import Schedule
from slackwater.transforms.operators.base import Operator, nothing_held
from slackwater.transforms.operators.reorder.plan import OrderPlan
from slackwater.transforms.output.accounting import Accounting, partners_gone
from slackwater.transforms.output.late_rows import LateRows, refuse
from slackwater.transforms.output.outputs import Outputs
from slackwater.transforms.output.result_rows import RESULTS_AT_ONCE
from slackwater.transforms.output.step import Joined, Outcome
from slackwater.transforms.punctuation.judge import Judge
from slackwater.transforms.rows.shard_rows import ShardRows
from slackwater.transforms.rows.size import PIECE_BYTES, cuts
from slackwater.transforms.settings.plan import strategies_of

_SPARE = 4096
"""Rows that are kept beyond those that wait before they are thrown away together."""


class ReorderOperator(Operator):
    """One shard of Reorder.

    A row that is older than one that has left is in the late output, and nowhere else. State: the rows that wait.
    """

    def __init__(self, plan: OrderPlan, snapshot: Snapshot | None = None, shard: int = 0) -> None:
        state: dict[str, Any] = dict(snapshot or {})
        self._plan = plan
        self.seconds = {"kernel": 0.0, "materialise": 0.0, "adapt": 0.0}
        """Time spent putting rows in order, making result rows of them, and adapting."""
        self.accounting = Accounting(plan.inputs, state.get("accounting"))
        self.rows = ShardRows(plan, state)
        self._intake = Intake(plan, state.get("intake"))
        self.order = Order(plan, self.accounting, self.seconds, state)
        self.judge = Judge(plan, self.rows, snapshot=state.get("promises"))
        self._schedule = Schedule(self.order.pace)
        self._late = LateRows(plan, self.rows.stores, self.accounting)
        self._now = int(state.get("on_t", NEVER))
        """Largest event time that has left the buffer."""
        self._passed: list[Int64s] = []
        """Numbers of the rows that go to the main output with this step."""
        self._take: Callable[[pa.RecordBatch], None] | None = None
        self._out = Outputs.empty()
        """What this step has given so far."""
        self._nothing = nothing_held(plan.condition.width)
        self.rows.check(self.order.buffer.held(), self._nothing)

    def push(self, chunk: Chunk) -> Outputs:
        """Take arrivals; return the rows whose turn has come and those that are late."""
        self.accounting.receive(chunk.input)
        self._let_in(self._intake.take(chunk))
        return self._close_step()

    def idle(self, members: Sequence[int]) -> Outputs:
        """Let all rows go that wait, if the input is among ``members``: it brings none."""
        self._go_on(self.order.idle(members))
        if members:
            self.order.pace.measure()
        return self._close_step()

    def advance(self, progress: Int64s) -> Outputs:
        """Go on to where rows of other shards have brought the input."""
        self._go_on(self.order.advance(self._intake.advance(progress)))
        return self._close_step()

    def finish(self) -> Outputs:
        """Let everything go that is held, in order: the input has ended."""
        if self._intake.holds:
            self._let_in(self._intake.rest())
        self._go_on(self.order.drain())
        if self.judge.promised:
            self.say(self.judge.finish())
        out = self._close_step()
        self.order.pace.measure()
        out.metrics.extend(self.order.pace.metrics())
        return out

    def say(self, punctuations: Punctuations) -> None:
        """Take punctuations that are in force now: the results do not need them."""

    def punctuations(self) -> list[pa.RecordBatch]:
        """Return the punctuations that leave with this step, as rows."""
        return []

    def drop_late(self) -> None:
        """Count late rows and make none: nobody reads them."""
        self._late.wanted = False

    def hand_over(self, take: Callable[[pa.RecordBatch], None]) -> None:
        """Let results go before their step is over, where they are many bytes."""
        self._take = take

    @property
    def nbytes(self) -> int:
        """Bytes of everything held."""
        return self.rows.nbytes + self.order.nbytes + self.judge.nbytes

    def snapshot(self) -> Snapshot:
        """Everything needed to go on in another process, as ``transforms.state.snapshot`` writes it."""
        self._compact(force=True)
        state = {
            "strategies": strategies_of(self._plan),
            "intake": self._intake.snapshot(),
            "accounting": self.accounting.snapshot(),
            "on_t": self._now,
        }
        return {**state, **self.rows.snapshot(), **self.order.snapshot(), **self.judge.snapshot()}

    def _let_in(self, taken: Taken) -> None:
        """Let rows into the buffer, but for those that the guard refuses."""
        refuse(self._plan, self.accounting, taken.refused, self._out)
        arrivals = self.rows.add(taken, self.order.pace.needs_cells)
        codes, newest = taken.codes, self.order.pace.follow(arrivals.progress)
        for part in self._schedule.parts(newest):
            self._go_on(self.order.take(arrivals.part(part), codes[part], newest[part]))

    def _go_on(self, ordered: Ordered) -> None:
        """Judge rows that have left the buffer, and let those pass that are in order."""
        if not ordered.rows.ts.size:
            return
        reached = self.rows.reached(ordered.rows)
        judged = self.judge.judge(reached)
        late, tuples = judged.too_late, judged.tuples
        self._late.add(reached.tuples.input[late], reached.tuples.seq[late], "too_late")
        if judged.punctuations is not None:
            self.say(judged.punctuations)
        self._passed.append(tuples.seq[~tuples.late])
        gone, self._now = partners_gone(reached.tuples, self._plan.setting, self._now)
        outcome = judged.outcome(_each_alone(~tuples.late), gone)
        self._account(outcome)
        self.order.learn(outcome)
        self.accounting.state(len(self.order), 0)
        if sum(map(len, self._passed)) >= RESULTS_AT_ONCE:
            self._deliver()

    def _account(self, outcome: Outcome) -> None:
        """Count rows, and report those that contradict a punctuation."""
        if outcome.marked is not None:
            self.accounting.punctuate(outcome.marked)
        wrong = outcome.violating
        if wrong is not None:
            self.accounting.reject_each(np.bincount(wrong.input), "punctuation_violated")
            self._late.add(wrong.input, wrong.seq, "punctuation_violated")
        tuples = outcome.tuples
        self.accounting.join(tuples.input, tuples.late, outcome.gone, outcome.sizes[0])

    def _close_step(self) -> Outputs:
        """Write what this step gave, forget the rows that have left, and begin another."""
        self._deliver()
        out, self._out = self._out, Outputs.empty()
        self._late.write(out)
        out.punctuations.extend(self.punctuations())
        out.metrics.extend(self.order.pace.metrics())
        self.accounting.waited.hold(len(self.order), self._intake.progress)
        self.accounting.state(len(self.order), self.nbytes)
        self._compact()
        return out

    def _deliver(self) -> None:
        """Write the rows that passed."""
        if not self._passed:
            return
        started = time.perf_counter()
        (store, *_), seqs, results = self.rows.stores, np.concatenate(self._passed), self._out.results
        self._passed.clear()
        at = store.locate(seqs)
        sizes = store.sizes(at)
        for part in [slice(None)] if isinstance(sizes, int) else cuts(sizes):
            results.append(pa.RecordBatch.from_arrays(store.take(at[part]), schema=self._plan.result_schema))
            if self._take is not None and sum(batch.nbytes for batch in results) >= PIECE_BYTES:
                for batch in results:
                    self._take(batch)
                results.clear()
        self.seconds["materialise"] += time.perf_counter() - started

    def _compact(self, force: bool = False) -> None:
        """Forget rows that have left, once they are the larger part of what is stored."""
        if not force and len(self.rows) < 2 * len(self.order) + _SPARE:
            return
        self.rows.keep(self.order.buffer.held(), self._nothing)
        self.rows.forget_texts(chain(self.order.held_cells(), self.judge.held_cells()))


def _each_alone(passes: Any) -> Joined:
    """Return what a join would say that finds each row that passes alone: it is a result of its own."""
    size, none = passes.astype(np.int64), np.empty(0, np.int64)
    joined = Joined()
    joined.add(Matches(0, size.size, none.reshape(0, 1), none, size, size.astype(np.float64)))
    return joined
