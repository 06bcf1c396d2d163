"""The stage that joins: a join strategy, held to its memory, and what shedding costs.

The strategy keeps the windows and finds results. The shedder says how many tuples may be held and which leave
(join ⇄ shed), the shadow counts the results that this costs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from slackwater.plugins.contract import (
    NEVER,
    Bools,
    Float64s,
    Held,
    Int8s,
    Int64s,
    Matches,
    Punctuations,
    Released,
    Snapshot,
)
from slackwater.plugins.guard.calls import JoinGuard, SheddingGuard
from slackwater.transforms.disorder.buffer import Emitted, ReorderBuffer
from slackwater.transforms.disorder.order import Ordered
from slackwater.transforms.disorder.schedule import Schedule
from slackwater.transforms.expressions.opcodes import Lost
from slackwater.transforms.output.accounting import Accounting, partners_gone
from slackwater.transforms.output.step import Joined, does_not_fit
from slackwater.transforms.rows.shard_rows import ShardRows
from slackwater.transforms.settings.plan import JoinPlan
from slackwater.transforms.shedding.disk import RowDisk
from slackwater.transforms.shedding.shadow import Shadow
from slackwater.transforms.shedding.shedder import Shedder


class Join:
    """Join strategy, shedder, shadow and disk of one shard.

    Args:
        plan: the join.
        logic: of the join strategy.
        shedding: logic of the shedding strategy.
        rows: the rows of the shard.
        buffer: the reorder buffer, which shares the memory.
        accounting: what became of the rows.
        seconds: where the time that joining takes is added up, as ``kernel``.
        snapshot: a mapping with what ``snapshot`` returned, or without.
    """

    def __init__(
        self,
        plan: JoinPlan,
        logic: JoinGuard,
        shedding: SheddingGuard,
        rows: ShardRows,
        buffer: ReorderBuffer,
        accounting: Accounting,
        seconds: dict[str, float],
        snapshot: Mapping[str, Any],
    ) -> None:
        self._plan, self.logic, self._rows, self._buffer = plan, logic, rows, buffer
        self._accounting, self._seconds = accounting, seconds
        self.shedder = Shedder(plan, shedding, logic, rows, buffer, snapshot.get("shedding"))
        self._renewals = Schedule(self.shedder)
        self.shadow: Shadow | None = None
        if self.shedder.limited and not plan.setting.rows:
            self.shadow = Shadow(plan, self.shedder, rows, accounting, snapshot.get("shadow"))
        self.disk: RowDisk | None = None
        if logic.uses_disk:
            self.disk = RowDisk(plan, rows.stores, rows.encoder, logic.directory)
            logic.use_disk(self.disk)
        self.now = int(snapshot.get("on_t", NEVER))
        """The join's time: the largest event time of a row that has reached it."""

    def parts(self, ordered: Ordered) -> Iterator[tuple[Emitted, Int64s]]:
        """Cut rows on their way to the join where scores are renewed.

        Beside each part stands the most rows that the buffer holds before the first of them, and from each to the
        next. Under a limit, a part without rows lets tuples leave for which there is no room any more.
        """
        rows, level = ordered.rows, ordered.level
        if not self.shedder.limited:
            if rows.ts.size:
                yield rows, level
            return
        peaks = ordered.peaks
        if not rows.ts.size and self.shedder.memory is not None:
            yield rows, peaks
        self.shedder.deepen(level)
        for part in self._renewals.parts(rows.ts):
            yield Emitted._make(array[part] for array in rows), peaks[part.start : part.stop + 1]

    def levels(self, peaks: Int64s, joins: Bools | None) -> Int64s:
        """Return what stands beside a part, for those of its rows that join; None for all."""
        if joins is None or self.shedder.memory is None:
            return peaks
        return self.shedder.levels(peaks, joins)

    def step(
        self,
        released: Released,
        punctuations: Punctuations | None,
        peaks: Int64s,
        take: Callable[[Released, Matches], None],
    ) -> Joined:
        """Join tuples in order within the memory.

        Args:
            released: the tuples.
            punctuations: those that take effect between them; None where there are none.
            peaks: what stands beside the part that they are (``parts``).
            take: is given what is found, run by run.
        """
        try:
            return self._step(released, punctuations, peaks, take)
        except Lost:
            raise does_not_fit(self._plan.config.where) from None

    def _step(
        self,
        released: Released,
        punctuations: Punctuations | None,
        peaks: Int64s,
        take: Callable[[Released, Matches], None],
    ) -> Joined:
        joined, started = Joined(), time.perf_counter()
        if self.shadow is not None and released.ts.size and self.shedder.begins_run:
            self.shadow.begin(self.logic)
        for matches in self._runs(released, punctuations, peaks):
            if not self.shedder.limited:
                self._accounting.state(len(self._buffer) + self.logic.live(), 0)
            joined.add(matches)
            self._seconds["kernel"] += time.perf_counter() - started
            take(released, matches)
            started = time.perf_counter()
        self._accounting.state(self.shedder.most, 0)
        if self.shadow is not None:
            joined.lost = self.shadow.step(self.logic, released, joined.sizes[0], joined.evicted)
        self._seconds["kernel"] += time.perf_counter() - started
        return joined

    def _runs(self, released: Released, punctuations: Punctuations | None, peaks: Int64s) -> Iterable[Matches]:
        found: Iterable[Matches]
        if punctuations is None:
            found = self.logic.step(released)
        else:
            found = self.logic.punctuated_step(released, punctuations)
        return found if self.shedder.memory is None else self.shedder.step(released, peaks, self.now, found)

    def follow(self, released: Released) -> Float64s:
        """Go on to the time of rows that have reached the join; return, for the late ones, the share of their
        partners that had been joined before them."""
        gone, self.now = partners_gone(released, self._plan.setting, self.now)
        return gone

    def live(self) -> int:
        """How many tuples the join holds."""
        return self.logic.live()

    def held(self) -> Held:
        """The tuples that the join holds."""
        return self.logic.held()

    def owes(self) -> bool:
        """Whether there may be results of any time to come, from disk."""
        return self.disk is not None and self.logic.owes()

    def finish(self) -> Iterable[Matches]:
        """Yield what is found on disk: the inputs have ended."""
        return () if self.disk is None else self.logic.finish()

    def close_run(self) -> None:
        """Book what shedding has cost so far: the inputs have ended."""
        if self.shadow is not None:
            self.shadow.close_run(self.logic)

    def close_step(self) -> None:
        """Account for what is on disk."""
        if self.disk is not None:
            self._accounting.spill(self.logic.spilled, self.disk.nbytes)

    def close(self) -> None:
        """Remove what is on disk; the stage is of no use any more."""
        if self.disk is not None:
            self.disk.close()

    def held_cells(self, punctuated: bool) -> Iterator[tuple[Int8s, Int64s]]:
        """Yield input and cells of what is remembered besides the tuples held: texts in them must stay known."""
        if self.shadow is not None:
            yield self.shadow.held_cells()
        if punctuated:
            yield self.logic.held_cells()

    @property
    def nbytes(self) -> int:
        """Bytes of everything held."""
        shadow = 0 if self.shadow is None else self.shadow.nbytes
        return int(self.logic.nbytes) + self.shedder.nbytes + shadow

    def snapshot(self) -> Snapshot:
        state = {
            "join": self.logic.snapshot(),
            "shedding": self.shedder.snapshot(),
            "on_t": self.now,
        }
        return state if self.shadow is None else {**state, "shadow": self.shadow.snapshot()}
