"""``slackwater bench worker_kills``: a template on a standalone cluster whose workers are killed at random.

A master and two workers run on loopback as processes of their own. While ``slackwater run --runner spark
--master`` works on a join, the process group of a worker, executor included, gets SIGKILL after a random number
of micro-batches, and another worker takes its place. Results and late rows must be those of the local runner:
the same rows with the same ids, none missing, none twice.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

from slackwater.pipelines.bench.report import Report, Table
from slackwater.transforms.errors import SlackwaterError

OUTPUTS = ("", "-late")
TEMPLATE = """
pipeline:
  transforms:
    - {{type: ReadFromParquet, name: a, config: {{path: {folder}/a.parquet}}}}
    - {{type: ReadFromParquet, name: b, config: {{path: {folder}/b.parquet}}}}
    - type: SlidingWindowJoin
      name: joined
      input: {{a: a, b: b}}
      config:
        {{time: ts, window: 300ms, where: a.k = b.k, shards: 4, id: key,
          disorder: {{strategy: fixed, slack: 20ms}}}}
    - {{type: WriteToParquet, input: joined, config: {{path: {folder}/{out}.parquet}}}}
    - {{type: WriteToParquet, name: late, input: joined.late, config: {{path: {folder}/{out}-late.parquet}}}}
"""


class Cluster:
    """Master and workers, each the head of a process group."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"spark://127.0.0.1:{port}"
        master = ["deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        self._start("master", *master)
        self._started = 0
        self.workers = [self.add_worker() for _ in range(2)]
        self._await_workers()

    def add_worker(self) -> subprocess.Popen[bytes]:
        """Start another worker."""
        size = ["--cores", "1", "--memory", "1g", "--webui-port", "0", "--host", "127.0.0.1"]
        work = ["--work-dir", str(self._folder / f"work-{self._started}")]
        self._started += 1
        return self._start(f"worker-{self._started}", "deploy.worker.Worker", *size, *work, self.url)

    def _start(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [str(Path(pyspark.__path__[0]) / "bin" / "spark-class"), f"org.apache.spark.{main}", *arguments]
        env = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
        env["SPARK_DAEMON_JAVA_OPTS"] = "-XX:TieredStopAtLevel=1"
        with open(self._folder / f"{name}.log", "wb") as log:
            process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
        self._processes.append(process)
        return process

    def _await_workers(self) -> None:
        log, deadline = self._folder / "master.log", time.monotonic() + 90
        while log.read_text().count("Registering worker") < len(self.workers):
            if time.monotonic() > deadline:
                raise SlackwaterError(f"no workers within 90 s: {log.read_text()}")
            time.sleep(0.1)

    @staticmethod
    def kill(process: subprocess.Popen[bytes]) -> None:
        """Kill a process and its children: of a worker, its executors."""
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        """Kill all that still run."""
        for process in self._processes:
            if process.poll() is None:
                self.kill(process)


def write_inputs(folder: Path, rows: int) -> None:
    """Write both inputs; rows are up to 100 ms late."""
    rng = np.random.default_rng(5)
    for name in "ab":
        ts = 10 * np.arange(rows) - rng.integers(0, 100, rows)
        pq.write_table(pa.table({"ts": ts, "k": rng.integers(0, 40, rows)}), folder / f"{name}.parquet")


def start_run(cluster: Cluster, folder: Path, python: str, **conf: str) -> subprocess.Popen[str]:
    """Start the template on the cluster; executors run this Python, and get the package from the run itself."""
    (folder / "tmp").mkdir(exist_ok=True)
    (folder / "join.yaml").write_text(TEMPLATE.format(folder=folder, out="spark"))
    sized = {"spark.executor.memory": "600m", "spark.driver.memory": "700m", "spark.pyspark.python": python}
    settings = [f"--conf={key}={value}" for key, value in (sized | conf).items()]
    command = [sys.executable, "-m", "slackwater.pipelines.cli.commands", "run", str(folder / "join.yaml")]
    return subprocess.Popen(
        [*command, "--runner", "spark", "--master", cluster.url, *settings],
        env=os.environ | {"TMPDIR": str(folder / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def commits(folder: Path) -> int:
    """Return how many micro-batches of a run in this folder have been committed."""
    return len(list(folder.glob("tmp/*/checkpoint-*/commits/[0-9]*")))


def kill_workers(cluster: Cluster, folder: Path, process: subprocess.Popen[str], after: list[int]) -> int:
    """Kill a worker whenever so many micro-batches more have been committed; return how many were killed."""
    due, killed = 0, 0
    for more in after:
        due = commits(folder) + more
        while process.poll() is None and commits(folder) < due:
            time.sleep(0.1)
        if process.poll() is not None:
            break
        cluster.kill(cluster.workers[killed % 2])
        cluster.workers[killed % 2] = cluster.add_worker()
        killed += 1
    return killed


def same_rows(folder: Path, output: str) -> bool:
    """Return whether the cluster has written what the local runner has."""
    found, expected = (pq.read_table(folder / f"{runner}{output}.parquet") for runner in ("spark", "local"))
    order = [(column, "ascending") for column in found.column_names]
    return bool(found.sort_by(order).equals(expected.sort_by(order)))


def run_local(folder: Path) -> None:
    """Run the template here."""
    from slackwater.pipelines.runners.local import runner
    from slackwater.pipelines.template.reader import read_template_text

    runner.run(read_template_text("join", TEMPLATE.format(folder=folder, out="local")))


def run(options: argparse.Namespace, report: Report) -> None:
    """Kill, and compare."""
    chance = random.Random(options.seed)
    table = Table("output", "kills", "rows", "the same")
    with tempfile.TemporaryDirectory(prefix="slackwater-kills-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        write_inputs(folder, options.rows)
        run_local(folder)
        cluster = Cluster(folder)
        try:
            conf = {"spark.slackwater.rowsPerBatch": str(options.batch_rows)}
            process = start_run(cluster, folder, sys.executable, **conf)
            after = [chance.randint(1, 4) for _ in range(options.kills)]
            killed = kill_workers(cluster, folder, process, after)
            _, err = process.communicate()
        finally:
            cluster.stop()
        if process.returncode:
            raise SlackwaterError(f"the run ended with {process.returncode}: {err}")
        for output in OUTPUTS:
            rows = pq.read_metadata(folder / f"local{output}.parquet").num_rows
            table.add(output or "results", killed, rows, same_rows(folder, output))
    report.add(table)
    if not all(table.column("the same")):
        raise SlackwaterError("kills have changed the results")
