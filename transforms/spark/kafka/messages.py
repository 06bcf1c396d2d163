"""Kafka topics as DataFrames, and DataFrames as messages; streaming or batch.

    from slackwater.transforms.spark import read_from_kafka, sliding_window_join, write_to_kafka

    orders = read_from_kafka(session, "host:9092", "orders", schema="ts BIGINT NOT NULL, id BIGINT")
    clicks = read_from_kafka(session, "host:9092", "clicks", schema="ts BIGINT NOT NULL, order_id BIGINT")
    joined = sliding_window_join(
        {"orders": orders, "clicks": clicks}, time="ts", window="5s", where="orders.id = clicks.order_id",
        arrival="arrival", id="id",
    )
    write_to_kafka(joined.results, "host:9092", "joined", checkpoint="/data/joined")

The session needs Spark's Kafka connector: see ``connector``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from slackwater.transforms.errors import ConfigError
from slackwater.transforms.settings.signatures import takes_settings
from slackwater.transforms.spark.connector import require_kafka
from slackwater.transforms.spark.kafka.broker import check_topics
from slackwater.transforms.spark.kafka.order import NUMBER, with_header, with_numbers
from slackwater.transforms.spark.kafka.settings import ReadSettings, WriteSettings
from slackwater.transforms.spark.row_order import CLOCK, KEY, in_order, order_in

PAYLOAD: Final = "payload"
"""The column that has the value of a message of the format ``raw``."""
_MALFORMED, _TEXT, _FOUND = "__malformed", "__text", "__found"


@takes_settings(ReadSettings)
def read_from_kafka(
    session: SparkSession, bootstrap_servers: str, topics: str | Sequence[str], **settings: Any
) -> DataFrame:
    """Return the messages of topics as rows.

    The column ``arrival`` says in which order they arrived, for the setting ``arrival`` of a join: the timestamp
    that the broker keeps, in nanoseconds since 1970 give or take a microsecond, raised where it must be to exceed
    that of the message before. Within a micro-batch (a batch DataFrame is one) it increases strictly with the
    offset of a partition, and partitions are merged by timestamp, those of equal timestamps by their numbers and
    topics. So a micro-batch that is tried again has the same order. Micro-batches arrive one after the other.
    Results that ``KafkaSink`` or ``write_to_kafka`` have sent say in a header in which order they were found,
    which is their ``arrival``. Joins use the column unless they are told otherwise.

    A message that is no JSON, whose values do not have the types of the schema, or that lacks a column which the
    schema says is NOT NULL, becomes a row with null in all columns of the schema and its text in ``raw``. Without
    an event time, it is in a join's late output as ``bad_record``. A message without a value, too, but it has no
    text. Fields that the schema does not have are ignored, and those that a message lacks are null.

    Args:
        session: a session that has the connector.
        bootstrap_servers: brokers, as ``host:port,host:port``.
        topics: one or several, which must exist.

    Raises:
        ConfigError: An argument is wrong, or a topic is missing.
        SlackwaterError: The session has no connector, or no broker answers.
    """
    topics = [topics] if isinstance(topics, str) else list(topics)
    given = ReadSettings.read(settings)
    columns = given.columns()
    require_kafka(session)
    check_topics(session, bootstrap_servers, topics, given.client, timeout=str(given.timeout))
    where = {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": ",".join(topics)}
    reader = (session.readStream if given.streaming else session.read).format("kafka")
    reader = reader.options(**given.reader_options() | where)
    read = dict.fromkeys([*given.metadata, "timestamp"])
    values = [F.col("value").alias(PAYLOAD)] if columns is None else _parsing(columns)
    rows = with_numbers(reader.load(), [F.col(name) for name in read] + values, topics)
    beside = [F.col(name).alias(f"kafka_{name}") for name in given.metadata]
    beside.append(F.col(NUMBER).alias(given.arrival, metadata={KEY: CLOCK}))
    if columns is None:
        return rows.select(PAYLOAD, *beside)
    return _parsed(rows, columns, beside, given.raw)


@takes_settings(WriteSettings)
def write_to_kafka(rows: DataFrame, bootstrap_servers: str, topic: str, **settings: Any) -> Any:
    """Write rows as JSON objects, which have the key column's text as their key.

    Kafka gets every row at least once: a micro-batch that is tried again sends its messages again. With the id of
    a join's results (setting ``id``) as the key, whoever keeps one message of each key has each result once.

    Args:
        rows: a streaming DataFrame, of which a query is started, or a batch one, which is written at once.
        bootstrap_servers: brokers, as ``host:port,host:port``.
        topic: where to; it must exist.

    Returns:
        The query that was started, or None.

    Raises:
        ConfigError: There is no such column or topic, or a query has no checkpoint.
        SlackwaterError: The session has no connector, or no broker answers.
    """
    given = WriteSettings.read(settings)
    session = rows.sparkSession
    require_kafka(session)
    as_messages(rows, given.key)
    check_topics(session, bootstrap_servers, [topic], given.client, timeout=str(given.timeout))
    options = given.writer_options() | {"kafka.bootstrap.servers": bootstrap_servers, "topic": topic}

    def send(batch: DataFrame, _: int = 0) -> None:
        messages = as_messages(in_order(batch), given.key)
        if given.ordered or order_in(batch) is not None:
            messages = with_header(messages)
        messages.write.format("kafka").options(**options).save()

    if not rows.isStreaming:
        send(rows)
        return None
    if given.checkpoint is None:
        raise ConfigError("a streaming query needs a folder to go on from after a stop; name one", "checkpoint")
    writer = rows.writeStream.foreachBatch(send).option("checkpointLocation", given.checkpoint)
    return (writer if given.name is None else writer.queryName(given.name)).start()


def as_messages(rows: DataFrame, key: str | None = "id") -> DataFrame:
    """Return rows as ``key`` and ``value``: the text of a column, and a JSON object of all columns."""
    if key is not None and key not in rows.columns:
        raise ConfigError(
            f"there is no column {key!r}; the results of a join have it with the setting id: {key}; there are "
            f"{', '.join(rows.columns)}",
            "key",
        )
    value = F.to_json(F.struct(*[F.col(f"`{name}`") for name in rows.columns]), {"ignoreNullFields": "false"})
    columns = [] if key is None else [F.col(f"`{key}`").cast("string").alias("key")]
    return rows.select(*columns, value.alias("value"))


def _parsing(columns: StructType) -> list[Column]:
    """Return the text of messages, and what is in it."""
    text = F.col("value").cast("string")
    wanted = StructType([*columns.fields, StructField(_MALFORMED, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _MALFORMED}
    return [text.alias(_TEXT), F.from_json(text, wanted, options).alias(_FOUND)]


def _parsed(rows: DataFrame, columns: StructType, beside: list[Column], raw: str | None) -> DataFrame:
    """Return messages with the columns of their JSON values; what cannot be read has none of them."""
    found = F.col(_FOUND)
    required = [found[field.name].isNotNull() for field in columns.fields if not field.nullable]
    read = reduce(and_, required, found.isNotNull() & found[_MALFORMED].isNull())
    values = [F.when(read, found[field.name]).alias(field.name) for field in columns.fields]
    kept = [] if raw is None else [F.when(~read, F.col(_TEXT)).alias(raw)]
    return rows.select(*values, *kept, *beside)
