"""The settings of all transforms of ours, as they stand in a template or in Python code."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, field_validator

from slackwater.plugins.registry import builtin
from slackwater.plugins.registry.field_docs import Documented
from slackwater.plugins.registry.manager import option_path
from slackwater.plugins.registry.options import Duration, Rows
from slackwater.transforms.errors import ArgumentError, ConfigError

TimeUnit = Literal["s", "ms", "us", "ns"]
GROUP_CLOSE_INPUTS: Final = ("rows", "punctuations")
"""Names of the inputs of GroupClose. At the same event time, rows come before punctuations."""

OTHER_OUTPUTS: Final = ("out", "output", "main", "results", "good", "punctuations", "metrics", "syncs")
"""Names that outputs with other things than late rows have."""
MIN_INPUTS, MAX_INPUTS = 2, 8
"""Inputs of operators whose inputs have names of the user's own."""
SHED_INPUTS: Final = ("rows", "partners")
"""Names of the inputs of Shed; the second may lack, and is only looked at."""


def _off(given: Any) -> Any:
    """Return ``none`` for what YAML makes of none and off."""
    return "none" if given is False or given == "off" else given


_Limit = Annotated[
    Duration | Literal["none"] | None,
    BeforeValidator(_off, json_schema_input_type=Duration | Literal["none", "off", False] | None),
]


class Settings(Documented):
    """Settings of a transform or a function, validated as a whole."""

    @classmethod
    def read(cls, settings: dict[str, Any]) -> Self:
        """Validate raw settings; raise ConfigError that names the setting at fault."""
        try:
            return cls.model_validate(settings)
        except ValidationError as error:
            raise config_error(error, cls) from None


class GuardConfig(Documented):
    """Limits on event times; rows beyond them go to the late output instead of the join."""

    past: _Limit = None
    """refuse rows that are older than their input's newest row by more than this (reason too_late); default:
    single rows that are five years older; none: no row"""
    future: _Limit = None
    """refuse single rows that are ahead of every input by more than this (reason future_time); default: a year;
    none: no row"""


NO_GUARD: Final = GuardConfig(past="none", future="none")


def _guard(given: Any) -> Any:
    return NO_GUARD if _off(given) == "none" else given


class ErrorHandlingConfig(Documented):
    """Output for rows that could not be processed, as Beam YAML writes it."""

    output: str = Field(pattern=r"^[^.\s]+$")
    """name of the output with the late rows, instead of late; something must read it"""

    @field_validator("output")
    @classmethod
    def _free(cls, name: str) -> str:
        if name in OTHER_OUTPUTS:
            raise ValueError(f"must be a name of its own, not that of another output, got {name!r}")
        return name


class OperatorConfig(Settings):
    """Settings of every transform that uses event time."""

    time: str | dict[str, str]
    """event-time column, one name for all inputs or {input: column}; integer, timestamp or date"""
    time_unit: TimeUnit = "ms"
    """unit of integer event times: s, ms, us or ns"""
    error_handling: ErrorHandlingConfig | None = None
    """{output: name} gives the output late another name, as Beam YAML does for rows that could not be processed;
    something must read it"""

    @classmethod
    def of_keywords(cls, settings: Mapping[str, Any]) -> Self:
        """As ``read``, of keyword arguments: None means that a setting is left out."""
        return cls.read({name: value for name, value in settings.items() if value is not None})


class DisorderConfig(OperatorConfig):
    """Settings of every transform that puts rows in order."""

    arrival: str | dict[str, str] | None = None
    """column with the order of arrival over all inputs, or {input: column}; integers or times. Default for files:
    their order, inputs merged by progress, the largest event time so far. Default for PCollections and batch
    DataFrames: bounded inputs are taken in order of event time, so that no row is late, and unbounded ones in the
    order of delivery"""
    disorder: dict[str, Any] = Field(default_factory=lambda: {"strategy": builtin.DISORDER})
    """disorder strategy and its options, such as {strategy: fixed, slack: 2s}; {recall: 0.99} alone means the
    strategy result_slack"""
    guard: Annotated[
        GuardConfig,
        BeforeValidator(_guard, json_schema_input_type=GuardConfig | Literal["none", "off", False]),
    ] = GuardConfig()
    """limits on event times, {past: 1d, future: 1h}, or none; rows beyond them are late. Default: only rows whose
    clock must be wrong"""
    metrics: Duration | None = None
    """stream time between two rows of the output metrics; strategies that adapt report whenever they do"""
    idle_timeout: Duration | None = None
    """in live runs, how long an input may be silent before rows of other inputs stop waiting for it; default:
    forever"""


class PunctuationConfig(Documented):
    """Rows that are punctuations: no later row of an input matches them."""

    input: str
    """the input that they speak of"""
    when: str | None = None
    """SQL condition on its columns that is true for its punctuations only"""
    source: str | None = None
    """instead of when: another input that has only punctuations, and joins nothing"""
    key: str | list[str] | dict[str, str] = Field(default_factory=list)
    """column or columns whose value in the punctuation is finished; {column: column of the source}"""
    values: dict[str, str] = Field(default_factory=dict)
    """column of which several values are finished: the column of the punctuation that lists them"""
    range: dict[str, dict[Literal["from", "to"], str]] = Field(default_factory=dict)
    """column of which a range of values is finished: {from: column, to: column}, both included; one may
    be absent"""


class HotKeysConfig(Documented):
    """Values of the key so frequent that one shard would have most of the work."""

    input: str
    """the input whose rows with these values are spread over shards; rows of other inputs are copied to each"""
    values: list[Any] = Field(min_length=1)
    """values of the key that all inputs share"""
    split: int | None = Field(default=None, ge=2, le=4096)
    """shards that each value is spread over; default: all"""


def _listed(given: Any) -> Any:
    return [given] if isinstance(given, dict | PunctuationConfig) else given


def _rows(given: Any) -> Any:
    return Rows.parse(given) if Rows.meant(given) else given


def _texts(given: Any) -> Any:
    return [given] if isinstance(given, str) else given


_Columns = Annotated[
    list[str | list[str]], BeforeValidator(_texts, json_schema_input_type=str | list[str | list[str]])
]
_Texts = Annotated[list[str], BeforeValidator(_texts, json_schema_input_type=str | list[str])]


class ReorderConfig(DisorderConfig):
    """Settings of Reorder: rows out in order of event time, rows that came too late beside."""


class JoinConfig(DisorderConfig):
    """Settings of one sliding window join."""

    window: Annotated[
        Duration | Rows | dict[str, Any] | None,
        BeforeValidator(_rows, json_schema_input_type=Duration | Rows | dict[str, Any] | None),
    ] = None
    """how far back a row may be to be joined: one duration, {input: duration}, or {size: 5s, closed: right}; or
    the last rows of each input: 400 rows, or {input: 400 rows}; some join strategies need no window"""
    where: str | None = None
    """join condition in SQL, such as orders.id = clicks.order_id; without it, all rows within the windows join"""
    join: dict[str, Any] = Field(default_factory=lambda: {"strategy": builtin.JOIN})
    """join strategy and its options"""
    shedding: dict[str, Any] = Field(default_factory=lambda: {"strategy": builtin.SHEDDING})
    """shedding strategy and its options"""
    output: Literal["rows", "counts"] = "rows"
    """joined rows, or the number of results per timestamp"""
    id: str | None = Field(default=None, min_length=1)
    """name of a text column that identifies each result (in Beam, within its window) and is the same after a
    restart: the shard, and the number of each member among its input's rows in that shard"""
    shards: int = Field(default=1, ge=1, le=4096)
    """parts that the join is split into, by key or else by bands of numbers or by arrival; they run in
    parallel"""
    hot_keys: HotKeysConfig | None = None
    """frequent values of the key, to be spread over shards: {input: orders, values: [17, 42], split: 4}"""
    archive: str | None = None
    """directory for every row whose results were missed, and the rows that it could have joined, for reconcile"""
    punctuations: Annotated[
        list[PunctuationConfig],
        BeforeValidator(_listed, json_schema_input_type=PunctuationConfig | list[PunctuationConfig]),
    ] = Field(default_factory=list)
    """rows that are punctuations, {input: name, when: condition, key: column}, or a list of such;
    {source: name, input: name, key: column} for an input that has only punctuations"""
    unique: _Columns = Field(default_factory=list)
    """columns in which no value comes twice, as input.column or a list; [[a.x, a.y]] in which no pair does"""
    clustered: _Columns = Field(default_factory=list)
    """columns whose equal values follow each other, as for unique"""
    ordered: _Texts = Field(default_factory=list)
    """columns whose values never fall in order of event time, as input.column or a list; with desc after it,
    never rise"""
    foreign_key: _Texts = Field(default_factory=list)
    """columns that refer to others, such as bids.item -> auctions.id, or a list: auctions.id is unique and has
    every bids.item"""


class PromisesConfig(Settings):
    """What is said of later rows of inputs, apart from the other settings of a join."""

    punctuations: list[PunctuationConfig] = Field(default_factory=list)
    """rows that are punctuations"""
    unique: _Columns = Field(default_factory=list)
    """columns of which no value comes twice"""
    clustered: _Columns = Field(default_factory=list)
    """columns whose equal values follow each other"""
    ordered: _Texts = Field(default_factory=list)
    """columns whose values never fall, or never rise"""
    foreign_key: _Texts = Field(default_factory=list)
    """columns that refer to others"""


class PunctuateConfig(DisorderConfig):
    """Settings of Punctuate: rows in order of event time, and punctuations that follow from them."""

    time: str
    """event-time column; integer, timestamp or date"""
    when: str | None = None
    """SQL condition that is true for punctuations only, such as kind = 'closed'"""
    key: str | list[str] = Field(default_factory=list)
    """column or columns whose value in such a row is finished"""
    unique: _Columns = Field(default_factory=list)
    """column in which no value comes twice, so a value is finished when it has come, or a list; [[x, y]] in which
    no pair does"""
    clustered: _Columns = Field(default_factory=list)
    """column whose equal values follow each other, so a value is finished when another comes; as for unique"""
    ordered: _Texts = Field(default_factory=list)
    """column whose values never fall in order of event time, so all values below one that came are finished, or a
    list; with desc after it, never rise"""
    progress: Duration | None = None
    """smallest step of event time between two punctuations that say how far it has come, such as 10s"""


class ShedConfig(OperatorConfig):
    """Settings of Shed: no more rows than the next step can process, those that are worth most."""

    rate: float = Field(ge=0.01, le=1e9)
    """rows that pass per second of the arrival column, or of event time if none is named"""
    queue: int = Field(default=1000, ge=1, le=10_000_000)
    """rows that may wait; when the queue is full, the row that is worth least is shed"""
    arrival: str | dict[str, str] | None = None
    """column with the order and the time of arrival over all inputs, or {input: column}. Default for files: their
    order, inputs merged by progress, the largest event time so far. Default for PCollections and batch
    DataFrames: bounded inputs are taken in order of event time, and unbounded ones in the order of delivery"""
    arrival_unit: TimeUnit | None = None
    """unit of an arrival column of integers; default: the unit of the event times"""
    shedding: dict[str, Any] = Field(default_factory=lambda: {"strategy": builtin.LOAD})
    """shedding strategy, which says what a row is worth, and its options except memory and queue:
    {strategy: random}, {strategy: prob, weight: price}, or {strategy: prob} with partners"""
    where: str | None = None
    """condition in SQL between a row and its partners, such as rows.id = partners.id, for strategies that score a
    row by its partners"""
    idle_timeout: Duration | None = None
    """in live runs, how long inputs may be silent before all waiting rows pass; default: forever"""


class AggregateConfig(DisorderConfig):
    """Settings of one sliding window aggregate."""

    range: Duration
    """how much time a window extent covers, such as 5m"""
    slide: Duration | None = None
    """time from one extent to the next; default: the range"""
    group_by: str | list[str] = Field(default_factory=list)
    """columns to group by; none makes one group of all rows"""
    aggregates: dict[str, str]
    """new columns, {name: aggregate}, such as {cars: count(*), speed: avg(speed)}; an aggregate is count(*), or
    count, sum, avg, min or max of a column or an expression"""
    having: str | None = None
    """SQL condition on the group columns and the aggregates; other groups are left out"""
    shards: int = Field(default=1, ge=1, le=4096)
    """parts that the groups are split into; they run in parallel"""


class GroupCloseConfig(OperatorConfig):
    """Settings of GroupClose: aggregates per group, emitted as soon as the group is finished."""

    time: str
    """event-time column of the rows; integer, timestamp or date"""
    by: str | list[str]
    """column or columns to group by"""
    aggregates: dict[str, str]
    """new columns, {name: aggregate}, such as {cars: count(*), speed: avg(speed)}; an aggregate is count(*), or
    count, sum, avg, min or max of a column or an expression"""
    window: Duration | None = None
    """how long after its first row a group is open at most, such as 12h, both ends included; default: no limit"""
    same: dict[str, str] = Field(default_factory=dict)
    """columns that always equal a by column, {column: by column}; known already if rows come straight from a
    join"""
    idle_timeout: Duration | None = None
    """in live runs, how long inputs may be silent before punctuations close groups without waiting for a row
    after them; default: forever"""
    shards: int = Field(default=1, ge=1, le=4096)
    """parts that the groups are split into; they run in parallel"""


class ChooseValuesConfig(OperatorConfig):
    """Settings of ChooseValues: which tuples of stored relations to request when not all can be fetched."""

    k: int | dict[str, int]
    """how many tuples to request, overall or {input: number}; all tuples if there are fewer"""
    value: str = "value"
    """column of the summaries with the join value"""
    count: str = "count"
    """column of the summaries with the number of tuples that have the value"""
    method: Literal["optdp", "adg", "ndg", "each"] | None = None
    """how to choose: optdp is best and slow; adg (k overall), ndg and each (k for each input) are greedy;
    default: adg or ndg, and each for more than two inputs"""
    leave_out: bool = False
    """whether k is how many tuples not to request"""


def config_error(error: ValidationError, model: type[BaseModel]) -> ConfigError:
    """Return the first fault of a validation in one sentence."""
    faults = error.errors()
    first = next((f for f in faults if f["type"] == "extra_forbidden"), faults[0])
    path = option_path(first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        return ArgumentError(f"is not a setting; {_remedy(path, model)}", *path)
    if first["type"] == "missing":
        return ArgumentError("is missing; add it", *path)
    if " got " not in message:
        message = f"{message[0].lower()}{message[1:]}, got {first['input']!r}"
    return ConfigError(message, *path)


def _remedy(path: tuple[str, ...], model: type[BaseModel]) -> str:
    """Return what to write instead of an unknown setting."""
    if len(path) > 1:
        return "remove it or check the spelling"
    known = [field.alias or name for name, field in model.model_fields.items()]
    nearest = "".join(f"; did you mean {name}?" for name in get_close_matches(path[0], known, 1))
    return f"known settings: {', '.join(known)}{nearest}"
