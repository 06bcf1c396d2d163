"""``xjoin`` with a state of ten times its memory: results, memory and speed beside ``symmetric_hash``.

Each run is a process of its own, so that its peak of resident memory is its own. Two streams of rows with unique
times and keys from a range as long as the stream are joined; nothing is late.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from slackwater.pipelines.bench.experiments import Row
from slackwater.transforms.operators.join import Chunk, Operator
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import bind

CHUNK: Final = 1 << 15
"""Rows of each input at a time."""
TUPLE_BYTES: Final = 500
"""What a tuple of these streams is taken to need in memory, where the limit is in bytes."""
SLACK_MB: Final = 40
"""What the peak of a process may differ by on its own."""
SCHEMA: Final = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.float64()), ("name", pa.string())])


def section(rows: int = 1_000_000, seed: int = 1) -> list[Row]:
    """Run ``symmetric_hash`` and ``xjoin`` on two streams of ``rows`` rows, and ``xjoin`` on a tenth of them."""
    memory = rows // 5
    everything, limited, tenth = (
        _alone(*given, seed)
        for given in (("symmetric_hash", rows, None), ("xjoin", rows, memory), ("xjoin", rows // 10, memory))
    )
    in_bytes = _alone("xjoin", rows, f"{memory * TUPLE_BYTES / 1e6:g}MB", seed)
    pace = limited["rows_per_s"] / everything["rows_per_s"]
    grown = limited["peak_mb"] - tenth["peak_mb"]
    allowed = (everything["peak_mb"] - tenth["peak_mb"]) / 4
    return [
        _row(everything),
        _row(
            limited,
            f"the results of symmetric_hash; {pace:.2f} of its rows/s",
            limited["results"] == everything["results"],
        ),
        _row(limited, "300,000 rows/s and more", limited["rows_per_s"] >= 300_000, timed=True),
        _row(
            tenth,
            f"ten times the rows take {grown} MB more; without a limit they take {4 * allowed:.0f}",
            grown <= max(allowed, SLACK_MB),
        ),
        _row(in_bytes, "the same with a limit in bytes", in_bytes["results"] == everything["results"]),
    ]


def _row(found: dict[str, Any], shape: str = "", met: bool | None = None, timed: bool = False) -> Row:
    names = ("results", "before_end", "spilled_tuples", "spilled_mb", "rows_per_s", "cpu_s", "peak_mb")
    figures = {name.replace("_", " "): found[name] for name in names}
    limit = "" if found["memory"] is None else f", memory {found['memory']}"
    return Row(f"{found['strategy']}, {found['rows']:,} rows{limit}", figures, shape, met, timed)


def measure(strategy: str, rows: int, memory: Any, seed: int = 1) -> dict[str, Any]:
    """Run a join in this process; return what there is to say of it but for the memory that it needed."""
    _run(strategy, 4_096, 512 if memory else None, seed)
    return _run(strategy, rows, memory, seed)


def _run(strategy: str, rows: int, memory: Any, seed: int) -> dict[str, Any]:
    join = {"strategy": strategy} | ({} if memory is None else {"memory": memory})
    config = {"time": "ts", "where": "a.k = b.k", "disorder": {"strategy": "none"}, "join": join}
    operator = Operator(bind(JoinConfig.read(config), {"a": SCHEMA, "b": SCHEMA}))
    results = seconds = busy = 0.0
    for chunk in _chunks(rows, seed):
        started, cpu = time.perf_counter(), time.process_time()
        out = operator.push(chunk)
        seconds, busy = seconds + time.perf_counter() - started, busy + time.process_time() - cpu
        results += sum(batch.num_rows for batch in out.results)
    early = results
    started, cpu = time.perf_counter(), time.process_time()
    for out in operator.finishing():
        results += sum(batch.num_rows for batch in out.results)
    seconds, busy = seconds + time.perf_counter() - started, busy + time.process_time() - cpu
    return {
        "strategy": strategy,
        "rows": 2 * rows,
        "memory": memory,
        "results": int(results),
        "before_end": int(early),
        "spilled_tuples": operator.accounting.spilled_tuples,
        "spilled_mb": round(operator.accounting.spilled_bytes / 1e6, 1),
        "seconds": round(seconds, 3),
        "rows_per_s": round(2 * rows / seconds),
        "cpu_s": round(busy, 3),
    }


def _chunks(rows: int, seed: int) -> Iterator[Chunk]:
    rng = np.random.default_rng(seed)
    for start in range(0, rows, CHUNK):
        n = min(CHUNK, rows - start)
        ts = np.arange(start, start + n)
        batches = []
        for _ in range(2):
            k = rng.integers(0, rows, n)
            names = pa.array(np.char.add("name ", (k % 1_000).astype(str)))
            columns = [pa.array(ts), pa.array(k), pa.array(rng.random(n)), names]
            batches.append(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
        yield Chunk(np.tile(np.array([0, 1], np.int8), n), np.arange(2 * start, 2 * (start + n)), batches)


_CODE: Final = """
import json, re, sys
from slackwater.pipelines.bench.joins.xjoin import measure
row = measure(*json.loads(sys.argv[1]))
# Not ru_maxrss: it would start from the size of the process that started this one.
peak = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())
print(json.dumps(row | {"peak_mb": round(int(peak[1]) / 1024) if peak else None}))
"""


def _alone(*given: Any) -> dict[str, Any]:
    command = [sys.executable, "-c", _CODE, json.dumps(given)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row
