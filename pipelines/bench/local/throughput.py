"""``slackwater bench local``: Parquet to Parquet on the embedded runner.

Two data sets: about one result for two rows, and about two results a row. Each is joined by the embedded runner
(after a warm-up that loads compiled kernels from the cache) and, on a prefix, by a per-tuple Python join that
does the same work; the ratio of their rates is what counts. The parts of the run overlap, so their shares are
of busy time, not of elapsed time. Then the strategies that adapt, every 20,000 rows, against ``fixed``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from slackwater.pipelines.bench.report import Column, Report, Table
from slackwater.pipelines.generate import generate
from slackwater.pipelines.runners.local.runner import run as run_local
from slackwater.pipelines.template.graph import Node
from slackwater.pipelines.template.reader import read_template
from slackwater.transforms.settings.models import DisorderConfig

DATA_SETS = {"1 result for 2 rows": 1000, "2 results a row": 250}
"""Number of keys at 100 rows/s per stream and windows of 5 s: results per row are 500 / keys."""
SLACK_MS, WINDOW_MS = 2000, 5000
ADAPTIVE = {"recall": 0.95, "interval": "100s", "period": "1000s"}
ROWS_PER_ADAPTATION = 20_000
"""At 200 rows/s over both streams."""
STRATEGIES: dict[str, dict[str, Any]] = {
    "fixed": {"slack": "2s"},
    "quality_driven": ADAPTIVE,
    "result_slack": {**ADAPTIVE, "horizon": "20s"},
}


def run(options: argparse.Namespace, report: Report) -> None:
    """Generate, join, compare."""
    jobs = Table(
        "data", "rows", "results", "rows/s", "results/s", "per tuple rows/s", Column("times", ".1f"),
        "its join alone rows/s", Column("times", ".1f", "times_join_alone"), "busy", Column("busy s", ".2f"),
        Column("elapsed s", ".2f"), title="Parquet to Parquet",
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as folder:
        for name, keys in DATA_SETS.items():
            data = Path(folder) / str(keys)
            rows, seed = options.rows // 2, options.seed
            generate("syn2", data, rows=rows, seed=seed, delayed=0.2, max_delay=SLACK_MS, keys=keys)
            _warm_up(data, Path(folder))
            ours = min((_ours(data, data / "out") for _ in range(options.repeat)), key=lambda s: s["elapsed_s"])
            reference = [_reference(data, options.reference_rows) for _ in range(options.repeat)]
            _add(jobs, name, ours, *map(max, zip(*reference, strict=True)))
        report.add(jobs)
        report.add(_strategies(Path(folder) / "1000", options.rows, options.repeat))


def _variables(data: Path, out: Path) -> dict[str, str]:
    return {"left": f"{data}/s1.parquet", "right": f"{data}/s2.parquet", "out": str(out), "slack": "2s"}


def _warm_up(data: Path, folder: Path) -> None:
    small = folder / "small"
    if not small.exists():
        generate("syn2", small, rows=20_000, seed=1, delayed=0.2, max_delay=SLACK_MS, keys=1000)
        _ours(small, small / "out")
    for file in ("s1.parquet", "s2.parquet"):
        (data / file).read_bytes()


def _ours(data: Path, out: Path) -> dict[str, Any]:
    return run_local(read_template("window-join", _variables(data, out)))


def _strategies(data: Path, rows: int, repeat: int) -> Table:
    """Return the throughput of strategies that adapt, as a share of ``fixed`` on the same data."""
    rates: dict[str, float] = {}
    table = Table(
        "strategy", "rows/s", Column("of fixed", ".2f"), Column("K ms", ",.0f"), Column("ms / adaptation", ".2f"),
        title=f"Strategies, adapting every {ROWS_PER_ADAPTATION:,} rows", name="strategies",
    )  # fmt: skip
    for name, options in STRATEGIES.items():
        pipeline = read_template("window-join", _variables(data, data / "out"))
        nodes = tuple(_with_disorder(node, {"strategy": name, **options}) for node in pipeline.nodes)
        runs = [run_local(replace(pipeline, nodes=nodes)) for _ in range(repeat)]
        rates[name] = max(summary["rows_per_s"] for summary in runs)
        adaptation = min(summary["busy_s"]["adapt"] for summary in runs) / (rows / ROWS_PER_ADAPTATION)
        slack = runs[0]["slack_ms"]["mean"]
        table.add(name, rates[name], rates[name] / rates["fixed"], slack, 1000 * adaptation)
    return table


def _with_disorder(node: Node, disorder: dict[str, Any]) -> Node:
    if not isinstance(node.config, DisorderConfig):
        return node
    return replace(node, config=node.config.model_copy(update={"disorder": disorder}))


def _reference(data: Path, rows: int) -> tuple[float, float]:
    """Return the rows per second of the same job done per tuple, and of its join alone without files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from slackwater.pipelines.bench.local.per_tuple import PerTupleJoin

    started = time.perf_counter()
    streams = [
        pq.read_table(data / file).slice(0, rows // 2).to_pylist() for file in ("s1.parquet", "s2.parquet")
    ]
    arrivals = sorted(
        ((row["arrived"], which, row) for which, stream in enumerate(streams) for row in stream),
        key=lambda arrival: arrival[:2],
    )
    reading = time.perf_counter() - started
    join = PerTupleJoin([WINDOW_MS, WINDOW_MS], ["a1", "a1"], SLACK_MS)
    started = time.perf_counter()
    pairs = [pair for _, which, row in arrivals for pair in join.process(which, row)]
    pairs += join.finish()
    joining = time.perf_counter() - started
    started = time.perf_counter()
    pq.write_table(pa.Table.from_pylist(list(map(_row, pairs))), data / "reference.parquet")
    writing = time.perf_counter() - started
    return len(arrivals) / (reading + joining + writing), len(arrivals) / joining


def _row(pair: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    named = zip(("left", "right"), pair, strict=True)
    row = {f"{name}_{column}": value for name, member in named for column, value in member.items()}
    row["ts"] = max(member["ts"] for member in pair)
    return row


def _add(table: Table, name: str, ours: dict[str, Any], job: float, join: float) -> None:
    busy = ours["busy_s"]
    total = sum(busy.values())
    shares = ", ".join(f"{part} {seconds / total:.0%}" for part, seconds in busy.items())
    rate, found = ours["rows_per_s"], ours["results"] / ours["elapsed_s"]
    rows = sum(ours["input"].values())
    table.add(
        name, rows, ours["results"], rate, found, job, rate / job, join, rate / join, shares, total,
        ours["elapsed_s"],
    )  # fmt: skip
