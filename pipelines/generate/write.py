"""Writing rows and counts to files, a batch at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from slackwater.pipelines.generate.spec import Columns, Truth

FORMATS = {"parquet": "parquet", "csv": "csv", "json": "jsonl"}
"""Format to file ending."""

BATCH = 131_072
"""Rows per batch, and per Parquet row group."""


def write_rows(path: Path, columns: Columns, format: str) -> None:
    """Write columns of equal length as rows, in the order given, replacing the file.

    CSV files have a header line; JSON files hold one object per line.
    """
    import pyarrow as pa

    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    if format == "parquet":
        import pyarrow.parquet as pq

        pq.write_table(table, path, row_group_size=BATCH)
    elif format == "csv":
        import pyarrow.csv as pv

        pv.write_csv(table, path, pv.WriteOptions(batch_size=BATCH, quoting_style="needed"))
    else:
        with path.open("w", encoding="utf-8", newline="\n") as file:
            for batch in table.to_batches(max_chunksize=BATCH):
                file.writelines(_json_lines(batch))


def write_counts(path: Path, truth: Truth) -> None:
    """Write result counts as CSV with the columns ``second`` and ``results``, replacing the file."""
    write_rows(path, {"second": truth.seconds, "results": truth.results}, "csv")


def _json_lines(batch: Any) -> list[str]:
    """Return one JSON object with its newline for each row; whole numbers never become Python objects."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts: list[Any] = []
    for position, name in enumerate(batch.schema.names):
        column = batch.column(position)
        if pa.types.is_integer(column.type) and column.null_count == 0:
            cells = pc.cast(column, pa.string())
        else:
            cells = pa.array([json.dumps(cell) for cell in column.to_pylist()], pa.string())
        parts += [("{" if position == 0 else ", ") + json.dumps(name) + ": ", cells]
    lines: list[str] = pc.binary_join_element_wise(*parts, "}\n", "").to_pylist()
    return lines
