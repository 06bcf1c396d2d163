"""The results that a join has missed, from its archive: produced and reconciled together are the exact join.

The archive is worked on in parts: a span of time of one shard, with the rows before it that its own may have met.
Parts do not depend on each other; each has about PART_ROWS rows, or those of two windows if these are more.
"""

from __future__ import annotations

import base64
import json
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.pipelines.io.sink_files import ENDINGS, sink_file
from slackwater.pipelines.io.sinks import Sink
from slackwater.pipelines.template.graph import Write
from slackwater.plugins.contract import Int64s
from slackwater.plugins.registry import builtin
from slackwater.transforms.arrival.event_times import event_times
from slackwater.transforms.errors import ConfigError, SlackwaterError
from slackwater.transforms.operators.join import Chunk, Operator
from slackwater.transforms.output.archive import STAYS, produced
from slackwater.transforms.output.archive_directory import FINISHED, LOG, SETTINGS, UNFINISHED
from slackwater.transforms.output.archive_files import BESIDE, GONE, LATE, POS, data_file
from slackwater.transforms.output.outputs import Counts, Outputs
from slackwater.transforms.rows.encoder import int64s
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import JoinPlan, bind

PART_ROWS: Final = 1 << 18
STEP_ROWS: Final = 1 << 15
"""Rows that are joined at a time: bounds the results that are held."""
RECONCILED: Final = "reconciled"


class Part(NamedTuple):
    """A span of time of one shard."""

    start: int
    """First tick."""
    stop: int
    """First tick after it."""
    files: dict[str, list[str]]
    """Of each input, the files that may have rows of it, or rows that these may have met."""


class _Shard(NamedTuple):
    """What a shard has left."""

    number: int
    width: int
    """Ticks of a bucket."""
    files: list[tuple[str, int, int, int]]
    """Input and bucket of each file, how many rows it has, and how many of them were missed."""


def reconcile(
    directory: Path,
    out: Path | None = None,
    force: bool = False,
    run_parts: Callable[[Reconciliation, Sink], None] | None = None,
) -> dict[str, Any]:
    """Write the results that a join has missed to a file; return a summary.

    Args:
        directory: what the join's setting ``archive`` names.
        out: the file: Parquet, CSV or JSON by its ending; by default ``reconciled.parquet`` in the directory.
        force: whether to replace a file that is there.
        run_parts: does the work on another engine; by default it is done here.

    Raises:
        SlackwaterError: There is no archive, it is not complete or damaged, or the file cannot be written.
    """
    started = time.perf_counter()
    archive = Reconciliation(directory)
    sink_config = _sink(out or directory / RECONCILED)
    file = sink_file(sink_config)
    if file.exists() and not force:
        raise SlackwaterError(f"{str(file)!r} is there already; name another with --out, or add --force")
    sink = Sink(sink_config, archive.join.result_schema)
    try:
        (run_parts or _run_here)(archive, sink)
    except BaseException:
        sink.abort()
        raise
    sink.close()
    return {
        "archive": str(directory),
        "rows": archive.rows,
        "missed_rows": archive.missed_rows,
        "results": sink.rows,
        "file": str(file),
        "elapsed_s": round(time.perf_counter() - started, 6),
    }


def _sink(out: Path) -> Write:
    endings = {".parquet": "parquet", "": "parquet", ".csv": "csv", ".json": "json", ENDINGS["json"]: "json"}
    if out.suffix not in endings:
        raise SlackwaterError(f"--out {str(out)!r}: must end with .parquet, .csv, .json or .jsonl")
    return Write(endings[out.suffix], str(out))


def _run_here(archive: Reconciliation, sink: Sink) -> None:
    for part in archive.parts():
        for batch in archive.missed(part):
            sink.write(batch)


class Reconciliation:
    """An archive, and how what is in it is to be joined.

    Args:
        directory: what the join's setting ``archive`` named.

    Raises:
        SlackwaterError: It is no archive, or not complete.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()
        self.join, self._plan = _read_join(directory)
        self._shards = [_read_shard(file) for file in sorted(directory.glob("shard-*.json"))]
        some = self._shards or (directory / FINISHED).exists()
        if not some or (directory / UNFINISHED).exists() or any((directory / LOG).glob("*/*")):
            raise SlackwaterError(
                f"the run that writes {str(directory)!r} has not finished; wait for it, or if it has failed, run "
                "it again with a new directory"
            )
        files = [file for shard in self._shards for file in shard.files]
        self.rows: int = sum(rows for *_, rows, _ in files)
        """Rows in the archive."""
        self.missed_rows: int = sum(missed for *_, missed in files)
        """Those among them that results were missed of."""

    def missed_results(self) -> Iterator[pa.RecordBatch]:
        """Yield all results that were missed, shard by shard in order of time."""
        for part in self.parts():
            yield from self.missed(part)

    def parts(self) -> Iterator[Part]:
        """Cut the archive into parts."""
        reach = max(self._plan.windows)
        for shard in self._shards:
            width = shard.width
            rows: dict[int, int] = {}
            named: dict[int, list[tuple[str, str]]] = {}
            for name, bucket, n, _ in shard.files:
                rows[bucket] = rows.get(bucket, 0) + n
                file = str(data_file(self._directory, name, bucket, shard.number))
                named.setdefault(bucket, []).append((name, file))
            buckets = sorted(rows)
            for start, stop in _spans([(bucket, rows[bucket]) for bucket in buckets], width, max(1, reach)):
                low = bisect_left(buckets, (start - reach) // width)
                high = bisect_left(buckets, -(-stop // width))
                files: dict[str, list[str]] = {name: [] for name in self._plan.members}
                for bucket in buckets[low:high]:
                    for name, file in named[bucket]:
                        files[name].append(file)
                yield Part(start, stop, files)

    def missed(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Yield the results of a part that were missed, or their counts, in order of time."""
        operator, counts = Operator(self._plan), Counts(self.join)
        given = (operator.push(chunk) for chunk in self._chunks(part))
        for outputs in chain(given, operator.finishing()):
            out = Outputs.empty()
            for batch in outputs.results:
                ts, _ = event_times(batch.column("ts"), self._plan.unit)
                due = ~produced([_fate(batch, name) for name in self._plan.members]) & (ts >= part.start)
                if self.join.config.output == "counts":
                    counts.add(ts[due], np.ones(np.count_nonzero(due), np.int64))
                elif due.any():
                    out.results.append(batch.filter(pa.array(due)).select(self.join.result_schema.names))
            counts.emit(out)
            yield from out.results
        out = Outputs.empty()
        counts.finish(out)
        yield from out.results

    def _chunks(self, part: Part) -> Iterator[Chunk]:
        """Yield the rows of a part in order of time."""
        tables, times = [], []
        for i, (name, schema) in enumerate(self._plan.schemas.items()):
            rows, ts = self._rows(part, i, part.files.get(name, []), schema)
            order = np.argsort(ts, kind="stable")
            tables.append(rows.take(pa.array(order)).combine_chunks())
            times.append(ts[order])
        which = np.repeat(np.arange(len(times), dtype=np.int8), [len(ts) for ts in times])
        which = which[np.argsort(np.concatenate(times), kind="stable")]
        taken = np.zeros(len(times), np.int64)
        for start in range(0, len(which), STEP_ROWS):
            inputs = which[start : start + STEP_ROWS]
            sizes = np.bincount(inputs, minlength=len(times))
            cut = [_batch(table.slice(a, n)) for table, a, n in zip(tables, taken, sizes, strict=True)]
            taken += sizes
            yield Chunk(inputs, np.arange(start, start + len(inputs)), cut)

    def _rows(self, part: Part, which: int, files: list[str], schema: pa.Schema) -> tuple[pa.Table, Int64s]:
        """Return the rows of an input that a part needs, and their times."""
        kept, times = [schema.empty_table()], [np.empty(0, np.int64)]
        first = part.start - max(self._plan.windows)
        for file in files:
            try:
                for batch in pq.ParquetFile(file).iter_batches():
                    rows = pa.Table.from_batches([batch]).cast(schema).combine_chunks()
                    ts, _ = event_times(_batch(rows).column(self._plan.time_columns[which]), self._plan.unit)
                    near = (ts >= first) & (ts < part.stop)
                    kept.append(rows.filter(pa.array(near)))
                    times.append(ts[near])
            except (OSError, ValueError, KeyError) as error:
                why = str(error).splitlines()[0]
                raise SlackwaterError(
                    f"{file!r} is missing or damaged: {why}; restore it, or run the join again with a new archive"
                ) from None
        return pa.concat_tables(kept), np.concatenate(times)


def _read_join(directory: Path) -> tuple[JoinPlan, JoinPlan]:
    """Return the exact join, and that of the archive's rows, whose results tell what became of their members."""
    try:
        settings = json.loads((directory / SETTINGS).read_text(encoding="utf-8"))
        found = {
            name: pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
            for name, text in settings["schemas"].items()
        }
        join = {
            **settings["join"],
            "join": {"strategy": builtin.JOIN},
            "disorder": {"strategy": builtin.IN_ORDER},
            "guard": "none",
        }
        exact = bind(JoinConfig.read(join), found)
        widened = {
            name: pa.schema([*schema, *BESIDE]) if name in exact.members else schema
            for name, schema in found.items()
        }
        return exact, bind(JoinConfig.read({**join, "output": "rows"}), widened)
    except (OSError, KeyError, TypeError, AttributeError, ValueError, ConfigError):
        raise SlackwaterError(
            f"{str(directory)!r} is not an archive; name the directory that the join's setting archive names"
        ) from None


def _read_shard(file: Path) -> _Shard:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return _Shard(content["shard"], content["width"], content["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SlackwaterError(
            f"{str(file)!r} is damaged: {error}; restore it, or run the join again with a new archive"
        ) from None


def _spans(buckets: list[tuple[int, int]], width: int, reach: int) -> Iterator[tuple[int, int]]:
    """Cut time into spans of about PART_ROWS rows, given the buckets that have some and how many."""
    first, waiting = 0, 0
    for bucket, rows in buckets:
        if waiting and waiting + rows > PART_ROWS:
            yield first, bucket * width
            waiting = 0
        if not waiting:
            first = bucket * width
        waiting += rows
        step = max(reach, width * PART_ROWS // rows)
        if step < width:
            stop = (bucket + 1) * width
            yield from ((start, min(start + step, stop)) for start in range(first, stop, step))
            waiting = 0
    if waiting:
        yield first, (buckets[-1][0] + 1) * width


def _fate(batch: pa.RecordBatch, name: str) -> tuple[Any, Any, Any]:
    """Return ``pos``, ``gone`` and ``late`` of an input's members of results."""
    late = batch.column(f"{name}_{LATE}").to_numpy(zero_copy_only=False)
    gone = batch.column(f"{name}_{GONE}").fill_null(STAYS)
    return int64s(batch.column(f"{name}_{POS}")), int64s(gone), np.asarray(late, np.bool_)


def _batch(table: pa.Table) -> pa.RecordBatch:
    """Return a table as one batch."""
    arrays = [column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)
