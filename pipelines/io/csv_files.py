"""CSV files as Arrow batches.

Every value is read as text first, and becomes what its column is if that changes nothing. Null is what stands
between delimiters without quotes and is empty, and what the setting ``null_values`` lists.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from slackwater.pipelines.io.source_files import open_file
from slackwater.pipelines.io.text_values import converted, inferred, word
from slackwater.pipelines.template.graph import Read
from slackwater.transforms.arrival.bad_rows import bad_row, with_bad
from slackwater.transforms.errors import SlackwaterError

_BLOCK_BYTES: Final = 1 << 22
_FIRST_ROW: Final = 2
"""Number of the row after the header."""
_NUL: Final = b"\x16"
"""Stands for NUL while Arrow parses; texts rarely have it. After NUL, Arrow takes delimiters and
line ends within 8 bytes for a part of the value (apache/arrow#50481)."""


@dataclass
class _Stream:
    """A file's bytes, with another byte for NUL; counts quotes."""

    file: str
    source: Any
    quotes: int = 0
    closed: bool = False
    has_nul: bool = False
    has_stand_in: bool = False
    """Whether it has the byte that stands for NUL."""

    def read(self, size: int = -1) -> bytes:
        data: bytes = self.source.read(None if size < 0 else size)
        self.quotes += data.count(b'"')
        self.has_nul |= b"\0" in data
        self.has_stand_in |= _NUL in data
        return data.replace(b"\0", _NUL)

    def text_as_written(self, text: str) -> str:
        """Return text as it is in the file."""
        return text.replace(_NUL.decode(), "\0") if self.has_nul else text

    def rows_as_written(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows whose columns are bytes as they are in the file."""
        if not self.has_nul:
            return batch
        if self.has_stand_in:
            fault = "has both bytes 0x00 and 0x16, which cannot be told apart; remove one of them"
            raise SlackwaterError(f"{self.file!r} {fault}")
        columns = [pc.replace_substring(column, _NUL, b"\0") for column in batch.columns]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    def close(self) -> None:
        self.source.close()
        self.closed = True

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


@dataclass
class _Malformed:
    """Rows with too many or too few fields, as the parser comes upon them."""

    stream: _Stream
    found: list[tuple[int, str, str]] = field(default_factory=list)
    """Number, text and fault."""

    def __call__(self, row: Any) -> str:
        try:
            text = row.text
        except UnicodeDecodeError as error:
            text = error.object.decode("utf-8", "backslashreplace")
        fault = f"{row.actual_columns} fields instead of {row.expected_columns}"
        self.found.append((row.number, self.stream.text_as_written(text), fault))
        return "skip"

    def take(self, end: int) -> list[tuple[int, str, str]]:
        """Remove and return those that stand before row ``end``, each of which moves it by one."""
        n = 0
        while n < len(self.found) and self.found[n][0] <= end + n:
            n += 1
        taken, self.found = self.found[:n], self.found[n:]
        return taken


def csv_schema(config: Read, file: str) -> pa.Schema:
    """Return the columns of a file: types as the template says, else as its first block shows."""
    stream = _Stream(file, open_file(file))
    with _open(config, stream, {}) as reader:
        guesses = reader.schema
    if stream.has_nul and any(_NUL.decode() in name for name in guesses.names):
        raise SlackwaterError(f"{file!r} has a column whose name has NUL in it; rename it")
    twice = next((name for name in guesses.names if guesses.names.count(name) > 1), None)
    if twice is not None:
        raise SlackwaterError(f"{file!r} has several columns called {twice!r}; rename one")
    stream = _Stream(file, open_file(file))
    with _open(config, stream, dict.fromkeys(guesses.names, pa.binary())) as reader:
        head = next((stream.rows_as_written(batch) for batch in reader), None)
    fields = []
    for i, guess in enumerate(guesses):
        type_ = config.schema.get(guess.name)
        if type_ is None:
            text = pa.nulls(0, pa.string()) if head is None else _texts(head.column(i), config.null_values)[0]
            if head is not None and config.null_values:
                guess = guess.with_type(_guess(text))
            type_ = inferred(text, guess.type)
        fields.append(pa.field(guess.name, type_))
    return pa.schema(fields)


def read_csv(config: Read, file: str, schema: pa.Schema, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file with the column BAD, in the order of the file."""
    stream, at = _Stream(file, open_file(file)), _FIRST_ROW
    malformed = _Malformed(stream)
    with _open(config, stream, dict.fromkeys(schema.names, pa.binary()), malformed) as reader:
        later = next(reader, None)
        while later is not None:
            batch, later = stream.rows_as_written(later), next(reader, None)
            if later is None and _unclosed(batch, stream):
                batch, swallowed = batch.slice(0, batch.num_rows - 1), batch.slice(batch.num_rows - 1)
                fault = 'a quote (") is not closed before the end of the file'
                malformed.found.append((at + batch.num_rows, _line(config, swallowed, 0), fault))
            taken = malformed.take(at + batch.num_rows)
            rows = _typed(config, file, batch, schema, at, taken)
            at += rows.num_rows
            for start in range(0, rows.num_rows, batch_rows):
                yield rows.slice(start, batch_rows)
    if malformed.found:
        none = pa.RecordBatch.from_pylist([], schema=pa.schema([(name, pa.binary()) for name in schema.names]))
        yield _typed(config, file, none, schema, at, malformed.found)


def _open(
    config: Read, stream: _Stream, types: dict[str, pa.DataType], malformed: _Malformed | None = None
) -> Any:
    return pa_csv.open_csv(
        stream,
        # In one thread, so that rows have numbers.
        read_options=pa_csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
        parse_options=pa_csv.ParseOptions(
            delimiter=config.delimiter,
            newlines_in_values=True,
            invalid_row_handler=malformed or _Malformed(stream),
        ),
        convert_options=pa_csv.ConvertOptions(
            column_types=types,
            include_columns=list(types) or None,
            null_values=[""],
            true_values=["true", "True", "TRUE"],
            false_values=["false", "False", "FALSE"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _guess(text: pa.Array) -> pa.DataType:
    """Return the type that Arrow sees in texts, nulls aside."""
    quoted = pc.replace_substring(text.drop_null(), '"', '""')
    lines = pc.binary_join_element_wise('"', quoted, '"\n', "")
    data = "x\n" + "".join(lines.to_pylist())
    options = pa_csv.ConvertOptions(
        true_values=["true", "True", "TRUE"], false_values=["false", "False", "FALSE"], null_values=[]
    )
    parse = pa_csv.ParseOptions(newlines_in_values=True)
    return pa_csv.read_csv(io.BytesIO(data.encode()), parse_options=parse, convert_options=options).schema.types[
        0
    ]


def _texts(column: pa.Array, null_values: tuple[str, ...]) -> tuple[pa.Array, Any]:
    """Return a column of bytes as text, and which values are none; null where the template says so."""
    bad = None
    try:
        text = column.cast(pa.string())
    except pa.ArrowInvalid:
        values = [None if v is None else v.decode("utf-8", "backslashreplace") for v in column.to_pylist()]
        text = pa.array(values, pa.string())
        bad = ~np.asarray(pc.equal(text.cast(pa.binary()), column).fill_null(True))
    if null_values:
        text = pc.if_else(pc.is_in(text, pa.array(null_values, pa.string())), None, text)
    return text, bad


def _typed(
    config: Read, file: str, batch: pa.RecordBatch, schema: pa.Schema, at: int, malformed: list[Any]
) -> pa.RecordBatch:
    """Return rows with their types, malformed ones among them where they stood.

    Args:
        config: what is read.
        file: its name.
        batch: rows as bytes.
        schema: types of the columns.
        at: number of the first row.
        malformed: rows that are not in the batch.
    """
    n = batch.num_rows + len(malformed)
    places = np.arange(batch.num_rows)
    for number, _, _ in malformed:
        places[places >= number - at] += 1
    faults = {k: (text, fault) for (_, text, fault), k in zip(malformed, _gaps(places, n), strict=True)}
    columns = []
    for i, field_ in enumerate(schema):
        text, broken = _texts(batch.column(i), config.null_values)
        values, unfit = converted(text, field_.type, field_.name in config.schema)
        for k in () if broken is None else np.flatnonzero(broken).tolist():
            faults.setdefault(int(places[k]), (_line(config, batch, k), "not UTF-8"))
        for k in () if unfit is None else np.flatnonzero(unfit).tolist():
            fault = (
                f"column {field_.name!r}: {text[k].as_py()!r} is not {_article(field_.type)}, which "
                + ("schema says it is" if field_.name in config.schema else "the values before are; set schema: "
                f"{{{field_.name}: string}} to read all as text")
            )  # fmt: skip
            faults.setdefault(int(places[k]), (_line(config, batch, k), fault))
        columns.append(values)
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    if len(malformed):
        order = np.zeros(n, np.int64)
        order[places] = np.arange(batch.num_rows)
        missing = np.ones(n, np.bool_)
        missing[places] = False
        rows = rows.take(pa.array(order, mask=missing)) if batch.num_rows else _nulls(schema, n)
    bad = sorted(faults)
    said = [bad_row(faults[k][0], f"{file!r} row {at + k}: {faults[k][1]}") for k in bad]
    return with_bad(rows, bad, said)


def _gaps(places: Any, n: int) -> list[int]:
    """Return the numbers below ``n`` that are not among ``places``."""
    free = np.ones(n, np.bool_)
    free[places] = False
    return [int(k) for k in np.flatnonzero(free)]


def _nulls(schema: pa.Schema, n: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(n, t) for t in schema.types], schema=schema)


def _article(type_: pa.DataType) -> str:
    name = word(type_)
    return f"{'an' if name[0] in 'aeio' else 'a'} {name}"


def _unclosed(batch: pa.RecordBatch, stream: _Stream) -> bool:
    """Whether the last field of a file is all that came after a quote that nothing closed."""
    if stream.quotes % 2 == 0 or not batch.num_rows:
        return False
    last = [column[batch.num_rows - 1].as_py() for column in batch.columns]
    return any(value is not None and b"\n" in value for value in last)


def _line(config: Read, batch: pa.RecordBatch, row: int) -> str:
    """Return a row as it stood in the file, but for quotes that were not needed."""
    out = io.StringIO()
    values = [column[row].as_py() for column in batch.columns]
    texts = ["" if value is None else value.decode("utf-8", "backslashreplace") for value in values]
    csv.writer(out, delimiter=config.delimiter, lineterminator="").writerow(texts)
    return out.getvalue()
