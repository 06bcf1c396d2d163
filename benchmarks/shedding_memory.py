"""Resident growth of a join that is held to a number of bytes, over that number.

    python benchmarks/shedding_memory.py [MEMORY CHUNKS]

The same rows are joined twice, each time in a process of its own: within ``MEMORY`` (64MB), and within the least
that is allowed. What the first takes more than the second, at its peak, should be what it may hold more. What was
learnt of values is no less in the second, and may be more than it is allowed.
"""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa

from slackwater.plugins.registry.options import Memory
from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.operators.join import Operator
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import bind

LEAST = "1MB"
ROWS = 10_000
"""Rows of each of the two inputs in a chunk."""
CASES: dict[str, dict[str, object]] = {
    "numbers": {"shedding": "random"},
    "texts": {"shedding": "random", "texts": True},
    "counts": {"shedding": "prob"},
    "sketch": {"shedding": "prob", "estimate": "sketch"},
    "text keys": {"shedding": "random", "text_keys": True},
    "disorder": {"shedding": "random", "slack": 20_000, "longer": 2},
}
"""Of disorder twice as many chunks: it takes longer until buffer and windows together are at their largest."""


def chunk(number: int, case: dict[str, object], rng: np.random.Generator) -> Chunk:
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


def operator(case: dict[str, object], memory: str, schema: pa.Schema) -> Operator:
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


def measure(name: str, memory: str, chunks: int) -> None:
    """Print the peak of resident bytes, and the tuples and bytes that the operator counted at most."""
    case, rng = CASES[name], np.random.default_rng(1)
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
    print(json.dumps([resident("VmHWM"), accounting.max_tuples, accounting.max_bytes]))


def growth(name: str, memory: str, chunks: int) -> tuple[float, float, int]:
    """Return resident growth and counted bytes, each over the limit, and the tuples held."""
    found = []
    for limit in (memory, LEAST):
        call = [sys.executable, __file__, "--measure", name, limit, str(chunks)]
        found.append(json.loads(subprocess.run(call, capture_output=True, text=True, check=True).stdout))
    amount = Memory.parse(memory).amount
    (large, tuples, counted), (small, _, learnt) = found
    return (large - small) / (amount - learnt), counted / amount, tuples


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2], sys.argv[3], int(sys.argv[4]))
        return
    memory, chunks = sys.argv[1:3] or ("64MB", "24")
    for name, case in CASES.items():
        ratio, counted, tuples = growth(name, memory, int(chunks) * int(str(case.get("longer", 1))))
        print(
            f"{name:>10}  {tuples:>9,} tuples  counted / limit {counted:.2f}  resident growth / limit {ratio:.2f}"
        )


if __name__ == "__main__":
    main()
