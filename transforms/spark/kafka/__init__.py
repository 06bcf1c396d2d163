"""Kafka topics as DataFrames, and DataFrames as messages; streaming or batch."""

from slackwater.transforms.spark.kafka.messages import as_messages, read_from_kafka, write_to_kafka

__all__ = ["as_messages", "read_from_kafka", "write_to_kafka"]
