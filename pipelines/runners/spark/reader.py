"""A streaming data source for Spark around a Job of ``spark_source``.

Imports little: Spark loads this in processes that only plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT: Final = "slackwater"


class JobSource(DataSource):
    """Options: ``job``, what ``spark_source.encode`` returned, and ``pieces``, ``Job.pieces`` as JSON."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "shard int, input byte, place long, blob binary"

    def streamReader(self, schema: Any) -> JobReader:
        return JobReader(self.options["job"], self.options["pieces"])


class JobReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Gives one micro-batch after the other; offsets count them."""

    def __init__(self, job: str, pieces: str) -> None:
        self._job = job
        self._pieces: list[list[list[int]]] = json.loads(pieces)

    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        batches = len(self._pieces)
        wanted = batches if isinstance(limit, ReadAllAvailable) else start["batch"] + 1
        return {"batch": min(wanted, batches)}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(1)

    def prepareForTriggerAvailableNow(self) -> None:
        """All there is was known when the job was made."""

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        batches = self._pieces[start["batch"] : end["batch"]]
        return [InputPartition(piece) for pieces in batches for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from slackwater.pipelines.runners.spark.source import decode

        return decode(self._job).read(*partition.value)
