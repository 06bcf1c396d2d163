"""The state of drop_ratio: VSeq, and the rows that count towards the buffer limit."""

from statistics import NormalDist

import numpy as np

from slackwater.plugins.arrays import opened_all
from slackwater.plugins.contract import NEVER, Arrivals, DisorderLogic, Int64s, Snapshot
from slackwater.plugins.disorder.clocks import SystemClock
from slackwater.transforms.kernels.disorder import drop_ratio as kernel


def z_squared(drop_ratio: float) -> float:
    """Return the constant c of (5.7): the square of the z-value that ``drop_ratio`` of a normal exceeds."""
    return max(0.0, NormalDist().inv_cdf(1.0 - drop_ratio)) ** 2


class DropRatioLogic(DisorderLogic):
    """VSeq and the last punctuation of every input."""

    def __init__(self, clock: SystemClock, drop_ratio: float, inputs: int, saved: Snapshot | None = None) -> None:
        self._clock = clock
        self._c = z_squared(drop_ratio)
        self._state = _empty(inputs, kernel.MIN_VSEQ)
        if saved:
            self._state = kernel.VSeqState(*(np.array(saved[name]) for name in kernel.VSeqState._fields))

    def bounds(self, arrivals: Arrivals) -> Int64s:
        bounds = np.empty(arrivals.ts.size, np.int64)
        self._reserve(bounds.size)
        given = opened_all((arrivals.input, arrivals.ts, self._clock.ticks(arrivals.clock)))
        kernel.estimate(*given, self._c, self._state, bounds)
        return bounds

    def snapshot(self) -> Snapshot:
        return _with_room(self._state, 1)._asdict()

    def _reserve(self, n: int) -> None:
        """Make room for ``n`` more rows in every list, as far as lists may grow."""
        room = min(int(self._state.at[:, kernel.COUNT].max()) + n, kernel.MAX_VSEQ)
        if room > self._state.clock.shape[1]:
            self._state = _with_room(self._state, room)


class LimitedLogic(DisorderLogic):
    """Another logic, with its punctuations moved up wherever an input would hold too many rows."""

    def __init__(self, inner: DisorderLogic, most: int, inputs: int, snapshot: Snapshot | None = None) -> None:
        self._inner = inner
        self._most = most
        self._held = np.zeros(inputs, np.int64)
        self._punctuation = np.full(inputs, NEVER, np.int64)
        self._ts = np.zeros((inputs, 1), np.int64)
        if snapshot:
            self._held[:] = snapshot["held"]
            self._punctuation[:] = snapshot["punctuation"]
            self._ts = np.array(snapshot["ts"])
        self._code = np.zeros_like(self._ts)

    def bounds(self, arrivals: Arrivals) -> Int64s:
        bounds = self._inner.bounds(arrivals)
        room = min(int(self._held.max()) + bounds.size, self._most + 1)
        if room > self._ts.shape[1]:
            more = max(room, 2 * self._ts.shape[1]) - self._ts.shape[1]
            self._ts = np.pad(self._ts, ((0, 0), (0, more)))
            self._code = np.zeros_like(self._ts)
        given = opened_all((arrivals.input, arrivals.ts))
        kernel.limit(*given, self._most, self._ts, self._code, self._held, self._punctuation, bounds)
        return bounds

    def snapshot(self) -> Snapshot:
        return {
            "inner": self._inner.snapshot(),
            "held": self._held.copy(),
            "punctuation": self._punctuation.copy(),
            "ts": self._ts[:, : max(1, int(self._held.max()))].copy(),
        }


def _empty(inputs: int, room: int) -> kernel.VSeqState:
    shape = inputs, 1 << (room - 1).bit_length()
    at = np.zeros((inputs, 6), np.int64)
    at[:, kernel.SIZE], at[:, kernel.PUNCTUATION] = kernel.MIN_VSEQ, NEVER
    return kernel.VSeqState(
        clock=np.zeros(shape, np.int64),
        latency=np.zeros(shape, np.int64),
        mean=np.zeros(shape),
        square=np.zeros(shape),
        newer=np.zeros((inputs, 2)),
        at=at,
    )


def _with_room(old: kernel.VSeqState, room: int) -> kernel.VSeqState:
    """Return a copy that has room for ``room`` rows in every list, or for those it holds if they are more."""
    new = _empty(len(old.at), max(room, int(old.at[:, kernel.COUNT].max())))
    new.newer[:], new.at[:] = old.newer, old.at
    new.at[:, kernel.FIRST] = 0
    for i, (first, count) in enumerate(old.at[:, : kernel.OLDER]):
        ring = (first + np.arange(count)) & (old.clock.shape[1] - 1)
        for array, before in zip(new[:4], old[:4], strict=True):
            array[i, :count] = before[i, ring]
    return new
