"""What a logic object knows of the join it serves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from slackwater.plugins.contract.arrays import Bools, Float64s, Int64s, UInt64s

if TYPE_CHECKING:
    from slackwater.plugins.registry.options import Duration, Memory, MemoryLimit

Snapshot: TypeAlias = Mapping[str, Any]
"""Names to numpy arrays, numbers, strings, bytes or nested snapshots: what ``state.snapshot`` can write."""

Limit: TypeAlias = "int | Memory | MemoryLimit | None"
"""How much a join may hold: a number of tuples, tuples or bytes, either by stream time, or all there is."""

UNBOUNDED = 1 << 61
"""Window in ticks of a join without one: longer than any two times are apart."""


class Pattern(NamedTuple):
    """What the punctuations of one kind speak of; columns that are not named may have any value."""

    input: int
    cells: tuple[int, ...]
    """The cells of the input that they name."""
    is_range: bool
    """True where they give the ends of a range of the one cell, both inclusive; else a value of each cell."""


class Metadata(NamedTuple):
    """What is promised of an input before any data is seen; what follows from it comes as punctuations too."""

    kind: str
    """``unique``, ``clustered``, ``ascending``, ``descending`` or ``foreign_key``."""
    input: int
    cells: tuple[int, ...]
    """The columns it speaks of. Of a foreign key the referring ones; what they refer to is ``unique``."""


class KeyFrequencies(NamedTuple):
    """How often values of a key arrive on an input; those that are not listed never do."""

    input: int
    classes: tuple[int, ...]
    """The key classes of the condition that make up the key."""
    words: Int64s
    """``[n, classes]``: the values, as in ``Tuples.cells``; none twice."""
    share: Float64s
    """Of all arrivals of the input, how many have the value."""


class Column(Protocol):
    """One int64 word of a tuple: a column of its input."""

    @property
    def column(self) -> str:
        """Its name."""

    @property
    def kind(self) -> str:
        """How a value is laid out in the word: ``int``, ``float``, ``text``, …."""


class Predicate(Protocol):
    """A part of the condition that is no key equality."""

    @property
    def tree(self) -> Any:
        """The part as ``Condition.program_for`` takes it."""

    @property
    def inputs(self) -> frozenset[int]:
        """The inputs that it reads."""


class Condition(Protocol):
    """The condition of a join, bound to its inputs, as strategies use it."""

    predicates: list[Any]
    """The parts that are no key equality, each a ``Predicate``."""
    classes: list[dict[int, int]]
    """For each class of columns that must be equal, the cell of each input that takes part."""
    weight: Any
    """What a result is worth, as ``program_for`` takes it; None where all are worth the same."""
    failures: tuple[type[Exception], ...]
    """What ``test`` and kernels raise where data cannot be judged: the condition's fault, not the strategy's."""

    @property
    def columns(self) -> tuple[tuple[Column, ...], ...]:
        """The cells of each input."""

    @property
    def width(self) -> int:
        """Cells per tuple, the same for all inputs: the widest one's."""

    def shared(self, i: int, j: int) -> tuple[int, ...]:
        """Return the key classes that two inputs share."""

    def assemble(self, predicates: Iterable[Any]) -> Int64s:
        """Return the program that tests all of ``predicates``; empty for none."""

    def program_for(self, own: int, trees: Sequence[Any], number: bool = False) -> Int64s:
        """Return a program for tuples of input ``own`` and any of the others, as if their keys were equal.

        It tests all of ``trees``, or leaves the number that the only one gives. Texts are hashes, as in
        ``Tuples``.
        """

    def test(self, cells: Sequence[Int64s], nulls: Sequence[UInt64s]) -> Bools:
        """Say which candidates pass; row k of every input's arrays is candidate k.

        For join strategies that find their candidates in their own way: keys and predicates are both tested.
        """


class Setting(NamedTuple):
    """What a logic object knows of the join it serves."""

    inputs: tuple[str, ...]
    windows: tuple[int, ...]
    """Window of each input in ticks, inclusive at both ends."""
    condition: Condition
    counts_only: bool
    nanos_per_tick: int
    patterns: tuple[Pattern, ...] = ()
    """The kinds of punctuations that the inputs may bring, then those that follow from ``metadata``."""
    metadata: tuple[Metadata, ...] = ()
    frequencies: tuple[KeyFrequencies, ...] = ()
    """How often values of every key arrive, from the shedding strategy's option ``frequencies``."""
    rows: tuple[int, ...] = ()
    """Rows that each input's window has, where windows are of rows; those in ``windows`` are endless then."""
    arrival_nanos: int | None = None

    def ticks(self, duration: Duration) -> int:
        """Return ``duration`` in ticks, rounded up."""
        return -(-int(duration) // self.nanos_per_tick)
