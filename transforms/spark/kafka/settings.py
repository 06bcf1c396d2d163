"""The settings of ``read_from_kafka`` and ``write_to_kafka``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import ConfigDict, Field, field_validator
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from slackwater.plugins.registry.options import Duration
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.settings.models import Settings
from slackwater.transforms.spark.kafka.broker import milliseconds

METADATA: Final = ("key", "topic", "partition", "offset", "timestamp")
"""What Kafka knows of a message beside its value."""
TIMEOUT: Final = "30s"


class _KafkaSettings(Settings):
    """Settings that reading and writing share."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    timeout: Duration = Duration.parse(TIMEOUT)
    """how long brokers may be silent before a query fails, such as 30s"""
    options: Mapping[str, Any] | None = None
    """further options of Spark's Kafka connector; those for Kafka's client begin with ``kafka.``"""

    @property
    def client(self) -> dict[str, Any]:
        """Options for Kafka's client."""
        return {name: value for name, value in (self.options or {}).items() if name.startswith("kafka.")}


class ReadSettings(_KafkaSettings):
    """Settings of ``read_from_kafka``."""

    schema_: str | StructType | None = Field(default=None, alias="schema")
    """columns of the messages, as DDL or as a type; not of the format raw"""
    format: Literal["json", "raw"] = "json"
    """how messages are written: json, or raw for the value as it is, in the binary column payload"""
    metadata: tuple[str, ...] = ()
    """which of key, topic, partition, offset and timestamp to add, as columns kafka_key and so on; the key is
    binary"""
    arrival: str = "arrival"
    """name of the column with the order of arrival"""
    raw: str | None = "raw"
    """name of the column with the text of what could not be read; None for no such column"""
    start: str = "earliest"
    """where a query begins that has no checkpoint: earliest, latest, or Spark's JSON of offsets"""
    rows_per_batch: int | None = None
    """messages of a micro-batch, at most, shared among partitions by what they have in store"""
    streaming: bool = True
    """whether the DataFrame is a streaming one; else it ends with what is there now"""

    @field_validator("format", mode="before")
    @classmethod
    def _known_format(cls, given: Any) -> Any:
        if given not in ("json", "raw"):
            raise ValueError(f"must be json or raw, got {given!r}")
        return given

    @field_validator("metadata")
    @classmethod
    def _known_metadata(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for name in given:
            if name not in METADATA:
                known = ", ".join(METADATA)
                raise ValueError(f"{name!r} is not known of a message; known: {known}; got {list(given)}")
        return given

    def columns(self) -> StructType | None:
        """Return the columns of messages in JSON, None of raw ones; raise ConfigError if they are not given."""
        schema = self.schema_
        if self.format == "raw":
            if schema is not None:
                raise ConfigError("is for messages in JSON; leave it out, or use format json", "schema")
            return None
        if schema is None:
            raise ConfigError("messages in JSON need one, such as 'ts BIGINT NOT NULL, id BIGINT'", "schema")
        try:
            return StructType.fromDDL(schema) if isinstance(schema, str) else schema
        except PySparkException as error:
            raise ConfigError(f"cannot be read: {str(error).strip().splitlines()[0]}", "schema") from None

    def reader_options(self) -> dict[str, Any]:
        """Return options of Spark's source.

        Queries fail when brokers are silent for the timeout, rather than after minutes of retries.
        """
        timeouts = ("kafka.default.api.timeout.ms", "kafka.request.timeout.ms", "kafkaConsumer.pollTimeoutMs")
        given = {**dict.fromkeys(timeouts, str(milliseconds(str(self.timeout)))), "fetchOffset.numRetries": "1"}
        given |= self.options or {}
        given |= {"includeHeaders": "true"}
        if self.streaming:
            given |= {"startingOffsets": self.start}
            given |= {} if self.rows_per_batch is None else {"maxOffsetsPerTrigger": str(self.rows_per_batch)}
        return given


class WriteSettings(_KafkaSettings):
    """Settings of ``write_to_kafka``."""

    key: str | None = "id"
    """column that becomes the key, and stays in the value too; None for messages without a key"""
    checkpoint: str | None = None
    """folder of a streaming query"""
    name: str | None = None
    """name of a streaming query"""
    ordered: bool = False
    """whether the rows are in one partition, in the order in which they are to be read again. Results of joins
    know theirs. Their messages are sent in this order, and say in a header which place they have in it"""

    def writer_options(self) -> dict[str, Any]:
        """Return options of Spark's sink, with the timeout as those of Kafka's producer."""
        millis = milliseconds(str(self.timeout))
        whole = dict.fromkeys(("kafka.delivery.timeout.ms", "kafka.max.block.ms"), str(millis))
        half = {"kafka.request.timeout.ms": str(max(1, millis // 2))}
        return {**whole, **half, **(self.options or {})}
