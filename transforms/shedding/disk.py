"""Tuples of one operator on disk: their rows and numbers beside each, as Arrow IPC, a file per partition."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Int64s, Snapshot, UInt64s
from slackwater.plugins.contract.disk import Stored
from slackwater.transforms.errors import SlackwaterError
from slackwater.transforms.rows import ipc
from slackwater.transforms.rows.encoder import CellEncoder, int64s
from slackwater.transforms.rows.size import fits
from slackwater.transforms.rows.store import RowStore
from slackwater.transforms.rows.stored_rows import StoredRows
from slackwater.transforms.settings.plan import JoinPlan
from slackwater.transforms.shedding.spill import SpillDirectory, remove_stale
from slackwater.transforms.state.snapshot import seal, unsealed

SNAPSHOT_BYTES: Final = 256 * 10**6
"""Bytes on disk that a snapshot can take along: it is held in memory, by the engine too."""

SEQ: Final = "__seq"
"""Last column of rows on disk where results have ids: the row's number."""

Partition = tuple[int, int]
"""Input and number."""


class RowDisk:
    """Implements ``plugins.contract.Disk`` for the rows of an operator.

    A file is a series of IPC streams, one for each time that tuples were written, so that none has to be kept
    open and columns with dictionaries may bring a new one each time. Each is sealed (``snapshot.seal``). Files
    are read as a stream, not mapped: what is on disk does not count as memory.

    Args:
        plan: the join.
        stores: the rows of each input that are in memory.
        encoder: what made the cells of these.
        directory: where to put files, or None for the system's temporary directory.
    """

    def __init__(
        self, plan: JoinPlan, stores: Sequence[RowStore], encoder: CellEncoder, directory: str | None
    ) -> None:
        self._plan, self._stores, self._encoder = plan, stores, encoder
        self._parent = Path(directory or tempfile.gettempdir())
        if not (self._parent.is_dir() and os.access(self._parent, os.W_OK | os.X_OK)):
            raise SlackwaterError(
                f"join.directory: {str(self._parent)!r} is no directory that can be written to; make it, or name "
                "another"
            )
        remove_stale(self._parent)
        self._directory: SpillDirectory | None = None
        self._sizes: dict[Partition, int] = {}

    @property
    def nbytes(self) -> int:
        return sum(self._sizes.values())

    def row_bytes(self) -> float:
        rows = sum(map(len, self._stores))
        return sum(store.nbytes for store in self._stores) / rows if rows else 1.0

    def lasting(self, which: int, cells: Int64s, columns: list[int]) -> Int64s:
        words = cells[:, columns]
        for k, cell in enumerate(columns):
            if cell in self._encoder.text_cells(which):
                words[:, k] = self._encoder.dictionary.hashes(words[:, k]).view(np.int64)
        return words

    def write(self, which: int, partitions: Int64s, seqs: Int64s, notes: Int64s) -> None:
        if not len(seqs):
            return
        order = np.argsort(partitions, kind="stable")
        for part in map(order.__getitem__, self._stores[which].cuts(self._stores[which].locate(seqs[order]))):
            batch = _beside(notes[part], self.rows(which, seqs[part]))
            numbers, first = np.unique(partitions[part], return_index=True)
            for number, start, stop in zip(numbers, first, [*first[1:], len(part)], strict=True):
                self._append(which, int(number), [batch.slice(start, stop - start)])

    def rewrite(self, which: int, partition: int, kept: Iterable[Stored]) -> None:
        old, name = self._path(which, partition), f"{which}-{partition}.new"
        with self._failures():
            size = self._write(self._open().file(name), (_beside(part.notes, part.rows.batch()) for part in kept))
            os.replace(self._open().path / name, old)
            self._sizes[which, partition] = size
            if not size:
                old.unlink()
                del self._sizes[which, partition]

    def values(self, which: int, cell: int, words: Int64s) -> pa.Array:
        layout = self._plan.condition.columns[which][cell]
        type_ = list(self._plan.schemas.values())[which].field(layout.column).type
        return self._encoder.values(layout, type_, words)

    def reader(self) -> RowReader:
        return RowReader(self, self._plan)

    def snapshot(self) -> Snapshot:
        if self.nbytes > SNAPSHOT_BYTES:
            raise SlackwaterError(
                f"join: {self.nbytes / 1e6:,.0f} MB of the state are on disk, and a snapshot, which this runner "
                f"takes after every batch, carries {SNAPSHOT_BYTES / 1e6:,.0f} MB at most; raise memory or "
                "shards, or use the runner local or beam"
            )
        with self._failures():
            files = {f"{i}-{p}": self._path(i, p).read_bytes() for i, p in self._sizes}
        return {"files": files}

    def restore(self, snapshot: Snapshot) -> None:
        for name, content in snapshot["files"].items():
            which, partition = map(int, name.split("-"))
            with self._failures():
                self._path(which, partition).write_bytes(content)
            self._sizes[which, partition] = len(content)

    def close(self) -> None:
        if self._directory is not None:
            self._directory.close()
            self._directory = None
        self._sizes.clear()

    def batches(self, which: int, partition: int) -> Iterator[pa.RecordBatch]:
        """Yield what was written to a partition, numbers first, then the columns of the rows."""
        end = self._sizes.get((which, partition), 0)
        if not end:
            return
        with self._failures(), open(self._path(which, partition), "rb") as file:
            for part in unsealed(file, end, f"the spilled part {which}-{partition}"):
                yield from ipc.from_bytes(bytes(part))

    def rows(self, which: int, seqs: Int64s) -> pa.RecordBatch:
        """Return tuples in memory as rows of ``stored_schemas``."""
        store = self._stores[which]
        rows = store.batch(store.locate(seqs))
        return rows if self._plan.config.id is None else rows.append_column(SEQ, pa.array(seqs))

    def _append(self, which: int, partition: int, batches: Iterable[pa.RecordBatch]) -> None:
        with self._failures():
            written = self._write(self._path(which, partition), batches)
        self._sizes[which, partition] = self._sizes.get((which, partition), 0) + written

    def _write(self, path: Path, batches: Iterable[pa.RecordBatch]) -> int:
        """Append batches to a file; return how many bytes it has got longer."""
        written = 0
        for batch in batches:
            with open(path, "ab") as file:
                written += file.write(seal(ipc.to_bytes(batch)))
        return written

    def _path(self, which: int, partition: int) -> Path:
        return self._open().file(f"{which}-{partition}.arrows")

    def _open(self) -> SpillDirectory:
        if self._directory is None:
            self._directory = SpillDirectory(self._parent)
        return self._directory

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Say what the user can do when the system refuses."""
        try:
            yield
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            held = self.nbytes
            self.close()
            raise SlackwaterError(
                f"join.directory: cannot keep more than {held / 1e6:,.1f} MB of the state in "
                f"{str(self._parent)!r}: {why}; make room there, name another place with directory, or raise "
                "memory"
            ) from None


class RowReader:
    """Implements ``plugins.contract.DiskReader``. Texts get codes of a dictionary of its own."""

    def __init__(self, disk: RowDisk, plan: JoinPlan) -> None:
        self._disk, self._condition = disk, plan.condition
        self._schemas = stored_schemas(plan)
        self._encoder = CellEncoder(plan.condition)
        self._kept = 0

    def blocks(self, which: int, partition: int, size: int) -> Iterator[Stored]:
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for batch in self._disk.batches(which, partition):
            for start in range(0, batch.num_rows, size):
                part = batch.slice(start, size)
                if rows and (rows + part.num_rows > size or not fits([*waiting, part])):
                    yield self._stored(which, waiting)
                    waiting, rows = [], 0
                waiting.append(part)
                rows += part.num_rows
        if waiting:
            yield self._stored(which, waiting)

    def in_memory(self, which: int, seqs: Int64s, notes: Int64s) -> Stored:
        rows = self._disk.rows(which, seqs)
        return Stored(StoredRows(rows), notes, *self._encode(which, rows))

    def words(self, which: int, cell: int, values: Any) -> Int64s:
        return self._encoder.words(self._condition.columns[which][cell], values)[0]

    def keep(self, which: int, cells: Int64s) -> None:
        """Forget texts but those of these tuples, once they are the smaller part."""
        dictionary = self._encoder.dictionary
        if dictionary.size > 2 * self._kept + 4096:
            dictionary.forget(cells[:, self._encoder.text_cells(which)].ravel())
            self._kept = dictionary.size

    def _stored(self, which: int, batches: list[pa.RecordBatch]) -> Stored:
        batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        schema = self._schemas[which]
        beside = batch.num_columns - len(schema)
        notes = np.column_stack([int64s(batch.column(k)) for k in range(beside)])
        rows = pa.RecordBatch.from_arrays(batch.columns[beside:], schema=schema)
        return Stored(StoredRows(rows), notes, *self._encode(which, rows))

    def _encode(self, which: int, rows: pa.RecordBatch) -> tuple[Int64s, UInt64s]:
        return self._encoder.encode(which, rows)


def stored_schemas(plan: JoinPlan) -> list[pa.Schema]:
    """Return the schema of each input's rows on disk."""
    schemas = list(plan.schemas.values())
    return schemas if plan.config.id is None else [schema.append(pa.field(SEQ, pa.int64())) for schema in schemas]


def _beside(notes: Int64s, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with numbers as their first columns."""
    numbers = [pa.array(np.ascontiguousarray(column)) for column in notes.T]
    fields = [pa.field(f"note {k}", pa.int64()) for k in range(len(numbers))]
    return pa.RecordBatch.from_arrays([*numbers, *rows.columns], schema=pa.schema([*fields, *rows.schema]))
