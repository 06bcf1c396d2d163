"""The results that a join has missed, from its archive: produced and reconciled together are the exact join."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.transforms.archive import GONE, LATE, POS, SETTINGS, produced
from slackwater.transforms.config import JoinConfig
from slackwater.transforms.encode import int64s
from slackwater.transforms.errors import SlackwaterError
from slackwater.transforms.operator import Chunk, Operator
from slackwater.transforms.plan import JoinPlan, bind
from slackwater.transforms.times import event_times

BESIDE: Final = (POS, GONE, LATE)


class Reconciliation:
    """An archive, and how what is in it is to be joined.

    Args:
        directory: what the join's setting ``archive`` named.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        try:
            settings = json.loads((directory / SETTINGS).read_text())
            join, schemas = settings["join"], settings["schemas"]
        except (OSError, ValueError, KeyError, TypeError):
            raise SlackwaterError(
                f"{str(directory)!r} is not an archive; name the directory that the join's setting archive names"
            ) from None
        found = {name: pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))) for name, text in schemas.items()}
        beside = [(POS, pa.int64()), (GONE, pa.int64()), (LATE, pa.bool_())]
        widened = {name: pa.schema([*schema, *(pa.field(*b) for b in beside)]) for name, schema in found.items()}
        exact = {"strategy": "symmetric_hash" if join["window"] is None else "mswj"}
        config = {key: value for key, value in join.items() if value is not None}
        self.plan: JoinPlan = bind(
            JoinConfig.read({**config, "join": exact, "disorder": {"strategy": "none"}}), widened
        )

    def missed(self) -> Iterator[pa.RecordBatch]:
        """Yield the results that were missed, in the order of their times, in memory for one bucket of time."""
        operator = Operator(self.plan)
        for bucket in self._buckets():
            yield from self._results(operator.push(self._rows(bucket)).results)
        yield from self._results(operator.finish().results)

    def _buckets(self) -> list[int]:
        names = {folder.name for folder in self._directory.glob("input=*/bucket=*")}
        return sorted(int(name.removeprefix("bucket=")) for name in names)

    def _rows(self, bucket: int) -> Chunk:
        """Return the rows of a bucket in the order of their times."""
        batches, times, inputs = [], [], []
        for i, (name, schema) in enumerate(self.plan.schemas.items()):
            files = sorted((self._directory / f"input={name}" / f"bucket={bucket}").glob("*.parquet"))
            tables = [pq.read_table(file, partitioning=None).cast(schema) for file in files]
            rows = pa.concat_tables([schema.empty_table(), *tables]).combine_chunks()
            ts, _ = event_times(rows[self.plan.time_columns[i]].combine_chunks(), self.plan.unit)
            order = np.argsort(ts, kind="stable")
            batches.append(rows.take(pa.array(order)).combine_chunks().to_batches(max_chunksize=None))
            times.append(ts[order])
            inputs.append(np.full(len(ts), i, np.int8))
        ts, which = np.concatenate(times), np.concatenate(inputs)
        order = np.argsort(ts, kind="stable")
        empty = [schema.empty_table().to_batches() for schema in self.plan.schemas.values()]
        one = [
            (found or none or [pa.RecordBatch.from_pylist([], schema=schema)])[0]
            for found, none, schema in zip(batches, empty, self.plan.schemas.values(), strict=True)
        ]
        return Chunk(which[order], np.arange(len(order)), one)

    def _results(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            names = self.plan.inputs
            members = [tuple(_column(batch, f"{name}_{beside}") for beside in BESIDE) for name in names]
            missing = batch.filter(pa.array(~produced(members)))
            hidden = {f"{name}_{beside}" for name in names for beside in BESIDE}
            yield missing.select([name for name in missing.schema.names if name not in hidden])


def _column(batch: pa.RecordBatch, name: str) -> Any:
    column = batch.column(name)
    return np.asarray(column) if pa.types.is_boolean(column.type) else int64s(column)
