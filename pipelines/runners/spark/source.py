"""What a query on Spark reads: the files of all inputs of a join, cut into micro-batches.

Files are read as on the other runners. All inputs of a join advance together. With each batch of rows every shard
is told how many were read and how far they bring their input (``packing.Note``), with each micro-batch the
smallest arrival that each input may still bring (``packing.pack_marks``), and with the last one that all have
ended: results do not depend on where the cuts are.
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

from slackwater.pipelines.assembly.mapping import apply
from slackwater.pipelines.io.source_files import open_file, source_files
from slackwater.pipelines.io.sources import BATCH_ROWS, FILE_SHIFT, fitted, read_batches, read_file
from slackwater.pipelines.runners.ledger import Sent
from slackwater.pipelines.template.graph import ARRIVAL, Create, Filter, MapToFields, Read
from slackwater.plugins.contract import Int64s
from slackwater.transforms.arrival.merge import without_arrival
from slackwater.transforms.arrival.order import numbers_of
from slackwater.transforms.errors import AccountError, SlackwaterError
from slackwater.transforms.rows import ipc
from slackwater.transforms.rows.encoder import int64s
from slackwater.transforms.settings.plan import Plan
from slackwater.transforms.spark.blobs import (
    MARKS,
    PACKED_ARROW,
    UNKNOWN,
    Note,
    pack,
    pack_marks,
    pack_note,
)

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
        for _, rows in self.read_counted(start, stop):
            if rows.num_rows:
                yield rows

    def read_counted(self, start: int, stop: int) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """Yield batches of these rows as they are read, and what the steps make of them."""
        for batch in self._rows(start, stop):
            yield batch, reduce(lambda rows, step: apply(step, rows), self.steps, batch)

    def sent(self, counted: tuple[int, int]) -> Sent:
        """Return the rows of this input, given how many tasks have read and how many the steps have left.

        Raises:
            AccountError: These are other numbers than the files have, or the steps may leave.
        """
        read, left = counted
        exact = isinstance(self.config, Create) or self.config.format == "parquet"
        there = sum(self.sizes)
        if read != there if exact else read > there:
            raise AccountError.of(f"{there} rows are in {self._where}, and {read} were read")
        if left != read and not any(isinstance(step, Filter) for step in self.steps):
            raise AccountError.of(f"{read} rows were read from {self._where}, and {left} left it")
        return Sent(read, read - left)

    @property
    def _where(self) -> str:
        return "the elements of Create" if isinstance(self.config, Create) else repr(self.config.path)

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
    plan: Plan | None
    """The join the rows go to; None to pass the rows of the only feed on."""
    keys: tuple[int, ...]
    cuts: tuple[tuple[int, ...], ...]
    marks: tuple[tuple[int | None, ...], ...]
    """For each cut, the smallest arrival of each feed after it, UNKNOWN of rows that do not say when they come:
    shards know how far the feed has come. None if there are no more rows."""

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
        for read, batch in self.feeds[which].read_counted(start, stop):
            place = read.column(ARRIVAL)[0].as_py()
            if self.plan is not None:
                numbers = numbers_of(self.plan, which, batch)
                yield pack(self.plan, which, batch, self.keys, place, numbers.values)
                note = Note(read.num_rows, batch.num_rows, numbers.reached)
                yield pack_note(which, note, self.keys, place)
            elif batch.num_rows:
                row = [0], [0], [place], [ipc.to_bytes(without_arrival(batch))]
                yield pa.RecordBatch.from_arrays(
                    [pa.array(v, f.type) for v, f in zip(row, PACKED_ARROW, strict=True)], schema=PACKED_ARROW
                )


def plan_job(feeds: Sequence[Feed], plan: Plan | None, keys: Sequence[int], rows_per_batch: int) -> Job:
    """Cut the inputs so that a micro-batch takes at most ``rows_per_batch`` rows of each.

    Each input is cut into equally many parts. Where an arrival column is named, it is read once to know what each
    part leaves outstanding; the files need not be sorted by it.
    """
    rows = [sum(feed.sizes) for feed in feeds]
    n = max(1, *(-(-size // rows_per_batch) for size in rows))
    of_feed = [
        [*(feed.place(size * k // n) for k in range(n)), feed.end] for feed, size in zip(feeds, rows, strict=True)
    ]
    marks: list[list[int | None]] = [
        [UNKNOWN if feed.count(place, feed.end) else None for place in of]
        if n == 1 or plan is None or plan.arrival_columns is None
        else _outstanding(plan, i, feed, of)
        for i, (feed, of) in enumerate(zip(feeds, of_feed, strict=True))
    ]
    return Job(
        tuple(feeds), plan, tuple(keys), tuple(zip(*of_feed, strict=True)), tuple(zip(*marks, strict=True))
    )


def _outstanding(plan: Plan, which: int, feed: Feed, cuts: Sequence[int]) -> list[int | None]:
    """For each cut of a feed, the smallest arrival after it."""
    assert plan.arrival_columns is not None
    column = plan.arrival_columns[which]
    if not any(isinstance(step, MapToFields) for step in feed.steps):
        feed = Feed(feed.config, pa.schema([feed.schema.field(column)]))
    least: list[int | None] = [None] * len(cuts)
    for batch in feed.read(0, feed.end):
        part = np.searchsorted(np.asarray(cuts), _numbers(batch), side="right") - 1
        values, follows = numbers_of(plan, which, batch)
        numbers = values if follows is None else np.where(follows, UNKNOWN, values)
        for k in np.unique(part).tolist():
            least[k] = _least(least[k], int(numbers[part == k].min()))
    return list(accumulate(reversed(least), _least))[::-1]


def _least(one: int | None, other: int | None) -> int | None:
    return min((number for number in (one, other) if number is not None), default=None)


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
