"""SlidingWindowAggregate: aggregates over the extents of a sliding window."""
