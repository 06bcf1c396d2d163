"""A standalone cluster on loopback: a master and two workers, one of which is killed in mid-run."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

import pyspark

from slackwater.pipelines.local import run as run_local
from slackwater.pipelines.template import read_template_text

pytestmark = pytest.mark.spark
ROWS = 6000

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
        self.workers = [self._worker(number) for number in range(2)]
        self._await_workers()

    def _worker(self, number: int) -> subprocess.Popen[bytes]:
        size = ["--cores", "1", "--memory", "1g", "--webui-port", "0", "--host", "127.0.0.1"]
        work = ["--work-dir", str(self._folder / f"work-{number}")]
        return self._start(f"worker-{number}", "deploy.worker.Worker", *size, *work, self.url)

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
        while log.read_text().count("Registering worker") < 2:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)

    @staticmethod
    def kill(process: subprocess.Popen[bytes]) -> None:
        """Kill a process and its children: of a worker, its executors."""
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                self.kill(process)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    started = Cluster(tmp_path_factory.mktemp("cluster"))
    yield started
    started.stop()


def bare_python(folder: Path, *packages: Any) -> Path:
    """Return a Python that finds what lies beside these packages, but nothing that a path file names, as ours."""
    launcher = folder / "python"
    found = ":".join(dict.fromkeys(str(Path(package.__file__).parents[1]) for package in packages))
    python, found = shlex.quote(sys.executable), shlex.quote(found)
    launcher.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH":{found} exec {python} -S "$@"\n')
    launcher.chmod(0o755)
    return launcher


def start_run(cluster: Cluster, folder: Path, python: Path, **conf: str) -> subprocess.Popen[str]:
    (folder / "tmp").mkdir(exist_ok=True)
    (folder / "join.yaml").write_text(TEMPLATE.format(folder=folder, out="spark"))
    sized = {"spark.executor.memory": "600m", "spark.driver.memory": "700m", "spark.pyspark.python": str(python)}
    settings = [f"--conf={key}={value}" for key, value in (sized | conf).items()]
    command = [sys.executable, "-m", "slackwater.pipelines.cli", "run", str(folder / "join.yaml")]
    return subprocess.Popen(
        [*command, "--runner", "spark", "--master", cluster.url, *settings],
        env=os.environ | {"TMPDIR": str(folder / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_worker_that_is_killed_changes_no_result(cluster: Cluster, tmp_path: Path) -> None:
    """The executors get the package from the run itself."""
    rng = np.random.default_rng(5)
    for name in "ab":
        ts = 10 * np.arange(ROWS) - rng.integers(0, 100, ROWS)
        pq.write_table(pa.table({"ts": ts, "k": rng.integers(0, 40, ROWS)}), tmp_path / f"{name}.parquet")
    run_local(read_template_text("join", TEMPLATE.format(folder=tmp_path, out="local")))
    process = start_run(
        cluster, tmp_path, bare_python(tmp_path, np, pyspark), **{"spark.slackwater.rowsPerBatch": "1000"}
    )
    while process.poll() is None:
        time.sleep(0.1)
        if len(list(tmp_path.glob("tmp/*/checkpoint-*/commits/[0-9]*"))) >= 2:
            cluster.kill(cluster.workers[0])
            break
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert cluster.workers[0].returncode == -signal.SIGKILL, "it was killed before the run ended"
    for name in ("", "-late"):
        found, expected = (pq.read_table(tmp_path / f"{runner}{name}.parquet") for runner in ("spark", "local"))
        order = [(column, "ascending") for column in found.column_names]
        assert found.sort_by(order).equals(expected.sort_by(order))
        assert found.num_rows > 80
    assert re.search(r"rows/s|results", out)
