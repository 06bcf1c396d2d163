"""Sliding window joins and aggregates for any PySpark program, streaming or batch.

    from slackwater.transforms.spark import sliding_window_join

    joined = sliding_window_join(
        {"orders": orders, "clicks": clicks},
        time="ts", window="5s", where="orders.id = clicks.order_id", shards=8,
    )
    joined.results.writeStream.format("parquet").option(...).start()

The settings are those of a template's ``SlidingWindowJoin``, ``SlidingWindowAggregate``, ``ChooseValues``,
``GroupClose``, ``Punctuate``, ``Reorder`` or ``Shed``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slackwater.transforms.spark.connector import with_kafka
    from slackwater.transforms.spark.failures import clean_errors
    from slackwater.transforms.spark.join import (
        JoinOutputs,
        choose_values,
        group_close,
        punctuate,
        reorder,
        shed,
        sliding_window_aggregate,
        sliding_window_join,
    )
    from slackwater.transforms.spark.kafka.messages import as_messages, read_from_kafka, write_to_kafka
    from slackwater.transforms.spark.session import start_session
    from slackwater.transforms.spark.writer import ConsoleSink, KafkaSink, ParquetSink, write_outputs

__all__ = [
    "ConsoleSink",
    "JoinOutputs",
    "KafkaSink",
    "ParquetSink",
    "as_messages",
    "choose_values",
    "clean_errors",
    "group_close",
    "punctuate",
    "read_from_kafka",
    "reorder",
    "shed",
    "sliding_window_aggregate",
    "sliding_window_join",
    "start_session",
    "with_kafka",
    "write_outputs",
    "write_to_kafka",
]
_ELSEWHERE = {
    "as_messages": "kafka",
    "clean_errors": "failures",
    "read_from_kafka": "kafka",
    "start_session": "session",
    "ConsoleSink": "writer",
    "KafkaSink": "writer",
    "ParquetSink": "writer",
    "with_kafka": "connector",
    "write_outputs": "writer",
    "write_to_kafka": "kafka",
}
"""Modules of what is not in ``join``."""


def __getattr__(name: str) -> Any:
    """Import on first use: processes that only plan a query for Spark load little of this package."""
    if name in __all__:
        return getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'join')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
