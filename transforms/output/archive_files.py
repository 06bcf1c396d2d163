"""The files of an archive: a log while a shard runs, Parquet by input and time once it has ended.

Only at the end is it known which rows a missed one could have met, as a row may come as late as it likes. So all
go to a log first. At the end, those that no missed row reaches are left out: rows that are further away than the
longest window, or that have another key, where all inputs share one.

``log/SHARD/NUMBER.arrow`` goes away when ``input=NAME/bucket=NUMBER/SHARD.parquet`` and then ``shard-SHARD.json``
are there. Names follow from the shard and its snapshot and files appear whole, so an engine that tries a part of
the work again writes the same files again, and what a part that was given up has left is never read.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.plugins.contract import Bools, Int64s, Snapshot
from slackwater.transforms.arrival.event_times import event_times
from slackwater.transforms.errors import SlackwaterError
from slackwater.transforms.output.archive_directory import LOG
from slackwater.transforms.settings.plan import JoinPlan
from slackwater.transforms.sharding.by_key import key_hashes

POS: Final = "__pos"
GONE: Final = "__gone"
LATE: Final = "__late"
BESIDE: Final = (pa.field(POS, pa.int64()), pa.field(GONE, pa.int64()), pa.field(LATE, pa.bool_()))
"""Columns that stand beside those of the input."""
BUCKET_WINDOWS: Final = 8
"""Longest windows in a bucket of time, at least."""
BUCKET_ROWS: Final = 1 << 16
"""Rows of an input in a bucket that a shard should have, judging by the first it writes."""
GROUP_ROWS: Final = 1 << 14
"""Rows of a row group, at least, but for the last."""
_LONGEST: Final = 1 << 61
_MARK_BITS: Final = 22


def data_file(directory: Path, name: str, bucket: int, shard: int) -> Path:
    """Return the file with the rows of an input, a bucket of time and a shard."""
    return directory / f"input={quote(name, safe='')}" / f"bucket={bucket}" / f"{shard:05}.parquet"


def manifest_file(directory: Path, shard: int) -> Path:
    """Return the file that says which files a shard that has ended has written."""
    return directory / f"shard-{shard:05}.json"


@contextmanager
def written_whole(file: Path) -> Iterator[Path]:
    """Give a path to write to; what was written there gets the file's name at the end, or goes."""
    partial = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        os.replace(partial, file)
    except (OSError, pa.ArrowException) as error:
        why = getattr(error, "strerror", None) or error
        fault = f"archive: cannot write {str(file)!r}: {why}; make room there, or name another directory"
        raise SlackwaterError(fault) from None
    finally:
        with suppress(OSError):
            partial.unlink()


class ShardFiles:
    """What a shard has written so far.

    Args:
        plan: the join.
        directory: the archive.
        shard: number of the shard.
        snapshot: what ``snapshot`` returned, or None.
    """

    def __init__(self, plan: JoinPlan, directory: Path, shard: int, snapshot: Snapshot | None = None) -> None:
        self._plan, self._directory, self._shard = plan, directory, shard
        self._width = int(snapshot["width"]) if snapshot else 0
        self._log: list[tuple[int, int]] = []
        """Input and bucket of each file of the log."""
        if snapshot:
            self._log = [(int(i), int(bucket)) for i, bucket in snapshot["log"]]

    def snapshot(self) -> Snapshot:
        return {"width": self._width, "log": np.array(self._log, np.int64).reshape(-1, 2)}

    def buckets(self, ts: Int64s) -> Int64s:
        """Return the bucket of each row, given in order of time."""
        if not self._width:
            middle = ts[len(ts) // 20 : len(ts) - len(ts) // 20]
            reach, span = self._reach, int(middle[-1] - middle[0]) + 1
            windows = max(BUCKET_WINDOWS, span * BUCKET_ROWS // (len(middle) * reach))
            self._width = min(_LONGEST, windows * reach)
        return ts // self._width

    def append(self, which: int, bucket: int, rows: pa.RecordBatch) -> None:
        """Write rows of one bucket to the log."""
        with (
            written_whole(self._log_file(len(self._log))) as partial,
            pa.ipc.new_file(str(partial), rows.schema) as file,
        ):
            file.write_batch(rows)
        self._log.append((which, bucket))

    def complete(self) -> None:
        """Turn the log into Parquet files, without the rows that no missed row reaches.

        Takes memory for one file of the log and for marks of constant size.
        """
        manifest = manifest_file(self._directory, self._shard)
        if not manifest.exists():
            content = self._thinned()
            with written_whole(manifest) as partial:
                partial.write_text(json.dumps(content))
        shutil.rmtree(self._log_file(0).parent, ignore_errors=True)

    @property
    def _reach(self) -> int:
        """How far apart two members of a result can be."""
        return max(1, *self._plan.windows)

    def _log_file(self, number: int) -> Path:
        return self._directory / LOG / f"{self._shard:05}" / f"{number:08}.arrow"

    def _thinned(self) -> dict[str, Any]:
        """Write the Parquet files; return what the manifest says of them."""
        log: dict[tuple[int, int], list[int]] = {}
        for number, entry in enumerate(self._log):
            log.setdefault(entry, []).append(number)
        files: list[tuple[str, int, int, int]] = []
        marks: dict[int, Bools] = {}
        for bucket in sorted({bucket for _, bucket in log}):
            around = (bucket - 1, bucket, bucket + 1)
            marks = {b: marks[b] if b in marks else self._marks(log, b) for b in around}
            near = marks[bucket - 1] | marks[bucket] | marks[bucket + 1]
            for which, name in enumerate(self._plan.members):
                file = data_file(self._directory, name, bucket, self._shard)
                rows, missed = _write_groups(file, self._reached(which, log.get((which, bucket), ()), near))
                if rows:
                    files.append((name, bucket, rows, missed))
        return {"version": 1, "shard": self._shard, "width": self._width, "files": files}

    def _logged(self, numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
        for number in numbers:
            with pa.memory_map(str(self._log_file(number))) as file:
                yield pa.ipc.open_file(file).get_batch(0)

    def _reached(self, which: int, numbers: Iterable[int], near: Bools) -> Iterator[pa.RecordBatch]:
        """Yield the rows of an input that were missed or are near such."""
        for batch in self._logged(numbers):
            yield batch.filter(pa.array(was_missed(batch) | near[self._places(which, batch)]))

    def _marks(self, log: dict[tuple[int, int], list[int]], bucket: int) -> Bools:
        """Return a bitmap of the places that the missed rows of a bucket reach."""
        marks = np.zeros(1 << _MARK_BITS, np.bool_)
        for which in range(len(self._plan.members)):
            for batch in self._logged(log.get((which, bucket), ())):
                missed = batch.filter(pa.array(was_missed(batch)))
                for way in (-1, 0, 1):
                    marks[self._places(which, missed, way)] = True
        return marks

    def _places(self, which: int, rows: pa.RecordBatch, way: int = 0) -> Int64s:
        """Return the bit of each row: rows that can meet share one, for some ``way`` of -1, 0, 1."""
        ts, _ = event_times(rows.column(self._plan.time_columns[which]), self._plan.unit)
        keys = key_hashes(rows, self._plan.shard_cells(which)).view(np.uint64)
        mixed = keys * np.uint64(0x9E3779B97F4A7C15) + (ts // self._reach + way).view(np.uint64)
        mixed = (mixed ^ mixed >> np.uint64(32)) * np.uint64(0xD6E8FEB86659FD93)
        return (mixed >> np.uint64(64 - _MARK_BITS)).astype(np.int64)


def was_missed(rows: pa.RecordBatch) -> Bools:
    """Say which rows of an archive results were missed of."""
    either = pc.or_(rows.column(LATE), rows.column(GONE).is_valid())
    return np.asarray(either.to_numpy(zero_copy_only=False), np.bool_)


def _write_groups(file: Path, batches: Iterator[pa.RecordBatch]) -> tuple[int, int]:
    """Write rows in groups of GROUP_ROWS; return how many there are, and how many were missed.

    Without rows there is no file.
    """
    filled = filter(len, batches)
    first = next(filled, None)
    if first is None:
        return 0, 0
    rows = missed = 0
    with (
        written_whole(file) as partial,
        pq.ParquetWriter(partial, first.schema, compression="zstd") as writer,
    ):
        waiting: list[pa.RecordBatch] = []
        for batch in chain([first], filled):
            waiting.append(batch)
            rows += len(batch)
            missed += int(was_missed(batch).sum())
            if sum(map(len, waiting)) >= GROUP_ROWS:
                writer.write_table(pa.Table.from_batches(waiting))
                waiting = []
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting))
    return rows, missed
