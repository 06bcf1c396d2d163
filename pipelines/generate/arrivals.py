"""From rows with a time of arrival to streams in one order of arrival."""

from __future__ import annotations

import numpy as np

from slackwater.pipelines.generate.spec import Columns


def in_arrival_order(streams: dict[str, Columns], rows: int) -> dict[str, Columns]:
    """Return the rows that have arrived when a stream first has ``rows`` rows, in order of arrival.

    ``arrived`` becomes the time of arrival in microseconds, which no two rows of all streams share: a row that
    arrives in the same ms as others comes after those of the streams before its own, then after those before it
    in its stream, a microsecond each. If rows arrive faster than that, later ones move back.

    Args:
        streams: Rows in any order, with ``arrived`` in ms. Rows that may arrive before the cut are all there.
        rows: At least 1. Where every stream has fewer, all rows are returned.
    """
    arrived = np.concatenate([columns["arrived"] for columns in streams.values()])
    order = np.argsort(arrived, kind="stable")
    place = np.arange(len(order))
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.maximum.accumulate(arrived[order] * 1000 - place) + place
    cuts = np.cumsum([len(columns["arrived"]) for columns in streams.values()])[:-1]
    by_stream = dict(zip(streams, np.split(numbers, cuts), strict=True))
    full = [np.partition(number, rows - 1)[rows - 1] for number in by_stream.values() if len(number) >= rows]
    end = min(full, default=np.iinfo(np.int64).max)
    found: dict[str, Columns] = {}
    for name, number in by_stream.items():
        here = np.flatnonzero(number <= end)
        here = here[np.argsort(number[here], kind="stable")]
        found[name] = {**{column: values[here] for column, values in streams[name].items()},
                       "arrived": number[here]}  # fmt: skip
    return found
