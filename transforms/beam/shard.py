"""A whole shard of a bounded join: from pieces that an engine delivers in any order to numbered outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import NEVER
from slackwater.transforms.arrival.merge import split_by_shard
from slackwater.transforms.arrival.order import Numbers, Reached, followers, in_order, numbers_of, times_of
from slackwater.transforms.engine.account import Account
from slackwater.transforms.engine.collector import Collector
from slackwater.transforms.engine.driver import STEP_ROWS, ShardDriver
from slackwater.transforms.engine.frontier import WaitingRows
from slackwater.transforms.rows.encoder import int64s
from slackwater.transforms.rows.sorted_rows import SortedRows
from slackwater.transforms.settings.plan import ARRIVAL, Plan
from slackwater.transforms.sharding.copies import with_columns

ORDER: Final = "__order"
"""Hidden column with the arrival numbers, as far as rows of the same batch tell; ARRIVAL is the place."""
REACHED: Final = "__reached"
"""Column of a piece without rows: how far the batch whose first row's place is in ARRIVAL brings its input."""
OUTPUT_ROWS: Final = 1 << 16
SHARD_SHIFT: Final = 40
"""An output row's number: its shard shifted by this, plus its place in the shard's output."""


def pieces(
    plan: Plan, which: int, batch: pa.RecordBatch, place: int, live: bool = False
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
        found += [(shard, pa.RecordBatch.from_pydict(columns)) for shard in range(plan.shards)]
    return found


def _numbers(plan: Plan, which: int, batch: pa.RecordBatch, ordered: bool) -> Numbers:
    """Return the arrival numbers of rows, which come in the order of their input or in any."""
    if not ordered and plan.arrival_columns is None:
        return Numbers(times_of(plan, which, batch), None)
    numbers = numbers_of(plan, which, batch)
    if not ordered and numbers.follows is not None:
        return Numbers(np.where(numbers.follows, NEVER, numbers.values), None)
    return numbers


def waiting_rows(plan: Plan, parts: Iterable[tuple[int, pa.RecordBatch]]) -> WaitingRows:
    """Return all rows of a shard; of equal numbers of arrival, rows of one input go by place within it."""
    waiting = WaitingRows(plan)
    of_input: list[list[pa.RecordBatch]] = [[] for _ in plan.inputs]
    for which, batch in parts:
        of_input[which].append(batch)
    for which, found in enumerate(of_input):
        _add_in_place_order(waiting, plan, which, found)
        found.clear()
    return waiting


def _add_in_place_order(waiting: WaitingRows, plan: Plan, which: int, found: list[pa.RecordBatch]) -> None:
    told = [(_place(piece), piece[REACHED][0].as_py()) for piece in found if _tells(piece)]
    reached = Reached(told)
    given = sorted((piece for piece in found if not _tells(piece)), key=_place)
    if not given:
        return
    numbers = [
        Numbers(int64s(piece.column(ORDER)), followers(plan, which, piece)).after(reached.before(_place(piece)))
        for piece in given
    ]
    schema = plan.schemas[plan.inputs[which]]
    batches = [with_columns(piece, schema.names) for piece in given]
    places = np.concatenate([int64s(piece.column(ARRIVAL)) for piece in given])
    if in_order(places):
        for arrival, batch in zip(numbers, batches, strict=True):
            waiting.add(which, arrival, batch)
        return
    order = np.argsort(places, kind="stable")
    arrivals, rows = np.concatenate(numbers)[order], SortedRows(schema, batches, order)
    for part in rows.cuts(len(rows)):
        waiting.add(which, arrivals[part], rows.take(part.start, part.stop - part.start))


def _place(piece: pa.RecordBatch) -> int:
    """Return the place of the first row, or of that of which a piece without rows speaks."""
    place: int = piece[ARRIVAL][0].as_py()
    return place


def _tells(piece: pa.RecordBatch) -> bool:
    """Whether a piece has no rows, but says how far others have come."""
    return REACHED in piece.schema.names


def run_shard(
    plan: Plan, shard: int, parts: Iterable[tuple[int, pa.RecordBatch]], numbered: bool
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
    driver = ShardDriver(plan, shard)
    collector = Collector("out", shard << SHARD_SHIFT, OUTPUT_ROWS, numbered)
    for outputs in driver.take(waiting_rows(plan, parts).take().steps(STEP_ROWS, bounded=True)):
        yield from collector.take(outputs)
    for outputs in driver.finish():
        yield from collector.take(outputs)
    yield from collector.rest()
    yield Account(shard, driver.accounting, driver.warnings, collector.rows)
