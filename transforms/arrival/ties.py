"""Rows of an input that arrived with the same number: their order, wherever an engine has read them.

Engines that do part of their work again may read the same rows in other partitions. What an operator does, the
ids of its results included, goes by the order of its rows, so that order must not depend on partitions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.plugins.contract import Int64s
from slackwater.transforms.arrival.event_times import event_times
from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.arrival.merge import in_arrival_order, without_arrival
from slackwater.transforms.rows.json_text import rows_to_json
from slackwater.transforms.settings.plan import JoinPlan


def in_stable_order(plan: JoinPlan, batches: Sequence[pa.RecordBatch], arrivals: Sequence[Int64s]) -> Chunk:
    """Merge one batch per input into a chunk, as ``in_arrival_order``, whatever order the rows of a batch are in.

    Rows of an input with equal numbers go in order of event time, then of their text as JSON: those that are left
    are equal, and which is which makes no difference.
    """
    pairs = [_settled(plan, i, *pair) for i, pair in enumerate(zip(batches, arrivals, strict=True))]
    return in_arrival_order([batch for batch, _ in pairs], [arrival for _, arrival in pairs])


def _settled(plan: JoinPlan, which: int, batch: pa.RecordBatch, arrival: Int64s) -> tuple[pa.RecordBatch, Int64s]:
    """Return the rows of an input in order of arrival, ties settled."""
    if arrival.size == 0:
        return batch, arrival
    order = np.argsort(arrival, kind="stable")
    numbers = arrival[order]
    same = numbers[1:] == numbers[:-1]
    if same.any():
        tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
        rows = batch.take(pa.array(order[tied]))
        ticks, _ = event_times(rows.column(plan.time_columns[which]), plan.unit)
        keys = pa.table([numbers[tied], ticks, rows_to_json(without_arrival(rows))], ["number", "time", "text"])
        places = pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names]).to_numpy()
        order[tied] = order[tied][places]
    elif not (np.diff(arrival) < 0).any():
        return batch, arrival
    return batch.take(pa.array(order)), arrival[order]
