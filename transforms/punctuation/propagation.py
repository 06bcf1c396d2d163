"""What a join has proved finished, as rows of the output ``punctuations``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.plugins.contract import Finished, Int64s
from slackwater.transforms.expressions.condition import Cell
from slackwater.transforms.punctuation.marks import PUNCTUATION_SCHEMA
from slackwater.transforms.rows.encoder import CellEncoder
from slackwater.transforms.rows.json_text import integers_to_json, rows_to_json
from slackwater.transforms.rows.layout import WHOLE
from slackwater.transforms.settings.plan import JoinPlan


def finished_batch(plan: JoinPlan, encoder: CellEncoder, finished: Sequence[Finished]) -> pa.RecordBatch:
    """Return what a join proved finished as rows of the output ``punctuations``.

    A value is shown as it is, a range as ``{"from": 1, "to": 9}``, both ends inclusive, null where it is open.
    """
    ts, low = (np.concatenate([getattr(part, name) for part in finished]) for name in ("ts", "values"))
    patterns = _patterns(plan, encoder, finished[0].classes, low)
    if any(part.high is not None for part in finished):
        high = np.concatenate([part.values[:, 0] if part.high is None else part.high for part in finished])
        wide = low[:, 0] != high
        ranges = _range_patterns(plan, encoder, finished[0].classes[0], low[wide, 0], high[wide])
        patterns = pc.replace_with_mask(patterns, pa.array(wide), ranges)
    return pa.RecordBatch.from_arrays([pa.array(ts, pa.int64()), patterns], schema=PUNCTUATION_SCHEMA)


def _patterns(plan: JoinPlan, encoder: CellEncoder, classes: Sequence[int], words: Int64s) -> pa.Array:
    columns = [(c, *member) for c, number in enumerate(classes) for member in _members(plan, number)]
    if all(layout.layout == WHOLE and pa.types.is_integer(type_) for _, _, layout, type_ in columns):
        return integers_to_json([name for _, name, _, _ in columns], words.take([c for c, *_ in columns], axis=1))
    shown = {
        name: encoder.values(layout, type_, np.ascontiguousarray(words[:, c]))
        for c, name, layout, type_ in columns
    }
    return rows_to_json(pa.RecordBatch.from_pydict(shown))


def _range_patterns(plan: JoinPlan, encoder: CellEncoder, number: int, low: Int64s, high: Int64s) -> pa.Array:
    parts: list[Any] = []
    limits = np.iinfo(np.int64)
    for name, layout, type_ in _members(plan, number):
        # An end may lie between two days.
        type_ = pa.timestamp("ms") if pa.types.is_date(type_) else type_
        ends = {}
        for end, words, limit in (("from", low, limits.min), ("to", high, limits.max)):
            is_open = (words == limit) & (layout.kind != "float")
            shown = encoder.values(layout, type_, np.where(is_open, 0, words))
            ends[end] = pc.if_else(pa.array(is_open), None, shown)
        label = json.dumps(name, ensure_ascii=False) + ": "
        parts += [(", " if parts else "{") + label, rows_to_json(pa.RecordBatch.from_pydict(ends))]
    return pc.binary_join_element_wise(*parts, "}", "")


def _members(plan: JoinPlan, number: int) -> Iterator[tuple[str, Cell, pa.DataType]]:
    """Yield result column, cell and type of every input that takes part in a key class."""
    for which, cell in plan.condition.classes[number].items():
        layout = plan.condition.columns[which][cell]
        name = plan.inputs[which]
        yield f"{name}_{layout.column}", layout, plan.schemas[name].field(layout.column).type
