"""Several outputs of one join written by one query, so that the join runs once.

write_outputs(
    joined, "/data/checkpoint", results=KafkaSink("host:9092", "joined"), late=ParquetSink("/data/late")
)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from slackwater.transforms.errors import ConfigError, SlackwaterError
from slackwater.transforms.spark.blobs import ACCOUNT
from slackwater.transforms.spark.checkpoint import PARTITIONS, Settings, plan_before, settings_of
from slackwater.transforms.spark.connector import require_kafka
from slackwater.transforms.spark.join import KINDS, JoinOutputs
from slackwater.transforms.spark.kafka.broker import check_topics
from slackwater.transforms.spark.kafka.messages import as_messages, write_to_kafka
from slackwater.transforms.spark.kafka.settings import TIMEOUT

NOTE: Final = "slackwater.json"
"""File in the folder of a checkpoint."""


class Sink(Protocol):
    """Where the rows of an output go. A micro-batch that is tried again is written again, by the same number."""

    def check(self, rows: DataFrame, fresh: bool) -> None:
        """Raise if rows like these, of a streaming DataFrame, cannot be written.

        Args:
            rows: what will be written.
            fresh: whether the query has no checkpoint yet.
        """

    def write(self, rows: DataFrame, number: int) -> None:
        """Write the rows of a micro-batch."""


def write_outputs(
    joined: JoinOutputs,
    checkpoint: str,
    *,
    name: str | None = None,
    trigger: Mapping[str, Any] | None = None,
    told: Callable[[Mapping[int, bytes]], None] | None = None,
    **outputs: Sink | Sequence[Sink],
) -> Any:
    """Start a query that writes outputs of a streaming join, all with the same micro-batches.

    Args:
        joined: the join.
        checkpoint: folder from which a query that was stopped goes on; its own.
        name: of the query.
        trigger: when there are micro-batches, as ``DataStreamWriter.trigger`` takes it; by default at once.
        told: called with the accounts of a micro-batch (``state.read_account``) by shard, before it is written.
        outputs: ``results``, ``late``, ``punctuations``, ``metrics`` or ``syncs``, each with one or more sinks.

    Returns:
        The query.

    Raises:
        ConfigError: There is no such output, or a sink cannot write it.
        CheckpointError: The checkpoint is that of a query with other columns or settings.
    """
    sinks = {output: _listed(sink) for output, sink in outputs.items()}
    for output in sinks:
        if output not in KINDS:
            raise ConfigError(f"is no output of a join; there are {', '.join(KINDS)}", output)
    fresh = not _has_files(joined.packed.sparkSession, f"{checkpoint}/offsets")
    settings = settings_of(joined.plan, joined.packed.sparkSession.conf.get(PARTITIONS))
    note = Note(joined.packed.sparkSession, checkpoint)
    if not fresh and (before := note.read()) is not None:
        plan_before(joined.plan, settings, before)
    for output, to in sinks.items():
        for sink in to:
            sink.check(getattr(joined, output), fresh)

    def write(batch: DataFrame, number: int) -> None:
        batch = batch.persist()
        try:
            account = F.when(batch.kind == ACCOUNT, batch.blob).alias("account")
            # Rows are blobs, and few: to make them fewer would take a shuffle.
            rows = batch.select("kind", "shard", *([account] if told else [])).collect()
            if told is not None:
                told({row.shard: bytes(row.account) for row in rows if row.kind == ACCOUNT})
            found = {row.kind for row in rows}
            for output, to in sinks.items():
                if KINDS[output] in found:
                    part = joined.output_of(batch, output)
                    for sink in to:
                        sink.write(part, number)
        finally:
            batch.unpersist()

    writer = joined.packed.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    if name is not None:
        writer = writer.queryName(name)
    if trigger is not None:
        writer = writer.trigger(**trigger)
    query = writer.start()
    note.write(settings)
    return query


class Note:
    """What a query was started with, in a file beside its checkpoint: another is refused before it starts.

    Its shards know too, and refuse in their first micro-batch (``resuming``), where there is no such file.
    """

    def __init__(self, session: Any, checkpoint: str) -> None:
        self._jvm = session._jvm
        self._path = self._jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/{NOTE}")
        self._system = self._path.getFileSystem(session._jsc.hadoopConfiguration())

    def read(self) -> Settings | None:
        """Return what ``write`` was given; None if there is no note."""
        if not self._system.exists(self._path):
            return None
        with closing(self._system.open(self._path)) as stream:
            found: Settings = json.loads(bytes(stream.readAllBytes()))
        return found

    def write(self, settings: Settings) -> None:
        """Replace the note."""
        with closing(self._system.create(self._path, True)) as stream:
            stream.write(bytearray(json.dumps(settings).encode()))


@dataclass(frozen=True)
class ParquetSink:
    """Write a folder ``batch=N`` of Parquet files for every micro-batch that has rows.

    A micro-batch that is tried again replaces its folder, so every row is there once when the query has gone on.
    Spark, DuckDB and others read the folder above them as one table with the column ``batch``.
    """

    path: str

    def check(self, rows: DataFrame, fresh: bool) -> None:
        """Raise if there are rows of another query."""
        if fresh and _has_files(rows.sparkSession, self.path):
            raise SlackwaterError(
                f"{self.path} has files, and the checkpoint is new: rows of two queries would be mixed; remove "
                "them, or choose another folder"
            )

    def write(self, rows: DataFrame, number: int) -> None:
        """Write or replace the folder of a micro-batch."""
        rows.write.mode("overwrite").parquet(f"{self.path}/batch={number}")


@dataclass(frozen=True)
class KafkaSink:
    """Write JSON messages, see ``write_to_kafka``: at least once, with a key that tells which are the same.

    Results are sent in order, by one task, and whoever reads them with ``read_from_kafka`` has that order.
    """

    bootstrap_servers: str
    topic: str
    key: str | None = "id"
    timeout: str = TIMEOUT
    options: Mapping[str, str] = field(default_factory=dict)
    ordered: bool = False

    def check(self, rows: DataFrame, fresh: bool) -> None:
        """Raise if there is no such topic, or no such column."""
        as_messages(rows, self.key)
        require_kafka(rows.sparkSession)
        client = {key: value for key, value in self.options.items() if key.startswith("kafka.")}
        check_topics(rows.sparkSession, self.bootstrap_servers, [self.topic], client, timeout=self.timeout)

    def write(self, rows: DataFrame, number: int) -> None:
        """Send the rows of a micro-batch."""
        write_to_kafka(
            rows,
            self.bootstrap_servers,
            self.topic,
            key=self.key,
            timeout=self.timeout,
            options=self.options,
            ordered=self.ordered,
        )


@dataclass(frozen=True)
class ConsoleSink:
    """Show the first rows of every micro-batch that has some."""

    rows: int = 20

    def check(self, rows: DataFrame, fresh: bool) -> None:
        """Anything can be shown."""

    def write(self, rows: DataFrame, number: int) -> None:
        """Print the rows of a micro-batch."""
        rows.show(self.rows, truncate=False)


def _listed(sink: Sink | Sequence[Sink]) -> list[Sink]:
    return list(sink) if isinstance(sink, Sequence) else [sink]


def _has_files(session: Any, folder: str) -> bool:
    """Whether there is a file or folder in a folder, in whichever file system Spark finds it."""
    path = session._jvm.org.apache.hadoop.fs.Path(folder)
    system = path.getFileSystem(session._jsc.hadoopConfiguration())
    return bool(system.exists(path)) and len(system.listStatus(path)) > 0
