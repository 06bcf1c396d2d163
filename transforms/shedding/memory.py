"""How many tuples a shard may hold: the strategy's memory, by stream time and by the bytes that tuples take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Int64s, Snapshot
from slackwater.plugins.guard.calls import SheddingGuard
from slackwater.plugins.registry.options import Memory, MemoryLimit
from slackwater.transforms.rows.size import fixed_bytes, guessed_bytes, row_bytes

SPARE: Final = 4
"""Rows that nothing refers to any more may be a fourth of the others, where memory is in bytes, and then some."""
SOME: Final = 256
MARGIN: Final = 32
"""A part of the memory is left free where rows differ in size, for those that come before it is renewed."""
_SHORTEST: Final = 16
"""Arrivals between two looks at the limit, at least."""
_NEVER: Final = 1 << 62
_FIRST: Final = 64
"""Arrivals after which sizes are looked at for the first time."""


class Weights:
    """What tuples weigh: the bytes of the rows that have arrived, and of what is kept for every tuple.

    Sizes are those of the rows so far, in order of arrival, and of the rows held, so that chunks do not show.

    Args:
        schemas: of the inputs, those of the join first.
        beside: bytes kept beside each row.
        snapshot: what ``snapshot`` returned, or None.
    """

    def __init__(self, schemas: Sequence[pa.Schema], beside: int, snapshot: Snapshot | None = None) -> None:
        self._beside = beside
        self._widths = [fixed_bytes(schema) for schema in schemas]
        self._guess = max(map(guessed_bytes, schemas))
        self.varies = None in self._widths
        self._rows = int(snapshot["rows"]) if snapshot else 0
        self._bytes = float(snapshot["bytes"]) if snapshot else 0.0
        self._coming = np.zeros(1)
        """Bytes of the first rows of the chunk at hand, from none to all of them."""

    def arrive(self, source: Any, batches: Sequence[pa.RecordBatch], of_input: Sequence[Int64s]) -> None:
        """Take the rows of a chunk, which come in this order."""
        self._rows += self._coming.size - 1
        self._bytes += self._coming[-1]
        sizes = np.zeros(source.size)
        for width, batch, at in zip(self._widths, batches, of_input, strict=True):
            sizes[at] = row_bytes(batch) if width is None else width
        self._coming = np.concatenate([[0.0], np.cumsum(sizes)])

    def row(self, arrived: int) -> float:
        """Return the bytes of an average row once ``arrived`` rows of the chunk at hand have come."""
        rows = self._rows + arrived
        return (self._bytes + float(self._coming[arrived])) / rows if rows else self._guess

    def rows(self, tuples: int, row: float) -> float:
        """Return the bytes of the rows of so many tuples at most, with dead ones and what is kept beside.

        Those that differ in size count twice: a column of texts is put together before it is thinned out.
        """
        return (tuples + tuples // SPARE + SOME) * (row * (2 if self.varies else 1) + self._beside)

    def snapshot(self) -> Snapshot:
        rows = self._rows + self._coming.size - 1
        return {"rows": rows, "bytes": self._bytes + float(self._coming[-1])}


class TupleLimit:
    """The number of tuples that may be held; an ``Occasion`` once per run of arrivals and where it changes.

    Args:
        logic: the strategy that says how much memory there is.
        nanos_per_tick: unit of stream time.
        fitting: tells how many tuples fit into so many bytes (``ByteBudget.fitting``).
        hold_to: is told the limit before and the limit from here on, at every cut.
        snapshot: what ``snapshot`` returned, or None.
    """

    def __init__(
        self,
        logic: SheddingGuard,
        nanos_per_tick: int,
        fitting: Callable[[int, int, int], int],
        hold_to: Callable[[int | None, int], None],
        snapshot: Snapshot | None = None,
    ) -> None:
        self._logic, self._nanos = logic, nanos_per_tick
        self._fitting, self._hold_to = fitting, hold_to
        self._first: int | None = snapshot["first"] if snapshot else None
        self._arrived = int(snapshot["arrived"]) if snapshot else 0
        self._left = int(snapshot["left"]) if snapshot else 0
        self._step = int(snapshot["step"]) if snapshot else 0
        self.tuples: int | None = snapshot["tuples"] if snapshot else None
        """How many may be held; None for all."""

    @property
    def limited(self) -> bool:
        """Whether there is a limit at all."""
        return self._logic.memory is not None

    @property
    def in_bytes(self) -> bool:
        """Whether it is in bytes at any time."""
        memory = self._logic.memory
        steps = [m for _, m in memory.steps] if isinstance(memory, MemoryLimit) else [memory]
        return any(isinstance(m, Memory) and m.in_bytes for m in steps)

    def meet(self, time: Int64s, start: int) -> int:
        """Renew the limit if that is due before arrival ``start``, and hold everything to it."""
        if not self.limited:
            return time.size
        before, now = self.tuples, int(time[start])
        self._first = now if self._first is None else self._first
        times = self._changes()
        step = int(np.searchsorted(times, now, "right"))
        if self._left <= 0 or step != self._step:
            self._renew(now, start, step != self._step)
            self._step = step
        assert self.tuples is not None
        self._hold_to(before, self.tuples)
        stop = start + self._left
        return stop if step == len(times) else min(stop, int(np.searchsorted(time, times[step])))

    def count(self, rows: int) -> None:
        """Take note of the arrivals that come before the next cut."""
        if self.limited:
            self._arrived += rows
            self._left -= rows

    def snapshot(self) -> Snapshot:
        names = ("first", "step", "arrived", "left")
        return {"tuples": self.tuples, **{name: getattr(self, f"_{name}") for name in names}}

    def _changes(self) -> list[int]:
        """Return the stream times at which a schedule has a new limit."""
        memory = self._logic.memory
        if not isinstance(memory, MemoryLimit) or self._first is None:
            return []
        return [self._first - (-since // self._nanos) for since, _ in memory.steps[1:]]

    def _renew(self, now: int, arrived: int, changed: bool) -> None:
        """Read the limit again, ``arrived`` rows into the chunk at hand."""
        assert self._first is not None
        given = self._logic.memory
        memory = given.at((now - self._first) * self._nanos) if isinstance(given, MemoryLimit) else given
        before, in_bytes = self.tuples, isinstance(memory, Memory) and memory.in_bytes
        if isinstance(memory, Memory):
            memory = self._fitting(memory.amount, arrived, before or 0) if in_bytes else memory.amount
        assert memory is not None
        # A little more room is not worth laying everything out anew.
        if not (in_bytes and not changed and before is not None and before < memory <= before + before // 16):
            self.tuples = memory
        assert self.tuples is not None
        self._left = max(_SHORTEST, self.tuples // 4)
        if in_bytes:
            self._left = min(self._left, max(_FIRST, self._arrived // 4))
        elif isinstance(given, MemoryLimit):
            self._left = _NEVER
