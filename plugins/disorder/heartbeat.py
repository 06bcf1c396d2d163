"""Punctuations from the largest latency seen."""

from typing import ClassVar

import numpy as np

from slackwater.plugins.contract import NEVER, Arrivals, DisorderLogic, Int64s, Setting, Snapshot
from slackwater.plugins.disorder.clocks import ClockedStrategy, SystemClock, running_max


class HeartbeatSlack(ClockedStrategy):
    """Hold every row until the slowest row seen so far would have come.

    The baseline of ADC (sec. 7), as STREAM makes its heartbeats: the fastest latency says how new a row may be,
    the largest difference of latencies how far behind it another may still come; together, at time t of an
    arrival every event time before t less the largest latency of its input is taken to be complete, and a
    punctuation never goes back. Only a row slower than all before comes too late, which is not rare early on;
    and since the largest latency is never forgotten, one slow row makes every later row wait as long. There is
    no way to ask for more or less.

    Times of arrival are read from the ``arrival`` column, in the unit of the event times unless ``arrival_unit``
    says otherwise; a constant difference of the clocks does no harm. ``clock: wall`` takes the time at which
    the join runs instead: for live inputs, and never twice the same.
    """

    name: ClassVar[str] = "heartbeat"
    shares: ClassVar[bool] = True

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> "HeartbeatLogic":
        return HeartbeatLogic(self.system_clock(setting), len(setting.inputs), snapshot)


class HeartbeatLogic(DisorderLogic):
    """The largest latency and the last punctuation of every input."""

    def __init__(self, clock: SystemClock, inputs: int, snapshot: Snapshot | None = None) -> None:
        self._clock = clock
        self._latency = np.full(inputs, NEVER, np.int64)
        self._punctuation = np.full(inputs, NEVER, np.int64)
        if snapshot:
            self._latency[:] = snapshot["latency"]
            self._punctuation[:] = snapshot["punctuation"]

    def bounds(self, arrivals: Arrivals) -> Int64s:
        clock = self._clock.ticks(arrivals.clock)
        latency = running_max(arrivals.input, clock - arrivals.ts, self._latency)
        return running_max(arrivals.input, clock - latency - 1, self._punctuation)

    def snapshot(self) -> Snapshot:
        return {"latency": self._latency.copy(), "punctuation": self._punctuation.copy()}
