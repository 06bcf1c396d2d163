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

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

__all__ = [
    "JoinOutputs",
    "choose_values",
    "group_close",
    "punctuate",
    "reorder",
    "shed",
    "sliding_window_aggregate",
    "sliding_window_join",
]


def __getattr__(name: str) -> Any:
    """Import on first use: processes that only plan a query for Spark load little of this package."""
    if name in __all__:
        from slackwater.transforms.spark import join

        return getattr(join, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
