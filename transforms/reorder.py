"""The reorder buffer of one shard: K-slack per input, then the Synchronizer."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from slackwater.plugins.contract import NEVER, Bools, Int8s, Int64s, Snapshot
from slackwater.transforms.encode import grown
from slackwater.transforms.kernels import reorder as kernel


class Emitted(NamedTuple):
    """Rows in the order in which they leave the buffer."""

    code: Int64s
    """``seq * 8 + input``."""
    ts: Int64s
    late: Bools


class ReorderBuffer:
    """Holds rows until their input's bound has passed them and no input is behind them."""

    def __init__(self, inputs: int, snapshot: Snapshot | None = None) -> None:
        self._state = kernel.ReorderState(
            slack_ts=np.empty((inputs, 1024), np.int64),
            slack_code=np.empty((inputs, 1024), np.int64),
            slack_n=np.zeros(inputs, np.int64),
            sync_ts=np.empty(1024, np.int64),
            sync_code=np.empty(1024, np.int64),
            sync_n=np.zeros(1, np.int64),
            released=np.full(inputs, NEVER, np.int64),
            clock=np.full(2, NEVER, np.int64),
        )
        if snapshot:
            self._restore(snapshot)

    def __len__(self) -> int:
        return int(self._state.slack_n.sum() + self._state.sync_n[0])

    def push(self, inputs: Int8s, ts: Int64s, codes: Int64s, bounds: Int64s) -> Emitted:
        """Take arrivals in order, each with the bound it sets for its input; return what leaves."""
        n = ts.size
        held = len(self)
        self._reserve(n)
        code, out_ts, late = (
            np.empty(held + n, np.int64),
            np.empty(held + n, np.int64),
            np.empty(held + n, np.bool_),
        )
        emitted = kernel.release(inputs, ts, codes, bounds, self._state, code, out_ts, late)
        return Emitted(code[:emitted], out_ts[:emitted], late[:emitted])

    def drain(self) -> Emitted:
        """Release everything in timestamp order: the input has ended."""
        ts, code = self._held()
        order = np.lexsort((code, ts))
        ts, code = ts[order], code[order]
        on_t = self._state.clock[1]
        before = np.concatenate([[on_t], np.maximum(np.maximum.accumulate(ts), on_t)[:-1]]) if ts.size else ts
        self._state.slack_n[:] = 0
        self._state.sync_n[:] = 0
        if ts.size:
            self._state.clock[:] = max(int(ts[-1]), int(on_t))
        return Emitted(code, ts, ts < before)

    def held(self) -> Int64s:
        """Codes of the rows in the buffer, in any order."""
        return self._held()[1]

    def snapshot(self) -> Snapshot:
        s = self._state
        kept = int(s.slack_n.max(initial=0))
        return {
            "slack_ts": s.slack_ts[:, :kept].copy(),
            "slack_code": s.slack_code[:, :kept].copy(),
            "slack_n": s.slack_n.copy(),
            "sync_ts": s.sync_ts[: s.sync_n[0]].copy(),
            "sync_code": s.sync_code[: s.sync_n[0]].copy(),
            "released": s.released.copy(),
            "clock": s.clock.copy(),
        }

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self._state)

    def _held(self) -> tuple[Int64s, Int64s]:
        s = self._state
        ts = [s.slack_ts[i, :n] for i, n in enumerate(s.slack_n)] + [s.sync_ts[: s.sync_n[0]]]
        code = [s.slack_code[i, :n] for i, n in enumerate(s.slack_n)] + [s.sync_code[: s.sync_n[0]]]
        return np.concatenate(ts), np.concatenate(code)

    def _restore(self, snapshot: Snapshot) -> None:
        s = self._state
        kept, synced = snapshot["slack_ts"].shape[1], len(snapshot["sync_ts"])
        self._reserve(max(kept, synced))
        s = self._state
        s.slack_ts[:, :kept], s.slack_code[:, :kept] = snapshot["slack_ts"], snapshot["slack_code"]
        s.sync_ts[:synced], s.sync_code[:synced] = snapshot["sync_ts"], snapshot["sync_code"]
        s.slack_n[:], s.sync_n[0] = snapshot["slack_n"], synced
        s.released[:], s.clock[:] = snapshot["released"], snapshot["clock"]

    def _reserve(self, n: int) -> None:
        """Make room for ``n`` more rows in any one heap, so that the kernel never has to grow one."""
        s = self._state
        need = int(s.slack_n.max()) + n
        total = len(self) + n
        if s.slack_ts.shape[1] < need:
            s = s._replace(slack_ts=_wider(s.slack_ts, need), slack_code=_wider(s.slack_code, need))
        if s.sync_ts.size < total:
            s = s._replace(sync_ts=grown(s.sync_ts, total), sync_code=grown(s.sync_code, total))
        self._state = s


def _wider(array: Any, size: int) -> Any:
    larger = np.empty((array.shape[0], max(size, 2 * array.shape[1])), array.dtype)
    larger[:, : array.shape[1]] = array
    return larger
