"""Order of arrival that rows carry from one operator to the next.

Results leave a shard in order of event time, and what Spark makes of several shards is in no order at all. So the
columns of an output say by which of them its rows are in order, and whatever reads them takes them in that order
unless it is told otherwise. Spark keeps what a column says through ``select``, ``filter`` and ``withColumn``; a
function of one's own between two operators (``mapInArrow``, a UDF that makes the column anew) drops it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from slackwater.transforms.errors import ConfigError
from slackwater.transforms.operators.reorder.plan import OrderPlan
from slackwater.transforms.operators.shed.plan import ShedPlan
from slackwater.transforms.settings.clock_units import in_nanoseconds
from slackwater.transforms.settings.plan import INPUT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from slackwater.transforms.settings.plan import Plan

KEY: Final = "slackwater.arrival"
"""In the metadata of a column: that rows have arrived in its order, and what it is."""
CLOCK: Final = "clock"
"""Nanoseconds since 1970, such as those of Kafka's messages."""
TIME: Final = "time"
"""The event time of results."""


def order_of(plan: Plan) -> tuple[str, str] | None:
    """Return the column of a plan's results that they are in order by, and what it is; None if there is none."""
    if isinstance(plan, ShedPlan):
        # Rows pass as they have arrived.
        return None
    column = plan.time_columns[0] if isinstance(plan, OrderPlan) else "ts"
    type_ = plan.result_schema.field(column).type
    return (column, TIME) if pa.types.is_integer(type_) or pa.types.is_timestamp(type_) else None


def marked(schema: StructType, order: tuple[str, str] | None) -> StructType:
    """Return a schema in which a column says that rows are in order by it."""
    if order is None:
        return schema
    column, kind = order
    return StructType(
        [
            StructField(f.name, f.dataType, f.nullable, {KEY: kind} if f.name == column else None)
            for f in schema.fields
        ]
    )


def order_in(rows: DataFrame) -> tuple[str, str] | None:
    """Return the column that says that rows are in order by it, and what it is; None if none does."""
    said = [(field.name, field.metadata[KEY]) for field in rows.schema.fields if KEY in field.metadata]
    # Joined with themselves, or selected twice: any of several would do, and the first is as good.
    return said[0] if said else None


def with_arrival(settings: Mapping[str, Any], streams: Mapping[str, DataFrame]) -> dict[str, Any]:
    """Return settings that name the arrival columns which the inputs say they have, unless there is one named.

    Raises:
        ConfigError: Some inputs say so and others do not, or they mean different things by it.
    """
    found = {name: order_in(frame) for name, frame in streams.items()}
    if settings.get("arrival") is not None or not any(found.values()):
        return dict(settings)
    kinds = {order and order[1] for order in found.values()}
    if len(kinds) > 1:
        told = "; ".join(f"{name!r} has {_told(order)}" for name, order in found.items())
        raise ConfigError(
            f"the inputs do not say alike in which order their rows arrived ({told}); name a column of each, as "
            f"{{{', '.join(f'{name}: COLUMN' for name in found)}}}",
            "arrival",
        )
    columns = {name: order[0] for name, order in found.items() if order is not None}
    if kinds == {CLOCK} and isinstance(settings.get("disorder"), Mapping):
        settings = {**settings, "disorder": in_nanoseconds(settings["disorder"])}
    return {**settings, "arrival": columns[INPUT] if tuple(columns) == (INPUT,) else columns}


def carries(kind: str, streams: Mapping[str, DataFrame]) -> bool:
    """Whether inputs say that they are in order by this: by TIME, nothing tells when they arrived."""
    return any(order is not None and order[1] == kind for order in map(order_in, streams.values()))


def in_order(rows: DataFrame) -> DataFrame:
    """Return the rows of a micro-batch in one partition and in the order that they say they have, if they do."""
    order = order_in(rows)
    return rows if order is None else rows.coalesce(1).sortWithinPartitions(F.col(f"`{order[0]}`"))


def _told(order: tuple[str, str] | None) -> str:
    if order is None:
        return "no such column"
    meant = "nanoseconds of a clock" if order[1] == CLOCK else "event time"
    return f"{order[0]!r}, {meant}"
