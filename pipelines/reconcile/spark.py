"""Reconciliation on Spark: the parts of an archive are tasks; this process puts together what they find."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from slackwater.pipelines.io.sinks import Sink
from slackwater.pipelines.reconcile.local import Part, Reconciliation
from slackwater.transforms.spark.failures import clean_errors, stop_session
from slackwater.transforms.spark.session import is_connect, require_java, start_session


def run_parts(archive: Reconciliation, sink: Sink, session: SparkSession | None = None) -> None:
    """Write the results of all parts of an archive to a sink.

    Tasks leave what they find in files beside the sink's: workers share a file system with this process.

    Args:
        archive: the archive.
        sink: where the results go, in the order of the parts.
        session: where to run; if None, the active session, else one that is started and stopped again.
    """
    require_java()
    session = session or SparkSession.getActiveSession()
    own = start_session() if session is None else None
    try:
        with (
            clean_errors(),
            tempfile.TemporaryDirectory(dir=sink.file.parent, prefix=".slackwater-reconcile-") as folder,
        ):
            parts = list(archive.parts())
            _find(own or session, archive, parts, folder)
            for number in range(len(parts)):
                with pa.memory_map(str(_file(folder, number))) as file:
                    found = pa.ipc.open_file(file)
                    for i in range(found.num_record_batches):
                        sink.write(found.get_batch(i))
    finally:
        if own is not None:
            stop_session(own)


def _find(session: SparkSession, archive: Reconciliation, parts: list[Part], folder: str) -> None:
    if not is_connect(session):
        session.sparkContext.setJobDescription(f"slackwater reconcile: {len(parts)} parts")
    numbers = session.range(0, len(parts), numPartitions=max(1, len(parts)))
    numbers.mapInArrow(_work(archive, parts, folder), "number long").collect()


def _work(
    archive: Reconciliation, parts: list[Part], folder: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that finds the results of the parts whose numbers it is given."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                # An attempt that is given up leaves a file that the next one replaces.
                partial = _file(folder, number).with_suffix(f".{id(batch)}")
                with pa.ipc.new_file(str(partial), archive.join.result_schema) as file:
                    for found in archive.missed(parts[number]):
                        file.write_batch(found)
                partial.replace(_file(folder, number))
            yield batch.rename_columns(["number"])

    return work


def _file(folder: str, number: int) -> Path:
    return Path(folder) / f"{number:08}.arrow"
