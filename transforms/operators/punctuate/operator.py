"""The operator of Punctuate: what a stream says of its own future, for whoever is to know when something is over.

Rows go through guard and K-slack as in Reorder. Rows that are punctuations, and what tuples say in the light of
static promises, become rows of the output ``punctuations``; tuples that contradict one are late.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Finished, Int64s, Punctuations, Snapshot
from slackwater.transforms.operators.punctuate.plan import PunctuatePlan
from slackwater.transforms.operators.reorder.operator import ReorderOperator


class PunctuateOperator(ReorderOperator):
    """One shard of Punctuate.

    A punctuation leaves once its time has passed. Of those that say how far event time has come, the first of
    each stretch of ``progress`` leaves.

    State: the rows that wait, and what has been promised (``punctuation.promises``).
    """

    def __init__(self, plan: PunctuatePlan, snapshot: Snapshot | None = None, shard: int = 0) -> None:
        super().__init__(plan, snapshot, shard)
        state: dict[str, Any] = dict(snapshot or {})
        self._batch, self._every, self._kinds = plan.punctuation_batch, plan.every, len(plan.patterns)
        # Written under this name since Punctuate was a kind of join.
        self._span: int | None = state["join"]["span"] if state else None
        """Number of the stretch of time of which something has been given out last."""
        self._said: list[Finished] = []
        """Punctuations that leave with this step."""

    def say(self, punctuations: Punctuations) -> None:
        """Let punctuations leave, kind by kind."""
        for kind in range(self._kinds):
            at = np.flatnonzero(punctuations.pattern == kind)
            if kind == self._kinds - 1:
                at = self._thinned(at, punctuations)
            if at.size:
                said = Punctuations._make(array[at] for array in punctuations)
                self._said.append(Finished(said.at, said.ts, (kind,), said.low, said.high))

    def punctuations(self) -> list[pa.RecordBatch]:
        said, self._said = self._said, []
        if not said:
            return []
        batch = self._batch(self.rows.encoder, said)
        self.accounting.finished += batch.num_rows
        return [batch]

    def snapshot(self) -> Snapshot:
        return {**super().snapshot(), "join": {"span": self._span}}

    def _thinned(self, at: Int64s, punctuations: Punctuations) -> Int64s:
        """Of each stretch of time, keep the first."""
        if self._every is None or not at.size:
            return at
        span = punctuations.ts[at] // self._every
        first = np.append(True, span[1:] != span[:-1])
        first[0] = self._span is None or span[0] != self._span
        self._span = int(span[-1])
        return at[first]
