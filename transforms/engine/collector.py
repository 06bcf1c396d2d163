"""Outputs of a shard by name, numbered in their order: what engines hand on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from slackwater.transforms.output.outputs import Outputs
from slackwater.transforms.rows.size import together
from slackwater.transforms.settings.plan import ARRIVAL

SIDE_OUTPUTS: Final = ("late", "metrics", "syncs", "punctuations")
"""Names of all outputs but the results, in the order of ``Outputs``."""


def by_name(
    outputs: Outputs, main: str, side: Sequence[str] = SIDE_OUTPUTS
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the batches of a step, each with the name of its output; engines have names of their own."""
    for name, batches in zip((main, *side), outputs, strict=True):
        yield from ((name, batch) for batch in batches)


class Collector:
    """Puts small batches together, so that nobody downstream pays for each, and numbers rows.

    Args:
        main: name of the results.
        first: number of the first row of each output.
        at_least: rows of a batch that is handed on before the end; of fewer, several are put together.
        numbered: whether rows get their number in the hidden column.
    """

    def __init__(self, main: str, first: int = 0, at_least: int = 0, numbered: bool = True) -> None:
        self._main, self._first, self._at_least, self._numbered = main, first, at_least, numbered
        self._waiting: dict[str, list[pa.RecordBatch]] = {name: [] for name in (main, *SIDE_OUTPUTS)}
        self.rows = dict.fromkeys(self._waiting, 0)
        """Rows of each output that have been handed on."""

    def take(self, outputs: Outputs) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Take what a step gave; yield what there is enough of, with the name of its output."""
        for name, batch in by_name(outputs, self._main):
            yield from self.add(name, batch)

    def add(self, name: str, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Take a batch of an output; yield what there is enough of."""
        self._waiting[name].append(batch)
        if sum(waiting.num_rows for waiting in self._waiting[name]) >= self._at_least:
            yield from self._flush(name)

    def rest(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield what is left."""
        for name in self._waiting:
            yield from self._flush(name)

    def _flush(self, name: str) -> Iterator[tuple[str, pa.RecordBatch]]:
        waiting, self._waiting[name] = self._waiting[name], []
        for batch in together(waiting):
            if self._numbered:
                first = self._first + self.rows[name]
                batch = batch.append_column(ARRIVAL, pa.array(np.arange(first, first + batch.num_rows)))
            self.rows[name] += batch.num_rows
            yield name, batch
