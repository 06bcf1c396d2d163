"""What a query on Spark reads: the files of all inputs of a join, cut into micro-batches.

Files are read as on the other runners. All inputs of a join advance together. With each micro-batch every
shard is told the smallest arrival that each input may still bring (``packing.pack_marks``), and with the last
one that all have ended: results do not depend on where the cuts are.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from itertools import accumulate
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.serializers import CPickleSerializer

from slackwater.pipelines.expressions import apply
from slackwater.pipelines.graph import ARRIVAL, Create, Filter, MapToFields, Read
from slackwater.pipelines.source_files import open_file, source_files
from slackwater.pipelines.sources import BATCH_ROWS, FILE_SHIFT, fitted, read_batches, read_file
from slackwater.plugins.contract import Int64s
from slackwater.transforms import ipc
from slackwater.transforms.encode import int64s
from slackwater.transforms.errors import SlackwaterError
from slackwater.transforms.plan import JoinPlan
from slackwater.transforms.replay import arrival_numbers, without_arrival
from slackwater.transforms.spark.packing import ENDED, MARKS, PACKED_ARROW, pack, pack_marks

PIECE_ROWS: Final = 1 << 18
"""Rows that one task reads, about."""


@dataclass(frozen=True)
class Feed:
    """One input: a source and what is done to its rows before they reach the join.

    A *place* is a row's file number << FILE_SHIFT | row in the file. Rows are counted without reading them:
    exactly for Parquet, for text formats as lines, of which there may be more than rows.
    """

    config: Read | Create
    schema: pa.Schema
    steps: tuple[Filter | MapToFields, ...] = ()
    strict: bool = False
    """Whether a row that cannot be read is an error."""
    kept: bool = False
    """Whether the rows are those of another join, kept in a temporary file."""

    @cached_property
    def files(self) -> list[str]:
        """The files of the source; of rows in the template, none."""
        return source_files(self.config) if isinstance(self.config, Read) else []

    @cached_property
    def sizes(self) -> list[int]:
        """Rows of each file, at most."""
        if isinstance(self.config, Create):
            return [len(self.config.rows)]
        count = _parquet_size if self.config.format == "parquet" else _lines
        return [count(file) for file in self.files]

    @property
    def end(self) -> int:
        """A place after all rows."""
        return len(self.sizes) << FILE_SHIFT

    def place(self, row: int) -> int:
        """The place of a row counted over all files."""
        for number, size in enumerate(self.sizes):
            if row < size:
                return (number << FILE_SHIFT) + row
            row -= size
        return self.end

    def count(self, start: int, stop: int) -> int:
        """Rows at places from ``start`` up to ``stop``, at most."""
        return sum(last - first for first, last in self._by_file(start, stop))

    def ranges(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Split the places from ``start`` to ``stop`` into ranges of about PIECE_ROWS rows, by file."""
        found: list[tuple[int, int]] = []
        rows = PIECE_ROWS
        for first, last in self._by_file(start, stop):
            if rows >= PIECE_ROWS:
                found.append((first, last))
                rows = 0
            else:
                found[-1] = (found[-1][0], last)
            rows += last - first
        return found

    def read(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows at places from ``start`` up to ``stop``, with their places, steps applied."""
        for batch in self._rows(start, stop):
            rows = reduce(lambda rows, step: apply(step, rows), self.steps, batch)
            if rows.num_rows:
                yield rows

    def _by_file(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        for number, size in enumerate(self.sizes):
            base = number << FILE_SHIFT
            first, last = max(start, base), min(stop, base + size)
            if first < last:
                yield first, last

    def _rows(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        if isinstance(self.config, Create):
            yield from _between(read_batches(self.config, self.schema), start, stop)
            return
        for number, file in enumerate(self.files):
            base = number << FILE_SHIFT
            if start < base + (1 << FILE_SHIFT) and stop > base:
                if self.config.format == "parquet":
                    batches = _read_row_groups(file, number, self.schema, start - base, stop - base)
                else:
                    batches = read_file(self.config, file, number, self.schema, strict=self.strict)
                yield from _between(batches, start, stop)


@dataclass(frozen=True)
class Job:
    """What a query reads. Micro-batch k holds the places from ``cuts[k]`` up to ``cuts[k + 1]``."""

    feeds: tuple[Feed, ...]
    plan: JoinPlan | None
    """The join the rows go to; None to pass the rows of the only feed on."""
    keys: tuple[int, ...]
    cuts: tuple[tuple[int, ...], ...]
    marks: tuple[tuple[int, ...], ...]
    """For each cut, the smallest arrival of each feed after it."""

    def pieces(self) -> list[list[tuple[int, int, int]]]:
        """For each micro-batch its tasks: an input and a range of places, or MARKS and their cut."""
        found = []
        for k in range(len(self.cuts) - 1):
            tasks = [
                (i, *places)
                for i, feed in enumerate(self.feeds)
                for places in feed.ranges(self.cuts[k][i], self.cuts[k + 1][i])
            ]
            found.append([*tasks, (MARKS, k + 1, k + 1)])
        return found

    def source_rows(self, batch: int) -> int:
        """Rows of sources in a micro-batch."""
        cuts = zip(self.cuts[batch], self.cuts[batch + 1], strict=True)
        return sum(f.count(*c) for f, c in zip(self.feeds, cuts, strict=True) if not f.kept)

    def read(self, which: int, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Yield the packed rows of a task."""
        if which == MARKS:
            if self.plan is not None:
                yield pack_marks(self.marks[stop], self.keys)
            return
        for batch in self.feeds[which].read(start, stop):
            place = batch.column(ARRIVAL)[0].as_py()
            if self.plan is not None:
                yield pack(self.plan, which, batch, self.keys, place)
            else:
                row = [0], [0], [place], [ipc.to_bytes(without_arrival(batch))]
                yield pa.RecordBatch.from_arrays(
                    [pa.array(v, f.type) for v, f in zip(row, PACKED_ARROW, strict=True)], schema=PACKED_ARROW
                )


def plan_job(feeds: Sequence[Feed], plan: JoinPlan | None, keys: Sequence[int], rows_per_batch: int) -> Job:
    """Cut the inputs so that a micro-batch takes at most ``rows_per_batch`` rows of each.

    Where rows arrive in the order of the files, all inputs are cut at the same place and no row has to wait
    for its turn. Where an arrival column is named, each input is cut into equally many parts, and that column
    is read once to know what each part leaves outstanding; the files need not be sorted by it.
    """
    if plan is None or plan.arrival_columns is None:
        places = _places(feeds, rows_per_batch)
        cuts = [tuple(min(place, feed.end) for feed in feeds) for place in places]
        marks = [tuple(place if feed.count(place, feed.end) else ENDED for feed in feeds) for place in places]
    else:
        rows = [sum(feed.sizes) for feed in feeds]
        n = max(1, *(-(-size // rows_per_batch) for size in rows))
        of_feed = [
            [*(feed.place(size * k // n) for k in range(n)), feed.end]
            for feed, size in zip(feeds, rows, strict=True)
        ]
        cuts = list(zip(*of_feed, strict=True))
        outstanding = [
            _outstanding(plan, i, feed, of_feed[i]) if n > 1 else [0, ENDED] for i, feed in enumerate(feeds)
        ]
        marks = list(zip(*outstanding, strict=True))
    return Job(tuple(feeds), plan, tuple(keys), tuple(cuts), tuple(marks))


def _places(feeds: Sequence[Feed], rows_per_batch: int) -> list[int]:
    """Places that are at most ``rows_per_batch`` rows apart in every feed, first and last included."""
    places = [0]
    fill = 0
    for number in range(max(len(feed.sizes) for feed in feeds)):
        base = number << FILE_SHIFT
        size = max(feed.sizes[number] for feed in feeds if number < len(feed.sizes))
        row = rows_per_batch - fill
        while row < size:
            places.append(base + row)
            row += rows_per_batch
        fill = size - (row - rows_per_batch)
    last = max(feed.end for feed in feeds)
    return [*places, last]


def _outstanding(plan: JoinPlan, which: int, feed: Feed, cuts: Sequence[int]) -> list[int]:
    """For each cut of a feed, the smallest arrival after it."""
    assert plan.arrival_columns is not None
    column = plan.arrival_columns[which]
    if not any(isinstance(step, MapToFields) for step in feed.steps):
        feed = Feed(feed.config, pa.schema([feed.schema.field(column)]))
    least = np.full(len(cuts), ENDED, np.int64)
    for batch in feed.read(0, feed.end):
        part = np.searchsorted(np.asarray(cuts), _numbers(batch), side="right") - 1
        np.minimum.at(least, part, arrival_numbers(plan, which, batch))
    return list(accumulate(map(int, least[::-1]), min))[::-1]


def _numbers(batch: pa.RecordBatch) -> Int64s:
    return int64s(batch.column(ARRIVAL))


def _between(batches: Iterator[pa.RecordBatch], start: int, stop: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows at places from ``start`` up to ``stop``; stop reading there."""
    for batch in batches:
        places = _numbers(batch)
        first, last = np.searchsorted(places, [start, stop])
        if first < last:
            yield batch.slice(first, last - first)
        if last < len(places):
            return


def _read_row_groups(
    file: str, number: int, schema: pa.Schema, start: int, stop: int
) -> Iterator[pa.RecordBatch]:
    """Yield the row groups with rows from ``start`` up to ``stop``, as read_file yields whole files."""
    try:
        with pq.ParquetFile(file, pre_buffer=False) as parquet:
            sizes = [parquet.metadata.row_group(g).num_rows for g in range(parquet.num_row_groups)]
            firsts = [0, *accumulate(sizes)]
            groups = [g for g, n in enumerate(sizes) if firsts[g] < stop and firsts[g] + n > start]
            at = firsts[groups[0]] if groups else 0
            for batch in parquet.iter_batches(BATCH_ROWS, row_groups=groups, columns=schema.names):
                rows = fitted(file, batch, schema)
                places = (number << FILE_SHIFT) + at + np.arange(rows.num_rows, dtype=np.int64)
                at += rows.num_rows
                yield rows.append_column(ARRIVAL, pa.array(places))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OSError) as error:
        raise SlackwaterError(f"cannot read {file!r}: {str(error).splitlines()[0]}") from None


def _parquet_size(file: str) -> int:
    return int(pq.read_metadata(file).num_rows)


def _lines(file: str) -> int:
    """Lines of a file, a last one without an end included: no fewer than its rows."""
    newlines = returns = 0
    with open_file(file) as data:
        while block := data.read(1 << 22):
            newlines += block.count(b"\n")
            returns += block.count(b"\r")
    return max(newlines, returns) + 1


def encode(job: Job) -> str:
    """Return a job as text, for an option of a data source."""
    return base64.b64encode(CPickleSerializer().dumps(job)).decode()


@lru_cache(4)
def decode(text: str) -> Job:
    """Return the job that ``encode`` was given, decoded once per worker."""
    job: Job = CPickleSerializer().loads(base64.b64decode(text))
    return job
