"""The settings of ReadFromKafka and WriteToKafka, as Beam YAML has them, and what becomes of them."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import yaml
from pydantic import Field

from slackwater.pipelines.template.graph import ReadKafka, WriteKafka
from slackwater.plugins.registry.field_docs import Documented
from slackwater.transforms.errors import ConfigError

TYPES: Final = {
    "integer": pa.int64(),
    "number": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
}
"""Types of JSON Schema, and of the columns that have them."""
ARRIVAL, RAW = "arrival", "raw"
"""Columns that come with those of the schema: order of arrival, and the text of what could not be read."""


class ReadKafkaSettings(Documented):
    """Read messages of a Kafka topic, in a live run on Spark."""

    topic: str = Field(min_length=1)
    """topic to read"""
    bootstrap_servers: str = Field(min_length=1)
    """brokers, as host:port,host:port"""
    format: str = "JSON"
    """JSON, the only one"""
    schema_: dict[str, Any] | str | None = Field(default=None, alias="schema")
    """JSON Schema of the messages: an object with properties that are integer, number, string or boolean"""
    auto_offset_reset_config: str | None = Field(default=None, pattern="^(earliest|latest)$")
    """where to begin without a checkpoint: earliest, or latest, which is the default"""
    consumer_config: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """settings of Kafka's consumer, such as security.protocol"""
    max_read_time_seconds: int | None = Field(default=None, ge=1)
    """end the run after this time"""


class WriteKafkaSettings(Documented):
    """Write rows as messages to a Kafka topic, in a live run on Spark."""

    topic: str = Field(min_length=1)
    """topic to write to, which must be there"""
    bootstrap_servers: str = Field(min_length=1)
    """brokers, as host:port,host:port"""
    format: str = "JSON"
    """JSON, the only one; the key of a message is the id of a join's result, if it has the setting id"""
    producer_config_updates: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """settings of Kafka's producer, such as security.protocol"""


def read_kafka(settings: ReadKafkaSettings) -> ReadKafka:
    """Return the node's config; raise ConfigError."""
    _only_json(settings.format)
    if "auto.offset.reset" in settings.consumer_config:
        raise ConfigError(
            "is auto_offset_reset_config here; move it there", "consumer_config", "auto.offset.reset"
        )
    columns, required = _columns(settings.schema_)
    return ReadKafka(
        settings.topic,
        settings.bootstrap_servers,
        columns,
        required,
        settings.auto_offset_reset_config or "latest",
        _texts(settings.consumer_config),
        settings.max_read_time_seconds,
    )


def write_kafka(settings: WriteKafkaSettings) -> WriteKafka:
    """Return the node's config; raise ConfigError."""
    _only_json(settings.format)
    return WriteKafka(settings.topic, settings.bootstrap_servers, _texts(settings.producer_config_updates))


def kafka_schema(config: ReadKafka) -> pa.Schema:
    """Return the columns of a topic's rows."""
    fields = [(name, TYPES[kind]) for name, kind in config.columns.items()]
    return pa.schema([*fields, (RAW, pa.string()), (ARRIVAL, pa.int64())])


def _columns(schema: dict[str, Any] | str | None) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return names and types of the properties of a JSON Schema, and the names of those that are required."""
    if isinstance(schema, str):
        try:
            schema = yaml.safe_load(schema)
        except yaml.YAMLError as error:
            raise ConfigError(f"is no JSON: {str(error).splitlines()[0]}", "schema") from None
    example = "{type: object, properties: {ts: {type: integer}}}"
    if schema is None:
        raise ConfigError(f"is missing; say what messages look like, such as {example}", "schema")
    given = schema if isinstance(schema, dict) else {}
    properties = given.get("properties")
    if not isinstance(properties, dict) or not properties or given.get("type", "object") != "object":
        raise ConfigError(f"must be a JSON Schema of an object, such as {example}, got {schema!r}", "schema")
    columns: dict[str, str] = {}
    for name, value in properties.items():
        kind = value.get("type") if isinstance(value, dict) else None
        if kind not in TYPES:
            raise ConfigError(
                f"type must be one of {', '.join(TYPES)}, got {value!r}", "schema", "properties", name
            )
        if name in (RAW, ARRIVAL):
            raise ConfigError("is a column that every topic has; leave it out", "schema", "properties", name)
        columns[name] = kind
    required = given.get("required", [])
    if not isinstance(required, list) or not set(required) <= columns.keys():
        raise ConfigError(f"must be a list of properties, got {required!r}", "schema", "required")
    return columns, tuple(required)


def _only_json(format: str) -> None:
    if format.upper() != "JSON":
        raise ConfigError(
            f"must be JSON, got {format!r}; read other formats with slackwater.transforms.spark", "format"
        )


def _texts(config: dict[str, str | int | float | bool]) -> dict[str, str]:
    """Return settings of Kafka's client as it takes them."""
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in config.items()}
