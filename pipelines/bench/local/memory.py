"""``slackwater bench memory``: peak resident memory of a join, and of one a tenth as large.

Each runs in a process of its own. Streams are read batch by batch, so the ratio of the peaks is close to 1.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from slackwater.pipelines.bench.report import Column, Report, Table
from slackwater.pipelines.generate import generate

CODE = """
import re, sys
from slackwater.pipelines.runners.local.runner import run
from slackwater.pipelines.template.reader import read_template
folder = sys.argv[1]
summary = run(read_template("window-join", {"left": f"{folder}/s1.parquet", "right": f"{folder}/s2.parquet",
                                            "out": f"{folder}/out"}))
# Not ru_maxrss: it would start from the size of the process that started this one.
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1], summary["results"])
"""


def peak(rows: int, seed: int, folder: Path) -> tuple[float, int]:
    """Return the peak in MB of joining ``rows`` rows over both streams, and the results."""
    generate("syn2", folder, rows=rows // 2, seed=seed, delayed=0.2, max_delay=2000, keys=1000)
    done = subprocess.run([sys.executable, "-c", CODE, str(folder)], capture_output=True, text=True, check=True)
    kilobytes, results = map(int, done.stdout.split())
    return kilobytes / 1024, results


def run(options: argparse.Namespace, report: Report) -> None:
    """Measure both."""
    table = Table("rows", "results", Column("peak MB", ",.0f"), Column("ratio", ".2f"))
    small = 0.0
    with tempfile.TemporaryDirectory(prefix="slackwater-memory-") as folder:
        for rows in (max(2, options.rows // 10), options.rows):
            megabytes, results = peak(rows, options.seed, Path(folder, str(rows)))
            small = small or megabytes
            table.add(rows, results, megabytes, megabytes / small)
    report.add(table)
