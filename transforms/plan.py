"""A join bound to its inputs: settings checked against the columns that are really there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from slackwater.plugins.contract import DisorderStrategy, JoinStrategy, Setting, SheddingStrategy
from slackwater.plugins.manager import OptionError, manager
from slackwater.plugins.options import Duration
from slackwater.transforms.condition import Cell, Condition
from slackwater.transforms.config import JoinConfig, OperatorConfig
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.expression import ExpressionError

MIN_INPUTS, MAX_INPUTS = 2, 8
NANOS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}

ARRIVAL: Final = "__arrival"
"""Hidden int64 column that sources add where no arrival column is named: file number << 40 | row in file."""

LATE_SCHEMA: Final = pa.schema(
    [
        ("input", pa.string()),
        ("reason", pa.string()),
        ("ts", pa.int64()),
        ("arrival", pa.int64()),
        ("row", pa.string()),
    ]
)
METRICS_SCHEMA: Final = pa.schema(
    [
        ("ts", pa.int64()),
        ("slack_ms", pa.float64()),
        ("required_recall", pa.float64()),
        ("recall_estimate", pa.float64()),
        ("produced", pa.int64()),
        ("true_estimate", pa.float64()),
        ("buffered", pa.int64()),
        ("late", pa.int64()),
        ("latency_ms", pa.float64()),
    ]
)
RECALL_STRATEGY: Final = "result_slack"
"""The disorder strategy of settings that state a recall and name none."""
REASONS: Final = ("too_late", "shed", "bad_record", "future_time", "punctuation_violated")


@dataclass(frozen=True)
class JoinPlan:
    """Everything an operator needs. Travels to workers by pickle; ``setting`` is derived again there."""

    config: JoinConfig
    schemas: dict[str, pa.Schema]
    """Arrow schema of each input, in input order."""
    time_columns: tuple[str, ...]
    arrival_columns: tuple[str, ...] | None
    unit: str
    """Finest time unit of the inputs: one tick."""
    windows: tuple[int, ...]
    disorder: DisorderStrategy
    join: JoinStrategy
    shedding: SheddingStrategy

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: self.__dict__[field.name] for field in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return tuple(self.schemas)

    @cached_property
    def condition(self) -> Condition:
        """The condition, bound to the inputs."""
        return Condition(self.config.where, self.schemas)

    @property
    def side_outputs(self) -> tuple[str, ...]:
        """Names of the outputs besides the main one."""
        return ("late", "punctuations", "metrics")

    def shard_cells(self, which: int) -> list[Cell]:
        """Columns of input ``which`` that decide on a row's shard."""
        cells = self.condition.shard_columns
        return [] if cells is None else [cells[which]]

    @cached_property
    def setting(self) -> Setting:
        """What the strategies' logic objects are built with."""
        counts_only = self.config.output == "counts"
        return Setting(self.inputs, self.windows, self.condition, counts_only, NANOS[self.unit])

    @cached_property
    def result_schema(self) -> pa.Schema:
        """Schema of the main output."""
        ts = pa.field("ts", self.time_type)
        if self.config.output == "counts":
            return pa.schema([ts, pa.field("count", pa.int64())])
        columns = [
            pa.field(f"{name}_{field.name}", field.type)
            for name, schema in self.schemas.items()
            for field in schema
        ]
        return pa.schema([*columns, ts])

    def result_batch(self, columns: list[Any], ts: pa.Array) -> pa.RecordBatch:
        """Return results as rows: the columns of every input's member, and the results' timestamps."""
        return pa.RecordBatch.from_arrays([*columns, ts], schema=self.result_schema)

    @property
    def watermark_columns(self) -> tuple[str, ...] | None:
        """Column of each input that the disorder strategy reads watermarks from."""
        given = self.disorder.watermark_columns
        return given if given is None else _columns(given, self.schemas, "disorder", "watermark")

    @property
    def time_type(self) -> pa.DataType:
        """Type of a result's ``ts``: int64, or the finest of the inputs' timestamps."""
        types = [s.field(c).type for s, c in zip(self.schemas.values(), self.time_columns, strict=True)]
        zones = [t.tz for t in types if pa.types.is_timestamp(t)]
        if zones or any(pa.types.is_date(t) for t in types):
            return pa.timestamp(self.unit, zones[0] if zones else None)
        return pa.int64()


def bind(config: JoinConfig, schemas: Mapping[str, pa.Schema]) -> JoinPlan:
    """Check settings against the inputs; raise ConfigError with the path of the setting at fault."""
    names = tuple(schemas)
    if not MIN_INPUTS <= len(names) <= MAX_INPUTS:
        raise ConfigError(f"needs {MIN_INPUTS} to {MAX_INPUTS} inputs, got {len(names)}", "input")
    for name, schema in schemas.items():
        twice = sorted({column for column in schema.names if schema.names.count(column) > 1})
        if twice:
            raise ConfigError(f"input {name!r} has several columns called {twice[0]!r}; rename one", "input")
    time_columns, arrival, unit = bind_times(config, schemas)
    plan = JoinPlan(
        config=config,
        schemas=dict(schemas),
        time_columns=time_columns,
        arrival_columns=arrival,
        unit=unit,
        windows=_windows(config, names, unit),
        disorder=bind_disorder(config, schemas),
        join=make_strategy("join", config.join),
        shedding=make_strategy("shedding", config.shedding),
    )
    try:
        condition = plan.condition
    except ExpressionError as error:
        raise ConfigError(str(error), "where") from None
    if config.shards > 1 and condition.shard_columns is None:
        why = "links no key across all inputs" if condition.connected else "does not connect all inputs"
        raise ConfigError(
            f"the condition {why}, so rows cannot be split by key; use shards: 1 or add an equality "
            "over all inputs",
            "shards",
        )
    columns = [field.name for field in plan.result_schema]
    clash = next((column for column in columns if columns.count(column) > 1), None)
    if clash is not None:
        raise ConfigError(f"two result columns would be called {clash!r}; rename an input or a column", "input")
    return plan


def bind_times(
    config: OperatorConfig, schemas: Mapping[str, pa.Schema]
) -> tuple[tuple[str, ...], tuple[str, ...] | None, str]:
    """Return event-time columns, arrival columns and the unit of time; raise ConfigError if they do not fit."""
    time_columns = _columns(config.time, schemas, "time")
    arrival = None if config.arrival is None else _columns(config.arrival, schemas, "arrival")
    if arrival is not None:
        for name, column in zip(schemas, arrival, strict=True):
            _check_arrival(name, column, schemas[name])
    return time_columns, arrival, _time_unit(config, schemas, time_columns)


def bind_disorder(config: OperatorConfig, schemas: Mapping[str, pa.Schema]) -> DisorderStrategy:
    """Return the disorder strategy; raise ConfigError if the inputs lack what it reads.

    Settings that state a recall and name no strategy mean ``RECALL_STRATEGY``.
    """
    named = {"strategy": RECALL_STRATEGY} if "recall" in config.disorder else {}
    strategy: DisorderStrategy = make_strategy("disorder", {**named, **config.disorder})
    if strategy.learns_from_results and len(schemas) < MIN_INPUTS:
        raise ConfigError(
            f"strategy {strategy.name!r} learns from the results of joins, and there is one input; use another, "
            "such as drop_ratio or quality_driven",
            "disorder",
        )
    if strategy.reads_clock and config.arrival is None:
        raise ConfigError(
            f"strategy {strategy.name!r} needs times of arrival; name their column with arrival", "disorder"
        )
    if strategy.watermark_columns is not None:
        where = ("disorder", "watermark")
        times = _columns(config.time, schemas, "time")
        columns = _columns(strategy.watermark_columns, schemas, *where)
        for (name, schema), time, column in zip(schemas.items(), times, columns, strict=True):
            kind, wanted = (_kind(schema.field(c).type) for c in (column, time))
            if kind is None or {kind, wanted} == {"integer", "timestamp"}:
                raise ConfigError(
                    f"column {column!r} of input {name!r} must be of the same kind as its time {time!r}, "
                    f"{schema.field(time).type}, got {schema.field(column).type}",
                    *where,
                )
    return strategy


def _kind(type_: pa.DataType) -> str | None:
    """What a column of times is made of; text and empty columns may hold any."""
    if pa.types.is_null(type_) or pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return "any"
    if pa.types.is_integer(type_):
        return "integer"
    return "timestamp" if pa.types.is_timestamp(type_) or pa.types.is_date(type_) else None


def _columns(given: str | Mapping[str, str], schemas: Mapping[str, pa.Schema], *setting: str) -> tuple[str, ...]:
    if not isinstance(given, str):
        _same_inputs(given, tuple(schemas), *setting)
    columns = tuple(given if isinstance(given, str) else given[name] for name in schemas)
    for (name, schema), column in zip(schemas.items(), columns, strict=True):
        if column not in schema.names:
            raise ConfigError(
                f"input {name!r} has no column {column!r}; it has {', '.join(schema.names)}", *setting
            )
    return columns


def _same_inputs(given: Mapping[str, Any], names: Sequence[str], *setting: str) -> None:
    for name in names:
        if name not in given:
            raise ConfigError(f"says nothing of input {name!r}; add it", *setting)
    for name in given:
        if name not in names:
            raise ConfigError(f"names no input; the inputs are {', '.join(names)}", *setting, name)


def _check_arrival(name: str, column: str, schema: pa.Schema) -> None:
    type_ = schema.field(column).type
    if not (pa.types.is_integer(type_) or pa.types.is_timestamp(type_) or pa.types.is_null(type_)):
        raise ConfigError(f"column {column!r} of input {name!r} must be an integer, got {type_}", "arrival")


def _time_unit(config: OperatorConfig, schemas: Mapping[str, pa.Schema], columns: Sequence[str]) -> str:
    """Return the finest unit of the inputs' event times, which must all be integers or all be times."""
    types = {name: s.field(c).type for (name, s), c in zip(schemas.items(), columns, strict=True)}
    kinds: dict[str, str] = {}
    units: list[str] = []
    for (name, type_), column in zip(types.items(), columns, strict=True):
        if pa.types.is_null(type_) or pa.types.is_string(type_) or pa.types.is_large_string(type_):
            continue
        if pa.types.is_integer(type_):
            kinds.setdefault("integer", name)
            units.append(config.time_unit)
        elif pa.types.is_timestamp(type_) or pa.types.is_date(type_):
            kinds.setdefault("timestamp", name)
            units.append(type_.unit if pa.types.is_timestamp(type_) else "ms")
        else:
            raise ConfigError(
                f"column {column!r} of input {name!r} must be an integer, a timestamp or a date, got {type_}",
                "time",
            )
    if len(kinds) > 1:
        raise ConfigError(
            f"input {kinds['integer']!r} has integer times and input {kinds['timestamp']!r} has timestamps; "
            "store both the same way, or name columns that agree",
            "time",
        )
    return min(units, key=lambda u: NANOS[u], default=config.time_unit)


def _windows(config: JoinConfig, names: Sequence[str], unit: str) -> tuple[int, ...]:
    closed = "both"
    sizes: dict[str, Any]
    if isinstance(config.window, Duration):
        sizes = dict.fromkeys(names, config.window)
    else:
        sizes = dict(config.window)
        closed = sizes.pop("closed", "both")
        if closed not in ("both", "right"):
            raise ConfigError(f"must be both or right, got {closed!r}", "window", "closed")
        if set(sizes) == {"size"}:
            sizes = dict.fromkeys(names, sizes["size"])
        _same_inputs(sizes, names, "window")
    ticks = []
    for name in names:
        path = ("window",) if isinstance(config.window, Duration) else ("window", name)
        try:
            size = Duration.parse(sizes[name])
        except ValueError as error:
            raise ConfigError(str(error), *path) from None
        ticks.append(whole_ticks(size, unit, *path) - (closed == "right"))
    return tuple(ticks)


def whole_ticks(size: Duration, unit: str, *path: str) -> int:
    """Return a length of time in ticks; raise ConfigError unless it is a whole number of them, and not 0."""
    if size <= 0:
        raise ConfigError(f"must be longer than 0, got {size}", *path)
    if size % NANOS[unit]:
        raise ConfigError(f"must be a whole number of {unit}, the unit of the event times, got {size}", *path)
    return size // NANOS[unit]


def make_strategy(stage: str, options: Mapping[str, Any]) -> Any:
    """Return the strategy that settings describe; raise ConfigError naming the option at fault."""
    try:
        return manager().create(stage, options)
    except OptionError as error:
        path = (stage,) if error.option is None else (stage, error.option)
        raise ConfigError(str(error), *path) from None
