"""Writing result files: one file per sink, batch by batch, appearing under its name when complete."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from slackwater.pipelines.io.partial_files import PartialFile, place_all, writing
from slackwater.pipelines.io.plain_types import refused_by_csv
from slackwater.pipelines.io.sink_files import sink_file
from slackwater.pipelines.template.graph import Write
from slackwater.transforms.errors import SlackwaterError
from slackwater.transforms.rows.json_text import rows_to_json
from slackwater.transforms.rows.size import PIECE_BYTES, pieces

ROW_GROUP: Final = 1 << 17


class Sink:
    """Writes batches of one schema to a file. Nothing is seen under its name before ``close`` or ``close_all``.

    Args:
        config: format and path.
        schema: columns of every batch.
    """

    def __init__(self, config: Write, schema: pa.Schema) -> None:
        self.file = sink_file(config)
        self._names = schema.names
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self.rows = 0
        """Rows that have been added."""
        _check_types(config.format, schema)
        self._partial = PartialFile(self.file)
        with writing(self.file):
            self._writer: Any = _open(config.format, self._partial.out, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; hidden columns are left out.

        They are written in groups of at least ROW_GROUP, so small batches cost no small pages; large rows when
        they have PIECE_BYTES.
        """
        if batch.num_rows:
            if batch.num_columns > len(self._names):
                batch = batch.select(self._names)
            self._waiting.append(batch)
            self._rows += batch.num_rows
            self.rows += batch.num_rows
            if self._rows >= ROW_GROUP or sum(part.nbytes for part in self._waiting) >= PIECE_BYTES:
                self._flush()

    def close(self) -> None:
        """Complete the file and give it its name, replacing an older one."""
        close_all([self])

    def complete(self) -> PartialFile:
        """Bring all rows to the disk; return the file, which has yet to get its name."""
        self._flush()
        with writing(self.file):
            self._writer.close()
        self._partial.flush()
        return self._partial

    def _flush(self) -> None:
        if self._waiting:
            with writing(self.file):
                self._writer.write_table(pa.Table.from_batches(self._waiting))
            self._waiting, self._rows = [], 0

    def abort(self) -> None:
        """Leave nothing behind."""
        # On a full disk, what would complete the file cannot be written either.
        with suppress(Exception):
            self._writer.close()
        self._partial.discard()


def close_all(sinks: Sequence[Sink]) -> None:
    """Complete the files of all sinks before the first gets its name; if one fails, all stay as they were."""
    try:
        place_all([sink.complete() for sink in sinks])
    except BaseException:
        for sink in sinks:
            sink.abort()
        raise


def _check_types(format: str, schema: pa.Schema) -> None:
    """Raise if a file of this format cannot hold a column."""
    nested = refused_by_csv(schema) if format == "csv" else None
    if nested is not None:
        raise SlackwaterError(
            f"column {nested.name!r} has the type {nested.type}, which CSV cannot hold; write Parquet or JSON, "
            "or leave the column out with MapToFields"
        )


def _open(format: str, file: BinaryIO, schema: pa.Schema) -> Any:
    if format == "parquet":
        return _parquet(file, schema)
    if format == "csv":
        return pa_csv.CSVWriter(file, schema)
    return _JsonLines(file)


def _parquet(file: BinaryIO, schema: pa.Schema) -> pq.ParquetWriter:
    """Integers and times as deltas: results are in timestamp order, so this is three times as fast to write as
    a dictionary, and half the size."""
    deltas = [
        field.name
        for field in schema
        if field.type in (pa.int32(), pa.int64()) or pa.types.is_timestamp(field.type)
    ]
    return pq.ParquetWriter(
        file,
        schema,
        compression="snappy",
        use_dictionary=[name for name in schema.names if name not in deltas],
        column_encoding=dict.fromkeys(deltas, "DELTA_BINARY_PACKED"),
    )


class _JsonLines:
    def __init__(self, file: BinaryIO) -> None:
        self._out = file

    def write_table(self, table: pa.Table) -> None:
        for batch in chain.from_iterable(map(pieces, table.combine_chunks().to_batches())):
            lines = pc.binary_join_element_wise(rows_to_json(batch), "", "\n").cast(pa.large_binary())
            _, offsets, text = lines.buffers()
            first, last = np.frombuffer(offsets, np.int64)[[lines.offset, lines.offset + len(lines)]]
            self._out.write(memoryview(text)[first:last])

    def close(self) -> None:
        """Nothing is left to write."""
