"""Reading files the same way on every runner: Arrow batches in file order, each row with its arrival number.

Rows of text formats that cannot be read as they are written come with the hidden column BAD, which takes them to
the late output of what reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.pipelines.io.plain_types import plain_schema
from slackwater.pipelines.io.source_files import source_files
from slackwater.pipelines.template.graph import ARRIVAL, Create, Read
from slackwater.transforms.arrival.bad_rows import BAD, bad_ones, fault_of, without_bad_column
from slackwater.transforms.errors import SlackwaterError

BATCH_ROWS: Final = 1 << 17
FILE_SHIFT: Final = 40
"""Arrival number of a row: its file's number shifted by this, plus its place in the file."""
_FAULTS: Final = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, UnicodeError, OSError)


def source_schema(config: Read | Create) -> pa.Schema:
    """Return the columns of a source: of CSV as far as the first block of each file shows, else of all rows."""
    if isinstance(config, Create):
        return _created(config).schema
    files = source_files(config)
    if config.format != "parquet":
        files = [file for file in files if Path(file).stat().st_size]
        if not files:
            raise SlackwaterError(
                f"{config.path!r} is empty: it has no columns; a file without rows needs a header"
            )
    if config.format == "json":
        return _json_schema(config, files)
    schemas = {file: _file_schema(config, file) for file in files}
    _check_names(config, schemas)
    return _together(config, schemas)


def read_batches(
    config: Read | Create, schema: pa.Schema, *, strict: bool = False, batch_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a source with the hidden columns added.

    Args:
        config: what to read.
        schema: what ``source_schema`` returned, or a part of it.
        strict: whether a row that cannot be read is an error: nothing that reads the source has a late output.
        batch_rows: rows per batch, at most.
    """
    if isinstance(config, Create):
        yield _numbered(_created(config), 0, 0)
        return
    for number, file in enumerate(source_files(config)):
        yield from read_file(config, file, number, schema, strict=strict, batch_rows=batch_rows)


def read_file(
    config: Read,
    file: str,
    number: int,
    schema: pa.Schema,
    *,
    strict: bool = False,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one file, the ``number``-th of its source."""
    read = _reader(config.format)
    if config.format != "parquet" and not Path(file).stat().st_size:
        return
    at = 0
    try:
        for batch in read(config, file, schema, batch_rows):
            if batch.num_rows:
                yield _numbered(_checked(batch) if strict else batch, number, at)
                at += batch.num_rows
    except _FAULTS as error:
        raise SlackwaterError(f"cannot read {file!r} after row {at}: {_first_line(error)}") from None


def _reader(format: str) -> Callable[[Read, str, pa.Schema, int], Iterator[pa.RecordBatch]]:
    """Return what reads a format; what text formats need is loaded where there is one."""
    if format == "csv":
        from slackwater.pipelines.io.csv_files import read_csv

        return read_csv
    if format == "json":
        from slackwater.pipelines.io.json_files import read_json

        return read_json
    return _read_parquet


def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch without the column BAD; raise if a row cannot be read."""
    bad = bad_ones(batch)
    if bad is not None:
        fault = fault_of(batch.column(BAD)[int(bad.argmax())].as_py())
        raise SlackwaterError(
            f"{fault}; a sink reads these rows without a join, so no late output can take one that is bad; mend "
            "the file"
        )
    return without_bad_column(batch)


def _numbered(batch: pa.RecordBatch, number: int, at: int) -> pa.RecordBatch:
    arrival = (number << FILE_SHIFT) + at + np.arange(batch.num_rows, dtype=np.int64)
    return batch.append_column(ARRIVAL, pa.array(arrival))


def _created(config: Create) -> pa.RecordBatch:
    names = list(dict.fromkeys(name for row in config.rows for name in row))
    columns = []
    for name in names:
        try:
            columns.append(pa.array([row.get(name) for row in config.rows]))
        except OverflowError:
            raise SlackwaterError(
                f"Create: column {name!r} has a whole number that 64 bits cannot hold; put it in quotes"
            ) from None
        except (pa.ArrowException, ValueError, TypeError) as error:
            fault = f"Create: the elements do not fit together: column {name!r}: {_first_line(error)}"
            raise SlackwaterError(fault) from None
    return pa.RecordBatch.from_arrays(columns, names=names)


def _file_schema(config: Read, file: str) -> pa.Schema:
    try:
        if config.format == "csv":
            from slackwater.pipelines.io.csv_files import csv_schema

            return csv_schema(config, file)
        return plain_schema(pq.read_schema(file))
    except _FAULTS as error:
        raise _wrong_format(config, file, error) from None


def _json_schema(config: Read, files: list[str]) -> pa.Schema:
    from slackwater.pipelines.io.json_files import Kinds, json_kinds, json_schema

    kinds: Kinds = {}
    for file in files:
        try:
            for name, types in json_kinds(config, file).items():
                kinds[name] = kinds[name] + types if name in kinds else types
        except _FAULTS as error:
            raise _wrong_format(config, file, error) from None
    if not kinds:
        raise SlackwaterError(
            f"no line of {config.path!r} is a JSON object; write each row as an object on a line of its own"
        )
    return json_schema(config, kinds)


def _wrong_format(config: Read, file: str, error: Exception) -> SlackwaterError:
    if isinstance(error, UnicodeError):
        return SlackwaterError(f"cannot read {file!r}: its names of columns are not UTF-8; save it as UTF-8")
    fault = f"cannot read {file!r} as {config.format}: {_first_line(error)}; check that the file has this format"
    return SlackwaterError(fault)


def _check_names(config: Read, schemas: dict[str, pa.Schema]) -> None:
    first_file, schema = next(iter(schemas.items()))
    for name in config.schema:
        if name not in schema.names:
            raise SlackwaterError(
                f"schema names column {name!r}, but {first_file!r} has {', '.join(schema.names)}; check the name"
            )
    for file, other in schemas.items():
        twice = next((name for name in other.names if other.names.count(name) > 1), None)
        if twice is not None:
            raise SlackwaterError(f"{file!r} has several columns called {twice!r}; rename one")
        if sorted(other.names) != sorted(schema.names):
            raise SlackwaterError(
                f"{file!r} has columns {', '.join(other.names)}, but {first_file!r} has "
                f"{', '.join(schema.names)}; all files of a source need the same columns"
            )


def _together(config: Read, schemas: dict[str, pa.Schema]) -> pa.Schema:
    """Return the columns of several files, with types that take the values of all."""
    schema = next(iter(schemas.values()))
    fields = []
    for field in schema:
        types = {file: other.field(field.name).type for file, other in schemas.items()}
        if len(set(types.values())) == 1 and not pa.types.is_null(field.type):
            fields.append(field)
        elif config.format == "csv":
            from slackwater.pipelines.io.text_values import together

            fields.append(pa.field(field.name, together(list(types.values()))))
        else:
            fields.append(
                field if len(set(types.values())) == 1 else pa.field(field.name, _widest(field.name, types))
            )
    return pa.schema(fields)


def _widest(name: str, types: dict[str, pa.DataType]) -> pa.DataType:
    """Return the type of a column that has different ones in files of Parquet; values are cast to it exactly."""
    schemas = [pa.schema([(name, t.value_type if pa.types.is_dictionary(t) else t)]) for t in types.values()]
    (first_file, first), *others = types.items()
    other_file, other = next((file, t) for file, t in others if t != first)
    fault = (
        f"column {name!r} is {first} in {first_file!r}, but {other} in {other_file!r}; write both with one type"
    )
    try:
        widest: pa.DataType = pa.unify_schemas(schemas, promote_options="permissive").types[0]
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise SlackwaterError(fault) from None
    if pa.types.is_floating(widest) and any(pa.types.is_decimal(t) for t in types.values()):
        raise SlackwaterError(fault)
    return widest


def _read_parquet(config: Read, file: str, schema: pa.Schema, batch_rows: int) -> Iterator[pa.RecordBatch]:
    # Buffering ahead would keep the bytes of every row group until the file is closed.
    with pq.ParquetFile(file, pre_buffer=False) as parquet:
        for batch in parquet.iter_batches(batch_rows, columns=schema.names):
            yield fitted(file, batch, schema)


def fitted(file: str, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of Parquet with the columns of ``schema``; raise if a value would not be the same."""
    if batch.schema == schema:
        return batch.replace_schema_metadata(None)
    columns = []
    for field in schema:
        column = batch.column(field.name)
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except pa.ArrowInvalid as error:
            raise SlackwaterError(
                f"{file!r}: column {field.name!r} is {column.type} here and {field.type} in other files, and not "
                f"every value is the same in both: {_first_line(error)}; write the files with one type"
            ) from None
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0].rstrip(".")
