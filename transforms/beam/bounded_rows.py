"""Rows of a bounded input to batches, where all are in one window: the way of most rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindow, GlobalWindows, WindowedValue

from slackwater.transforms.beam.rows import RowReader
from slackwater.transforms.beam.shard import pieces
from slackwater.transforms.settings.plan import Plan

GATHERED_ROWS: Final = 1 << 14


class GatherRows(beam.DoFn):  # type: ignore[misc, unused-ignore]
    """Gathers the rows of a bundle into batches and splits these by shard.

    It asks Beam for neither window nor time, which would cost more than all else that is done for a row here.
    Rows come in any order: without an arrival column, they are taken in order of event time.
    """

    def __init__(self, plan: Plan, which: int, reader: RowReader) -> None:
        self._plan, self._which, self._reader = plan, which, reader
        self._place = 0
        self._rows: list[Any] = []

    @staticmethod
    def suits(rows: beam.PCollection) -> bool:
        """Whether an input ends and has one window."""
        return bool(rows.is_bounded) and isinstance(rows.windowing.windowfn, GlobalWindows)

    def start_bundle(self) -> None:
        self._rows = []

    def process(self, element: Any) -> Iterable[Any] | None:
        self._rows.append(element)
        return None if len(self._rows) < GATHERED_ROWS else list(self._pieces())

    def finish_bundle(self) -> Iterator[WindowedValue]:
        window = GlobalWindow()
        for piece in self._pieces():
            yield WindowedValue(piece, window.max_timestamp(), [window])

    def _pieces(self) -> Iterator[tuple[int, tuple[int, pa.RecordBatch]]]:
        rows, self._rows = self._rows, []
        if rows:
            batch = self._reader.read(rows)
            for shard, part in pieces(self._plan, self._which, batch, self._place):
                yield shard, (self._which, part)
            self._place += len(rows)
