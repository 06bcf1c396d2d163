"""Recall on Structured Streaming as shards grow in number: data sets of ``bench disorder``, live."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from slackwater.pipelines.bench.disorder.comparison import Subject
from slackwater.plugins.contract import Int64s
from slackwater.transforms.spark.join import sliding_window_join

_OLDEST_FILE: Final = 1_600_000_000
_LATER_MS: Final = 365 * 86_400_000
"""How much later than all others the last row of each stream is, so that nothing is held back at the end."""
STRATEGY: Final = "result_slack"


class Reached(NamedTuple):
    """What a recall that was asked for has come to."""

    data: str
    asked: float
    shards: int
    overall: float
    nearly: float
    """Share of the periods that reach 0.99 of what was asked for: Φ(.99Γ)."""


def reached(
    session: SparkSession, subject: Subject, recalls: Sequence[float], shards: Sequence[int], batch_rows: int
) -> Iterator[Reached]:
    """Join the streams of a data set with every recall and number of shards, in micro-batches."""
    with tempfile.TemporaryDirectory(prefix="slackwater-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        _write(subject, folder, batch_rows)
        for recall in recalls:
            for n in shards:
                produced = _produced(session, subject, folder, recall, n)
                nearly = subject.intervals.fulfilled(produced, 0.99 * recall)
                overall = subject.intervals.overall(produced)
                yield Reached(subject.name, recall, n, overall, float("nan") if nearly is None else nearly)


def _write(subject: Subject, folder: Path, batch_rows: int) -> None:
    """Write a file of each stream per micro-batch, in order of arrival, and last rows that release the others."""
    taken = np.zeros(len(subject.tables), np.int64)
    for number, start in enumerate(range(0, subject.rows, batch_rows)):
        sizes = np.bincount(subject.log.stream[start : start + batch_rows], minlength=taken.size)
        for (name, table), at, size in zip(subject.tables.items(), taken, sizes, strict=True):
            _file(folder / name, number, table.slice(at, size))
        taken += sizes
    newest = int(subject.log.ts.max())
    arrived = max(table["arrived"][-1].as_py() for table in subject.tables.values())
    for name, table in subject.tables.items():
        late = {"ts": newest + _LATER_MS, "arrived": arrived + 1}
        row = {column: [late.get(column, table[column][-1].as_py())] for column in table.column_names}
        _file(folder / name, number + 1, pa.table(row, schema=table.schema))


def _file(folder: Path, number: int, rows: pa.Table) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / f"{number:05}.parquet"
    pq.write_table(rows, path)
    os.utime(path, (_OLDEST_FILE + number,) * 2)


def _produced(session: SparkSession, subject: Subject, folder: Path, recall: float, shards: int) -> Int64s:
    """Return the results of each interval."""
    streams = {
        name: session.readStream.schema(session.read.parquet(str(folder / name)).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / name))
        for name in subject.tables
    }
    joined = sliding_window_join(streams, **subject.settings(STRATEGY, recall), shards=shards)
    found = [np.empty((0, 2), np.int64)]

    def count(batch: DataFrame, number: int) -> None:
        results = joined.unpack(batch).results.toArrow()
        found.append(np.column_stack([results["ts"].to_numpy(), results["count"].to_numpy()]).astype(np.int64))

    with tempfile.TemporaryDirectory(prefix="slackwater-bench-", ignore_cleanup_errors=True) as checkpoint:
        writer = joined.packed.writeStream.foreachBatch(count).option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
    ts, counts = np.concatenate(found).T
    return subject.intervals.add_up(ts, counts)
