"""``slackwater bench shedding_memory``: resident growth of a join that is held to a number of bytes, over it.

The same rows are joined twice, each time in a process of its own: within ``--memory``, and within the least that
is allowed. What the first takes more than the second, at its peak, should be what it may hold more. What was
learnt of values is no less in the second, and may be more than it is allowed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa

from slackwater.pipelines.bench.report import Column, Report, Table
from slackwater.plugins.registry.options import Memory
from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.operators.join import Operator
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import bind

LEAST = "1MB"
ROWS = 10_000
"""Rows of each of the two inputs in a chunk."""
CASES: dict[str, dict[str, Any]] = {
    "numbers": {"shedding": "random"},
    "texts": {"shedding": "random", "texts": True},
    "counts": {"shedding": "prob"},
    "sketch": {"shedding": "prob", "estimate": "sketch"},
    "text keys": {"shedding": "random", "text_keys": True},
    "disorder": {"shedding": "random", "slack": 20_000, "longer": 2},
}
"""Of disorder twice as many chunks: it takes longer until buffer and windows together are at their largest."""


def chunk(number: int, case: dict[str, Any], rng: np.random.Generator) -> Chunk:
    """Return the next rows, one of each input per ms."""
    batches = []
    for _ in "ab":
        ts = number * ROWS + np.arange(ROWS)
        keys = rng.integers(0, 5_000_000, ROWS)
        if "slack" in case:
            ts = ts - rng.integers(0, case["slack"], ROWS)
        columns = {"ts": pa.array(ts), "k": pa.array(keys), "v": pa.array(rng.random(ROWS))}
        if "text_keys" in case:
            columns["k"] = pa.array([f"key {k}" for k in keys])
        if "texts" in case:
            columns["t"] = pa.array(["x" * n for n in rng.integers(0, 120, ROWS)])
        batches.append(pa.record_batch(columns))
    return Chunk(np.tile(np.array([0, 1], np.int8), ROWS), 2 * ROWS * number + np.arange(2 * ROWS), batches)


def operator(case: dict[str, Any], memory: str, schema: pa.Schema) -> Operator:
    slack = {"strategy": "fixed", "slack": f"{case['slack']}ms"} if "slack" in case else {"strategy": "none"}
    shedding = {"strategy": case["shedding"], "memory": memory}
    if "estimate" in case:
        shedding["estimate"] = case["estimate"]
    settings = {"time": "ts", "window": "1h", "where": "a.k = b.k", "output": "counts"}
    return Operator(
        bind(JoinConfig.read({**settings, "disorder": slack, "shedding": shedding}), {"a": schema, "b": schema})
    )


def resident(what: str) -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(what))


def measure(name: str, memory: str, chunks: int, seed: int) -> None:
    """Print the peak of resident bytes, and the tuples and bytes that the operator counted at most."""
    case, rng = CASES[name], np.random.default_rng(seed)
    schema = chunk(0, case, rng).batches[0].schema
    warm = operator(case, LEAST, schema)
    for number in range(4):
        warm.push(chunk(number, case, rng))
    # Compiling takes more than the join: begin a new peak.
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    limited = operator(case, memory, schema)
    for number in range(chunks):
        limited.push(chunk(number, case, rng))
    accounting = limited.accounting
    sys.stdout.write(json.dumps([resident("VmHWM"), accounting.max_tuples, accounting.max_bytes]))


def growth(name: str, memory: str, chunks: int, seed: int) -> tuple[float, float, int]:
    """Return resident growth and counted bytes, each over the limit, and the tuples held."""
    found = []
    for limit in (memory, LEAST):
        call = [sys.executable, "-m", __name__, name, limit, str(chunks), str(seed)]
        found.append(json.loads(subprocess.run(call, capture_output=True, text=True, check=True).stdout))
    amount = Memory.parse(memory).amount
    (large, tuples, counted), (small, _, learnt) = found
    return (large - small) / (amount - learnt), counted / amount, tuples


def run(options: argparse.Namespace, report: Report) -> None:
    """Measure every case."""
    table = Table(
        "case", "tuples", Column("counted / limit", ".2f"), Column("resident growth / limit", ".2f"),
        title=f"Joins held to {options.memory}",
    )  # fmt: skip
    for name, case in CASES.items():
        chunks = max(1, options.rows // (2 * ROWS)) * case.get("longer", 1)
        ratio, counted, tuples = growth(name, options.memory, chunks, options.seed)
        table.add(name, tuples, counted, ratio)
        report.progress(f"{name}: {chunks} chunks")
    report.add(table)


if __name__ == "__main__":
    measure(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
