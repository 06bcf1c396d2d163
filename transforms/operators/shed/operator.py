"""The operator of Shed: rows wait their turn, and the least valuable leave when too many do."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from slackwater.plugins.contract import NEVER, Bools, Float64s, Held, Snapshot, Tuples
from slackwater.transforms.arrival.intake import Chunk, Intake, Refused
from slackwater.transforms.arrival.queue import LIVE_NANOS, Arrived, InputQueue
from slackwater.transforms.operators.base import Operator, nothing_held
from slackwater.transforms.operators.shed.plan import ShedPlan
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.output.late_rows import refuse
from slackwater.transforms.output.outputs import Outputs
from slackwater.transforms.rows.encoder import CellEncoder
from slackwater.transforms.settings.plan import strategies_of


class LoadShedder(Operator):
    """One shard of Shed: a queue that is served at a given rate (SAJ 2.3, slow CPU).

    A row that finds the queue empty and the last one served passes at once; others wait, and pass in order of
    arrival. When one too many waits, the one with the lowest score goes to the late output, of equal ones the
    older. Partners are learnt from as they come, and go no further. Where chunks are cut, or a snapshot is taken,
    changes nothing.

    State: the rows that wait, at most ``queue``, and what the strategy has learnt.
    """

    def __init__(self, plan: ShedPlan, snapshot: Snapshot | None = None, shard: int = 0) -> None:
        state: dict[str, Any] = dict(snapshot) if snapshot else {}
        self._plan = plan
        self._intake = Intake(plan, state.get("intake"))
        self._newest = int(state.get("newest", NEVER))
        """Largest event time of a row."""
        self.accounting = Accounting(plan.inputs, state.get("accounting"))
        encoder = CellEncoder(plan.condition)
        self._waiting = _WaitingRows(plan, encoder, self.accounting, state.get("queue"))
        self.seconds = {"kernel": 0.0, "materialise": 0.0, "adapt": 0.0}
        """Time spent on the queue."""

    def push(self, chunk: Chunk) -> Outputs:
        """Take arrivals; return the rows whose turn has come and those that were shed."""
        out = Outputs.empty()
        self.accounting.receive(chunk.input)
        taken = self._intake.take(chunk)
        refuse(self._plan, self.accounting, taken.refused, out)
        arrivals = taken.arrivals
        newest = np.maximum.accumulate(np.append(self._newest, arrivals.ts))
        self._newest = int(newest[-1])
        came = newest[1:] * self._plan.setting.nanos_per_tick // LIVE_NANOS
        arrived = Chunk(taken.source, arrivals.clock, taken.rows, came)
        started = time.perf_counter()
        self._pass_on(out, self._waiting.serve(arrived, _Nobody(self._plan.condition.width), lambda: NEVER))
        self.seconds["kernel"] += time.perf_counter() - started
        self.accounting.state(len(self._waiting), self.nbytes)
        return out

    def idle(self, members: Sequence[int]) -> Outputs:
        """Let all pass that wait, if nothing comes that would have to wait for them."""
        return self.finish() if 0 in members else Outputs.empty()

    def finish(self) -> Outputs:
        """Let all pass that wait: the input has ended."""
        out = Outputs.empty()
        self._pass_on(out, [(self._waiting.drain(), [])])
        return out

    @property
    def nbytes(self) -> int:
        """Bytes of the rows that wait, and of what the strategy has learnt."""
        return self._waiting.nbytes

    def snapshot(self) -> Snapshot:
        """Everything needed to go on in another process, as ``transforms.state.snapshot`` writes it."""
        return {
            "strategies": strategies_of(self._plan),
            "intake": self._intake.snapshot(),
            "newest": self._newest,
            "queue": self._waiting.snapshot(),
            "accounting": self.accounting.snapshot(),
        }

    def _pass_on(self, out: Outputs, served: Iterable[tuple[Chunk, list[Refused]]]) -> None:
        for passed, shed in served:
            refuse(self._plan, self.accounting, shed, out)
            rows = passed.batches[0]
            self.accounting.in_order += [batch.num_rows for batch in passed.batches]
            if rows.num_rows:
                out.results.append(rows)
                self.accounting.results += rows.num_rows


class _WaitingRows(InputQueue):
    """The queue of a join that holds nothing: a row is worth what the strategy says of it."""

    def _worth(self, tuples: Tuples, learn: bool) -> Float64s:
        worth: Float64s = (self._logic.observe if learn else self._logic.scores)(tuples)
        return worth

    def _works(self, rows: Arrived) -> Bools:
        """Partners pass at once."""
        return rows.known & (rows.code & 7 == 0)


class _Nobody:
    """What is behind the queue holds nothing that rows may meet."""

    def __init__(self, width: int) -> None:
        self._none = nothing_held(width)

    def live(self) -> int:
        return 0

    def held(self) -> Held:
        return self._none
