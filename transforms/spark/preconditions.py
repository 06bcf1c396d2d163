"""What a join on DataFrames needs of its session and its columns, looked at when the join is defined."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

from slackwater.transforms.disorder.sample import DEPTH
from slackwater.transforms.errors import ConfigError, SlackwaterError
from slackwater.transforms.settings.plan import ARRIVAL, JoinPlan, Plan
from slackwater.transforms.sharding.copies import COPY
from slackwater.transforms.spark.checkpoint import PARTITIONS
from slackwater.transforms.spark.package_archive import NEEDED
from slackwater.transforms.spark.session import STREAMING_CONF, is_connect
from slackwater.transforms.spark.tasks import PARTITION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
ZONE: Final = "spark.sql.session.timeZone"
_HIDDEN: Final = (PARTITION, ARRIVAL, COPY, DEPTH)
_UTC: Final = ("utc", "z", "etc/utc", "gmt", "+00:00", "etc/gmt", "zulu", "etc/zulu", "utc+0", "gmt+0")
_SPARE: Final = 4
"""Shuffle partitions for each shard that nobody is warned of."""
_PROBES: Final = 8
"""Workers that are asked what they have, at most."""
_ABLE: WeakSet[Any] = WeakSet()
"""Sessions whose workers have what they need."""


class ShufflePartitionsWarning(UserWarning):
    """There are many more shuffle partitions than shards."""


def check_session(session: Any, shards: int, live: bool) -> None:
    """Raise if a session cannot run a join; warn if it would run one badly.

    Raises:
        SlackwaterError: Its streaming queries keep no state in RocksDB, or its Python workers lack a package.
    """
    if live:
        provider = session.conf.get(PROVIDER, "")
        if "RocksDB" not in provider:
            raise SlackwaterError(
                f"a streaming query keeps the state of its shards in RocksDB, and this session has {provider!r}; "
                f"before the join is defined, set {PROVIDER} to {STREAMING_CONF[PROVIDER]}"
            )
        partitions = int(session.conf.get(PARTITIONS))
        if partitions > max(_SPARE * shards, 2 * _SPARE):
            warnings.warn(
                f"{PARTITIONS} is {partitions}, and the join has {shards} shards: each micro-batch opens so many "
                f"state stores, most of them for nothing; before the join is defined, set it to {shards}",
                ShufflePartitionsWarning,
                stacklevel=4,
            )
    if session not in _ABLE:
        _ask_workers(session)
        _ABLE.add(session)


def _ask_workers(session: Any) -> None:
    """Raise if a Python worker lacks a package."""
    tasks = 1 if is_connect(session) else min(_PROBES, session.sparkContext.defaultParallelism)
    prober = _prober(("slackwater.transforms", *NEEDED))
    asked = session.range(0, tasks, 1, tasks).mapInArrow(prober, "python string, lacks string")
    found = {(row.python, row.lacks) for row in asked.collect()}
    if found:
        pythons, packages = ({pair[k] for pair in found} for k in range(2))
        names = sorted(name.split(".", maxsplit=1)[0] for name in packages)
        raise SlackwaterError(
            f"Spark's Python workers lack {', '.join(names)} in {', '.join(sorted(pythons))}; install it there "
            "(pip install 'slackwater[spark]'), or let PYSPARK_PYTHON name a Python that has it before the "
            "session is started"
        )


def _prober(names: tuple[str, ...]) -> Any:
    """Return a function that yields this Python and each package that it lacks; it needs none of ours itself."""

    def lacking(batches: Iterator[Any]) -> Iterator[Any]:
        import importlib.util
        import sys

        import pyarrow

        def lacks(name: str) -> bool:
            try:
                return importlib.util.find_spec(name) is None
            except ModuleNotFoundError:
                return True

        for _ in batches:
            missing = [name for name in names if lacks(name)]
            columns = {"python": [sys.executable] * len(missing), "lacks": missing}
            yield pyarrow.RecordBatch.from_pydict(
                columns, pyarrow.schema([("python", pyarrow.string()), ("lacks", pyarrow.string())])
            )

    return lacking


def check_columns(streams: Mapping[str, DataFrame]) -> None:
    """Raise ConfigError for columns whose names are kept for us, or whose texts are compared by a collation."""
    for name, frame in streams.items():
        for field in frame.schema.fields:
            if field.name.lower() in _HIDDEN:
                fault = (
                    f"input {name!r} has a column {field.name!r}, a name that joins keep for themselves; rename"
                )
                raise ConfigError(f"{fault} it", "input")
            if _collated(field.dataType):
                raise ConfigError(
                    f"column {field.name!r} of input {name!r} is {field.dataType.simpleString()}, and joins "
                    "compare texts byte by byte; cast it to string, or to lower case",
                    "input",
                )


def check_zones(plan: Plan, streams: Mapping[str, DataFrame]) -> None:
    """Raise ConfigError where times of a time zone meet dates or times of none, unless the session's zone is UTC.

    Joins take dates and times of no zone as UTC; Spark takes them as those of the session's zone.
    """
    found: dict[bool, str] = {}
    for i, name in enumerate(plan.inputs):
        used = {plan.time_columns[i]}
        if isinstance(plan, JoinPlan) and i < len(plan.members):
            used |= {cell.column for cell in plan.condition.columns[i]}
        for field in streams[name].schema.fields:
            if field.name in used and isinstance(field.dataType, DateType | TimestampNTZType | TimestampType):
                told = f"{name}.{field.name} ({field.dataType.simpleString()})"
                found[isinstance(field.dataType, TimestampType)] = told
    zone = next(iter(streams.values())).sparkSession.conf.get(ZONE)
    if len(found) > 1 and zone.lower() not in _UTC:
        raise ConfigError(
            f"{found[True]} is an instant, and {found[False]} a time of no zone, which Spark takes as one of "
            f"{zone} and a join as UTC; cast one to the type of the other",
            "time",
        )


def _collated(type_: DataType) -> bool:
    return " collate " in type_.simpleString().lower()
