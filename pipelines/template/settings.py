"""The settings of every transform that a template may hold, and how they become nodes' configs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeVar

import pyarrow as pa
from pydantic import BaseModel, Field, ValidationError

from slackwater.pipelines.io.file_types import DTYPES, TYPES
from slackwater.pipelines.template.expression_text import Language, parse_text
from slackwater.pipelines.template.graph import Config, Create, Filter, Flatten, MapToFields, Read, Write
from slackwater.pipelines.template.kafka import ReadKafkaSettings, WriteKafkaSettings, read_kafka, write_kafka
from slackwater.plugins.registry.field_docs import Documented
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.expressions.tree import Expr, ExpressionError, Lit, Op
from slackwater.transforms.operators.inputs import FixedInputs, NamedInputs, OneInput
from slackwater.transforms.operators.registry import operators
from slackwater.transforms.operators.spec import OperatorSpec
from slackwater.transforms.settings.models import OperatorConfig, config_error

_Model = TypeVar("_Model", bound=BaseModel)
FileType = Literal["integer", "number", "string", "boolean", "timestamp", "date"]
OutputType = Literal["integer", "number", "string", "boolean"]
Inputs = Literal["none", "one", "listed"] | NamedInputs | FixedInputs


class Settings(Documented):
    """Base of all settings: unknown ones are refused."""


class ReadSettings(Settings):
    """Read files, in natural order of their names: part-2 before part-10."""

    path: str = Field(min_length=1)
    """file, folder, or a glob such as data/*.parquet; text files may be compressed with gzip"""


class ReadJsonSettings(ReadSettings):
    """Read files of JSON lines, in natural order of their names: part-2 before part-10."""

    schema_: dict[str, FileType] = Field(default_factory=dict, alias="schema")
    """types of columns, such as {id: string}; those of others are inferred"""
    dtype: dict[str, str] | bool = Field(default=False)
    """types of columns as Beam's own reader takes them, such as {id: str}"""


class ReadCsvSettings(ReadJsonSettings):
    """Read CSV files with a header, in natural order of their names: part-2 before part-10."""

    delimiter: str = Field(default=",", min_length=1, max_length=1)
    """what stands between fields"""
    null_values: list[str] = Field(default_factory=list)
    """texts that are null, such as [NA]; an empty field without quotes always is"""
    na_values: str | list[str] = Field(default_factory=list)
    """null_values as Beam's own reader takes them"""
    keep_default_na: Literal[False] = False
    """of no effect here; false keeps Beam's own reader from taking NA, NULL and nan for null"""


class WriteSettings(Settings):
    """Write rows to files."""

    path: str = Field(min_length=1)
    """file or folder to write; replaced if it is there"""


class CreateSettings(Settings):
    """Make rows from values written in the template."""

    elements: list[Any] = Field(min_length=1)
    """rows as mappings; a bare value is a row with the one column element"""
    reshuffle: bool = True
    """of no effect here; Beam may spread the rows over workers"""


class ExpressionSettings(Settings):
    """An expression, written out."""

    expression: str | bool | int | float
    """the expression"""
    output_type: OutputType | None = None
    """type of the result"""


class FilterSettings(Settings):
    """Keep the rows for which an expression is true."""

    keep: str | bool | int | float | ExpressionSettings
    """the expression, such as price > 5"""
    language: Language = "generic"
    """generic and sql are SQL; python is Python's expression syntax"""


class MapSettings(Settings):
    """Compute columns."""

    fields: dict[str, str | bool | int | float | ExpressionSettings] = Field(default_factory=dict)
    """new column: expression"""
    append: bool = False
    """keep the existing columns too"""
    drop: str | list[str] = Field(default_factory=list)
    """existing columns not to keep, with append"""
    language: Language = "generic"
    """generic and sql are SQL; python is Python's expression syntax"""


class FlattenSettings(Settings):
    """Put the rows of several transforms together."""


class Kind(NamedTuple):
    """A type of transform."""

    settings: type[BaseModel]
    build: Callable[[Mapping[str, Any]], Config]
    inputs: Inputs
    sink: bool = False
    """Whether it passes no rows on."""
    operator: OperatorSpec | None = None
    """What has outputs besides the main one; None for a source, a sink, or a step without state."""


def _read_parquet(given: Mapping[str, Any]) -> Read:
    return Read("parquet", _validated(ReadSettings, given).path)


def _read_json(given: Mapping[str, Any]) -> Read:
    settings = _validated(ReadJsonSettings, given)
    return Read("json", settings.path, _types(settings))


def _read_csv(given: Mapping[str, Any]) -> Read:
    settings = _validated(ReadCsvSettings, given)
    if settings.delimiter in '"\r\n\0':
        raise ConfigError(
            f"must not be {settings.delimiter!r}, which has a meaning of its own in CSV", "delimiter"
        )
    more = [settings.na_values] if isinstance(settings.na_values, str) else settings.na_values
    nulls = tuple(dict.fromkeys([*settings.null_values, *more]))
    return Read("csv", settings.path, _types(settings), settings.delimiter, nulls)


def _types(settings: ReadJsonSettings) -> dict[str, pa.DataType]:
    """Return the types of columns that are stated, in either way."""
    types = {name: TYPES[type_] for name, type_ in settings.schema_.items()}
    for name, dtype in settings.dtype.items() if isinstance(settings.dtype, dict) else ():
        if dtype not in DTYPES:
            raise ConfigError(f"must be one of {', '.join(DTYPES)}, got {dtype!r}", "dtype", name)
        if name in types:
            raise ConfigError("is in schema too; keep one", "dtype", name)
        types[name] = TYPES[DTYPES[dtype]]
    return types


def _write(format: str) -> Kind:
    def build(given: Mapping[str, Any]) -> Write:
        return Write(format, _validated(WriteSettings, given).path)

    return Kind(WriteSettings, build, "one", sink=True)


def _create(given: Mapping[str, Any]) -> Create:
    rows = []
    for element in _validated(CreateSettings, given).elements:
        rows.append(element if isinstance(element, dict) else {"element": element})
    return Create(tuple(rows))


def _filter(given: Mapping[str, Any]) -> Filter:
    _check_code(given, given.get("keep"), "keep")
    settings = _validated(FilterSettings, given)
    return Filter(_expression(settings.keep, settings.language, "keep"))


def _map(given: Mapping[str, Any]) -> MapToFields:
    fields = given.get("fields")
    for name, value in fields.items() if isinstance(fields, Mapping) else ():
        _check_code(given, value, "fields", name)
    settings = _validated(MapSettings, given)
    drop = (settings.drop,) if isinstance(settings.drop, str) else tuple(settings.drop)
    if drop and not settings.append:
        raise ConfigError("works with append: true only; add that, or remove drop", "drop")
    if not settings.fields and not drop:
        raise ConfigError("names no column; add new_column: expression", "fields")
    trees = {n: _expression(v, settings.language, "fields", n) for n, v in settings.fields.items()}
    return MapToFields(trees, settings.append, drop)


def _operator(spec: OperatorSpec) -> Kind:
    def build(given: Mapping[str, Any]) -> OperatorConfig:
        return spec.settings.read(dict(given))

    return Kind(spec.settings, build, "one" if isinstance(spec.inputs, OneInput) else spec.inputs, operator=spec)


def _flatten(given: Mapping[str, Any]) -> Flatten:
    _validated(FlattenSettings, given)
    return Flatten()


_SOURCES: Final[dict[str, Kind]] = {
    "ReadFromParquet": Kind(ReadSettings, _read_parquet, "none"),
    "ReadFromCsv": Kind(ReadCsvSettings, _read_csv, "none"),
    "ReadFromJson": Kind(ReadJsonSettings, _read_json, "none"),
    "ReadFromKafka": Kind(
        ReadKafkaSettings, lambda given: read_kafka(_validated(ReadKafkaSettings, given)), "none"
    ),
    "Create": Kind(CreateSettings, _create, "none"),
    "Filter": Kind(FilterSettings, _filter, "one"),
    "MapToFields": Kind(MapSettings, _map, "one"),
    "Flatten": Kind(FlattenSettings, _flatten, "listed"),
}
_SINKS: Final[dict[str, Kind]] = {
    "WriteToParquet": _write("parquet"),
    "WriteToCsv": _write("csv"),
    "WriteToJson": _write("json"),
    "WriteToKafka": Kind(
        WriteKafkaSettings, lambda given: write_kafka(_validated(WriteKafkaSettings, given)), "one", sink=True
    ),
}


def transforms() -> dict[str, Kind]:
    """Return the types of transforms that a template may name: ours around the operators that are registered."""
    return {**_SOURCES, **{spec.name: _operator(spec) for spec in operators()}, **_SINKS}


def _validated(model: type[_Model], given: Mapping[str, Any]) -> _Model:
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        raise config_error(error, model) from None


def _check_code(given: Mapping[str, Any], value: Any, *path: str) -> None:
    """Refuse what would run code from the template, with the reason, and faults within an expression."""
    if isinstance(value, Mapping):
        for key in ("callable", "path", "name"):
            if key in value:
                fault = "would run code, and templates are data; write an expression instead"
                raise ConfigError(fault, *path, key)
        try:
            ExpressionSettings.model_validate(dict(value))
        except ValidationError as error:
            found = config_error(error, ExpressionSettings)
            raise ConfigError(found.fault, *path, *found.path) from None
    language = given.get("language")
    if language not in (None, "generic", "python", "sql"):
        raise ConfigError(f"must be generic, sql or python, got {language!r}", "language")
    if "dependencies" in given:
        raise ConfigError("would install code, and templates are data; remove it", "dependencies")


def _expression(value: str | bool | int | float | ExpressionSettings, language: Language, *path: str) -> Expr:
    wanted = None
    if isinstance(value, ExpressionSettings):
        path, wanted, value = (*path, "expression"), value.output_type, value.expression
    try:
        tree = parse_text(str(value), language)
    except ExpressionError as error:
        raise ConfigError(str(error), *path) from None
    return tree if wanted is None else Op("cast", (tree, Lit(wanted)))
