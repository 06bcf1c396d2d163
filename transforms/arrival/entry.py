"""The stage where rows arrive: they are counted, wait in the queue if there is one, and pass the guard.

A row that the source could not read is refused before the queue; one without a time, or with an odd one, by the
guard, when its turn has come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from slackwater.plugins.contract import Int64s, JoinLogic, Snapshot
from slackwater.transforms.arrival.intake import Chunk, Intake, Taken
from slackwater.transforms.arrival.queue import InputQueue
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.rows.encoder import CellEncoder
from slackwater.transforms.settings.plan import JoinPlan


class Entry:
    """Queue and guard of one shard.

    Args:
        plan: what the operator does.
        encoder: of the tuples' cells.
        accounting: what became of the rows.
        snapshot: a mapping with what ``snapshot`` returned, or without.
    """

    def __init__(
        self, plan: JoinPlan, encoder: CellEncoder, accounting: Accounting, snapshot: Mapping[str, Any]
    ) -> None:
        self._accounting = accounting
        self.intake = Intake(plan, snapshot.get("intake"))
        self.queue: InputQueue | None = None
        if plan.queue is not None:
            self.queue = InputQueue(plan, encoder, accounting, snapshot.get("queue"))

    @property
    def progress(self) -> Int64s:
        """Largest event time believed of each input, or NEVER."""
        return self.intake.progress

    def take(self, chunk: Chunk, join: JoinLogic, now: Callable[[], int]) -> Iterator[Taken]:
        """Yield rows whose turn has come, with those that are refused; the next once these have been joined.

        Args:
            chunk: arrivals.
            join: what a queue looks at to see how busy it is.
            now: tells the time of the join.
        """
        self._accounting.receive(chunk.at_home)
        chunk, bad = self.intake.without_bad(chunk)
        turns = [(chunk, bad)] if self.queue is None else self.queue.serve(chunk, join, now, bad)
        for turn, shed in turns:
            taken = self.intake.take(turn)
            yield taken._replace(refused=[*shed, *taken.refused]) if shed else taken

    def served(self) -> Iterator[Taken]:
        """Yield the rows that wait in the queue: nothing comes that they would have to wait for."""
        if self.queue is not None:
            yield self.intake.take(self.queue.drain())

    def rest(self) -> Iterator[Taken]:
        """Yield all that waits, in the queue or for the guard's verdict: the inputs have ended."""
        yield from self.served()
        if self.intake.holds:
            yield self.intake.rest()

    def snapshot(self) -> Snapshot:
        state: dict[str, Any] = {"intake": self.intake.snapshot()}
        return state if self.queue is None else {**state, "queue": self.queue.snapshot()}

    @property
    def nbytes(self) -> int:
        """Bytes of the rows that wait in the queue."""
        return 0 if self.queue is None else self.queue.nbytes
