"""A whole shard of a bounded join: from pieces that an engine delivers in any order to numbered outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import NEVER, Int64s
from slackwater.transforms.arrival.merge import in_arrival_order, split_by_shard
from slackwater.transforms.arrival.order import Numbers, Reached, followers, in_order, numbers_of, times_of
from slackwater.transforms.engine.faults import naming_rows
from slackwater.transforms.operators.join import Chunk, Outputs
from slackwater.transforms.operators.registry import ShardOperator, open_operator
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.rows.encoder import int64s
from slackwater.transforms.rows.size import together
from slackwater.transforms.settings.plan import ARRIVAL, JoinPlan
from slackwater.transforms.sharding.copies import with_columns
from slackwater.transforms.state import snapshot

ORDER: Final = "__order"
"""Hidden column with the arrival numbers, as far as rows of the same batch tell; ARRIVAL is the place."""
REACHED: Final = "__reached"
"""Column of a piece without rows: how far the batch whose first row's place is in ARRIVAL brings its input."""
CHUNK_ROWS: Final = 1 << 17
OUTPUT_ROWS: Final = 1 << 16
SHARD_SHIFT: Final = 40
"""An output row's number: its shard shifted by this, plus its place in the shard's output."""


class Account(NamedTuple):
    """What a shard has to tell at its end."""

    shard: int
    accounting: Accounting
    warnings: list[str]
    given: dict[str, int] = {}  # noqa: RUF012 - nobody adds to it
    """Rows of each output."""

    def dumps(self) -> bytes:
        """The account as bytes."""
        return snapshot.dumps({**self._asdict(), "accounting": self.accounting.snapshot()})

    @classmethod
    def loads(cls, data: bytes, inputs: tuple[str, ...]) -> Account:
        """The account that ``dumps`` wrote, of a join with these inputs."""
        tree = snapshot.loads(data)
        return cls(**{**tree, "accounting": Accounting(inputs, tree["accounting"])})


def pieces(
    plan: JoinPlan, which: int, batch: pa.RecordBatch, place: int, live: bool = False
) -> list[tuple[int, pa.RecordBatch]]:
    """Split a batch of input ``which`` by shard, with everything a shard needs to restore the order.

    Where rows carry their place within a bounded input, every shard is told how far the batch brings that input:
    what stands in for an arrival number is the largest so far of the whole input, not of a shard. Where they do
    not, nothing is known of their order, and without an arrival column that of event time is taken.

    Args:
        plan: the join.
        which: index of the input.
        batch: its rows.
        place: place of the first row, for batches that do not carry it.
        live: whether rows are taken as they come, in the order of the arrival column if there is one.
    """
    placed = ARRIVAL in batch.schema.names
    if not placed:
        places = np.arange(place, place + batch.num_rows, dtype=np.int64)
        batch = batch.append_column(ARRIVAL, pa.array(places))
    if not live or plan.arrival_columns is not None:
        numbers = _numbers(plan, which, batch, placed or live)
        batch = batch.append_column(ORDER, pa.array(numbers.values))
    found = [(part.shard, part.rows) for part in split_by_shard(plan, which, batch)]
    if placed and not live and batch.num_rows:
        columns = {ARRIVAL: batch.column(ARRIVAL)[:1], REACHED: pa.array([numbers.reached])}
        found += [(shard, pa.RecordBatch.from_pydict(columns)) for shard in range(plan.config.shards)]
    return found


def _numbers(plan: JoinPlan, which: int, batch: pa.RecordBatch, ordered: bool) -> Numbers:
    """Return the arrival numbers of rows, which come in the order of their input or in any."""
    if not ordered and plan.arrival_columns is None:
        return Numbers(times_of(plan, which, batch), None)
    numbers = numbers_of(plan, which, batch)
    if not ordered and numbers.follows is not None:
        return Numbers(np.where(numbers.follows, NEVER, numbers.values), None)
    return numbers


def chunks(
    plan: JoinPlan, parts: Iterable[tuple[int, pa.RecordBatch]], size: int = CHUNK_ROWS
) -> Iterator[Chunk]:
    """Yield all rows of a shard in arrival order; ties go in input order, then by place within the input."""
    of_input: list[list[pa.RecordBatch]] = [[] for _ in plan.inputs]
    for which, batch in parts:
        of_input[which].append(batch)
    batches, arrivals = [], []
    for which, found in enumerate(of_input):
        batch, arrival = _in_place_order(plan, which, found)
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


def _in_place_order(plan: JoinPlan, which: int, found: list[pa.RecordBatch]) -> tuple[pa.RecordBatch, Int64s]:
    schema = plan.schemas[plan.inputs[which]]
    told = [piece for piece in found if _tells(piece)]
    found = [piece for piece in found if not _tells(piece)]
    if not found:
        return pa.RecordBatch.from_pylist([], schema=schema), np.empty(0, np.int64)
    reached = Reached([(piece[ARRIVAL][0].as_py(), piece[REACHED][0].as_py()) for piece in told])
    numbers = [
        Numbers(int64s(piece.column(ORDER)), followers(plan, which, piece)).after(
            reached.before(piece[ARRIVAL][0].as_py())
        )
        for piece in found
    ]
    batch, arrival = pa.concat_batches(found), np.concatenate(numbers)
    places = int64s(batch.column(ARRIVAL))
    if not in_order(places):
        order = np.argsort(places, kind="stable")
        batch, arrival = batch.take(pa.array(order)), arrival[order]
    return with_columns(batch, schema.names), arrival


def _tells(piece: pa.RecordBatch) -> bool:
    """Whether a piece has no rows, but says how far others have come."""
    return REACHED in piece.schema.names


def run_shard(
    plan: JoinPlan, shard: int, parts: Iterable[tuple[int, pa.RecordBatch]], numbered: bool
) -> Iterator[tuple[str, pa.RecordBatch] | Account]:
    """Run a whole shard; yield (output, batch) as they come and the account at the end.

    Outputs are "out", "late", "metrics", "syncs" and "punctuations".

    Args:
        plan: the join.
        shard: number of the shard.
        parts: what ``pieces`` made of all rows of the shard, in any order, each with its input. Nothing comes of
            pieces without rows.
        numbered: whether batches get the hidden column with the number of each row.
    """
    parts = list(parts)
    if all(_tells(piece) for _, piece in parts):
        return
    operator = open_operator(plan, shard=shard)
    taken = np.zeros(len(plan.inputs), np.int64)
    outputs = {tag: _Collector(shard, numbered) for tag in ("out", "late", "metrics", "syncs", "punctuations")}
    for given in _run(plan, shard, operator, chunks(plan, parts), taken):
        for tag, batches in zip(outputs, given, strict=True):
            yield from ((tag, batch) for batch in outputs[tag].add(batches))
    for tag, collector in outputs.items():
        yield from ((tag, batch) for batch in collector.add([], last=True))
    operator.accounting.settle(taken)
    rows = {tag: collector.rows for tag, collector in outputs.items()}
    yield Account(shard, operator.accounting, operator.warnings, rows)


def _run(
    plan: JoinPlan, shard: int, operator: ShardOperator, given: Iterable[Chunk], taken: Int64s
) -> Iterator[Outputs]:
    """Yield what an operator makes of all rows of a shard; add to ``taken`` how many there are of each input."""
    for chunk in given:
        taken += np.bincount(chunk.at_home, minlength=taken.size)
        with naming_rows(plan, shard, chunk):
            outputs = operator.push(chunk)
        yield outputs
    with naming_rows(plan, shard):
        yield from operator.finishing()


class _Collector:
    """Puts small batches together, so that nobody downstream pays for each."""

    def __init__(self, shard: int, numbered: bool) -> None:
        self._first = self._next = shard << SHARD_SHIFT
        self._numbered = numbered
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    @property
    def rows(self) -> int:
        """Rows that have come through."""
        return self._next - self._first

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
