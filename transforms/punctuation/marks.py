"""Punctuations as data: which rows are punctuations, and what they speak of.

They are among the rows of the input that they speak of, or have an input of their own, which joins nothing.

A punctuation has an event time, and says that no tuple of its input with a later one matches its pattern:
constants, a list of values or a range for the columns that it names, anything for all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Int8s, Pattern
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.expressions.condition import Cell, Condition, kind_of
from slackwater.transforms.expressions.tree import Col, Expr, ExpressionError, Op, parse
from slackwater.transforms.rows.layout import FLOAT, WHOLE, layout_of
from slackwater.transforms.settings.models import JoinConfig, PromisesConfig, PunctuationConfig

if TYPE_CHECKING:
    pass

PUNCTUATION_SCHEMA: Final = pa.schema([("ts", pa.int64()), ("pattern", pa.string())])
"""Columns of the output ``punctuations``: no result with a later time has these values in these columns."""
MAX_KINDS: Final = 100


@dataclass(frozen=True)
class Mark:
    """One kind of punctuations, bound to its input."""

    pattern: Pattern
    source: int
    """The input that they come in by: the one they speak of, or a source of their own."""
    when: Expr | None
    """What tells them from other rows; None if there are no others."""
    key: tuple[str, ...]
    """Columns with the values of the first cells."""
    lists: str | None
    """Column with the values of the last cell, where the punctuation lists several."""
    ends: tuple[str | None, str | None]
    """Columns with the ends of a range; None where it is open."""


def sources_of(config: JoinConfig | PromisesConfig) -> dict[str, str]:
    """Inputs that have nothing but punctuations, each with the input that these speak of."""
    return {given.source: given.input for given in config.punctuations if given.source is not None}


def named_columns(config: JoinConfig | PromisesConfig) -> list[tuple[str, str]]:
    """Columns that punctuations speak of, as (input, column): the operator needs their values."""
    return [(given.input, column) for given in config.punctuations for column in _columns(given)]


def _key(given: PunctuationConfig) -> dict[str, str]:
    """Columns of which one value is over, each with the column of the punctuation that has it."""
    if isinstance(given.key, dict):
        return given.key
    return {column: column for column in ([given.key] if isinstance(given.key, str) else given.key)}


def _columns(given: PunctuationConfig) -> list[str]:
    return [*_key(given), *given.values, *given.range]


def check_sources(config: JoinConfig | PromisesConfig, schemas: Mapping[str, pa.Schema]) -> dict[str, pa.Schema]:
    """Return the inputs that are joined; raise ConfigError unless the others can be sources of punctuations."""
    sources = sources_of(config)
    seen: set[str] = set()
    for path, given in _with_paths(config):
        if given.input in sources:
            what = "comes from that input itself" if given.input == given.source else "joins nothing"
            fault = f"{given.input!r} is a source of punctuations, and what it speaks of must be another input"
            raise ConfigError(f"{fault}; this one {what}", *path, "input")
        if given.source is None:
            continue
        if given.source not in schemas:
            raise ConfigError(f"names no input; the inputs are {', '.join(schemas)}", *path, "source")
        if given.source in seen:
            fault = f"{given.source!r} is a source already; give its transform a second name under input"
            raise ConfigError(fault, *path, "source")
        seen.add(given.source)
    return {name: schema for name, schema in schemas.items() if name not in sources}


def check_punctuations(config: JoinConfig | PromisesConfig, schemas: Mapping[str, pa.Schema]) -> None:
    """Raise ConfigError unless punctuations name inputs, columns and conditions that are there."""
    if len(config.punctuations) > MAX_KINDS:
        raise ConfigError(f"at most {MAX_KINDS} kinds, got {len(config.punctuations)}", "punctuations")
    for path, given in _with_paths(config):
        if given.input not in schemas:
            raise ConfigError(f"names no input; the inputs are {', '.join(schemas)}", *path, "input")
        _check_shape(given, path)
        source = given.source or given.input
        ends = [end for column in given.range.values() for end in column.values()]
        theirs = [*_key(given).values(), *given.values.values(), *ends]
        for name, columns in ((given.input, _columns(given)), (source, theirs)):
            for column in columns:
                if column not in schemas[name].names:
                    has = ", ".join(schemas[name].names)
                    raise ConfigError(f"input {name!r} has no column {column!r}; it has {has}", *path)
        for column in _columns(given):
            try:
                kind = kind_of(schemas[given.input].field(column).type, f"{given.input}.{column}")
            except ExpressionError as error:
                raise ConfigError(str(error), *path) from None
            if kind == "text" and column in given.range:
                fault = f"column {column!r} is text, which ranges cannot speak of; list the values with values"
                raise ConfigError(fault, *path, "range")
        _check_types(given, schemas[given.input], schemas[source], path)
        if given.source is None:
            _condition(given, schemas[given.input], path)


def _check_types(given: PunctuationConfig, schema: pa.Schema, theirs: pa.Schema, path: tuple[str, ...]) -> None:
    """Raise ConfigError unless what punctuations have can be compared with what they speak of."""
    pairs = [(column, other, theirs.field(other).type) for column, other in _key(given).items()]
    for column, other in given.values.items():
        type_ = theirs.field(other).type
        if not (pa.types.is_list(type_) or pa.types.is_large_list(type_)):
            fault = f"column {other!r} must hold lists, got {type_}; for one value per row use key"
            raise ConfigError(fault, *path, "values")
        pairs.append((column, other, type_.value_type))
    for column, ends in given.range.items():
        pairs += [(column, end, theirs.field(end).type) for end in ends.values()]
    for column, other, type_ in pairs:
        own = schema.field(column).type
        if not _comparable(own, type_):
            fault = f"column {other!r} has {type_} for {given.input}.{column}, which is {own}"
            raise ConfigError(f"{fault}; make them alike with MapToFields", *path)


def _comparable(own: pa.DataType, other: pa.DataType) -> bool:
    """Whether values of another column can be laid in the cells of a column without loss."""
    if pa.types.is_null(other):
        return True
    try:
        layouts = layout_of(own, ""), layout_of(other, "")
    except ExpressionError:
        return False
    if layouts[0].kind == layouts[1].kind == "time":
        return own == other
    return layouts[0] == layouts[1] or layouts == (FLOAT, WHOLE)


def _check_shape(given: PunctuationConfig, path: tuple[str, ...]) -> None:
    if given.source is None and given.when is None:
        raise ConfigError("is missing; add it, or name a source that has nothing but punctuations", *path, "when")
    if given.source is not None and given.when is not None:
        fault = "a source has nothing but punctuations; leave it out, and let Filter choose among its rows"
        raise ConfigError(fault, *path, "when")
    if given.source is None and isinstance(given.key, dict):
        raise ConfigError("may be a mapping only with a source; name columns of the input", *path, "key")
    if not _columns(given):
        raise ConfigError("says nothing; name columns with key, values or range", *path)
    if len(given.values) > 1:
        raise ConfigError(f"at most one column may have a list, got {len(given.values)}", *path, "values")
    if given.range and (len(given.range) > 1 or len(_columns(given)) > 1):
        raise ConfigError("must be the only pattern, of one column; leave out the others", *path, "range")
    for column, ends in given.range.items():
        if not ends:
            raise ConfigError(f"column {column!r} needs from, to or both", *path, "range", column)


def _condition(given: PunctuationConfig, schema: pa.Schema, path: tuple[str, ...]) -> Expr:
    from slackwater.transforms.expressions.evaluation import check, kind_of_value

    try:
        when = _own(parse(given.when or ""), given.input)
        type_ = check(when, schema)
    except ExpressionError as error:
        raise ConfigError(str(error), *path, "when") from None
    if kind_of_value(type_) not in ("bool", "null"):
        raise ConfigError(f"must be a condition, such as kind = 'closed', got {given.when!r}", *path, "when")
    return when


def _own(tree: Expr, name: str) -> Expr:
    """Let a condition write its own columns as ``input.column`` too."""
    if isinstance(tree, Op):
        return Op(tree.name, tuple(_own(arg, name) for arg in tree.args))
    return Col(None, tree.name) if isinstance(tree, Col) and tree.table == name else tree


def _with_paths(config: JoinConfig | PromisesConfig) -> Iterator[tuple[tuple[str, ...], PunctuationConfig]]:
    for n, given in enumerate(config.punctuations):
        yield (("punctuations",) if len(config.punctuations) == 1 else ("punctuations", str(n))), given


def bind_marks(
    config: JoinConfig | PromisesConfig, schemas: Mapping[str, pa.Schema], condition: Condition
) -> tuple[Mark, ...]:
    """Return the kinds of punctuations of a join whose settings have been checked."""
    marks = []
    for path, given in _with_paths(config):
        which = condition.inputs.index(given.input)
        source = list(schemas).index(given.source or given.input)
        cells = tuple(condition.cell_of(which, column) for column in _columns(given))
        ends = next(iter(given.range.values()), {})
        marks.append(
            Mark(
                Pattern(which, cells, bool(given.range)),
                source,
                _condition(given, schemas[given.input], path) if given.source is None else None,
                tuple(_key(given).values()),
                next(iter(given.values.values()), None),
                (ends.get("from"), ends.get("to")),
            )
        )
    return tuple(marks)


def check_shards(
    config: JoinConfig | PromisesConfig, shard_columns: Sequence[Cell], inputs: Sequence[str]
) -> None:
    """Raise ConfigError where a punctuation may speak of rows of several shards."""
    for path, given in _with_paths(config):
        column = shard_columns[inputs.index(given.input)].column
        if column not in _key(given):
            raise ConfigError(
                f"its rows go to one shard, but it speaks of all: name {column!r} in key, or use shards: 1", *path
            )


def marked(marks: Sequence[Mark], which: int, batch: pa.RecordBatch) -> Int8s:
    """Return, for each row of an input, the first kind of punctuation that it is, or -1 for a tuple."""
    out = np.full(batch.num_rows, -1, np.int8)
    for n, mark in enumerate(marks):
        if mark.source != which:
            continue
        if mark.when is None:
            out[:] = n
        else:
            from slackwater.transforms.expressions.evaluation import evaluate

            holds = evaluate(mark.when, batch).cast(pa.bool_()).fill_null(False)
            out[np.asarray(holds.to_numpy(zero_copy_only=False), np.bool_) & (out < 0)] = n
    return out
