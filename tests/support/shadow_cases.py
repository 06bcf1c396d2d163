"""Streams whose losses by shedding are counted."""

import numpy as np
import pyarrow as pa
from running import SCHEMA, plan_of

from slackwater.transforms.operators.join import Chunk, Operator
from slackwater.transforms.state import snapshot as snapshots


def stream(n, m=2, keys=300, skew=0.0, late=0.1, delay=400, seed=1):
    """Inputs in turn, a row of each per ms, some of them late by up to ``delay`` ms; keys by a Zipf law."""
    rng = np.random.default_rng(seed)
    inputs = np.tile(np.arange(m, dtype=np.int8), n // m)
    chances = 1 / np.arange(1, keys + 1) ** skew
    ts = np.arange(inputs.size) // m
    return {
        "input": inputs,
        "ts": ts - np.where(rng.random(inputs.size) < late, rng.integers(1, delay, inputs.size), 0),
        "k": rng.choice(keys, inputs.size, p=chances / chances.sum()),
        "v": rng.integers(0, 30, inputs.size),
    }


def account_of(plan, rows, step=1 << 15, restore=None):
    """Run a stream to the end and return what became of it; taken to bytes and back at chunk ``restore``."""
    operator, n, m = Operator(plan), rows["ts"].size, len(plan.inputs)
    for start in range(0, n, step):
        part = slice(start, start + step)
        inputs = rows["input"][part]
        batches = [
            pa.record_batch([rows[name][part][inputs == i] for name in ("ts", "ts", "k", "v")], schema=SCHEMA)
            for i in range(m)
        ]
        if restore is not None and start == restore * step:
            operator = Operator(plan, snapshots.loads(snapshots.dumps(operator.snapshot())))
        operator.push(Chunk(inputs, start + np.arange(inputs.size), batches))
    for _ in operator.finishing():
        pass
    return operator.accounting


def counting(m=2, where="a.k = b.k", window="2s", disorder=None, **settings):
    disorder = disorder or {"strategy": "fixed", "slack": "200ms"}
    return plan_of(SCHEMA, m, where=where, window=window, output="counts", disorder=disorder, **settings)
