"""SlidingWindowAggregate: aggregates over the extents of a sliding window."""

from __future__ import annotations

from slackwater.transforms.beam.transform import OperatorTransform
from slackwater.transforms.settings.models import AggregateConfig


class SlidingWindowAggregate(OperatorTransform):
    """Groups and aggregates rows that may come out of order, over sliding windows of event time.

    Takes a PCollection of rows with a schema. The main output has a row for each group of each window extent:
    ``extent`` (i), ``start`` and ``end`` of [(i + 1) * slide - range, (i + 1) * slide), the group columns, the
    aggregates, ``sync`` (false) and ``ts``, which is the end. The output ``syncs`` has the same columns and a row
    for the end of each extent, with ``sync`` true and neither groups nor aggregates; flattened together, the two
    tell another operator how far the stream has come. Rows that came after one of their extents are in the output
    ``late``.

    Raises:
        ConfigError: A setting is wrong, or does not fit the input.
    """

    settings = AggregateConfig
