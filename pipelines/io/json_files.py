"""Files of JSON lines as Arrow batches: by blocks, and line by line where that would change a value."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.json as pa_json

from slackwater.pipelines.io.source_files import open_file
from slackwater.pipelines.io.text_values import converted, is_exact, significant, word
from slackwater.pipelines.template.graph import Read
from slackwater.transforms.arrival.bad_rows import bad_row, with_bad

_BLOCK_BYTES: Final = 1 << 22
_BOM: Final = b"\xef\xbb\xbf"
_LONG_INTEGER: Final = re.compile(rb"[:\[,\s]-?[0-9]{16,}\s*[,}\]]")
"""An integer that a double may not hold."""
_LONG_DECIMAL: Final = re.compile(rb"[1-9][0-9]*\.[0-9]{17,}|[:\[,\s]-?0\.0*[1-9][0-9]{17,}")
"""A decimal with more digits than a double has."""
_DIGITS: Final = 17
AS_WRITTEN: Final = b"as written"
"""Metadata of a field whose numbers are kept as text, since some have more digits than any number type."""


class Number(str):
    """A number as it is written."""

    __slots__ = ()


Kinds = dict[str, Counter[pa.DataType]]
"""How many values of each type every field has."""


def json_kinds(config: Read, file: str) -> Kinds:
    """Return the fields of all lines of a file, and what types their values have."""
    kinds: Kinds = {}
    for lines in _blocks(file):
        table = _quick(lines, None)
        if table is None:
            _count_rows(kinds, [row for row in map(_parsed, filter(bytes.strip, lines)) if isinstance(row, dict)])
            continue
        for name, column in zip(table.schema.names, table.columns, strict=True):
            kinds.setdefault(name, Counter())[column.type] += len(column) - column.null_count
    return kinds


def json_schema(config: Read, kinds: Kinds) -> pa.Schema:
    """Return the columns of a source: types as the template says, else what takes most values as they are."""
    fields = [
        _field(name, config.schema.get(name), kinds.get(name, Counter())) for name in (kinds | config.schema)
    ]
    return pa.schema(fields)


def read_json(config: Read, file: str, schema: pa.Schema, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file with the column BAD, in the order of the file."""
    at = 1
    for lines in _blocks(file):
        table = _quick(lines, schema)
        if table is None:
            yield from _slowly(config, file, lines, schema, at, batch_rows)
        else:
            for batch in table.combine_chunks().to_batches(batch_rows):
                yield with_bad(batch)
        at += len(lines)


def _blocks(file: str) -> Iterator[list[bytes]]:
    """Yield the lines of a file, a few megabytes at a time."""
    with open_file(file) as source:
        rest, first = b"", True
        while data := source.read(_BLOCK_BYTES):
            data = rest + (data.removeprefix(_BOM) if first else data)
            first = False
            end = data.rfind(b"\n") + 1
            rest = data[end:]
            if end:
                yield data[:end].splitlines(keepends=True) if b"\r" not in data else _lines(data[:end])
        if rest:
            yield [rest]


def _lines(data: bytes) -> list[bytes]:
    return [line + b"\n" for line in data.split(b"\n")[:-1]]


def _quick(lines: list[bytes], schema: pa.Schema | None) -> pa.Table | None:
    """Return lines as Arrow reads them; None where it cannot, or would change a value or leave one out."""
    data = b"".join(lines)
    parse = None
    if schema is not None:
        # Arrow takes a number for a date.
        if any(map(pa.types.is_date, schema.types)):
            return None
        parse = pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    try:
        data.decode()
        table = pa_json.read_json(pa.BufferReader(data), parse_options=parse)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
        return None
    if table.num_rows != len(lines) and table.num_rows != sum(1 for line in lines if line.strip()):
        return None
    if any(map(_has_doubles, table.schema.types)) and (_LONG_INTEGER.search(data) or _LONG_DECIMAL.search(data)):
        return None
    return table if schema is None else table.select(schema.names).cast(schema)


def _has_doubles(type_: pa.DataType) -> bool:
    if pa.types.is_nested(type_):
        return any(_has_doubles(type_.field(k).type) for k in range(type_.num_fields))
    return bool(pa.types.is_floating(type_))


def _parsed(line: bytes) -> dict[str, Any] | str:
    """Return the object on a line, or why there is none."""
    try:
        value = json.loads(line.decode(), parse_int=Number, parse_float=Number, object_pairs_hook=_object)
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "text with half a surrogate pair, which is no character"
    except UnicodeDecodeError:
        return "not UTF-8"
    except RecursionError:
        return "nested too deeply"
    except ValueError as error:
        return f"no JSON: {error}"
    return value if isinstance(value, dict) else "no JSON object"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} occurs twice in an object")
    return found


def _count_rows(kinds: Kinds, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        for name, value in row.items():
            types = kinds.setdefault(name, Counter())
            if value is not None:
                types[_type_of(value)] += 1


def _type_of(value: Any) -> pa.DataType:
    if isinstance(value, Number):
        if re.fullmatch(r"-?[0-9]+", value) is None:
            return pa.float64()
        return pa.int64() if -(1 << 63) <= int(value) < 1 << 63 else pa.decimal256(76, 0)
    try:
        return pa.scalar(_plain(value)).type
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.null()


def _plain(value: Any) -> Any:
    """Return a value with numbers as Python has them."""
    if isinstance(value, Number):
        return int(value) if re.fullmatch(r"-?[0-9]+", value) else float(value)
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value


def _field(name: str, declared: pa.DataType | None, types: Counter[pa.DataType]) -> pa.Field:
    if declared is not None:
        return pa.field(name, declared, metadata={AS_WRITTEN: b""} if pa.types.is_string(declared) else None)
    found = {type_: n for type_, n in types.items() if not pa.types.is_null(type_)}
    numbers = {t: n for t, n in found.items() if pa.types.is_integer(t) or pa.types.is_floating(t)}
    long = {t: n for t, n in found.items() if pa.types.is_decimal(t)}
    texts = {t: n for t, n in found.items() if pa.types.is_string(t) or pa.types.is_timestamp(t)}
    if long and not texts:
        return pa.field(name, pa.string(), metadata={AS_WRITTEN: b""})
    families: list[tuple[int, pa.DataType]] = []
    if numbers:
        families.append((sum(numbers.values()), pa.float64() if len(numbers) > 1 else next(iter(numbers))))
    if texts:
        families.append((sum(texts.values()), pa.string() if len(texts) > 1 else next(iter(texts))))
    nested = {t: n for t, n in found.items() if t not in numbers and t not in texts and t not in long}
    for kind in (pa.types.is_struct, pa.types.is_list, pa.types.is_boolean):
        alike = [t for t in nested if kind(t)]
        if alike:
            families.append((sum(nested[t] for t in alike), _unified(name, alike)))
    return pa.field(name, max(families, key=lambda family: family[0])[1] if families else pa.null())


def _unified(name: str, types: list[pa.DataType]) -> pa.DataType:
    try:
        schemas = [pa.schema([(name, t)]) for t in types]
        return pa.unify_schemas(schemas, promote_options="permissive").types[0]
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return types[0]


def _slowly(
    config: Read, file: str, lines: list[bytes], schema: pa.Schema, at: int, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(lines), batch_rows):
        given = [
            (at + start + k, line) for k, line in enumerate(lines[start : start + batch_rows]) if line.strip()
        ]
        if given:
            yield _each(config, file, given, schema)


def _each(config: Read, file: str, lines: list[tuple[int, bytes]], schema: pa.Schema) -> pa.RecordBatch:
    """Return lines that are read one by one."""
    rows: list[dict[str, Any]] = []
    faults: dict[int, str] = {}
    for k, (_, line) in enumerate(lines):
        row = _parsed(line)
        rows.append(row if isinstance(row, dict) else {})
        if isinstance(row, str):
            faults[k] = row
    columns = []
    for field in schema:
        values = []
        for k, row in enumerate(rows):
            value, fits = _converted(row.get(field.name), field, field.name in config.schema)
            values.append(value)
            if not fits:
                remedy = (
                    "" if field.name in config.schema else f"; set schema: {{{field.name}: …}} if it should be"
                )
                shown = json.dumps(row[field.name], ensure_ascii=False)[:80]
                faults.setdefault(k, f"column {field.name!r} is {word(field.type)}, and {shown} is not{remedy}")
        columns.append(pa.array(values, field.type))
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    said = [
        bad_row(
            lines[k][1].decode("utf-8", "backslashreplace").rstrip("\r\n"), f"{file!r} line {lines[k][0]}: {why}"
        )
        for k, why in sorted(faults.items())
    ]
    return with_bad(batch, sorted(faults), said)


def _converted(value: Any, field: pa.Field, declared: bool) -> tuple[Any, bool]:
    """Return a value as its column takes it, and whether it does."""
    type_ = field.type
    if value is None:
        return None, True
    if isinstance(value, Number):
        if pa.types.is_string(type_):
            as_written = field.metadata is not None and AS_WRITTEN in field.metadata
            return (str(value), True) if as_written else (None, False)
        whole = re.fullmatch(r"-?[0-9]+", value) is not None
        if pa.types.is_floating(type_):
            number = float(value)
            fits = is_whole(value, number) if whole else declared or significant(value) <= _DIGITS
            return (number, True) if fits else (None, False)
        if pa.types.is_integer(type_) and whole and -(1 << 63) <= int(value) < 1 << 63:
            return int(value), True
        return None, False
    if isinstance(value, str):
        if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
            read, unfit = converted(
                pa.array([value], pa.string()), type_, declared or pa.types.is_timestamp(type_)
            )
            return read[0].as_py(), unfit is None
        return (value, True) if pa.types.is_string(type_) else (None, False)
    if isinstance(value, bool):
        return (value, True) if pa.types.is_boolean(type_) else (None, False)
    if isinstance(value, float):
        return (value, True) if pa.types.is_floating(type_) else (None, False)
    try:
        plain = _plain(value)
        fits = pa.types.is_nested(type_) and pa.scalar(plain, type_).as_py() is not None
        return (plain, True) if fits else (None, False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None, False


def is_whole(text: str, number: float) -> bool:
    """Whether a double holds an integer exactly."""
    return is_exact(text, number) and int(number) == int(text)
