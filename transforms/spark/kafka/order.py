"""The order of Kafka's messages: numbers of arrival for those that are read, places for results that are sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from slackwater.transforms.spark.workers import spare_loaded

STRIDE: Final = 1024
"""How far apart arrival numbers of a partition are, at least, in nanoseconds; partitions of all topics of one
DataFrame have numbers of their own if they are no more."""
HEADER: Final = "slackwater-arrival"
"""Header of a message that is a result: its place among those of its query, in nanoseconds since 1970."""
NUMBER: Final = "__number"
"""The column that ``with_numbers`` adds."""
_PARTITION, _TOPIC, _CARRIED = "__partition_read", "__topic_read", "__carried"
_NANOS_PER_MICRO: Final = 1000


def with_numbers(messages: DataFrame, columns: Sequence[Column], topics: Sequence[str]) -> DataFrame:
    """Return columns of Kafka's messages, ``timestamp`` among them, with arrival numbers.

    They are added to the outcome of other columns rather than before: what a Python function is given is computed
    once, and not for every column anew.
    """
    told = [F.col("partition").alias(_PARTITION), F.col("topic").alias(_TOPIC), _carried().alias(_CARRIED)]
    wanted = messages.select(*columns)
    numbered = StructType([*wanted.schema.fields, StructField(NUMBER, LongType())])
    return messages.select(*columns, *told).mapInArrow(_numbering(topics), numbered)


def with_header(messages: DataFrame) -> DataFrame:
    """Return messages of one partition with their places in HEADER: the time of day, and a STRIDE more for each.

    To send a message takes longer than that, so those of the next micro-batch come after them.
    """
    place = F.lit(time.time_ns()) + F.monotonically_increasing_id() * STRIDE
    header = F.struct(F.lit(HEADER).alias("key"), place.cast("string").cast("binary").alias("value"))
    return messages.withColumn("headers", F.array(header))


def _numbering(topics: Sequence[str]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that adds arrival numbers to the messages of a task.

    Spark lets a task read one partition, in order of offset. Its numbers leave the same remainder when they are
    divided by STRIDE, and no other partition's do, so that no two messages have the same: which task reads which
    partition is another matter each time that Spark plans a micro-batch.
    """
    ranks = {topic: rank for rank, topic in enumerate(sorted(set(topics)))}

    def number(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        last = np.int64(-1 << 62)
        for batch in batches:
            if not batch.num_rows:
                continue
            place = batch.column(_PARTITION)[0].as_py() * len(ranks) + ranks[batch.column(_TOPIC)[0].as_py()]
            stamps = pc.multiply(batch.column("timestamp").cast(pa.int64()), _NANOS_PER_MICRO)
            turns = pc.coalesce(batch.column(_CARRIED), stamps).to_numpy() // STRIDE
            steps = np.arange(turns.size)
            turns[0] = max(turns[0], last + 1)
            turns = np.maximum.accumulate(turns - steps) + steps
            last = turns[-1]
            arrival = pa.array(turns * STRIDE + place % STRIDE)
            kept = batch.drop_columns([_PARTITION, _TOPIC, _CARRIED])
            yield kept.append_column(NUMBER, arrival)
        spare_loaded()

    return number


def _carried() -> Column:
    """Return the order that results carry in HEADER; null for other messages."""
    found = F.filter("headers", lambda header: header["key"] == HEADER)
    return F.get(found, F.lit(0))["value"].cast("string").cast("long")
