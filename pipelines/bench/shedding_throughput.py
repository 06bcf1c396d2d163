"""What shedding costs: ``prob`` with a memory that evicts half the tuples beside the join that keeps all.

Streams in order, Zipf-distributed keys. Either side runs in turns, and the figures are the median ratios of their
CPU time and of the clock; the better one decides, as the runner uses several cores and others may use them, too.
Every tuple that is shed becomes a late row; the operator alone writes none of them to a file, the runner does so
or not.
"""

from __future__ import annotations

import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.pipelines.bench.joins import Row
from slackwater.pipelines.generate.sampling import zipf_ranks
from slackwater.pipelines.local import run
from slackwater.pipelines.template import read_template
from slackwater.transforms.config import JoinConfig
from slackwater.transforms.intake import Chunk
from slackwater.transforms.operators import open_operator
from slackwater.transforms.plan import bind

CHUNK = 1 << 15
CASES = {
    "500 tuples in a window": (500, 1_000, 500),
    "50,000 tuples in a window": (50_000, 100_000, 50_000),
}
"""Tuples in a stream's window, keys, and the memory, in tuples, that sheds about half of a million rows."""
SHAPE = "prob at least half as fast as the join without a limit"


def section(
    rows: int = 1_000_000, rounds: int = 3, cases: Mapping[str, tuple[int, int, int]] = CASES
) -> list[Row]:
    """Compare the operator alone, then the embedded runner with and without late rows in a file."""
    made = []
    with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as folder:
        for name, (window, keys, memory) in cases.items():
            streams = [drawn(rows // 2, keys, seed) for seed in (1, 2)]
            for side, stream in zip(("left", "right"), streams, strict=True):
                pq.write_table(pa.Table.from_batches([stream]), f"{folder}/{side}.parquet")
            shedding = {"strategy": "prob", "memory": memory}
            whole, shed = (_operator(streams, window, given) for given in ({"strategy": "none"}, shedding))
            made.append(_row(f"operator, {name}", streams, rounds, whole, shed))
            whole, shed, quiet = (
                _runner(Path(folder), window, given, late)
                for given, late in (({"strategy": "none"}, True), (shedding, True), (shedding, False))
            )
            made.append(_row(f"local runner, {name}", streams, rounds, whole, shed))
            made.append(_row(f"local runner, late rows not written, {name}", streams, rounds, whole, quiet))
    return made


def drawn(rows: int, keys: int, seed: int) -> pa.RecordBatch:
    """Draw a stream with a row each 10 ms."""
    rng = np.random.default_rng(seed)
    ts = np.arange(rows) * 10
    return pa.record_batch(
        {"ts": ts, "k": rng.permutation(keys)[zipf_ranks(rng, rows, keys, 1.0)], "id": np.arange(rows)}
    )


class Spent(dict[str, float]):
    """Seconds of CPU and of the clock, and the share of tuples that were shed."""


def _row(case: str, streams: list[pa.RecordBatch], rounds: int, whole: Any, shed: Any) -> Row:
    for call in (whole, shed):
        call(2_000)
    pairs = [(whole(None), shed(None)) for _ in range(rounds)]
    ratio = {kind: statistics.median(a[kind] / b[kind] for a, b in pairs) for kind in ("cpu", "clock")}
    rows = sum(stream.num_rows for stream in streams)
    figures = {
        "shed": f"{pairs[0][1]['shed']:.0%}",
        "none rows/s": rows / min(a["clock"] for a, _ in pairs),
        "prob rows/s": rows / min(b["clock"] for _, b in pairs),
        "ratio by CPU time": ratio["cpu"],
        "by the clock": ratio["clock"],
    }
    return Row(case, figures, SHAPE, max(ratio.values()) >= 0.5, timed=True)


def _operator(streams: list[pa.RecordBatch], window: int, shedding: Any) -> Callable[[int | None], Spent]:
    settings = {
        "time": "ts",
        "window": f"{10 * window}ms",
        "where": "left.k = right.k",
        "disorder": {"strategy": "none"},
        "shedding": shedding,
    }
    plan = bind(JoinConfig.read(settings), {"left": streams[0].schema, "right": streams[1].schema})

    def once(rows: int | None) -> Spent:
        operator = open_operator(plan)
        n = min(rows or len(streams[0]), len(streams[0]))
        clock, cpu = time.perf_counter(), time.process_time()
        for start in range(0, n, CHUNK // 2):
            size = min(CHUNK // 2, n - start)
            turns = np.tile(np.arange(2, dtype=np.int8), size)
            arrival = np.arange(2 * start, 2 * (start + size))
            operator.push(Chunk(turns, arrival, [stream.slice(start, size) for stream in streams]))
        operator.finish()
        return _spent(clock, cpu, operator.accounting.late, 2 * n)

    return once


def _runner(folder: Path, window: int, shedding: Any, late: bool) -> Callable[[int | None], Spent]:
    variables = {
        "left": f"{folder}/left.parquet",
        "right": f"{folder}/right.parquet",
        "out": f"{folder}/out",
        "arrival": "ts",
        "window": f"{10 * window}ms",
        "where": "left.k = right.k",
        "slack": "0s",
    }
    pipeline = read_template("window-join", variables)
    nodes = [node for node in pipeline.nodes if late or node.name != "Late"]
    for at, node in enumerate(nodes):
        if isinstance(node.config, JoinConfig):
            nodes[at] = dataclasses.replace(node, config=node.config.model_copy(update={"shedding": shedding}))
    pipeline = dataclasses.replace(pipeline, nodes=tuple(nodes))

    def once(rows: int | None) -> Spent:
        if rows is not None:
            return Spent()
        clock, cpu = time.perf_counter(), time.process_time()
        summary = run(pipeline)
        return _spent(
            clock, cpu, {(0, reason): n for reason, n in summary["late"].items()}, sum(summary["input"].values())
        )

    return once


def _spent(clock: float, cpu: float, late: Mapping[Any, int], rows: int) -> Spent:
    shed = sum(n for (_, reason), n in late.items() if reason == "shed")
    return Spent(cpu=time.process_time() - cpu, clock=time.perf_counter() - clock, shed=shed / max(1, rows))
