"""What join strategies whose state may be larger than memory are given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from slackwater.plugins.contract.arrays import Int64s, UInt64s
from slackwater.plugins.contract.setting import Snapshot


class Stored(NamedTuple):
    """Tuples as they are read from disk."""

    rows: Any
    """Their rows, to be handed on with ``take``."""
    notes: Int64s
    """``[n, notes]``: what was written beside each."""
    cells: Int64s
    """As in ``Released``, but codes of texts compare only among what one ``DiskReader`` has read."""
    nulls: UInt64s


class DiskReader(Protocol):
    """Reads tuples so that their cells can be compared; what it has read is encoded apart from all else."""

    def blocks(self, which: int, partition: int, size: int) -> Iterator[Stored]:
        """Yield the tuples of a partition in the order they were written, about ``size`` at a time."""

    def in_memory(self, which: int, seqs: Int64s, notes: Int64s) -> Stored:
        """Return tuples of an input that are not on disk in the same form."""

    def keep(self, which: int, cells: Int64s) -> None:
        """Texts of all tuples but these may be forgotten."""

    def words(self, which: int, cell: int, values: Any) -> Int64s:
        """Return values that ``Disk.values`` gave as they lie in a cell."""


class Disk(Protocol):
    """Where a join keeps tuples, with their rows, that do not fit into memory; the operator provides it.

    Tuples lie in partitions of their input, in the order in which they were written. What fails says so as an
    error that the user can act on.
    """

    @property
    def nbytes(self) -> int:
        """Bytes on disk."""

    def row_bytes(self) -> float:
        """Bytes that a row and what is kept beside it take in memory, on average."""

    def lasting(self, which: int, cells: Int64s, columns: list[int]) -> Int64s:
        """Return some cells of tuples in memory as words that stay equal for equal values for ever.

        Of a text, whose code may be forgotten, it is a hash.
        """

    def write(self, which: int, partitions: Int64s, seqs: Int64s, notes: Int64s) -> None:
        """Append tuples that are in memory to their partitions; ``notes`` are numbers to be kept beside them."""

    def rewrite(self, which: int, partition: int, kept: Iterable[Stored]) -> None:
        """Let a partition hold just these tuples, which were read from it."""

    def values(self, which: int, cell: int, words: Int64s) -> Any:
        """Return words of a cell as values that outlive its dictionary."""

    def reader(self) -> DiskReader:
        """Return a reader to compare tuples with."""

    def snapshot(self) -> Snapshot:
        """All that is on disk."""

    def restore(self, snapshot: Snapshot) -> None:
        """Hold what ``snapshot`` says."""

    def close(self) -> None:
        """Forget all that is on disk."""
