"""The reorder buffer of one shard: K-slack per input, then the Synchronizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np

from slackwater.plugins.contract import NEVER, Bools, Int8s, Int64s, Snapshot
from slackwater.transforms.disorder.held_rows import HeldRows
from slackwater.transforms.kernels.disorder import buffer as kernel

_RUN: Final = 1 << 13
"""Arrivals at a time: room is made for these, so that the buffers stay in cache."""
_FIRST: Final = 64
"""Room to begin with where there is a limit."""
_FEW: Final = 512
_NOBODY: Final = -1
"""Code of an arrival that brings no row, only a bound for those that are held."""
_AWAY: Final = np.iinfo(np.int64).max
"""What a silent input is taken to have released: nobody waits for it."""


class Emitted(NamedTuple):
    """Rows in the order in which they leave the buffer."""

    code: Int64s
    """``rows.row_code`` of each."""
    ts: Int64s
    late: Bools
    at: Int64s
    """Index of the arrival that let the row go; -1 for the end of the input."""


class Leads(Protocol):
    """Knows of arrivals that a buffer is not given."""

    held_bounds: Int64s
    """For each of the arrivals that come next, how far to release rows of its input that came before it."""


class ReorderBuffer:
    """Holds rows until their input's bound has passed them and no input is behind them.

    Args:
        inputs: how many there are.
        snapshot: what ``snapshot`` returned, or None.
        capacity: rows that may be held; where it takes more to keep the order, the oldest leave early. It may be
            set anew at any time.
    """

    def __init__(self, inputs: int, snapshot: Snapshot | None = None, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.leader: Leads | None = None
        """What bounds come from, if from a buffer with more rows, which may have let go what is held here. Where
        slack has grown, a row that is held may be older than some that were released; these wait for it."""
        self._rows = HeldRows(inputs, self._least)
        self._silent: dict[int, int] = {}
        """Inputs that nobody waits for, and the largest time that each has released."""
        if snapshot:
            held = [(ts, code) for ts, code in zip(snapshot["ts"], snapshot["code"], strict=True)]
            self._rows.fill(held, (snapshot["sync_ts"], snapshot["sync_code"]), self._least)
            self._rows.state.slack[:, kernel.RELEASED] = snapshot["released"]
            self._rows.state.clock[: kernel.IN_SYNC] = snapshot["clock"]
            self._silent = {i: released for i, released in snapshot.get("silent", ())}

    @property
    def _least(self) -> int:
        """Room to begin with."""
        return _RUN if self.capacity is None else _FIRST

    @property
    def _run(self) -> tuple[int, int]:
        """Arrivals that are taken at once, and the room they need at most: there are never more than may be."""
        if self.capacity is None:
            return _RUN, _RUN
        if self.capacity < _FEW:
            return _RUN, self.capacity + 1
        return (min(_RUN, max(_FEW, self.capacity // 8)),) * 2

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def released(self) -> Int64s:
        """Of each input the largest time that it has released, or NEVER."""
        released = self._rows.state.slack[:, kernel.RELEASED].copy()
        released[list(self._silent)] = list(self._silent.values())
        return released

    def push(self, inputs: Int8s, ts: Int64s, codes: Int64s, bounds: Int64s) -> Emitted:
        """Take arrivals in order, each with the bound it sets for its input; return what leaves."""
        if self.leader is None:
            return self._push(inputs, ts, codes, bounds)
        held = self.leader.held_bounds
        at = np.flatnonzero(held > bounds)
        emitted = self._push(
            np.insert(inputs, at, inputs[at]), np.insert(ts, at, NEVER), np.insert(codes, at, _NOBODY),
            np.insert(bounds, at, held[at]),
        )  # fmt: skip
        emitted = Emitted._make(array[emitted.code != _NOBODY] for array in emitted)
        return emitted._replace(at=emitted.at - np.searchsorted(at + np.arange(at.size), emitted.at))

    def _push(self, inputs: Int8s, ts: Int64s, codes: Int64s, bounds: Int64s) -> Emitted:
        size = len(self) + ts.size
        code, out_ts, at = (np.empty(size, np.int64) for _ in range(3))
        out = Emitted(code, out_ts, np.empty(size, np.bool_), at)
        n = 0
        (run, room), capacity = self._run, -1 if self.capacity is None else self.capacity
        start = 0
        while start < ts.size:
            stop = self._wake(inputs, start, min(start + run, ts.size))
            part = slice(start, stop)
            self._rows.reserve(min(room, stop - start))
            rest = (array[n:] for array in out)
            n += kernel.release(
                inputs[part], ts[part], codes[part], bounds[part], self.leader is not None, capacity, start,
                self._rows.state, *rest,
            )  # fmt: skip
            start = stop
        return Emitted._make(array[:n] for array in out)

    def give_up(self) -> Emitted:
        """Let the oldest go until no more are held than may be."""
        size = 0 if self.capacity is None else max(0, len(self) - self.capacity)
        code, ts = np.empty((2, size), np.int64)
        out = Emitted(code, ts, np.empty(size, np.bool_), np.full(size, -1))
        if size:
            kernel.give_up(self._rows.state, out.code, out.ts, out.late)
        return out

    def idle(self, inputs: Sequence[int]) -> Emitted:
        """Let inputs that have nothing to say hold nothing back, until they bring a row.

        What their K-slack buffers hold goes to the Synchronizer, which waits for the other inputs only; those
        that were silent and are not named are waited for again. Once all are silent, nothing is held. Rows that
        come later and are behind go straight on, as always.
        """
        for i in self._silent.keys() - set(inputs):
            self._wait_for(i)
        for i in inputs:
            if i not in self._silent:
                newest = int(self._rows.of_inputs()[i][0].max(initial=NEVER))
                self._silent[i] = max(int(self._rows.state.slack[i, kernel.RELEASED]), newest)
        bounds = np.full(len(self._rows.state.slack), NEVER, np.int64)
        bounds[list(self._silent)] = _AWAY
        return self._go_on(bounds)

    def advance(self, bounds: Int64s) -> Emitted:
        """Release each input up to a bound, NEVER for none, as if rows of that time had gone elsewhere.

        Inputs that were silent are waited for again.
        """
        for i in np.flatnonzero(bounds != NEVER).tolist():
            self._wait_for(i)
        return self._go_on(bounds)

    def catch_up(self, other: ReorderBuffer) -> None:
        """Take everything to have left that has left another buffer; with the next ``advance`` it does."""
        released, clock = self._rows.state.slack[:, kernel.RELEASED], self._rows.state.clock
        released[:] = np.maximum(released, other.released)
        clock[kernel.T_SYNC] = max(clock[kernel.T_SYNC], other._rows.state.clock[kernel.ON_T])

    def drain(self) -> Emitted:
        """Release everything in timestamp order: the input has ended."""
        ts, code = map(np.concatenate, zip(*self._rows.of_inputs(), self._rows.synced(), strict=True))
        self._rows.clear(self._least)
        emitted = self._emit(ts, code)
        self._rows.state.clock[kernel.T_SYNC] = self._rows.state.clock[kernel.ON_T]
        return emitted

    def held(self) -> Int64s:
        """Codes of the rows in the buffer, in any order."""
        return np.concatenate([code for _, code in (*self._rows.of_inputs(), self._rows.synced())])

    def snapshot(self) -> Snapshot:
        held, (sync_ts, sync_code) = self._rows.of_inputs(), self._rows.synced()
        return {
            "ts": [ts for ts, _ in held],
            "code": [code for _, code in held],
            "sync_ts": sync_ts,
            "sync_code": sync_code,
            "released": self._rows.state.slack[:, kernel.RELEASED].copy(),
            "clock": self._rows.state.clock[: kernel.IN_SYNC].copy(),
            "silent": [[i, released] for i, released in self._silent.items()],
        }

    def bytes_for(self, level: int) -> int:
        """Bytes of all arrays at most, where no more than ``level`` rows are held."""
        inputs = len(self._rows.state.slack)
        return 8 * (4 * inputs + 2) * max(_FIRST, 1 << (2 * (level + self._run[1]) - 1).bit_length())

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self._rows.nbytes

    def _wake(self, inputs: Int8s, start: int, stop: int) -> int:
        """Wait for the input of arrival ``start`` again; return where another silent one speaks, or ``stop``."""
        if not self._silent:
            return stop
        self._wait_for(int(inputs[start]))
        speaks = np.flatnonzero(np.isin(inputs[start:stop], list(self._silent)))
        return start + int(speaks[0]) if speaks.size else stop

    def _wait_for(self, i: int) -> None:
        """Let an input hold rows back again, if it was silent."""
        if i in self._silent:
            self._rows.state.slack[i, kernel.RELEASED] = self._silent.pop(i)

    def _go_on(self, bounds: Int64s) -> Emitted:
        """Let the inputs have released everything up to their bounds; return what the Synchronizer lets go."""
        released = self._rows.state.slack[:, kernel.RELEASED]
        released[:] = np.maximum(released, bounds)
        held, synced = self._rows.of_inputs(), self._rows.synced()
        due = [ts <= bound for (ts, _), bound in zip(held, bounds, strict=True)]
        left = [(ts[~goes], code[~goes]) for (ts, code), goes in zip(held, due, strict=True)]
        moved = [(ts[goes], code[goes]) for (ts, code), goes in zip(held, due, strict=True)]
        ts, code = map(np.concatenate, zip(*moved, synced, strict=True))
        slowest = released.min()
        if self.leader is not None:
            slowest = min(slowest, *(ts.min(initial=_AWAY) for ts, _ in left))
        t_sync = max(
            self._rows.state.clock[kernel.T_SYNC], ts.max(initial=NEVER) if slowest == _AWAY else slowest
        )
        goes = ts <= t_sync
        self._rows.fill(left, (ts[~goes], code[~goes]), self._least)
        self._rows.state.clock[kernel.T_SYNC] = t_sync
        return self._emit(ts[goes], code[goes])

    def _emit(self, ts: Int64s, code: Int64s) -> Emitted:
        """Let rows go in timestamp order, between two arrivals."""
        order = np.lexsort((code, ts))
        ts, code = ts[order], code[order]
        clock = self._rows.state.clock
        newest = np.maximum.accumulate(np.append(clock[kernel.ON_T], ts))
        clock[kernel.ON_T] = newest[-1]
        return Emitted(code, ts, ts < newest[:-1], np.full(ts.size, -1))
