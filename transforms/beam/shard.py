"""A whole shard of a bounded join: from pieces that an engine delivers in any order to numbered outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Int64s
from slackwater.transforms import snapshot
from slackwater.transforms.accounting import Accounting
from slackwater.transforms.copies import with_columns
from slackwater.transforms.encode import int64s
from slackwater.transforms.faults import naming_rows
from slackwater.transforms.operator import Chunk, Outputs
from slackwater.transforms.operators import ShardOperator, open_operator
from slackwater.transforms.plan import ARRIVAL, JoinPlan
from slackwater.transforms.replay import arrival_numbers, in_arrival_order, split_by_shard
from slackwater.transforms.row_bytes import together

ORDER: Final = "__order"
"""Hidden column with the arrival numbers where ARRIVAL, the place within the input, is something else."""
CHUNK_ROWS: Final = 1 << 17
OUTPUT_ROWS: Final = 1 << 16
SHARD_SHIFT: Final = 40
"""An output row's number: its shard shifted by this, plus its place in the shard's output."""


class Account(NamedTuple):
    """What a shard has to tell at its end."""

    shard: int
    accounting: Accounting
    warnings: list[str]

    def dumps(self) -> bytes:
        """The account as bytes."""
        tree = {"shard": self.shard, "accounting": self.accounting.snapshot(), "warnings": self.warnings}
        return snapshot.dumps(tree)

    @classmethod
    def loads(cls, data: bytes, inputs: tuple[str, ...]) -> Account:
        """The account that ``dumps`` wrote, of a join with these inputs."""
        tree = snapshot.loads(data)
        return cls(tree["shard"], Accounting(inputs, tree["accounting"]), tree["warnings"])


def pieces(plan: JoinPlan, which: int, batch: pa.RecordBatch, place: int) -> list[tuple[int, pa.RecordBatch]]:
    """Split a batch of input ``which`` by shard, with everything a shard needs to restore the order.

    Args:
        plan: the join.
        which: index of the input.
        batch: its rows; where they do not carry their place within the input, they follow each other.
        place: place of the first row, for batches that do not carry it.
    """
    if ARRIVAL not in batch.schema.names:
        places = np.arange(place, place + batch.num_rows, dtype=np.int64)
        batch = batch.append_column(ARRIVAL, pa.array(places))
    if plan.arrival_columns is not None:
        batch = batch.append_column(ORDER, pa.array(arrival_numbers(plan, which, batch)))
    return [(part.shard, part.rows) for part in split_by_shard(plan, which, batch)]


def chunks(
    plan: JoinPlan, parts: Iterable[tuple[int, pa.RecordBatch]], size: int = CHUNK_ROWS
) -> Iterator[Chunk]:
    """Yield all rows of a shard in arrival order; ties go in input order, then by place within the input."""
    of_input: list[list[pa.RecordBatch]] = [[] for _ in plan.inputs]
    for which, batch in parts:
        of_input[which].append(batch)
    batches, arrivals = [], []
    for schema, found in zip(plan.schemas.values(), of_input, strict=True):
        batch, arrival = _in_place_order(schema, found)
        batches.append(batch)
        arrivals.append(arrival)
    of_input.clear()
    whole = in_arrival_order(batches, arrivals)
    at = [0] * len(batches)
    for start in range(0, whole.input.size, size):
        inputs = whole.input[start : start + size]
        counts = np.bincount(inputs, minlength=len(batches)).tolist()
        cut = [batch.slice(a, n) for batch, a, n in zip(whole.batches, at, counts, strict=True)]
        at = [a + n for a, n in zip(at, counts, strict=True)]
        yield Chunk(inputs, whole.arrival[start : start + size], cut, bounded=True)


def _in_place_order(schema: pa.Schema, found: list[pa.RecordBatch]) -> tuple[pa.RecordBatch, Int64s]:
    if not found:
        return pa.RecordBatch.from_pylist([], schema=schema), np.empty(0, np.int64)
    batch = found[0] if len(found) == 1 else pa.concat_batches(found)
    places = int64s(batch.column(ARRIVAL))
    if (np.diff(places) < 0).any():
        batch = batch.take(pa.array(np.argsort(places, kind="stable")))
    arrival = int64s(batch.column(ORDER if ORDER in batch.schema.names else ARRIVAL))
    return with_columns(batch, schema.names), arrival


def run_shard(
    plan: JoinPlan, shard: int, parts: Iterable[tuple[int, pa.RecordBatch]], numbered: bool
) -> Iterator[tuple[str, pa.RecordBatch] | Account]:
    """Run a whole shard; yield (output, batch) as they come and the account at the end.

    Outputs are "out", "late", "metrics", "syncs" and "punctuations".

    Args:
        plan: the join.
        shard: number of the shard.
        parts: what ``pieces`` made of all rows of the shard, in any order, each with its input.
        numbered: whether batches get the hidden column with the number of each row.
    """
    operator = open_operator(plan, shard=shard)
    outputs = {tag: _Collector(shard, numbered) for tag in ("out", "late", "metrics", "syncs", "punctuations")}
    for given in _run(plan, shard, operator, chunks(plan, parts)):
        for tag, batches in zip(outputs, given, strict=True):
            yield from ((tag, batch) for batch in outputs[tag].add(batches))
    for tag, collector in outputs.items():
        yield from ((tag, batch) for batch in collector.add([], last=True))
    yield Account(shard, operator.accounting, operator.warnings)


def _run(plan: JoinPlan, shard: int, operator: ShardOperator, given: Iterable[Chunk]) -> Iterator[Outputs]:
    for chunk in given:
        with naming_rows(plan, shard, chunk):
            outputs = operator.push(chunk)
        yield outputs
    with naming_rows(plan, shard):
        yield from operator.finishing()


class _Collector:
    """Puts small batches together, so that nobody downstream pays for each."""

    def __init__(self, shard: int, numbered: bool) -> None:
        self._next = shard << SHARD_SHIFT
        self._numbered = numbered
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def add(self, batches: list[pa.RecordBatch], last: bool = False) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self._waiting.append(batch)
            self._rows += batch.num_rows
            if self._rows >= OUTPUT_ROWS:
                yield from self._flush()
        if last and self._rows:
            yield from self._flush()

    def _flush(self) -> Iterator[pa.RecordBatch]:
        waiting, self._waiting, self._rows = self._waiting, [], 0
        for batch in together(waiting):
            if self._numbered:
                number = np.arange(self._next, self._next + batch.num_rows)
                batch = batch.append_column(ARRIVAL, pa.array(number))
            self._next += batch.num_rows
            yield batch
