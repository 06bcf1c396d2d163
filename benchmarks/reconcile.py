"""Produced and reconciled results of a join against DuckDB's exact join, and what the archive costs.

    python benchmarks/reconcile.py [ROWS] [RUNNER]

ROWS over both streams, 2 million by default; RUNNER of the reconciliation, local or spark. Prints, for a join
that loses a row or two in a hundred to disorder, and for one that sheds most of its tuples: the results produced,
missed and exact, the seconds of the run without and with an archive and of the reconciliation, and the size of
the archive.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb

from slackwater.pipelines.generate import generate
from slackwater.pipelines.reconcile.local import reconcile
from slackwater.pipelines.runners.local.runner import run
from slackwater.pipelines.template.reader import read_template_text

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
    summary = run(read_template_text("reconcile.yaml", text))
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
    ((results, wrong),) = duckdb.sql(query).fetchall()
    return int(results), int(wrong)


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    spark = sys.argv[2:] == ["spark"]
    with tempfile.TemporaryDirectory(prefix="slackwater-reconcile-") as name:
        folder = Path(name)
        generate("syn2", folder, rows=rows // 2, seed=1, delayed=0.2, max_delay=2000, keys=500)
        size = sum((folder / f"{s}.parquet").stat().st_size for s in ("s1", "s2"))
        warm, _ = join(folder, CASES["late"], folder / "warm.parquet")
        for case, settings in CASES.items():
            settings = settings.replace("MEMORY", str(warm["state"]["max_tuples"] // 2))
            _, plain_s = join(folder, settings, folder / "plain.parquet")
            archive, out = folder / f"archive {case}", folder / f"{case}.parquet"
            summary, run_s = join(folder, f"{settings}, archive: {archive}", out)
            archived = sum(file.stat().st_size for file in archive.rglob("*.parquet"))
            started = time.perf_counter()
            if spark:
                from slackwater.pipelines.reconcile.spark import run_parts

                missed = reconcile(archive, run_parts=run_parts)
            else:
                missed = reconcile(archive)
            reconcile_s = time.perf_counter() - started
            results, wrong = differences(folder, [str(out), missed["file"]])
            print(f"{case}: late {summary['late']}, archive {missed['rows']:,} of {rows:,} rows")
            parts = f"produced {summary['results']:,} + missed {missed['results']:,}"
            print(f"  {parts} = exact {results:,}: {wrong} wrong")
            print(f"  run {plain_s:.1f} s, with an archive {run_s:.1f} s, reconcile {reconcile_s:.1f} s")
            print(f"  archive {archived / 1e6:.1f} MB, {archived / size:.0%} of the input as Parquet", flush=True)


if __name__ == "__main__":
    main()
