"""Frequencies of key values that are given with a shedding strategy: read, checked, and brought to the keys.

They stand for an input, in a file with the columns of its keys and ``frequency``, or for one column of an input,
in the settings themselves. Those that add up to more than 1 are counts and are divided by their sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import KeyFrequencies
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.expressions.condition import Condition

FREQUENCY: Final = "frequency"
_PLACE: Final = ("shedding", "frequencies")


def read_frequencies(
    given: Mapping[str, str | Mapping[str, float]], condition: Condition, schemas: Mapping[str, pa.Schema]
) -> dict[str, pa.Table]:
    """Return a table for each name, with values of the inputs' types; raise ConfigError for what is of no use."""
    if given and not condition.classes:
        raise ConfigError(
            "the condition has no key, an equality between columns of two inputs, of whose values frequencies "
            "could be known; leave it out",
            *_PLACE,
        )
    tables = {name: _read(name, stated, condition, schemas) for name, stated in given.items()}
    if given:
        for i, classes in _keys(condition):
            _table_of(i, classes, tables, condition)
    return tables


def key_frequencies(
    tables: Mapping[str, pa.Table], condition: Condition, schemas: Mapping[str, pa.Schema]
) -> tuple[KeyFrequencies, ...]:
    """Return what the tables say of every key; of columns that a key does not have, all values together."""
    if not tables:
        return ()
    # Checking a template needs neither the compiler nor Arrow's functions.
    from slackwater.transforms.rows.encoder import lasting_words, valid_mask

    found = []
    for i, classes in _keys(condition):
        cells = [condition.columns[i][condition.classes[c][i]] for c in classes]
        table = _table_of(i, classes, tables, condition)
        frequency = table[FREQUENCY].to_numpy()
        columns = [table[cell.column].combine_chunks() for cell in cells]
        valid = np.logical_and.reduce([valid_mask(column) for column in columns])
        words = []
        for cell, column in zip(cells, columns, strict=True):
            found_words, known = lasting_words(cell, column)
            words.append(found_words)
            valid = valid if known is None else valid & known
        values, at = np.unique(np.stack(words, axis=1)[valid], axis=0, return_inverse=True)
        share = np.bincount(at.ravel(), frequency[valid], len(values)) / max(1.0, frequency.sum())
        found.append(KeyFrequencies(i, classes, np.ascontiguousarray(values), share))
    return tuple(found)


def _keys(condition: Condition) -> list[tuple[int, tuple[int, ...]]]:
    """Every key that is looked up: the input and the classes that it shares with another."""
    m = len(condition.inputs)
    found = {(i, condition.shared(i, j)) for i in range(m) for j in range(m) if i != j}
    return sorted((i, classes) for i, classes in found if classes)


def _table_of(i: int, classes: tuple[int, ...], tables: Mapping[str, pa.Table], condition: Condition) -> pa.Table:
    """Return the table that has the columns of a key."""
    name = condition.inputs[i]
    columns = [condition.columns[i][condition.classes[c][i]].column for c in classes]
    alone = f"{name}.{columns[0]}"
    if len(columns) == 1 and alone in tables:
        return tables[alone]
    if name not in tables:
        inline = f", or {alone}: {{value: frequency}}" if len(columns) == 1 else ""
        raise ConfigError(
            f"says nothing of the key {' and '.join(columns)} of input {name!r}; add {name}: FILE with "
            f"{'this column' if len(columns) == 1 else 'these columns'} and {FREQUENCY}{inline}",
            *_PLACE,
        )
    return tables[name]


def _read(
    name: str, stated: str | Mapping[str, float], condition: Condition, schemas: Mapping[str, pa.Schema]
) -> pa.Table:
    which, _, column = name.partition(".")
    if which not in schemas:
        raise ConfigError(f"names no input; the inputs are {', '.join(schemas)}", *_PLACE, name)
    i, schema = condition.inputs.index(which), schemas[which]
    if column and column not in schema.names:
        raise ConfigError(
            f"input {which!r} has no column {column!r}; it has {', '.join(schema.names)}", *_PLACE, name
        )
    keys = [condition.columns[i][members[i]].column for members in condition.classes if i in members]
    if column and column not in keys:
        raise ConfigError(
            f"column {column!r} of input {which!r} is no key of the condition; its keys are "
            f"{', '.join(keys) or 'none'}",
            *_PLACE,
            name,
        )
    types = {key: _plain(schema.field(key).type) for key in ([column] if column else keys)}
    if isinstance(stated, str) and column:
        raise ConfigError(f"a file is for all keys of an input; write {which}: {stated}", *_PLACE, name)
    if not isinstance(stated, str) and not column:
        raise ConfigError(
            f"values are of one column; write {which}.COLUMN, or name a file with the columns {', '.join(types)}",
            *_PLACE,
            name,
        )
    table = _file(name, stated, types) if isinstance(stated, str) else _inline(name, stated, column, types)
    values = table[FREQUENCY].to_numpy()
    wrong = ~(np.isfinite(values) & (values >= 0))
    if wrong.any():
        row = table.slice(int(wrong.argmax()), 1).to_pylist()[0]
        value = ", ".join(f"{key} {row[key]}" for key in types)
        raise ConfigError(
            f"the frequency of {value} must be a number from 0 on, got {row[FREQUENCY]}", *_PLACE, name
        )
    return table


def _inline(name: str, stated: Mapping[str, float], column: str, types: Mapping[str, pa.DataType]) -> pa.Table:
    try:
        values = pa.array(list(stated), pa.string()).cast(types[column])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConfigError(
            f"values must be of the column's type, {types[column]}: {_line(error)}", *_PLACE, name
        ) from None
    return pa.table({column: values, FREQUENCY: pa.array(stated.values(), pa.float64())})


def _file(name: str, path: str, types: Mapping[str, pa.DataType]) -> pa.Table:
    if not Path(path).is_file():
        raise ConfigError(f"there is no file {path!r}; check the path", *_PLACE, name)
    wanted: dict[str, Any] = {**types, FREQUENCY: pa.float64()}
    try:
        table = _rows(path, wanted)
        missing = next((column for column in wanted if column not in table.column_names), None)
        if missing is None:
            return table.select(list(wanted)).cast(pa.schema(wanted))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError, ValueError) as error:
        raise ConfigError(
            f"cannot read {path!r} with columns {', '.join(f'{c} {t}' for c, t in wanted.items())}: "
            f"{_line(error)}; mend the file",
            *_PLACE,
            name,
        ) from None
    raise ConfigError(
        f"{path!r} has no column {missing!r}; it has {', '.join(table.column_names)}", *_PLACE, name
    )


def _rows(path: str, types: Mapping[str, pa.DataType]) -> pa.Table:
    if path.endswith(".parquet"):
        from pyarrow import parquet

        return parquet.read_table(path)
    if path.endswith(".csv"):
        from pyarrow import csv

        return csv.read_csv(path, convert_options=csv.ConvertOptions(column_types=dict(types)))
    raise ValueError("the name must end in .parquet or .csv")


def _plain(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(type_):
        return type_.value_type
    return pa.string() if pa.types.is_null(type_) else type_


def _line(error: Exception) -> str:
    return str(error).split("\n", 1)[0].rstrip(".")
