"""Rows in Arrow blobs: what crosses Spark's row format, its shuffle and its state store.

A blob holds many rows of one shard, so that Spark handles thousands of rows as one and the types of Arrow
stay what they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Int64s
from slackwater.transforms.arrival.merge import arrival_numbers, split_by_shard
from slackwater.transforms.disorder.sample import Sample
from slackwater.transforms.rows import ipc
from slackwater.transforms.rows.size import together
from slackwater.transforms.settings.plan import ARRIVAL, Plan
from slackwater.transforms.sharding.copies import with_columns
from slackwater.transforms.spark.observation import COUNTS, COUNTS_ARROW

PACKED: Final = "shard int, input byte, place long, blob binary"
"""Rows on their way to a shard. ``place`` orders the blobs of an input; MARKS as ``input`` makes it marks, and
BEAT the progress of the member whose number is ``place``."""
PACKED_ARROW: Final = pa.schema(
    [("shard", pa.int32()), ("input", pa.int8()), ("place", pa.int64()), ("blob", pa.binary())]
)
OUTPUT: Final = f"shard int, kind string, number int, blob binary, counts {COUNTS}"
"""What a shard gave: ``number`` orders the blobs of a shard within a micro-batch; accounts have ``counts``."""
OUTPUT_ARROW: Final = pa.schema(
    [
        ("shard", pa.int32()),
        ("kind", pa.string()),
        ("number", pa.int32()),
        ("blob", pa.binary()),
        ("counts", COUNTS_ARROW),
    ]
)
RESULT, LATE, METRICS, SYNC, ACCOUNT = "result", "late", "metrics", "sync", "account"
PUNCTUATION: Final = "punctuation"

MARKS: Final = -1
BEAT: Final = -2
CALL: Final = -3
"""As ``input``: nothing but the word that there is a micro-batch, so that one with rows makes every shard."""
SAMPLE: Final = -4
"""As ``input``, less the number of an input: rows of it that every shard gets to learn from."""
NOTE: Final = -64
"""As ``input``, less the number of an input: what a task says of a batch of it, to every shard (``Note``)."""
ROLL: Final = -1
"""As ``shard``: no shard, but the note of what all of them were made with."""
UNKNOWN: Final = (1 << 63) - 1
"""Mark of an input that goes on, with rows that have the largest number of arrival so far, or one this large."""
BLOB_ROWS: Final = 1 << 16
_LEVEL: Final = b"level"


class Note(NamedTuple):
    """What a task says of a batch of a bounded input, or of what it has read of a live one."""

    rows: int
    """Rows that it has read."""
    left: int
    """Of these, how many are on their way to the shards: what Filter has left."""
    reached: int
    """The largest number of arrival among them, as far as they tell; NEVER if there are none."""


class Packed(NamedTuple):
    """One row of the packed form, without its shard."""

    input: int
    place: int
    blob: bytes


def from_blob(blob: bytes | pa.Buffer) -> pa.RecordBatch:
    """Return the batch that is in a blob."""
    return ipc.from_bytes(blob)[0]


def pack(
    plan: Plan,
    which: int,
    batch: pa.RecordBatch,
    keys: Sequence[int],
    place: int,
    numbers: Int64s | None = None,
) -> pa.RecordBatch:
    """Return the rows of one input as packed rows, one for each shard that occurs.

    Args:
        plan: the join.
        which: the input.
        batch: its rows, with the hidden column that has their places.
        keys: the value of Spark's column ``shard`` for each shard.
        place: where the batch stands among those of its input.
        numbers: numbers of arrival of the rows; by default the arrival column, else their places.
    """
    numbers = arrival_numbers(plan, which, batch) if numbers is None else numbers
    names = plan.schemas[plan.inputs[which]].names
    blobs, shards = [], []
    for shard, at, rows in split_by_shard(plan, which, with_columns(batch, [*names, ARRIVAL])):
        column = rows.schema.get_field_index(ARRIVAL)
        blobs.append(ipc.to_bytes(rows.set_column(column, ARRIVAL, pa.array(numbers[at]))))
        shards.append(keys[shard])
    return _packed(shards, which, place, blobs)


def pack_note(which: int, note: Note, keys: Sequence[int], place: int) -> pa.RecordBatch:
    """Return a note for every shard; ``place`` as in ``pack``."""
    return _packed(list(keys), NOTE - which, place, [np.asarray(note, "<i8").tobytes()] * len(keys))


def read_note(blob: bytes) -> Note:
    """Return the note that ``pack_note`` was given."""
    return Note(*np.frombuffer(blob, "<i8").tolist())


def pack_marks(marks: Sequence[int | None], keys: Sequence[int]) -> pa.RecordBatch:
    """Return a row of marks for every shard: the smallest arrival that each input may still bring.

    None is the mark of an input that has ended.
    """
    pairs = [(0, 1) if mark is None else (mark, 0) for mark in marks]
    return _packed(list(keys), MARKS, 0, [np.asarray(pairs, "<i8").tobytes()] * len(keys))


def pack_call(keys: Sequence[int]) -> pa.RecordBatch:
    """Return a row that has nothing in it for every shard, and one for the ROLL."""
    return _packed([ROLL, *keys], CALL, 0, [b""] * (len(keys) + 1))


def read_marks(blob: bytes) -> list[int | None]:
    """Return the marks that ``pack_marks`` was given."""
    pairs = np.frombuffer(blob, "<i8").reshape(-1, 2).tolist()
    return [None if ended else mark for mark, ended in pairs]


def pack_beat(member: int, progress: int, keys: Sequence[int]) -> pa.RecordBatch:
    """Return a beat for every shard: how far rows have brought a member, whichever shards they went to."""
    return _packed(list(keys), BEAT, member, [np.int64(progress).tobytes()] * len(keys))


def read_beat(blob: bytes) -> int:
    """Return the progress that ``pack_beat`` was given."""
    return int(np.frombuffer(blob, np.int64)[0])


def pack_sample(which: int, sample: Sample, keys: Sequence[int], place: int) -> pa.RecordBatch:
    """Return a sample of an input's rows for every shard; ``place`` as in ``pack``."""
    blob = ipc.to_bytes(sample.rows.replace_schema_metadata({_LEVEL: str(sample.level)}))
    return _packed(list(keys), SAMPLE - which, place, [blob] * len(keys))


def read_sample(blob: bytes) -> Sample:
    """Return the sample that ``pack_sample`` was given."""
    rows = from_blob(blob)
    return Sample(rows.replace_schema_metadata(None), int(rows.schema.metadata[_LEVEL]))


def _packed(keys: list[int], which: int, place: int, blobs: list[bytes]) -> pa.RecordBatch:
    n = len(keys)
    columns: list[Any] = [keys, [which] * n, [place] * n, blobs]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, PACKED_ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=PACKED_ARROW)


def blobs_of(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield blobs of about BLOB_ROWS rows each; small batches are put together, to PIECE_BYTES at most."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= BLOB_ROWS:
            yield from map(ipc.to_bytes, together(waiting))
            waiting, rows = [], 0
    if rows:
        yield from map(ipc.to_bytes, together(waiting))


def shard_keys(shards: int, partitions: int) -> list[int]:
    """Return a key for each shard, such that Spark's hash spreads the shards evenly over the partitions."""
    keys: list[int] = []
    free: list[list[int]] = [[] for _ in range(partitions)]
    candidate = 0
    for shard in range(shards):
        wanted = free[shard % partitions]
        while not wanted:
            free[_spark_hash(candidate) % partitions].append(candidate)
            candidate += 1
        keys.append(wanted.pop(0))
    return keys


def _spark_hash(value: int) -> int:
    """Spark's ``hash`` of an int: Murmur3 with seed 42, signed."""
    mask = 0xFFFFFFFF
    k = value * 0xCC9E2D51 & mask
    k = (k << 15 | k >> 17) & mask
    h = 42 ^ (k * 0x1B873593 & mask)
    h = (h << 13 | h >> 19) & mask
    h = (h * 5 + 0xE6546B64) & mask
    h ^= 4
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = (h ^ h >> shift) * factor & mask
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h
