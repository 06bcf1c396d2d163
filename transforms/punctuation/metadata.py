"""What a join is told of its inputs before any data is seen: unique, clustered, ordered, foreign_key.

Each tuple that joins says something more in the light of it, which is a punctuation like any other: a value that
is unique will not come again, and so on (``kernels.punctuation.promises``).

A shard sees part of an input, in the same order. What is promised of the whole holds for every part, so a shard
never finds a contradiction where there is none. But what it concludes of a value is true of the join only if it
has all rows with that value: otherwise a value that it passes on as finished may still be held elsewhere, and one
that is repeated may go unnoticed. So with several shards the columns must include the one that decides on the
shard. A clustered or ordered column is then followed among the values of each shard, and what contradicts only
between shards is not noticed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa

from slackwater.plugins.contract import Metadata, Pattern
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.expressions.condition import Cell, Condition, kind_of
from slackwater.transforms.expressions.tree import ExpressionError
from slackwater.transforms.punctuation.marks import MAX_KINDS
from slackwater.transforms.settings.models import JoinConfig, PromisesConfig

_Given = TypeVar("_Given")
_ARROW: Final = re.compile(r"\s*(?:->|→)\s*")


class Promise(NamedTuple):
    """One promise as it stands in the settings."""

    kind: str
    """As in ``Metadata``."""
    columns: tuple[tuple[str, str], ...]
    """Columns that it speaks of as (input, column)."""
    refers: tuple[str, str] | None
    """What a foreign key refers to."""
    path: tuple[str, ...]
    """Where it stands."""


class ForeignKey(NamedTuple):
    """A column of an input whose values are all among those of a unique one."""

    input: int
    cell: int
    pattern: int
    """Index of the unique one among the patterns."""


def promised(config: JoinConfig | PromisesConfig) -> Iterator[Promise]:
    """Yield what the settings promise; a foreign key is followed by the uniqueness it implies."""
    for kind in ("unique", "clustered"):
        for path, given in _with_paths(kind, getattr(config, kind)):
            names = [given] if isinstance(given, str) else given
            columns = tuple(_column(name, path) for name in names)
            if not columns:
                raise ConfigError("names no column; write input.column", *path)
            if len({name for name, _ in columns}) > 1:
                raise ConfigError(f"must be columns of one input, got {', '.join(names)}", *path)
            yield Promise(kind, columns, None, path)
    for path, given in _with_paths("ordered", config.ordered):
        name, *direction = given.split() or [""]
        if not name or direction not in ([], ["asc"], ["desc"]):
            raise ConfigError(f"must be input.column, maybe with desc after it, got {given!r}", *path)
        kind = "descending" if direction == ["desc"] else "ascending"
        yield Promise(kind, (_column(name, path),), None, path)
    for path, given in _with_paths("foreign_key", config.foreign_key):
        ends = _ARROW.split(given.strip())
        if len(ends) != 2:
            raise ConfigError(f"must be input.column -> input.column, got {given!r}", *path)
        own, other = (_column(end, path) for end in ends)
        if own[0] == other[0]:
            raise ConfigError(f"must lead from one input to another, got {given!r}", *path)
        yield Promise("foreign_key", (own,), other, path)
        yield Promise("unique", (other,), None, path)


def _with_paths(setting: str, given: Sequence[_Given]) -> Iterator[tuple[tuple[str, ...], _Given]]:
    for n, one in enumerate(given):
        yield ((setting,) if len(given) == 1 else (setting, str(n))), one


def _column(text: str, path: tuple[str, ...]) -> tuple[str, str]:
    name, dot, column = text.strip().partition(".")
    if not (name and dot and column):
        raise ConfigError(f"must be input.column, got {text!r}", *path)
    return name, column


def check_metadata(config: JoinConfig | PromisesConfig, schemas: Mapping[str, pa.Schema]) -> None:
    """Raise ConfigError unless promises name columns that are there and can be followed."""
    promises = list(promised(config))
    kinds = len(promises) + len(config.punctuations)
    if promises and kinds > MAX_KINDS:
        fault = f"at most {MAX_KINDS} promises and kinds of punctuations, got {kinds}"
        raise ConfigError(fault, promises[-1].path[0])
    for promise in promises:
        ends = promise.columns if promise.refers is None else (*promise.columns, promise.refers)
        kind, *_ = [_kind(name, column, schemas, promise.path) for name, column in ends]
        if promise.kind in ("ascending", "descending") and kind == "text":
            fault = (
                f"column {'.'.join(ends[0])!r} is text, which is not followed in order; use a number or a time"
            )
            raise ConfigError(fault, *promise.path)


def _kind(name: str, column: str, schemas: Mapping[str, pa.Schema], path: tuple[str, ...]) -> str:
    if name not in schemas:
        raise ConfigError(f"{name}.{column} names no input; the inputs are {', '.join(schemas)}", *path)
    if column not in schemas[name].names:
        has = ", ".join(schemas[name].names)
        raise ConfigError(f"input {name!r} has no column {column!r}; it has {has}", *path)
    try:
        return kind_of(schemas[name].field(column).type, f"{name}.{column}")
    except ExpressionError as error:
        raise ConfigError(str(error), *path) from None


def promised_columns(config: JoinConfig | PromisesConfig) -> list[tuple[str, str]]:
    """Columns that promises speak of, as (input, column): the operator needs their values."""
    return [column for promise in promised(config) for column in promise.columns]


def check_promises_of_shards(
    config: JoinConfig | PromisesConfig, shard_columns: Sequence[Cell], inputs: Sequence[str]
) -> None:
    """Raise ConfigError where a promise speaks of values whose rows are in several shards."""
    for promise in promised(config):
        name = promise.columns[0][0]
        column = shard_columns[inputs.index(name)].column
        if (name, column) not in promise.columns:
            raise ConfigError(
                f"its values are spread over shards, none of which sees all rows with one: name {name}.{column}, "
                "by which rows are split, or use shards: 1",
                *promise.path,
            )


def bind_metadata(config: JoinConfig | PromisesConfig, condition: Condition) -> tuple[Metadata, ...]:
    """Return the promises of settings that have been checked, each once."""
    found = []
    for promise in promised(config):
        which = condition.inputs.index(promise.columns[0][0])
        cells = tuple(condition.cell_of(which, column) for _, column in promise.columns)
        found.append(Metadata(promise.kind, which, cells))
    return tuple(dict.fromkeys(found))


def derived_patterns(metadata: Sequence[Metadata]) -> list[tuple[str, Pattern]]:
    """Return the kinds of punctuations that follow from promises, with the kind of promise."""
    return [
        (promise.kind, Pattern(promise.input, promise.cells, promise.kind in ("ascending", "descending")))
        for promise in metadata
        if promise.kind != "foreign_key"
    ]


def bind_foreign_keys(
    config: JoinConfig | PromisesConfig, condition: Condition, derived: Sequence[tuple[str, Pattern]], first: int
) -> tuple[ForeignKey, ...]:
    """Return the foreign keys of settings that have been checked; ``first`` is where derived patterns start.

    Raises ConfigError where the columns are laid out in different ways, so that their values cannot be compared.
    """
    keys = []
    for promise in promised(config):
        if promise.refers is not None:
            (own,) = promise.columns
            ends = [(condition.inputs.index(name), column) for name, column in (own, promise.refers)]
            (which, cell), (other, referred) = [(i, condition.cell_of(i, column)) for i, column in ends]
            layouts = condition.columns[which][cell].layout, condition.columns[other][referred].layout
            if layouts[0] != layouts[1]:
                types = [condition.type_of(name, column) for name, column in (own, promise.refers)]
                fault = f"{'.'.join(own)} is {types[0]} and {'.'.join(promise.refers)} is {types[1]}; "
                raise ConfigError(f"{fault}make them alike with MapToFields", *promise.path)
            unique = derived.index(("unique", Pattern(other, (referred,), False)))
            keys.append(ForeignKey(which, cell, first + unique))
    return tuple(keys)
