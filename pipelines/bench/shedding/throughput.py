"""What shedding costs: ``prob`` with a memory that evicts half the tuples beside the join that keeps all.

Streams in order, Zipf-distributed keys. Operators run side by side and are compared by CPU time, as they use one
core; runs of the embedded runner, which uses several, follow each other and are compared by the clock. Figures
are medians of ratios. Every tuple that is shed becomes a late row; the operator alone writes none of them to a
file, the runner does so or not.
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

from slackwater.pipelines.bench.experiments import Row
from slackwater.pipelines.bench.side_by_side import side_by_side
from slackwater.pipelines.generate.sampling import zipf_ranks
from slackwater.pipelines.runners.local.runner import run
from slackwater.pipelines.template.reader import read_template
from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import bind

CHUNK = 1 << 15
CASES = {
    "500 tuples in a window": (500, 1_000, 500),
    "50,000 tuples in a window": (50_000, 100_000, 50_000),
}
"""Tuples in a stream's window, keys, and the memory, in tuples, that sheds about half of a million rows."""
SHAPE = "prob at least half as fast as the join without a limit"


def section(
    rows: int = 1_000_000,
    rounds: int = 7,
    cases: Mapping[str, tuple[int, int, int]] = CASES,
    seed: int = 1,
) -> list[Row]:
    """Compare the operator alone, then the embedded runner with and without late rows in a file."""
    made = []
    with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as folder:
        for name, (window, keys, memory) in cases.items():
            streams = [drawn(rows // 2, keys, seed + which) for which in range(2)]
            for side, stream in zip(("left", "right"), streams, strict=True):
                pq.write_table(pa.Table.from_batches([stream]), f"{folder}/{side}.parquet")
            shedding = {"strategy": "prob", "memory": memory}
            made.append(_operators(f"operator, {name}", streams, window, shedding, rounds))
            whole, shed, quiet = (
                _runner(Path(folder), window, given, late)
                for given, late in (({"strategy": "none"}, True), (shedding, True), (shedding, False))
            )
            made.append(_runners(f"local runner, {name}", whole, shed, rounds))
            made.append(_runners(f"local runner, late rows not written, {name}", whole, quiet, rounds))
    return made


def drawn(rows: int, keys: int, seed: int) -> pa.RecordBatch:
    """Draw a stream with a row each 10 ms."""
    rng = np.random.default_rng(seed)
    ts = np.arange(rows) * 10
    return pa.record_batch(
        {"ts": ts, "k": rng.permutation(keys)[zipf_ranks(rng, rows, keys, 1.0)], "id": np.arange(rows)}
    )


def _row(case: str, by: str, rows: int, shed: int, seconds: list[list[float]]) -> Row:
    """Compare the seconds of pairs of runs, without a limit and with one."""
    ratio = statistics.median(whole / limited for whole, limited in seconds)
    whole, limited = (rows / min(side) for side in zip(*seconds, strict=True))
    figures: dict[str, float | str] = {"shed": f"{shed / rows:.0%}", "none rows/s": whole, "prob rows/s": limited}
    return Row(case, figures | {f"ratio by {by}": ratio}, SHAPE, ratio >= 0.5, timed=True)


def _operators(case: str, streams: list[pa.RecordBatch], window: int, shedding: Any, rounds: int) -> Row:
    settings = {
        "time": "ts",
        "window": f"{10 * window}ms",
        "where": "left.k = right.k",
        "disorder": {"strategy": "none"},
    }
    schemas = {"left": streams[0].schema, "right": streams[1].schema}
    configs = [JoinConfig.read({**settings, "shedding": given}) for given in ({"strategy": "none"}, shedding)]
    plans = [bind(config, schemas) for config in configs]
    chunks = []
    for start in range(0, len(streams[0]), CHUNK // 2):
        parts = [stream.slice(start, CHUNK // 2) for stream in streams]
        turns = np.tile(np.arange(2, dtype=np.int8), len(parts[0]))
        chunks.append(Chunk(turns, 2 * start + np.arange(turns.size), parts))
    _, (_, limited) = side_by_side(plans, chunks)
    shed = sum(n for (_, reason), n in limited.accounting.late.items() if reason == "shed")
    seconds = [side_by_side(plans, chunks)[0] for _ in range(rounds)]
    return _row(case, "CPU time", 2 * len(streams[0]), shed, seconds)


def _runners(case: str, whole: Callable[[], Any], limited: Callable[[], Any], rounds: int) -> Row:
    whole()
    summary = limited()

    def clocked(run: Callable[[], Any]) -> float:
        started = time.perf_counter()
        run()
        return time.perf_counter() - started

    seconds = [[clocked(whole), clocked(limited)] for _ in range(rounds)]
    return _row(case, "the clock", sum(summary["input"].values()), summary["late"]["shed"], seconds)


def _runner(folder: Path, window: int, shedding: Any, late: bool) -> Callable[[], Any]:
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
    return lambda: run(dataclasses.replace(pipeline, nodes=tuple(nodes)))
