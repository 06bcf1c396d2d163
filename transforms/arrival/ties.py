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
from slackwater.transforms.arrival.merge import merge, without_arrival
from slackwater.transforms.arrival.order import in_order
from slackwater.transforms.rows.json_text import rows_to_json
from slackwater.transforms.rows.sorted_rows import SortedRows
from slackwater.transforms.settings.plan import Plan


def in_stable_order(plan: Plan, batches: Sequence[pa.RecordBatch], arrivals: Sequence[Int64s]) -> Chunk:
    """Merge one batch per input into a chunk, as ``in_arrival_order``, whatever order the rows of a batch are in.

    Rows of an input with equal numbers go in order of event time, then of their text as JSON: those that are left
    are equal, and which is which makes no difference.
    """
    rows, numbers = [], []
    for i, (batch, arrival) in enumerate(zip(batches, arrivals, strict=True)):
        order = stable_order(plan, i, [batch], arrival)
        rows.append(SortedRows(batch.schema, [without_arrival(batch)], order))
        numbers.append(arrival if order is None else arrival[order])
    return merge(rows, numbers).whole()


def stable_order(plan: Plan, which: int, batches: Sequence[pa.RecordBatch], arrival: Int64s) -> Int64s | None:
    """Return the order of an input's rows, ties settled; None if they are in it."""
    order = np.argsort(arrival, kind="stable")
    numbers = arrival[order]
    same = numbers[1:] == numbers[:-1]
    if same.any():
        tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
        plain = [without_arrival(batch) for batch in batches]
        ticks, texts = [], []
        for rows in SortedRows(plain[0].schema, plain, order[tied]).parts():
            ticks.append(event_times(rows.column(plan.time_columns[which]), plan.unit)[0])
            texts.append(rows_to_json(rows))
        keys = pa.table(
            [numbers[tied], np.concatenate(ticks), pa.chunked_array(texts)], ["number", "time", "text"]
        )
        places = pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names]).to_numpy()
        order[tied] = order[tied][places]
    elif in_order(arrival):
        return None
    return order
