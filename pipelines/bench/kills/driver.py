"""``slackwater bench driver_kills``: a join on Spark that is killed at random, beside one left alone.

The driver is a program of its own: two folders of Parquet files, a file of each per micro-batch, joined and
written to Parquet, results by one query and late rows by another. Its process group, Java included, gets SIGKILL
at a random moment after a random number of micro-batches, and is started again on the same checkpoint, until all
files are consumed. What Spark then reads of the sinks must be what it reads after a run that nobody disturbed:
the same rows with the same ids, none missing, none twice.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.pipelines.bench.report import Report, Table
from slackwater.transforms.errors import SlackwaterError

OUTPUTS = ("results", "late")
NAMES = ("a", "b")
SHARDS = 4
CASES: dict[str, dict[str, Any]] = {
    "fixed": {"disorder": {"strategy": "fixed", "slack": "100ms"}},
    "quality_driven": {"disorder": {"strategy": "quality_driven", "recall": 0.95, "interval": "200ms"}},
    "result_slack": {"disorder": {"recall": 0.95, "interval": "200ms", "period": "2s"}},
}


def settings_of(case: str) -> dict[str, Any]:
    """Return the settings of the join of a case."""
    common = {
        "time": "ts",
        "window": "300ms",
        "where": "a.k = b.k",
        "arrival": "at",
        "shards": SHARDS,
        "id": "key",
    }
    return {name: value for name, value in {**common, **CASES[case]}.items() if value is not None}


def write_inputs(folder: Path, rows: int, files: int, seed: int = 7) -> list[list[pa.Table]]:
    """Write both inputs, a third of the rows up to 300 ms late; return the tables of each."""
    rng = np.random.default_rng(seed)
    written = []
    for which, name in enumerate(NAMES):
        late = np.where(rng.random(rows) < 0.3, rng.integers(0, 300, rows), 0)
        columns = {
            "ts": 10 * np.arange(rows) - late,
            "k": rng.integers(0, max(8, rows // 50), rows),
            "v": np.arange(rows),
            "at": 2 * np.arange(rows) + which,
        }
        table, size = pa.table(columns), -(-rows // files)
        parts = [table.slice(k * size, size) for k in range(files)]
        (folder / name).mkdir(parents=True)
        for k, part in enumerate(parts):
            file = folder / name / f"{k:04}.parquet"
            pq.write_table(part, file)
            os.utime(file, (1_700_000_000 + k,) * 2)
        written.append(parts)
    return written


def drive(inputs: Path, out: Path, case: str, outputs: list[str]) -> None:
    """Join all there is, from where the checkpoint says, with a query for each of these outputs."""
    from slackwater.transforms.spark import sliding_window_join
    from slackwater.transforms.spark.session import start_session

    session = start_session(app="slackwater kills", conf={"spark.sql.shuffle.partitions": "2"})
    streams = {
        name: session.readStream.schema("ts long, k long, v long, at long")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(inputs / name))
        for name in NAMES
    }
    joined = sliding_window_join(streams, **settings_of(case))
    queries = [
        getattr(joined, name)
        .writeStream.format("parquet")
        .option("path", str(out / name))
        .option("checkpointLocation", str(out / f"checkpoint-{name}"))
        .trigger(availableNow=True)
        .start()
        for name in outputs
    ]
    for query in queries:
        query.awaitTermination()
    session.stop()


class Driver:
    """The driver of a case, as a program of its own, and what it has written so far."""

    def __init__(self, inputs: Path, out: Path, case: str, outputs: Sequence[str] = OUTPUTS) -> None:
        self._out, self._outputs = out, outputs
        self._command = [sys.executable, "-m", __name__, str(inputs), str(out), case, *outputs]

    def commits(self) -> int:
        """Return how many micro-batches have been committed, by all queries together."""
        folders = [self._out / f"checkpoint-{name}" / "commits" for name in self._outputs]
        return sum(file.name.isdigit() for folder in folders for file in folder.glob("*"))

    def run(self, kills: int, chance: random.Random) -> list[int]:
        """Run it to its end, killing it meanwhile; return how many commits there were at each kill."""
        seen: list[int] = []
        while self._life(self.commits() + chance.randint(1, 3) if len(seen) < kills else None, chance.random()):
            seen.append(self.commits())
        return seen

    def _life(self, commits: int | None, moment: float) -> bool:
        """Start it, and kill it a moment after so many commits; return whether that came before its end."""
        process = subprocess.Popen(self._command, start_new_session=True)
        while process.poll() is None:
            time.sleep(0.05)
            if commits is not None and self.commits() >= commits:
                time.sleep(moment)
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return True
        if process.returncode:
            raise SlackwaterError(f"the driver ended with {process.returncode}; its output says why")
        return False


def read_outputs(session: Any, out: Path) -> dict[str, Counter[Any]]:
    """Return the rows of both sinks, as Spark reads them: files that no commit names are left out."""
    found = {name: session.read.parquet(str(out / name)).toArrow().to_pylist() for name in OUTPUTS}
    return {name: Counter(tuple(row.items()) for row in rows) for name, rows in found.items()}


def run(options: argparse.Namespace, report: Report) -> None:
    """Compare every case."""
    from slackwater.transforms.spark.session import start_session

    chance = random.Random(options.seed)
    table = Table("case", "kills", "output", "rows", "lost", "too many")
    changed = []
    for case in options.cases or CASES:
        with tempfile.TemporaryDirectory(prefix="slackwater-kills-") as folder:
            inputs, alone, killed = (Path(folder) / name for name in ("inputs", "alone", "killed"))
            write_inputs(inputs, options.rows, options.files)
            Driver(inputs, alone, case).run(0, chance)
            seen = Driver(inputs, killed, case).run(options.kills, chance)
            session = start_session()
            expected, found = read_outputs(session, alone), read_outputs(session, killed)
            session.stop()
        for name in OUTPUTS:
            lost, doubled = expected[name] - found[name], found[name] - expected[name]
            table.add(case, len(seen), name, expected[name].total(), lost.total(), doubled.total())
        report.progress(f"{case}: {len(seen)} kills")
        changed += [case] if found != expected else []
    report.add(table)
    if changed:
        raise SlackwaterError(f"{', '.join(changed)}: kills have changed the results")


if __name__ == "__main__":
    drive(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4:])
