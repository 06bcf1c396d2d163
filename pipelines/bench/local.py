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

from rich.console import Console

from slackwater.pipelines.generate import generate
from slackwater.pipelines.runners.local.runner import run
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


def main(arguments: list[str]) -> None:
    """Generate, join, compare, print."""
    parser = argparse.ArgumentParser(prog="slackwater bench local", description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000, help="rows over both streams")
    parser.add_argument("--reference-rows", type=int, default=200_000, help="rows that the reference joins")
    parser.add_argument("--repeat", type=int, default=3, help="runs; the best one counts for both sides")
    options = parser.parse_args(arguments)
    console = Console()
    with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as folder:
        for name, keys in DATA_SETS.items():
            data = Path(folder) / str(keys)
            generate("syn2", data, rows=options.rows // 2, seed=1, delayed=0.2, max_delay=SLACK_MS, keys=keys)
            _warm_up(data, Path(folder))
            ours = min((_ours(data, data / "out") for _ in range(options.repeat)), key=lambda s: s["elapsed_s"])
            reference = [_reference(data, options.reference_rows) for _ in range(options.repeat)]
            _print(console, name, ours, *map(max, zip(*reference, strict=True)))
        _strategies(console, Path(folder) / "1000", options.rows, options.repeat)


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
    return run(read_template("window-join", _variables(data, out)))


def _strategies(console: Console, data: Path, rows: int, repeat: int) -> None:
    """Print the throughput of strategies that adapt, as a share of ``fixed`` on the same data."""
    rates: dict[str, float] = {}
    console.print(f"[bold]strategies[/bold], adapting every {ROWS_PER_ADAPTATION:,} rows")
    for name, options in STRATEGIES.items():
        pipeline = read_template("window-join", _variables(data, data / "out"))
        nodes = tuple(_with_disorder(node, {"strategy": name, **options}) for node in pipeline.nodes)
        runs = [run(replace(pipeline, nodes=nodes)) for _ in range(repeat)]
        rates[name] = max(summary["rows_per_s"] for summary in runs)
        share = rates[name] / rates["fixed"]
        adaptation = min(summary["busy_s"]["adapt"] for summary in runs) / (rows / ROWS_PER_ADAPTATION)
        console.print(
            f"  {name:<15} {rates[name]:>12,.0f} rows/s   {share:>5.2f} of fixed   "
            f"K {runs[0]['slack_ms']['mean']:>7,.0f} ms   {1000 * adaptation:>6.2f} ms per adaptation"
        )


def _with_disorder(node: Node, disorder: dict[str, Any]) -> Node:
    if not isinstance(node.config, DisorderConfig):
        return node
    return replace(node, config=node.config.model_copy(update={"disorder": disorder}))


def _reference(data: Path, rows: int) -> tuple[float, float]:
    """Return the rows per second of the same job done per tuple, and of its join alone without files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from slackwater.pipelines.bench.per_tuple import PerTupleJoin

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


def _print(console: Console, name: str, ours: dict[str, Any], job: float, join: float) -> None:
    rows = sum(ours["input"].values())
    busy = ours["busy_s"]
    total = sum(busy.values())
    console.print(f"[bold]{name}[/bold]: {rows:,} rows, {ours['results']:,} results")
    found = ours["results"] / ours["elapsed_s"]
    console.print(f"  slackwater   {ours['rows_per_s']:>12,.0f} rows/s   {found:>12,.0f} results/s")
    console.print(f"  per tuple    {job:>12,.0f} rows/s   {ours['rows_per_s'] / job:>12,.1f} times")
    console.print(f"   join alone  {join:>12,.0f} rows/s   {ours['rows_per_s'] / join:>12,.1f} times")
    shares = "   ".join(f"{part} {seconds / total:.0%}" for part, seconds in busy.items())
    console.print(f"  busy time    {shares}   ({total:.2f} s busy in {ours['elapsed_s']:.2f} s)")
