"""Strategies that compare event times with times of arrival, where those are known to be nanoseconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slackwater.transforms.errors import SlackwaterError
from slackwater.transforms.settings.plan import make_strategy


def in_nanoseconds(disorder: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of a disorder strategy, with the unit of times of arrival if it reads them and has none."""
    try:
        strategy = make_strategy("disorder", dict(disorder))
    except SlackwaterError:
        # Whoever binds them tells what is wrong.
        return dict(disorder)
    reads = strategy.reads_clock and "arrival_unit" in type(strategy).model_fields
    return {"arrival_unit": "ns", **disorder} if reads else dict(disorder)
