"""A standalone cluster on loopback: a master and two workers, one of which is killed in mid-run."""

from __future__ import annotations

import re
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

import pyspark

from slackwater.pipelines.bench.kills import worker as kills

pytestmark = pytest.mark.own_java
ROWS = 6000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    started = kills.Cluster(tmp_path_factory.mktemp("cluster"))
    yield started
    started.stop()


def bare_python(folder: Path, *packages: Any) -> str:
    """Return a Python that finds what lies beside these packages, but nothing that a path file names, as ours."""
    launcher = folder / "python"
    found = ":".join(dict.fromkeys(str(Path(package.__file__).parents[1]) for package in packages))
    python, found = shlex.quote(sys.executable), shlex.quote(found)
    launcher.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH":{found} exec {python} -S "$@"\n')
    launcher.chmod(0o755)
    return str(launcher)


def test_a_worker_that_is_killed_changes_no_result(cluster: Any, tmp_path: Path) -> None:
    """The executors get the package from the run itself."""
    kills.write_inputs(tmp_path, ROWS)
    kills.run_local(tmp_path)
    python = bare_python(tmp_path, np, pyspark)
    first = cluster.workers[0]
    process = kills.start_run(cluster, tmp_path, python, **{"spark.slackwater.rowsPerBatch": "1000"})
    assert kills.kill_workers(cluster, tmp_path, process, [2]) == 1
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert first.returncode == -signal.SIGKILL
    for output in kills.OUTPUTS:
        assert kills.same_rows(tmp_path, output)
        assert pq.read_metadata(tmp_path / f"spark{output}.parquet").num_rows > 60
    assert re.search(r"rows/s|results", out)
