"""How long rows waited and for whom, and how many periods had the recall that was asked for."""

from __future__ import annotations

from typing import Final

import numpy as np

from slackwater.plugins.contract import NEVER, Int64s, Snapshot
from slackwater.transforms.kernels.output import latency

_QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


class Waited:
    """Counts of one shard, to be added to those of others.

    Args:
        snapshot: what ``snapshot`` returned, or None.
    """

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self._lengths = np.zeros(latency.SIZE, np.int64)
        """Rows by how far stream time had gone on when they reached the join, in the order of ``_values``."""
        self.periods = 0
        """Periods of stream time with results, found or missed."""
        self.periods_met = 0
        """Those that had the recall that was asked for."""
        self.held = 0
        """Rows that waited to be joined, at most."""
        self.behind = -1
        """The input that was furthest behind then."""
        self.idled = 0
        """Rows that left early as an input was idle."""
        if snapshot:
            self._lengths[snapshot["at"]] = snapshot["rows"]
            self.periods, self.periods_met, self.held, self.behind, self.idled = snapshot["numbers"]

    def release(self, waited: Int64s) -> None:
        """Note how far stream time had gone on when rows left."""
        latency.tally(np.ascontiguousarray(waited), self._lengths)

    def hold(self, rows: int, progress: Int64s) -> None:
        """Note how many rows wait, and how far inputs have come."""
        if rows > self.held and (progress != NEVER).any():
            self.held, self.behind = rows, int(progress.argmin())

    def close_period(self, met: bool) -> None:
        """Note one more period."""
        self.periods += 1
        self.periods_met += met

    def latency_ms(self, nanos_per_tick: int) -> dict[str, float | None]:
        """Return quantiles of how long rows waited, within 4 per cent."""
        total = np.cumsum(self._lengths)
        if not total[-1]:
            return dict.fromkeys(_QUANTILES)
        at = [int(np.searchsorted(total, share * total[-1])) for share in _QUANTILES.values()]
        return {name: _value(i) * nanos_per_tick / 1e6 for name, i in zip(_QUANTILES, at, strict=True)}

    def __iadd__(self, other: Waited) -> Waited:
        """Add another shard's."""
        self._lengths += other._lengths
        self.periods += other.periods
        self.periods_met += other.periods_met
        if other.held > self.held:
            self.behind = other.behind
        self.held += other.held
        self.idled += other.idled
        return self

    def snapshot(self) -> Snapshot:
        at = np.flatnonzero(self._lengths)
        numbers = [self.periods, self.periods_met, self.held, self.behind, self.idled]
        return {"at": at, "rows": self._lengths[at], "numbers": numbers}


def _value(i: int) -> float:
    """Return the middle of the lengths that are counted at a place."""
    if i < 16:
        return float(i)
    power, part = i // 16 + 4, i % 16 + 16
    return float((part + 0.5) / 32 * 2.0**power)
