"""Reading files the same way on every runner: Arrow batches in file order, each row with its arrival number."""

from __future__ import annotations

import glob
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from slackwater.pipelines.graph import ARRIVAL, Create, Read
from slackwater.transforms.errors import SlackwaterError

BATCH_ROWS: Final = 1 << 17
_BLOCK_BYTES: Final = 1 << 22
FILE_SHIFT: Final = 40
"""Arrival number of a row: its file's number shifted by this, plus its place in the file."""


def source_files(config: Read) -> list[str]:
    """Return the files of a source in the order of their names; raise if there are none."""
    path = config.path
    if Path(path).is_dir():
        endings = {"parquet": ("parquet",), "csv": ("csv",), "json": ("json", "jsonl")}[config.format]
        files = [str(f) for f in sorted(Path(path).iterdir()) if f.suffix[1:] in endings]
    else:
        files = sorted(glob.glob(path)) if glob.has_magic(path) else [path] * Path(path).exists()
    if not files:
        raise SlackwaterError(f"no {config.format} file at {path!r}; check the path (it is relative to the "
                              "current folder)")  # fmt: skip
    return files


def source_schema(config: Read | Create) -> pa.Schema:
    """Return the columns of a source: of its first file, for text formats as far as its first block shows."""
    if isinstance(config, Create):
        return _created(config).schema
    schemas = [(file, _file_schema(config.format, file)) for file in source_files(config)]
    first_file, schema = schemas[0]
    for file, other in schemas[1:]:
        if other.names != schema.names:
            raise SlackwaterError(
                f"{file!r} has columns {', '.join(other.names)}, but {first_file!r} has "
                f"{', '.join(schema.names)}; all files of a source need the same columns"
            )
    return schema


def read_batches(
    config: Read | Create, schema: pa.Schema, times: Sequence[str] = (), batch_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a source with the hidden arrival column added.

    Args:
        config: what to read.
        schema: what ``source_schema`` returned.
        times: event-time columns; in text formats a value that is no time becomes null instead of an error.
        batch_rows: rows per batch, at most.
    """
    if isinstance(config, Create):
        yield _numbered(_created(config), 0, 0)
        return
    for number, file in enumerate(source_files(config)):
        yield from read_file(config.format, file, number, schema, times, batch_rows)


def read_file(
    format: str,
    file: str,
    number: int,
    schema: pa.Schema,
    times: Sequence[str] = (),
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one file, the ``number``-th of its source."""
    readers: dict[str, Any] = {"parquet": _read_parquet, "csv": _read_csv, "json": _read_json}
    at = 0
    try:
        for batch in readers[format](file, schema, times, batch_rows):
            if batch.num_rows:
                yield _numbered(batch, number, at)
                at += batch.num_rows
    except (pa.ArrowInvalid, pa.ArrowTypeError, OSError) as error:
        raise SlackwaterError(f"cannot read {file!r} after row {at}: {_first_line(error)}") from None


def _numbered(batch: pa.RecordBatch, number: int, at: int) -> pa.RecordBatch:
    arrival = (number << FILE_SHIFT) + at + np.arange(batch.num_rows, dtype=np.int64)
    return batch.append_column(ARRIVAL, pa.array(arrival))


def _created(config: Create) -> pa.RecordBatch:
    names = list(dict.fromkeys(name for row in config.rows for name in row))
    try:
        columns = [pa.array([row.get(name) for row in config.rows]) for name in names]
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SlackwaterError(f"Create: the elements do not fit together: {_first_line(error)}") from None
    return pa.RecordBatch.from_arrays(columns, names=names)


def _file_schema(format: str, file: str) -> pa.Schema:
    try:
        if format == "parquet":
            return pq.read_schema(file).remove_metadata()
        if Path(file).stat().st_size == 0:
            raise SlackwaterError(f"{file!r} is empty: it has no columns; a file without rows needs a header")
        if format == "csv":
            with pa_csv.open_csv(file, read_options=pa_csv.ReadOptions(block_size=_BLOCK_BYTES)) as reader:
                return reader.schema
        return _json_schema(file)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OSError) as error:
        raise SlackwaterError(
            f"cannot read {file!r} as {format}: {_first_line(error)}; check that the file has this format"
        ) from None


def _read_parquet(
    file: str, schema: pa.Schema, times: Sequence[str], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    # Buffering ahead would keep the bytes of every row group until the file is closed.
    with pq.ParquetFile(file, pre_buffer=False) as parquet:
        for batch in parquet.iter_batches(batch_rows, columns=schema.names):
            yield batch.cast(schema) if batch.schema != schema else batch.replace_schema_metadata(None)


def _read_csv(file: str, schema: pa.Schema, times: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Times are read as text and converted here, so that one bad value costs one row and not the run."""
    lenient = {name: pa.string() for name in times if name in schema.names}
    types = {field.name: lenient.get(field.name, field.type) for field in schema}
    options = pa_csv.ConvertOptions(column_types=types, include_columns=schema.names, strings_can_be_null=True)
    read = pa_csv.ReadOptions(block_size=_BLOCK_BYTES)
    with pa_csv.open_csv(file, read_options=read, convert_options=options) as reader:
        for batch in reader:
            for start in range(0, batch.num_rows, batch_rows):
                yield _with_times(batch.slice(start, batch_rows), schema, lenient)


def _with_times(batch: pa.RecordBatch, schema: pa.Schema, lenient: dict[str, Any]) -> pa.RecordBatch:
    columns = [
        _lenient(column, field.type) if field.name in lenient else column
        for field, column in zip(schema, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _lenient(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """Convert text to a type; what cannot be converted becomes null."""
    if column.type == type_ or pa.types.is_string(type_) or pa.types.is_null(type_):
        return column.cast(type_)
    try:
        return column.cast(type_)
    except pa.ArrowInvalid:
        return pa.array([_lenient_value(value, type_) for value in column.to_pylist()], type_)


def _lenient_value(value: Any, type_: pa.DataType) -> Any:
    try:
        return pa.scalar(value).cast(type_).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _json_schema(file: str) -> pa.Schema:
    with open(file, "rb") as lines:
        head = lines.read(_BLOCK_BYTES)
    if len(head) == _BLOCK_BYTES:
        head = head[: head.rfind(b"\n") + 1]
    try:
        return pa_json.read_json(pa.BufferReader(head)).schema
    except pa.ArrowInvalid:
        return _majority_schema(file, [json_object(file, k, line) for k, line in enumerate(head.splitlines())])


def _majority_schema(file: str, rows: list[dict[str, Any]]) -> pa.Schema:
    """Columns of rows that disagree on types: each has the type that most of its values have."""
    fields = []
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row[name] for row in rows if row.get(name) is not None]
        types = [pa.scalar(value).type for value in values]
        fields.append((name, max(set(types), key=types.count) if types else pa.null()))
    return pa.schema(fields)


def _read_json(file: str, schema: pa.Schema, times: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Read blocks of whole lines; a block that does not fit the schema is read line by line."""
    parse = pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    lenient = {name for name in times if name in schema.names}
    line_number = 0
    with open(file, "rb") as lines:
        while block := lines.readlines(_BLOCK_BYTES):
            data = b"".join(block)
            try:
                table = pa_json.read_json(pa.BufferReader(data), parse_options=parse) if data.strip() else None
            except pa.ArrowInvalid:
                rows = [json_object(file, line_number + k, line) for k, line in enumerate(block) if line.strip()]
                table = _table_of(file, line_number, rows, schema, lenient)
            line_number += len(block)
            if table is not None:
                yield from table.select(schema.names).cast(schema).combine_chunks().to_batches(batch_rows)


def json_object(file: str, line: int, text: bytes) -> dict[str, Any]:
    """Return the object on a line; raise with its place if there is none."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise SlackwaterError(f"{file!r} line {line + 1} is not JSON: {error}; fix or remove the line") from None
    if not isinstance(value, dict):
        raise SlackwaterError(f"{file!r} line {line + 1} is not a JSON object; each line must be one")
    return value


def _table_of(file: str, line: int, rows: list[dict[str, Any]], schema: pa.Schema, lenient: set[str]) -> pa.Table:
    columns = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        if field.name in lenient:
            values = [None if v is None else _lenient_value(v, field.type) for v in values]
        try:
            columns.append(pa.array(values, field.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise SlackwaterError(
                f"{file!r}, column {field.name!r}, lines {line + 1} to {line + len(rows)}: {_first_line(error)}"
            ) from None
    return pa.Table.from_arrays(columns, schema=schema)


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0].rstrip(".")
