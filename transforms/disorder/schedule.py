"""The schedule of a shard: where its chunks are cut.

The law that it relies on: an occasion counts over the whole stream (stream time, arrivals, tuples joined), never
within a chunk. So where an engine cuts its batches changes no result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from slackwater.plugins.contract import Int64s


class Occasion(Protocol):
    """Something that is due now and then, between two rows."""

    def meet(self, time: Int64s, start: int) -> int:
        """Do what is due before row ``start``; return the row before which it is due again, or one beyond.

        Args:
            time: what the occasion goes by, after each row of the chunk, such as stream time.
            start: the row that comes next.
        """

    def count(self, rows: int) -> None:
        """Take note of the rows that come before the next cut."""


class Schedule:
    """Cuts a chunk before each row at which an occasion is due; several that are due are met in their order."""

    def __init__(self, *occasions: Occasion) -> None:
        self._occasions = occasions

    def parts(self, time: Int64s) -> Iterator[slice]:
        """Yield the parts of a chunk; before each, what is due there has been done."""
        start, n = 0, time.size
        while start < n:
            stop = n
            for occasion in self._occasions:
                stop = min(stop, occasion.meet(time, start))
            for occasion in self._occasions:
                occasion.count(stop - start)
            yield slice(start, stop)
            start = stop
