"""The aggregate operator: guard, disorder strategy, record store and extents of one shard, chunk by chunk."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Arrivals, Bools, Float64s, Int64s, Snapshot
from slackwater.transforms.arrival.event_times import LIMIT
from slackwater.transforms.arrival.intake import Chunk, Intake, Taken
from slackwater.transforms.disorder.pace import Pace
from slackwater.transforms.disorder.schedule import Schedule
from slackwater.transforms.expressions.evaluation import evaluate, truth
from slackwater.transforms.operators.aggregate.plan import AFTER, AggregatePlan
from slackwater.transforms.operators.aggregate.record_store import Complete, RecordStore
from slackwater.transforms.operators.base import Operator
from slackwater.transforms.operators.group_index import GroupIndex
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.output.late_rows import refuse
from slackwater.transforms.output.outputs import Outputs, late_batches
from slackwater.transforms.settings.plan import strategies_of

_LEAST_GROUPS: Final = 1 << 12
"""Groups below which none is forgotten."""


class Aggregator(Operator):
    """One shard of a sliding window aggregate (ADC, Li et al.).

    A row is placed in the record store when it arrives. The disorder strategy's bound, made monotone, is the
    punctuation; every extent that it passes is emitted with its groups and a sync row. A row that comes after
    one of its extents has been emitted is in the late output, and in those of its extents that are open.

    State: the rows that the punctuation has not passed and, for the panes that open extents need, one record for
    each group. Where chunks are cut, or a snapshot is taken, changes no result.
    """

    def __init__(self, plan: AggregatePlan, snapshot: Snapshot | None = None, shard: int = 0) -> None:
        state: dict[str, Any] = dict(snapshot) if snapshot else {}
        self._plan = plan
        self._intake = Intake(plan, state.get("intake"))
        self._groups = GroupIndex(plan.group_cells, plan.key_schema, state.get("groups"))
        self._store = RecordStore(plan.range, plan.slide, plan.layout.ops, state.get("store"))
        self.accounting = Accounting(plan.inputs, state.get("accounting"))
        self.seconds = {"kernel": 0.0, "materialise": 0.0, "adapt": 0.0}
        """Time spent placing rows and producing extents, making result rows of them, and adapting."""
        self._pace = Pace(plan, self.accounting, lambda: self._store.waiting, self.seconds, state)
        self._schedule = Schedule(self._pace)
        self._most_groups = max(_LEAST_GROUPS, 2 * self._groups.size)

    def push(self, chunk: Chunk) -> Outputs:
        """Take arrivals; return the extents they complete and the rows they prove late."""
        out = Outputs.empty()
        self.accounting.receive(chunk.input)
        self._take(out, self._intake.take(chunk))
        out.metrics.extend(self._pace.metrics())
        return out

    def _take(self, out: Outputs, taken: Taken) -> None:
        refuse(self._plan, self.accounting, taken.refused, out)
        arrivals, (rows,) = self._shown(taken.arrivals), taken.rows
        groups, words = self._groups.assign(rows), self._plan.layout.rows(rows)
        late, gone = np.zeros(rows.num_rows, np.bool_), np.zeros(rows.num_rows)
        newest = self._pace.follow(arrivals.progress)
        for part in self._schedule.parts(newest):
            cut = arrivals.part(part)
            bounds = np.minimum(self._pace.bounds(cut), LIMIT)
            bounds = self._passed(bounds, cut.progress)
            started = time.perf_counter()
            for complete in self._store.advance(
                cut.ts, groups[part], (words[0][part], words[1][part]), bounds, late[part], gone[part]
            ):
                started = self._deliver(out, complete, newest[part], started)
            self.seconds["kernel"] += time.perf_counter() - started
            self._account(out, cut, rows.slice(part.start, cut.ts.size), late[part], gone[part])
        self.accounting.state(self._store.most, self.nbytes)
        if self._groups.size > self._most_groups:
            self._forget()

    def idle(self, members: Sequence[int]) -> Outputs:
        """Emit the extents that event time has passed, without slack: the input brings no rows.

        Extents that are not over stay open, and so do those of rows that come later.
        """
        out = Outputs.empty()
        started = time.perf_counter()
        for complete in self._store.pass_over(min(int(self._intake.progress[0]), LIMIT)) if members else ():
            started = self._deliver(out, complete, np.empty(0, np.int64), started)
        self._pace.measure()
        out.metrics.extend(self._pace.metrics())
        return out

    def advance(self, progress: Int64s) -> Outputs:
        """Emit the extents that are complete by where rows of other shards have brought the input."""
        out = Outputs.empty()
        (reached,) = progress = self._intake.advance(progress)
        (bound,) = self._pace.advance(progress)
        started = time.perf_counter()
        for complete in self._store.pass_over(min(int(self._passed(bound, reached)), LIMIT)):
            started = self._deliver(out, complete, np.empty(0, np.int64), started)
        out.metrics.extend(self._pace.metrics())
        return out

    def _passed(self, bounds: Int64s, progress: Int64s) -> Int64s:
        """Return up to which event times no row comes in time: without slack, one of the newest time may yet."""
        return bounds if self._plan.watermark_columns is not None else bounds - (bounds == progress)

    def finish(self) -> Outputs:
        """Emit every extent that holds a row, in order: the input has ended."""
        out = Outputs.empty()
        if self._intake.holds:
            self._take(out, self._intake.rest())
        started = time.perf_counter()
        for complete in self._store.flush():
            started = self._deliver(out, complete, np.empty(0, np.int64), started)
        self._pace.measure()
        out.metrics.extend(self._pace.metrics())
        return out

    @property
    def nbytes(self) -> int:
        """Bytes of everything held."""
        return self._store.nbytes + self._groups.nbytes

    def snapshot(self) -> Snapshot:
        """Everything needed to go on in another process, as ``transforms.state.snapshot`` writes it."""
        self._forget()
        return {
            "strategies": strategies_of(self._plan),
            "intake": self._intake.snapshot(),
            "groups": self._groups.snapshot(),
            "store": self._store.snapshot(),
            "accounting": self.accounting.snapshot(),
            **self._pace.snapshot(),
        }

    def _shown(self, arrivals: Arrivals) -> Arrivals:
        """Give a disorder strategy that looks at cells some: rows have no key in common."""
        if not self._pace.needs_cells:
            return arrivals
        n = arrivals.ts.size
        return arrivals._replace(cells=np.zeros((n, 1), np.int64), nulls=np.zeros(n, np.uint64))

    def _account(self, out: Outputs, cut: Arrivals, rows: pa.RecordBatch, late: Bools, gone: Float64s) -> None:
        """Count rows and report the late ones; to the strategy, a row in all its extents is a result."""
        n = late.size
        self.accounting.join(cut.input, late, gone[late], np.zeros(n, np.int64))
        self._pace.learn(cut.input, cut.ts, cut.delay, late, (~late).astype(np.int64), np.ones(n))
        if late.any():
            found = rows.filter(pa.array(late))
            out.late.extend(late_batches(self._plan.inputs[0], "too_late", cut.ts[late], cut.clock[late], found))

    def _deliver(self, out: Outputs, complete: Complete, newest: Int64s, started: float) -> float:
        """Turn extents into rows; ``started`` is when the search for them began."""
        produced = time.perf_counter()
        shown = complete.ends[(complete.ends[:, 1] >= 0) & (complete.ends[:, 2] > 0)]
        self._pace.release(newest[shown[:, 1]] - ((shown[:, 0] + 1) * self._plan.slide - 1))
        if complete.extent.size:
            keys = self._groups.keys(complete.group)
            values = self._plan.layout.results(complete.whole, complete.real)
            batch = self._having(self._batch(complete.extent, [*keys, *values], False))
            if batch.num_rows:
                out.results.append(batch)
                self.accounting.results += batch.num_rows
        ends = complete.ends[:, 0]
        if ends.size:
            fields = list(self._plan.result_schema)[3 : -len(AFTER)]
            out.syncs.append(self._batch(ends, [pa.nulls(ends.size, field.type) for field in fields], True))
        done = time.perf_counter()
        self.seconds["kernel"] += produced - started
        self.seconds["materialise"] += done - produced
        return done

    def _batch(self, extent: Int64s, columns: list[Any], sync: bool) -> pa.RecordBatch:
        plan = self._plan
        end = (extent + 1) * plan.slide
        start, end = (pa.array(ticks, pa.int64()).cast(plan.time_type) for ticks in (end - plan.range, end))
        marks = pa.repeat(sync, extent.size)
        arrays = [pa.array(extent, pa.int64()), start, end, *columns, marks, end]
        return pa.RecordBatch.from_arrays(arrays, schema=plan.result_schema)

    def _having(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        having = self._plan.having
        return batch if having is None else batch.filter(truth(evaluate(having, batch)))

    def _forget(self) -> None:
        """Forget the groups that no record belongs to, and call the others by smaller numbers."""
        if not self._plan.group_cells:
            return
        used = np.zeros(self._groups.size, np.bool_)
        used[self._store.groups()] = True
        self._store.renumber(self._groups.keep(used))
        self._most_groups = max(_LEAST_GROUPS, 2 * self._groups.size)
