"""Times with a time zone beside times without one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from slackwater.transforms.rows.layout import value_type

if TYPE_CHECKING:
    from slackwater.transforms.settings.plan import Plan


def zone_warnings(plan: Plan) -> Iterator[str]:
    """Say of columns without a time zone, beside columns that have one, that they are read as UTC."""
    settings = [("time", plan.time_columns)]
    if plan.arrival_columns is not None and not plan.by_time:
        settings.append(("arrival", plan.arrival_columns))
    for setting, columns in settings:
        zoned, plain = [], []
        for (name, schema), column in zip(plan.schemas.items(), columns, strict=True):
            type_ = value_type(schema.field(column).type)
            told = f"column {column!r} of input {name!r} ({type_})"
            if pa.types.is_timestamp(type_) and type_.tz is not None:
                zoned.append(told)
            elif pa.types.is_timestamp(type_) or pa.types.is_date(type_):
                plain.append(told)
        for told in plain if zoned else []:
            yield (
                f"{setting}: {told} has no time zone and is read as UTC, beside {zoned[0]}; if it is in local "
                "time, store it in UTC"
            )
