"""``slackwater bench beam_memory``: a template with many shards on Beam's Spark runner, and its memory.

It goes through the job server at ``local[2]`` with the default memory. Shows the largest size of the Java process
and of this one, which is also where the workers run.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.pipelines.bench.beam.by_element import BLOCK, block
from slackwater.pipelines.bench.report import Column, Report, Table
from slackwater.pipelines.runners.beam import runner as run_beam
from slackwater.pipelines.template.reader import read_template_text

TEMPLATE = """
pipeline:
  transforms:
    - {type: ReadFromParquet, name: A, config: {path: "%(dir)s/a.parquet"}}
    - {type: ReadFromParquet, name: B, config: {path: "%(dir)s/b.parquet"}}
    - type: SlidingWindowJoin
      name: joined
      input: {a: A, b: B}
      config:
        time: ts
        arrival: at
        window: 5s
        where: a.id = b.id
        disorder: {strategy: fixed, slack: 1s}
        shards: %(shards)s
    - {type: WriteToParquet, input: joined, config: {path: "%(dir)s/joined"}}
"""


class Peak(threading.Thread):
    """Follows how large this process and the Java processes below it get."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.largest = {"python": 0, "java": 0}
        self._over = threading.Event()

    def run(self) -> None:
        me = psutil.Process(os.getpid())
        while not self._over.wait(0.2):
            for process in (me, *me.children(recursive=True)):
                try:
                    name = "java" if "java" in process.name() else "python"
                    self.largest[name] = max(self.largest[name], process.memory_info().rss)
                except psutil.Error:
                    continue

    def stop(self) -> None:
        self._over.set()
        self.join()


def run(options: argparse.Namespace, report: Report) -> None:
    """Join, and watch the processes meanwhile."""
    with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as folder:
        for which, name in enumerate("ab"):
            numbers = range(max(1, options.rows // 2 // BLOCK))
            whole = pa.Table.from_batches(block(number, options.seed + which) for number in numbers)
            pq.write_table(whole, Path(folder, f"{name}.parquet"))
        peak = Peak()
        peak.start()
        text = TEMPLATE % {"dir": folder, "shards": options.shards}
        summary = run_beam.run(read_template_text("t.yaml", text), spark=True)
        peak.stop()
    table = Table(
        "rows", "results", "rows/s", Column("elapsed s", ".1f"), Column("Java MB at most", ",.0f"),
        Column("Python MB at most", ",.0f"),
    )  # fmt: skip
    sizes = (peak.largest[name] / 2**20 for name in ("java", "python"))
    rows = sum(summary["input"].values())
    table.add(rows, summary["results"], summary["rows_per_s"], summary["elapsed_s"], *sizes)
    report.add(table)
