"""The stage that puts rows in order: a disorder strategy sets bounds, the reorder buffer releases up to them.

Rows leave in order of event time but for those that come after a later one has left, which are late. Two laws:
bounds of an input never fall, and a row leaves only once every other input has come as far (QDDH Alg. 1).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from slackwater.plugins.contract import Arrivals, Int8s, Int64s, Snapshot
from slackwater.transforms.disorder.buffer import Emitted, ReorderBuffer
from slackwater.transforms.disorder.pace import Pace
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.output.step import Outcome
from slackwater.transforms.settings.plan import DisorderPlan


class Ordered(NamedTuple):
    """Rows that have left the buffer together, in the order in which they did."""

    rows: Emitted
    level: Int64s
    """Rows that the buffer still held when each had left."""
    held: int
    """Rows that it holds after all of them."""

    @property
    def peaks(self) -> Int64s:
        """The most rows that the buffer held before the first of these, and from each to the next."""
        peaks = np.append(self.level, self.held)
        peaks[1:] = np.maximum(self.level, peaks[1:])
        return peaks


class Order:
    """Disorder strategy, reorder buffer and metrics of one shard.

    Args:
        plan: what the operator does.
        accounting: what became of its rows.
        seconds: where the time is added up that buffering takes, as ``kernel``, and adapting, as ``adapt``.
        snapshot: a mapping with what ``snapshot`` returned, or without.
        limited: whether there is a limit to what the buffer may hold, of which it is told later.
    """

    def __init__(
        self,
        plan: DisorderPlan,
        accounting: Accounting,
        seconds: dict[str, float],
        snapshot: Mapping[str, Any],
        limited: bool = False,
    ) -> None:
        self._accounting, self._seconds = accounting, seconds
        self.buffer = ReorderBuffer(len(plan.members), snapshot.get("buffer"), 1 if limited else None)
        self.pace = Pace(plan, accounting, self.buffer.__len__, seconds, snapshot)

    def __len__(self) -> int:
        """Rows that wait to be joined."""
        return len(self.buffer)

    def take(self, arrivals: Arrivals, codes: Int64s, newest: Int64s) -> Ordered:
        """Take rows in order of arrival; return those that this lets go.

        Args:
            arrivals: the rows.
            codes: their ``rows.row_code``.
            newest: stream time after each of them.
        """
        return self.release(arrivals, codes, newest, self.pace.bounds(arrivals))

    def release(self, arrivals: Arrivals, codes: Int64s, newest: Int64s, bounds: Int64s) -> Ordered:
        """As ``take``, with bounds that were asked for before."""
        started = time.perf_counter()
        before = len(self.buffer)
        emitted = self.buffer.push(arrivals.input, arrivals.ts, codes, bounds)
        self._seconds["kernel"] += time.perf_counter() - started
        return self._left(emitted, newest[emitted.at], before + emitted.at - np.arange(emitted.at.size))

    def give_up(self, now: Int64s) -> Ordered:
        """Let the rows go that the buffer has no room for any more; ``now`` is the stream time."""
        emitted = self.buffer.give_up()
        return self._left(emitted, now, np.full(emitted.ts.size, len(self.buffer)))

    def idle(self, members: Sequence[int]) -> Ordered:
        """Hold nothing back for ``members``, which are all that bring no rows (``ReorderBuffer.idle``)."""
        emitted = self.buffer.idle(members)
        self._accounting.waited.idled += emitted.ts.size
        return self._between(emitted)

    def advance(self, progress: Int64s) -> Ordered:
        """Go on to where rows of other shards have brought each input (``Pace.advance``)."""
        return self._between(self.buffer.advance(self.pace.advance(progress)))

    def drain(self) -> Ordered:
        """Release everything in order of event time: the inputs have ended."""
        emitted = self.buffer.drain()
        return Ordered(emitted, np.arange(emitted.ts.size)[::-1], 0)

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer."""
        return self.buffer.nbytes

    def snapshot(self) -> Snapshot:
        return {"buffer": self.buffer.snapshot(), **self.pace.snapshot()}

    def learn(self, outcome: Outcome) -> None:
        """Let the strategy know, when it adapts, what became of tuples."""
        tuples = outcome.tuples
        self.pace.learn(tuples.input, tuples.ts, outcome.delay, tuples.late, *outcome.sizes)

    def held_cells(self) -> Iterator[tuple[Int8s, Int64s]]:
        """Yield input and cells of the tuples that the strategy remembers: texts in them must stay known."""
        if self.pace.needs_cells:
            yield self.pace.logic.held_cells()

    def _between(self, emitted: Emitted) -> Ordered:
        """Rows that leave without an arrival."""
        level = len(self.buffer) + np.arange(emitted.ts.size)[::-1]
        return self._left(emitted, self.pace.newest, level)

    def _left(self, emitted: Emitted, newest: Any, level: Int64s) -> Ordered:
        """Note how long rows waited that leave at these stream times."""
        self.pace.release(newest - emitted.ts)
        return Ordered(emitted, level, len(self.buffer))
