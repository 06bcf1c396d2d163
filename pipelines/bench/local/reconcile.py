"""``slackwater bench reconcile``: produced and reconciled results against DuckDB's exact join.

One join loses a row or two in a hundred to disorder, the other sheds most of its tuples. Shows the results
produced, missed and exact, the seconds of the run without and with an archive and of the reconciliation, and the
size of the archive.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb

from slackwater.pipelines.bench.report import Column, Report, Table
from slackwater.pipelines.generate import generate
from slackwater.pipelines.reconcile.local import reconcile
from slackwater.pipelines.runners.local.runner import run as run_local
from slackwater.pipelines.template.reader import read_template_text
from slackwater.transforms.errors import SlackwaterError

WINDOW_MS = 5000
TEMPLATE = """
pipeline:
  transforms:
    - {{type: ReadFromParquet, name: Left, config: {{path: "{folder}/s1.parquet"}}}}
    - {{type: ReadFromParquet, name: Right, config: {{path: "{folder}/s2.parquet"}}}}
    - type: SlidingWindowJoin
      name: joined
      input: {{a: Left, b: Right}}
      config: {{time: ts, arrival: arrived, window: {window}ms, where: a.a1 = b.a1, {more}}}
    - {{type: WriteToParquet, input: joined, config: {{path: "{out}"}}}}
"""
CASES = {
    "late": "disorder: {strategy: fixed, slack: 1800ms}",
    "shed": "disorder: {strategy: max}, shedding: {strategy: prob, memory: MEMORY}",
}


def join(folder: Path, more: str, out: Path) -> tuple[dict[str, Any], float]:
    """Run the join; return its summary and the seconds it took."""
    text = TEMPLATE.format(folder=folder, window=WINDOW_MS, more=more, out=out)
    started = time.perf_counter()
    summary = run_local(read_template_text("reconcile.yaml", text))
    return summary, time.perf_counter() - started


def differences(folder: Path, files: list[str]) -> tuple[int, int]:
    """Return how many results the exact join has, and how many are not once in the files."""
    exact = f"""
        SELECT l.arrived x, r.arrived y FROM '{folder}/s1.parquet' l JOIN '{folder}/s2.parquet' r
        ON l.a1 = r.a1 AND abs(l.ts - r.ts) <= {WINDOW_MS}"""
    found = " UNION ALL ".join(f"SELECT a_arrived x, b_arrived y FROM '{file}'" for file in files)
    query = f"""
        SELECT sum(n), count(*) FILTER (n <> k) FROM (
            SELECT sum(1 - f) n, sum(f) k FROM
            (SELECT *, 0 f FROM ({exact}) UNION ALL SELECT *, 1 f FROM ({found})) GROUP BY x, y)"""
    ((results, wrong),) = duckdb.connect().execute(query).fetchall()
    return int(results), int(wrong)


def run(options: argparse.Namespace, report: Report) -> None:
    """Join, reconcile and compare."""
    table = Table(
        "join", "late", "archived rows", "produced", "missed", "exact", "wrong", Column("run s", ".1f"),
        Column("with archive s", ".1f"), Column("reconcile s", ".1f"), Column("archive MB", ".1f"),
        Column("of input", ".0%"),
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="slackwater-reconcile-") as name:
        folder = Path(name)
        rows, seed = options.rows // 2, options.seed
        generate("syn2", folder, rows=rows, seed=seed, delayed=0.2, max_delay=2000, keys=500)
        size = sum((folder / f"{s}.parquet").stat().st_size for s in ("s1", "s2"))
        warm, _ = join(folder, CASES["late"], folder / "warm.parquet")
        for case, settings in CASES.items():
            settings = settings.replace("MEMORY", str(max(2, warm["state"]["max_tuples"] // 2)))
            _, plain_s = join(folder, settings, folder / "plain.parquet")
            archive, out = folder / f"archive {case}", folder / f"{case}.parquet"
            summary, run_s = join(folder, f"{settings}, archive: {archive}", out)
            archived = sum(file.stat().st_size for file in archive.rglob("*.parquet"))
            started = time.perf_counter()
            missed = _reconciled(archive, options.runner)
            reconcile_s = time.perf_counter() - started
            results, wrong = differences(folder, [str(out), missed["file"]])
            late = ", ".join(f"{why} {n:,}" for why, n in summary["late"].items())
            table.add(
                case, late, missed["rows"], summary["results"], missed["results"], results, wrong, plain_s, run_s,
                reconcile_s, archived / 1e6, archived / size,
            )  # fmt: skip
    report.add(table)
    if any(table.column("wrong")):
        raise SlackwaterError("reconciliation: results are missing or wrong; see the table")


def _reconciled(archive: Path, runner: str) -> dict[str, Any]:
    if runner == "local":
        return reconcile(archive)
    from slackwater.pipelines.reconcile.spark import run_parts

    return reconcile(archive, run_parts=run_parts)
