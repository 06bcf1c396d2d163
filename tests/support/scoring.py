"""Scores of rows without a join: rows go to the logic of a shedding strategy as the operator hands them over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from running import Arrival, Row

from slackwater.plugins.contract import Tuples
from slackwater.transforms.operators.join import Chunk, Operator
from slackwater.transforms.rows.encoder import CellEncoder
from slackwater.transforms.settings.plan import JoinPlan


class Scorer:
    """The logic of a plan's shedding strategy, asked and told of rows."""

    def __init__(self, plan: JoinPlan) -> None:
        self._plan = plan
        self.logic: Any = plan.shedding.build(plan.setting)
        self._encoder = CellEncoder(plan.condition)
        self._seqs = [0] * len(plan.members)

    def observe(self, arrivals: Sequence[Arrival]) -> list[float]:
        """Let rows arrive; return what each was worth."""
        return list(map(float, self.logic.observe(self._tuples(arrivals))))

    def scores(self, which: int, rows: Sequence[Row]) -> list[float]:
        """Return what rows of an input are worth now."""
        return list(map(float, self.logic.scores(self._tuples([(which, row) for row in rows]))))

    def _tuples(self, arrivals: Sequence[Arrival]) -> Tuples:
        n, width = len(arrivals), self._plan.condition.width
        cells, nulls = np.zeros((n, width), np.int64), np.zeros(n, np.uint64)
        seq = np.zeros(n, np.int64)
        inputs = np.array([which for which, _ in arrivals], np.int8)
        for i, schema in enumerate(self._plan.member_schemas.values()):
            mine = np.flatnonzero(inputs == i)
            batch = pa.RecordBatch.from_pylist([arrivals[k][1] for k in mine], schema=schema)
            cells[mine], nulls[mine] = self._encoder.encode(i, batch)
            seq[mine] = self._seqs[i] + np.arange(mine.size)
            self._seqs[i] += mine.size
        zeros = np.zeros(n, np.int64)
        return Tuples(inputs, zeros, zeros, self._encoder.lasting(inputs, cells), nulls, seq)


def foreseen(past: Sequence[Any], value: Any, worths: Sequence[float] | None = None) -> float:
    """Return the share of the arrivals to come that have a value, given those of the past and what each is worth.

    Arrivals repeat values at the rate at which they did so; what is left is for values that are new, and each of
    those that have been new had the same part of it.
    """
    given = [1.0] * len(past) if worths is None else worths
    different = len(set(past))
    repeats = 1 - different / len(past)
    if value not in past:
        return (1 - repeats) / different * sum(given) / len(past)
    return repeats * sum(w for v, w in zip(past, given, strict=True) if v == value) / len(past)


def joined(plan: JoinPlan, columns: Sequence[dict[str, Any]], size: int = 1000) -> pa.Table:
    """Return the results of two inputs of the same size that take turns."""
    operator, results = Operator(plan), []
    n = len(columns[0]["ts"])
    for start in range(0, n, size):
        batches = [
            pa.RecordBatch.from_pydict({name: values[start : start + size] for name, values in own.items()})
            for own in columns
        ]
        inputs = np.tile(np.array([0, 1], np.int8), len(batches[0]))
        results += operator.push(Chunk(inputs, 2 * start + np.arange(len(inputs)), batches)).results
    return pa.Table.from_batches([*results, *operator.finish().results], schema=plan.result_schema)
