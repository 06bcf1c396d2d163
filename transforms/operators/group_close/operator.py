"""The operator of GroupClose: the open groups of one shard, and what closes them, chunk by chunk."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import NEVER, Bools, Int64s, Snapshot
from slackwater.transforms.arrival.intake import Chunk, Intake
from slackwater.transforms.kernels.operators import open_groups as kernel
from slackwater.transforms.operators.base import Operator
from slackwater.transforms.operators.group_close.plan import CLOSED_BY, PUNCTUATIONS, ROWS, GroupClosePlan
from slackwater.transforms.operators.group_close.store import Closed, GroupStore
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.output.late_rows import refuse
from slackwater.transforms.output.outputs import Outputs, late_batches
from slackwater.transforms.punctuation.patterns import PatternReader, Patterns
from slackwater.transforms.punctuation.pending import Waiting

_REASONS: Final = {kernel.VIOLATES: "punctuation_violated", kernel.TOO_LATE: "too_late"}


class GroupCloser(Operator):
    """One shard of GroupClose: a group leaves when nothing more can come for it (PWJoin sec. 1.2).

    A punctuation at time p closes the groups that it covers once a row after p has come, as rows at p belong
    before it; what covers no more than a part of a group closes nothing. A window closes a group once stream time
    is past its first row plus the window, both included, and the next row of that value opens another. The end of
    the input closes the rest. Where chunks are cut, or a snapshot is taken, changes no result. Inputs come merged
    by event time; a row behind stream time is added to its group as long as that is open.

    State: the partial aggregates of open groups, punctuations that wait for their time, and the last values that
    were punctuated (``kernels.operators.open_groups.REMEMBERED``).
    """

    def __init__(self, plan: GroupClosePlan, snapshot: Snapshot | None = None, shard: int = 0) -> None:
        state: dict[str, Any] = dict(snapshot) if snapshot else {}
        self._plan = plan
        self._intake = Intake(plan, state.get("intake"))
        self._reader = PatternReader(plan.group_cells, plan.key_schema, plan.same)
        self._reader.others.update(state.get("others", ()))
        self._store = GroupStore(plan, state.get("store"))
        self._waiting = Waiting(len(plan.by), state.get("waiting"))
        self._newest = int(state.get("newest", NEVER))
        """Largest event time of a row."""
        self.accounting = Accounting(plan.inputs, state.get("accounting"))
        self.seconds = {"kernel": 0.0, "materialise": 0.0, "adapt": 0.0}
        """Time spent adding rows to groups, and making result rows of those that were closed."""

    def push(self, chunk: Chunk) -> Outputs:
        """Take rows and punctuations; return the groups they close and the rows that came too late for theirs."""
        out = Outputs.empty()
        self.accounting.receive(chunk.at_home)
        taken = self._intake.take(chunk)
        refuse(self._plan, self.accounting, taken.refused, out)
        (rows, given), (at, places) = taken.rows, taken.of_input
        ts, arrival = taken.arrivals.ts, taken.arrivals.clock
        started = time.perf_counter()
        patterns = self._read(out, given, ts[places], arrival[places], ~taken.copies[1])
        self._waiting.add(
            ts[places][patterns.of],
            np.searchsorted(at, places)[patterns.of],
            *self._store.name(patterns),
        )
        progress = np.maximum.accumulate(np.append(self._newest, ts[at]))
        self._newest = int(progress[-1])
        due = self._waiting.take(progress)
        verdict = np.zeros(at.size, np.int8)
        closed = self._store.advance(ts[at], rows, due, verdict)
        self.seconds["kernel"] += time.perf_counter() - started
        self._deliver(out, closed)
        self._report(out, rows, ts[at], arrival[at], verdict)
        self.accounting.state(self._store.most, self.nbytes)
        self._waiting.renumber(self._store.forget(self._waiting.values))
        return out

    def idle(self, members: Sequence[int]) -> Outputs:
        """Apply the punctuations that wait for a row after theirs, if nothing comes any more."""
        out = Outputs.empty()
        if len(members) == len(self._plan.inputs):
            self._deliver(out, self._store.apply(self._waiting.take(np.array([np.iinfo(np.int64).max]))))
        return out

    def finish(self) -> Outputs:
        """Apply the punctuations that are left, in order, and close every group: the input has ended."""
        out = Outputs.empty()
        self._deliver(out, self._store.finish(self._waiting.take(np.array([np.iinfo(np.int64).max]))))
        return out

    @property
    def warnings(self) -> list[str]:
        """What the user should know of the data, at most one line of each kind."""
        others = sorted(self._reader.others)
        if not others:
            return super().warnings
        by = ", ".join(self._plan.by)
        fault = (
            f"punctuations that name {', '.join(others)} close no group, as groups are by {by} alone; add the "
            f"column to by, or, if it always has the value of another, say so with same: {{{others[0]}: "
            f"{self._plan.by[0]}}}"
        )
        return [*super().warnings, fault]

    @property
    def nbytes(self) -> int:
        """Bytes of everything held."""
        return self._store.nbytes + self._waiting.nbytes

    def snapshot(self) -> Snapshot:
        """Everything needed to go on in another process, as ``transforms.state.snapshot`` writes it."""
        self._waiting.renumber(self._store.forget(self._waiting.values, force=True))
        return {
            "intake": self._intake.snapshot(),
            "others": sorted(self._reader.others),
            "store": self._store.snapshot(),
            "waiting": self._waiting.snapshot(),
            "newest": self._newest,
            "accounting": self.accounting.snapshot(),
        }

    def _read(self, out: Outputs, given: pa.RecordBatch, ts: Int64s, arrival: Int64s, own: Bools) -> Patterns:
        """Return what punctuations say; of its ``own``, those that cannot be read go to the late output."""
        patterns = self._reader.read(given.column("pattern"))
        bad = patterns.bad & own
        if bad.any():
            self.accounting.reject(1, "bad_record", int(bad.sum()))
            rows = given.filter(pa.array(bad))
            out.late.extend(late_batches(PUNCTUATIONS, "bad_record", ts[bad], arrival[bad], rows))
        self.accounting.punctuate(np.ones(int((own & ~bad).sum()), np.int8))
        return patterns

    def _report(self, out: Outputs, rows: pa.RecordBatch, ts: Int64s, arrival: Int64s, verdict: Any) -> None:
        """Count rows, and write those that came too late for their group."""
        self.accounting.in_order[0] += int((verdict == kernel.COUNTED).sum())
        for code, reason in _REASONS.items():
            at = np.flatnonzero(verdict == code)
            if at.size:
                count = self.accounting.refuse if reason == "too_late" else self.accounting.reject
                count(0, reason, int(at.size))
                out.late.extend(late_batches(ROWS, reason, ts[at], arrival[at], rows.take(pa.array(at))))

    def _deliver(self, out: Outputs, closed: Closed) -> None:
        """Turn groups that were closed into rows."""
        if not closed.ts.size:
            return
        started = time.perf_counter()
        values = self._plan.layout.results(closed.whole, closed.real)
        ts = pa.array(closed.ts, pa.int64()).cast(self._plan.time_type)
        by = pa.array(CLOSED_BY).take(pa.array(closed.by))
        arrays = [*closed.keys, *values, ts, by]
        out.results.append(pa.RecordBatch.from_arrays(arrays, schema=self._plan.result_schema))
        self.accounting.results += closed.ts.size
        self.seconds["materialise"] += time.perf_counter() - started
