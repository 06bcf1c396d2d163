"""Runs of shedding strategies on two streams in memory, through the operator that every runner drives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from slackwater.pipelines.bench.offline.online_ceiling import ceiling_without_foresight
from slackwater.pipelines.bench.offline.optimum import Optimum, optimum
from slackwater.pipelines.generate.zipf import ZIPF, chances
from slackwater.plugins.contract import Int64s
from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.operators.registry import open_operator
from slackwater.transforms.output.outputs import Outputs
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import bind

LOOKS = 20
"""How often the memory is looked at after the warm-up."""


class Pair(NamedTuple):
    """Two streams, r and s, in order of time; results count from ``count_from`` on."""

    ts: tuple[Int64s, Int64s]
    keys: tuple[Any, Any]
    window: int
    closed: str
    count_from: int
    chances: tuple[Any, Any] | None = None
    """Of the values of r and of s, where each is drawn by itself, and one of either stream per time unit."""

    @classmethod
    def zipf(cls, rows: int, window: int, seed: int, **knobs: Any) -> Pair:
        """Make the paper's streams; the warm-up of two windows is not counted (SAJ 5.2)."""
        parsed = ZIPF.parse({"window": window, "closed": "right", **knobs})
        streams = ZIPF.make(rows, seed, parsed).streams
        ts, keys = ((streams["r"][name], streams["s"][name]) for name in ("ts", "value"))
        return cls(ts, keys, window, "right", 2 * window, chances(seed, parsed))

    def best(self, memory: int, allocation: Any = "fixed") -> Optimum:
        """Return OPT-offline, the ceiling of whatever is run."""
        return optimum(
            *self.ts,
            window=self.window,
            closed="right" if self.closed == "right" else "both",
            memory=memory,
            allocation=allocation,
            keys=self.keys,
            count_from=self.count_from,
        )

    def ceiling(self, memory: int, allocation: Any = "fixed") -> float:
        """Return the share of EXACT that no strategy without foresight exceeds on average; chances are known."""
        assert self.chances is not None
        window = self.window + (self.closed == "both")
        return ceiling_without_foresight(*self.chances, window=window, memory=memory, allocation=allocation)


class Ran(NamedTuple):
    """What a run gave."""

    results: int
    """Those after the warm-up."""
    most: int
    """Most tuples that were held at any instant."""
    share: float
    """Of the tuples in the windows, those of r: average over looks after the warm-up."""
    shed: int


def run(pair: Pair, shedding: Mapping[str, Any]) -> Ran:
    """Join the streams with these settings of ``shedding``."""
    settings = {
        "time": "ts",
        "window": {"size": f"{pair.window}ms", "closed": pair.closed},
        "where": "r.value = s.value",
        "disorder": {"strategy": "none"},
        "output": "counts",
        "shedding": dict(shedding),
    }
    rows = [
        pa.record_batch({"ts": pa.array(ts, pa.int64()), "value": pa.array(keys)})
        for ts, keys in zip(pair.ts, pair.keys, strict=True)
    ]
    operator = open_operator(bind(JoinConfig.read(settings), {"r": rows[0].schema, "s": rows[1].schema}))
    which = np.repeat(np.arange(2, dtype=np.int8), [len(ts) for ts in pair.ts])
    ts = np.concatenate(pair.ts)
    order = np.lexsort((which, ts))
    which, ts = which[order], ts[order]
    counted = 0
    shares = []
    warm = int(np.searchsorted(ts, pair.count_from))
    cuts = np.unique(np.linspace(warm, len(ts), LOOKS + 1).astype(np.int64))
    taken = np.zeros(2, np.int64)
    for start, stop in zip(np.append(0, cuts), cuts, strict=False):
        sizes = np.bincount(which[start:stop], minlength=2)
        batches = [batch.slice(at, size) for batch, at, size in zip(rows, taken, sizes, strict=True)]
        taken += sizes
        counted += _counted(operator.push(Chunk(which[start:stop], np.arange(start, stop), batches)), pair)
        held: Any = operator.snapshot()["join"]
        if start >= warm and len(held["input"]):
            shares.append(float(np.mean(held["input"] == 0)))
    counted += _counted(operator.finish(), pair)
    shed = sum(n for (_, reason), n in operator.accounting.late.items() if reason == "shed")
    return Ran(counted, operator.accounting.max_tuples, float(np.mean(shares)) if shares else 0.5, shed)


def _counted(out: Outputs, pair: Pair) -> int:
    total = 0
    for batch in out.results:
        late_enough = batch.column("ts").cast(pa.int64()).to_numpy() >= pair.count_from
        total += int(batch.column("count").to_numpy()[late_enough].sum())
    return total
