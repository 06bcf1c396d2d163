"""The stage that judges: which rows are tuples to join, which are punctuations, and which contradict one.

Promises and metadata are held to here, before the join, so that every join strategy gives the same results.
Without any, all rows are tuples.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from slackwater.plugins.contract import Bools, Float64s, Held, Int8s, Int64s, Punctuations, Released, Snapshot
from slackwater.transforms.output.step import Joined, Outcome, spread
from slackwater.transforms.punctuation.promises import DROPPED, JOINS, MARKED, VIOLATES, Promises, Promising
from slackwater.transforms.rows.shard_rows import Reached, ShardRows

__all__ = ["DROPPED", "JOINS", "MARKED", "VIOLATES", "Judge", "Judged"]


class Judged(NamedTuple):
    """Rows that have reached the join, sorted by what they are."""

    reached: Reached
    verdict: Int8s | None = None
    """One of JOINS, MARKED, VIOLATES, DROPPED for each; None where all of them are JOINS."""
    punctuations: Punctuations | None = None
    """Those that took effect, counted in rows that are JOINS; None where there are no promises."""

    @property
    def joins(self) -> Bools | None:
        """Which rows are tuples to join; None for all."""
        if self.verdict is None:
            return None
        joins = self.verdict == JOINS
        return None if joins.all() else joins

    @property
    def tuples(self) -> Released:
        """The tuples to join."""
        joins = self.joins
        return self.reached.tuples if joins is None else self.reached.tuples.part(joins)

    @property
    def dropped(self) -> Bools | None:
        """Which rows are late tuples that match a punctuation; None for none."""
        return None if self.verdict is None else self.verdict == DROPPED

    @property
    def too_late(self) -> Bools:
        """Which rows are tuples that came too late."""
        late = self.reached.tuples.late
        return late if self.verdict is None else late & ((self.verdict == JOINS) | (self.verdict == DROPPED))

    def outcome(self, joined: Joined, gone: Float64s) -> Outcome:
        """Return what became of the rows, once the tuples have been joined.

        Late tuples that match a punctuation have missed all their partners.

        Args:
            joined: what the join says of the tuples.
            gone: of the late rows, the share of their partners that had been joined before.
        """
        tuples, source, delay = self.reached
        if self.verdict is None:
            return Outcome(tuples, delay, gone, joined.sizes)
        joins, verdict = self.verdict == JOINS, self.verdict
        if joined.contradicts.size:
            verdict = verdict.copy()
            wrong = np.flatnonzero(joins)[joined.contradicts]
            verdict[wrong] = np.where(tuples.late[wrong], DROPPED, VIOLATES)
        dropped = verdict == DROPPED
        seen = dropped | (verdict == JOINS)
        gone[dropped[tuples.late]] = 1.0
        return Outcome(
            tuples.part(seen), delay[seen], gone[seen[tuples.late]],
            [spread(size, joins)[seen] for size in joined.sizes],
            source[verdict == MARKED], tuples.part(verdict == VIOLATES),
        )  # fmt: skip


class Judge:
    """Promises of one shard, if it has any.

    Args:
        plan: what the operator does.
        rows: the rows of the shard.
        elsewhere: of each pattern, whether the join itself finds what contradicts it; by default none.
        snapshot: what ``snapshot`` returned, or None.
    """

    def __init__(
        self,
        plan: Promising,
        rows: ShardRows,
        elsewhere: Bools | None = None,
        snapshot: Snapshot | None = None,
    ) -> None:
        self._rows = rows
        self._promises: Promises | None = None
        if plan.setting.patterns:
            self._promises = Promises(plan, rows.encoder, elsewhere, snapshot)

    @property
    def promised(self) -> bool:
        """Whether there is anything to hold rows to."""
        return self._promises is not None

    def judge(self, reached: Reached) -> Judged:
        """Sort rows that have reached the join; it has to be given them in this order."""
        if self._promises is None:
            return Judged(reached)
        mark = self._rows.marks(reached.tuples, reached.source)
        return Judged(reached, *self._promises.judge(reached.tuples, mark, self._rows.stores))

    def finish(self) -> Punctuations:
        """Put what is pending in force: the inputs have ended."""
        assert self._promises is not None
        return self._promises.finish()

    def unmatched(self, held: Held) -> Bools:
        """Say which tuples refer to what never came; the inputs have ended, and the join has no window."""
        assert self._promises is not None
        return self._promises.unmatched(held)

    def held_cells(self) -> Iterator[tuple[Int8s, Int64s]]:
        """Yield input and cells of every value that is remembered: texts in them must stay known."""
        if self._promises is not None:
            yield self._promises.held_cells()

    @property
    def nbytes(self) -> int:
        """Bytes of what is remembered."""
        return 0 if self._promises is None else self._promises.nbytes

    def snapshot(self) -> Snapshot:
        return {} if self._promises is None else {"promises": self._promises.snapshot()}
