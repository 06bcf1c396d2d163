"""Operators bound to their inputs: settings checked against the columns that are really there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from slackwater.plugins.contract import (
    DisorderStrategy,
    Finished,
    JoinStrategy,
    Metadata,
    Pattern,
    Setting,
    SheddingStrategy,
    Strategy,
)
from slackwater.plugins.registry import builtin
from slackwater.plugins.registry.manager import OptionError, instead, manager
from slackwater.plugins.registry.options import Duration
from slackwater.plugins.shedding.queue_options import Queue
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.expressions.condition import Cell, Condition
from slackwater.transforms.expressions.tree import ExpressionError
from slackwater.transforms.output.archive_directory import bind_archive
from slackwater.transforms.punctuation.marks import (
    PUNCTUATION_SCHEMA,
    Mark,
    bind_marks,
    check_punctuations,
    check_sources,
    named_columns,
    sources_of,
)
from slackwater.transforms.punctuation.metadata import (
    ForeignKey,
    bind_foreign_keys,
    bind_metadata,
    check_metadata,
    derived_patterns,
    promised_columns,
)
from slackwater.transforms.settings.columns import (
    bind_times,
    check_queue,
    columns_of,
    kind_of_times,
    rows_of,
    windows_of,
)
from slackwater.transforms.settings.frequencies import key_frequencies, read_frequencies
from slackwater.transforms.settings.limits import check_limits
from slackwater.transforms.settings.models import (
    MAX_INPUTS,
    MIN_INPUTS,
    NO_GUARD,
    DisorderConfig,
    GuardConfig,
    JoinConfig,
    OperatorConfig,
)
from slackwater.transforms.settings.time_unit import NANOS, arrival_nanos

if TYPE_CHECKING:
    from slackwater.transforms.sharding.scheme import Partitioning


ARRIVAL: Final = "__arrival"
"""Hidden int64 column that sources add, a row's place within its input: file number << 40 | row in file."""

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
_SIDE_SCHEMAS: Final = {"late": LATE_SCHEMA, "metrics": METRICS_SCHEMA, "punctuations": PUNCTUATION_SCHEMA}
INPUT: Final = "input"
"""Name of the input of operators with one, in messages and in the late output."""
REASONS: Final = ("too_late", "shed", "bad_record", "future_time", "punctuation_violated")


@dataclass(frozen=True)
class Plan:
    """An operator's settings bound to its inputs: what every engine needs to drive its shards.

    Travels to workers by pickle; what is derived from the fields is derived again there.
    """

    config: OperatorConfig
    schemas: dict[str, pa.Schema]
    """Arrow schema of each input."""
    time_columns: tuple[str, ...]
    arrival_columns: tuple[str, ...] | None
    unit: str
    """Finest time unit of the inputs: one tick."""
    disorder: DisorderStrategy

    side_outputs: ClassVar[tuple[str, ...]] = ("late",)
    """Names of the outputs besides the main one."""
    by_time: ClassVar[bool] = False
    """Whether the inputs are merged by event time, not by arrival."""
    without_rows: ClassVar[Mapping[str, str]] = {}
    """What to tell users of inputs that had no rows, where it is not that nothing could be joined."""

    def __reduce__(self) -> Any:
        return _plan_of, (type(self), {field.name: getattr(self, field.name) for field in fields(self)})

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs, sources of punctuations included."""
        return tuple(self.schemas)

    @property
    def members(self) -> tuple[str, ...]:
        """Names of the inputs whose progress counts, which come before the others."""
        return self.inputs

    @property
    def counts_as(self) -> tuple[int, ...]:
        """For each input the member that its rows are arrivals of: itself, or what a source speaks of."""
        return tuple(range(len(self.inputs)))

    @property
    def marks(self) -> tuple[Mark, ...]:
        """The kinds of punctuations among the inputs' rows."""
        return ()

    def source_columns(self, which: int) -> dict[int, str] | None:
        """For a source of punctuations, its column for each cell of what it speaks of; None for a member."""
        return None

    @property
    def shards(self) -> int:
        """Parts that the operator is split into."""
        return 1

    @property
    def guard(self) -> GuardConfig:
        """Limits on event times."""
        return NO_GUARD

    @property
    def idle_timeout(self) -> Duration | None:
        """In live runs, how long an input may be silent before nothing waits for it; None for ever."""
        return None

    @property
    def queue(self) -> Queue | None:
        """The queue that rows wait in before the operator takes them, where there is one."""
        return None

    @cached_property
    def condition(self) -> Condition:
        """The columns that the stages read of rows; of a join also when rows match."""
        return Condition(None, self.schemas)

    @cached_property
    def setting(self) -> Setting:
        """What the strategies' logic objects are built with; without windows, rows meet those of their time."""
        return Setting(
            self.members,
            (0,) * len(self.members),
            self.condition,
            counts_only=False,
            nanos_per_tick=NANOS[self.unit],
            arrival_nanos=arrival_nanos(None if self.by_time else self.arrival_columns, self.schemas),
        )

    @cached_property
    def partitioning(self) -> Partitioning:
        """How rows are split over shards."""
        # Schemes work on batches, which is of no use to who only checks a template with one shard.
        from slackwater.transforms.sharding.scheme import OneShard

        return OneShard(self)

    @property
    def result_schema(self) -> pa.Schema:
        """Schema of the main output."""
        raise NotImplementedError

    def output_schema(self, output: str = "") -> pa.Schema:
        """Schema of an output; the main one has no name."""
        return _SIDE_SCHEMAS.get(output, self.result_schema)

    @property
    def result_time(self) -> str:
        """Column of the main output with the event time of its rows."""
        return "ts"

    def in_time_order(self, output: str = "") -> bool:
        """Whether the rows of an output leave a shard in order of event time, from the first to the last."""
        return False

    @property
    def order_matters(self) -> bool:
        """Whether results depend on the order in which rows are given."""
        return True

    @property
    def watermark_columns(self) -> tuple[str, ...] | None:
        """Column of each input that the disorder strategy reads watermarks from."""
        given = self.disorder.watermark_columns
        return given if given is None else columns_of(given, self.schemas, "disorder", "watermark")

    @property
    def time_type(self) -> pa.DataType:
        """Type of a result's ``ts``: int64, or the finest of the inputs' timestamps."""
        types = [s.field(c).type for s, c in zip(self.schemas.values(), self.time_columns, strict=True)]
        zones = [t.tz for t in types if pa.types.is_timestamp(t)]
        if zones or any(pa.types.is_date(t) for t in types):
            return pa.timestamp(self.unit, zones[0] if zones else None)
        return pa.int64()


def strategies_of(plan: Plan) -> list[str]:
    """Names of the strategies; snapshots note them, as the state of one may look like that of another."""
    parts = (getattr(plan, field.name) for field in fields(plan))
    strategies = [part for part in parts if isinstance(part, Strategy)]
    return [part.name for part in sorted(strategies, key=lambda part: part.stage)]


def _plan_of(kind: type[Plan], parts: dict[str, Any]) -> Plan:
    return kind(**parts)


@dataclass(frozen=True)
class DisorderPlan(Plan):
    """A plan of an operator that puts rows in order, or waits until it may take them to be."""

    config: DisorderConfig

    @property
    def guard(self) -> GuardConfig:
        return self.config.guard

    @property
    def idle_timeout(self) -> Duration | None:
        return self.config.idle_timeout


@dataclass(frozen=True)
class SheddingPlan(Plan):
    """A plan of an operator that may shed rows."""

    shedding: SheddingStrategy
    frequencies: dict[str, pa.Table] = field(default_factory=dict, kw_only=True)
    """What the option ``frequencies`` of the shedding strategy names."""

    @property
    def queue(self) -> Queue | None:
        return self.shedding.stated_queue

    def weighed(self, condition: Condition) -> Condition:
        """Return the condition, told what results are worth to the shedding strategy."""
        weight = self.shedding.stated_weight
        if weight is not None:
            try:
                condition.weigh(weight)
            except ExpressionError as error:
                raise ConfigError(str(error), "shedding", "weight") from None
        return condition


@dataclass(frozen=True)
class JoinPlan(SheddingPlan, DisorderPlan):
    """A join bound to its inputs: the members in their order, then the sources of punctuations."""

    config: JoinConfig
    windows: tuple[int, ...]
    join: JoinStrategy

    side_outputs: ClassVar[tuple[str, ...]] = ("late", "punctuations", "metrics")

    @cached_property
    def member_schemas(self) -> dict[str, pa.Schema]:
        """Arrow schema of each input that is joined."""
        sources = sources_of(self.config)
        return {name: schema for name, schema in self.schemas.items() if name not in sources}

    @property
    def members(self) -> tuple[str, ...]:
        """Names of the inputs that are joined, which come before the others."""
        return tuple(self.member_schemas)

    @cached_property
    def counts_as(self) -> tuple[int, ...]:
        spoken_of = sources_of(self.config)
        return tuple(self.members.index(spoken_of.get(name, name)) for name in self.inputs)

    def source_columns(self, which: int) -> dict[int, str] | None:
        if which < len(self.members):
            return None
        (mark,) = [mark for mark in self.marks if mark.source == which]
        return dict(zip(mark.pattern.cells, mark.key, strict=False))

    @property
    def shards(self) -> int:
        return self.config.shards

    @cached_property
    def condition(self) -> Condition:
        """The condition, bound to the inputs, and what results are worth to the shedding strategy."""
        also = [*named_columns(self.config), *promised_columns(self.config)]
        return self.weighed(Condition(self.config.where, self.member_schemas, also))

    @cached_property
    def marks(self) -> tuple[Mark, ...]:
        return bind_marks(self.config, self.schemas, self.condition)

    @cached_property
    def metadata(self) -> tuple[Metadata, ...]:
        """What is promised of the inputs."""
        return bind_metadata(self.config, self.condition)

    @cached_property
    def derived(self) -> list[tuple[str, Pattern]]:
        """The kinds of punctuations that follow from what is promised; they come after those of ``marks``."""
        return derived_patterns(self.metadata)

    @cached_property
    def foreign_keys(self) -> tuple[ForeignKey, ...]:
        """Columns of inputs that refer to others."""
        return bind_foreign_keys(self.config, self.condition, self.derived, len(self.marks))

    def punctuation_batch(self, encoder: Any, finished: Sequence[Finished]) -> pa.RecordBatch:
        """Return what the join proved finished as rows of the output ``punctuations``."""
        from slackwater.transforms.punctuation.propagation import finished_batch

        return finished_batch(self, encoder, finished)

    @property
    def equal_columns(self) -> list[list[str]]:
        """Columns of the main output that the condition makes equal in every row."""
        return [
            [f"{self.inputs[i]}_{self.condition.columns[i][cell].column}" for i, cell in members.items()]
            for members in self.condition.classes
        ]

    def shard_cells(self, which: int) -> list[Cell]:
        """Columns of input ``which`` that decide on a row's shard."""
        cells = self.condition.shard_columns
        if cells is None:
            return []
        member = self.counts_as[which]
        own = self.source_columns(which)
        if own is None:
            return [cells[member]]
        column = own[self.condition.columns[member].index(cells[member])]
        return [replace(cells[member], column=column)]

    @cached_property
    def partitioning(self) -> Partitioning:
        from slackwater.transforms.sharding.choice import choose_partitioning

        return choose_partitioning(self)

    def explain(self) -> str:
        """Return what the join does, and how and why its rows are split over shards so."""
        from slackwater.transforms.settings.explanation import explained

        return explained(self)

    @cached_property
    def setting(self) -> Setting:
        """What the strategies' logic objects are built with."""
        patterns = (*(mark.pattern for mark in self.marks), *(pattern for _, pattern in self.derived))
        return Setting(
            self.members,
            self.windows,
            self.condition,
            self.config.output == "counts",
            NANOS[self.unit],
            patterns,
            self.metadata,
            key_frequencies(self.frequencies, self.condition, self.member_schemas),
            rows_of(self.config, self.members),
            arrival_nanos(self.arrival_columns, self.schemas),
        )

    @cached_property
    def result_schema(self) -> pa.Schema:
        ts = pa.field("ts", self.time_type)
        if self.config.output == "counts":
            return pa.schema([ts, pa.field("count", pa.int64())])
        columns = [
            pa.field(f"{name}_{field.name}", field.type)
            for name, schema in self.member_schemas.items()
            for field in schema
        ]
        ids = [] if self.config.id is None else [pa.field(self.config.id, pa.string())]
        return pa.schema([*columns, ts, *ids])

    def result_batch(self, columns: list[Any], *beside: pa.Array) -> pa.RecordBatch:
        """Return results as rows: the columns of every input's member, the timestamps, the ids if any."""
        return pa.RecordBatch.from_arrays([*columns, *beside], schema=self.result_schema)

    def in_time_order(self, output: str = "") -> bool:
        return self.config.window is not None and output in ("", "punctuations")


def bind(
    config: JoinConfig, schemas: Mapping[str, pa.Schema], equal: Collection[Collection[str]] = ()
) -> JoinPlan:
    """Check settings against the inputs; raise ConfigError with the path of the setting at fault."""
    members = check_sources(config, schemas)
    names = tuple(members)
    if len(names) < MIN_INPUTS or len(schemas) > MAX_INPUTS:
        besides = f", {len(schemas) - len(names)} of them for punctuations" if len(names) < len(schemas) else ""
        raise ConfigError(f"needs {MIN_INPUTS} to {MAX_INPUTS} inputs, got {len(schemas)}{besides}", "input")
    schemas = {**members, **schemas}
    for name, schema in schemas.items():
        twice = sorted({column for column in schema.names if schema.names.count(column) > 1})
        if twice:
            raise ConfigError(f"input {name!r} has several columns called {twice[0]!r}; rename one", "input")
    time_columns, arrival, unit = bind_times(config, schemas)
    check_punctuations(config, schemas)
    check_metadata(config, members)
    config = bind_archive(config, schemas)
    plan = JoinPlan(
        config=config,
        schemas=dict(schemas),
        time_columns=time_columns,
        arrival_columns=arrival,
        unit=unit,
        windows=windows_of(config, names, unit),
        disorder=bind_disorder(config, schemas),
        join=make_strategy("join", config.join),
        shedding=make_strategy("shedding", config.shedding),
    )
    check_queue(plan.queue, arrival)
    _check_window(plan)
    try:
        condition = plan.condition
    except ExpressionError as error:
        raise ConfigError(str(error), "where") from None
    given = plan.shedding.stated_frequencies
    plan = replace(plan, frequencies=read_frequencies(given, condition, members))
    _ = plan.foreign_keys
    if config.id is not None and config.output == "counts":
        raise ConfigError("counts have one row per shard and timestamp, and no members; leave it out", "id")
    if config.shards > 1 or config.hot_keys is not None:
        from slackwater.transforms.sharding.choice import check_split

        check_split(plan)
    check_limits(plan)
    try:
        plan.join.check(plan.setting)
    except ValueError as error:
        raise ConfigError(str(error), "join") from None
    _check_result_columns(plan)
    return plan


def _check_window(plan: JoinPlan) -> None:
    """Raise ConfigError where a strategy cannot do with the window, or without one."""
    config = plan.config
    if config.window is None and plan.join.needs_window:
        raise ConfigError(f"is missing; strategy {plan.join.name!r} cannot do without, add it", "window")
    if config.window is not None and not plan.join.takes_window:
        raise ConfigError(
            f"strategy {plan.join.name!r} joins without one; leave window out, or use "
            f"{instead('join', lambda j: j.needs_window)}",
            "window",
        )
    if config.window is None and plan.disorder.learns_from_results:
        raise ConfigError(
            f"strategy {plan.disorder.name!r} looks for results within windows, and there are none; set window, "
            f"or use another, such as {instead('disorder', _looks_for_none)}",
            "disorder",
        )


def _check_result_columns(plan: JoinPlan) -> None:
    """Raise ConfigError if two columns of the main output would have one name."""
    columns = [field.name for field in plan.result_schema]
    clash = next((column for column in columns if columns.count(column) > 1), None)
    if clash is not None and clash == plan.config.id:
        raise ConfigError(f"there is a result column called {clash!r} already; choose another name", "id")
    if clash is not None:
        raise ConfigError(f"two result columns would be called {clash!r}; rename an input or a column", "input")


def _looks_for_none(strategy: DisorderStrategy) -> bool:
    """Whether a strategy follows the data and does without looking for results."""
    return strategy.has_target and not strategy.learns_from_results


def bind_disorder(config: DisorderConfig, schemas: Mapping[str, pa.Schema]) -> DisorderStrategy:
    """Return the disorder strategy; raise ConfigError if the inputs lack what it reads.

    Settings that state a recall and name no strategy mean ``builtin.RECALL``.
    """
    named = {"strategy": builtin.RECALL} if "recall" in config.disorder else {}
    strategy: DisorderStrategy = make_strategy("disorder", {**named, **config.disorder})
    if strategy.learns_from_results and len(schemas) < MIN_INPUTS:
        raise ConfigError(
            f"strategy {strategy.name!r} learns from the results of joins, and there is one input; use another, "
            f"such as {instead('disorder', _looks_for_none)}",
            "disorder",
        )
    if strategy.reads_clock and config.arrival is None:
        raise ConfigError(
            f"strategy {strategy.name!r} needs times of arrival; name their column with arrival", "disorder"
        )
    if strategy.watermark_columns is not None:
        where = ("disorder", "watermark")
        times = columns_of(config.time, schemas, "time")
        columns = columns_of(strategy.watermark_columns, schemas, *where)
        for (name, schema), time, column in zip(schemas.items(), times, columns, strict=True):
            kind, wanted = (kind_of_times(schema.field(c).type) for c in (column, time))
            if kind is None or {kind, wanted} == {"integer", "timestamp"}:
                raise ConfigError(
                    f"column {column!r} of input {name!r} must be of the same kind as its time {time!r}, "
                    f"{schema.field(time).type}, got {schema.field(column).type}",
                    *where,
                )
    return strategy


def make_strategy(stage: str, options: Mapping[str, Any]) -> Any:
    """Return the strategy that settings describe; raise ConfigError naming the option at fault."""
    try:
        return manager().create(stage, options)
    except OptionError as error:
        path = (stage,) if error.option is None else (stage, error.option)
        raise ConfigError(str(error), *path) from None
