"""What a data set says of itself: its knobs, how it is made, and the query whose results are counted."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Columns = dict[str, NDArray[Any]]
"""Column name to values (whole numbers, numbers or texts), in arrival order; ``ts`` and ``arrived`` are whole."""


@dataclass(frozen=True)
class Knob:
    """One typed setting of a data set.

    Attributes:
        name: As given on the command line (``--set name=value``).
        kind: ``int``, ``float``, ``choice``, ``text``, or ``floats``: as many numbers as ``default`` has.
        default: Used when the knob is left out. ``None`` makes the knob optional; the text ``none`` sets it.
        about: What it does, in one sentence, unit included.
        minimum: Smallest value accepted; for ``floats``, of each number.
        maximum: Largest value accepted.
        positive: Whether 0 is refused, for kinds that allow fractions.
        choices: The words that a ``choice`` accepts.
        form: The regular expression that a whole ``text`` is to match.
        words: That form in words, as in "must be ...".
    """

    name: str
    kind: Literal["int", "float", "choice", "floats", "text"]
    default: int | float | str | tuple[float, ...] | None
    about: str
    minimum: float = 0
    maximum: float = math.inf
    positive: bool = False
    choices: tuple[str, ...] = ()
    form: str = ""
    words: str = ""

    def expects(self) -> str:
        """Return the accepted values in words, as used in error messages and listings."""
        if self.kind == "choice":
            return "one of " + ", ".join(self.choices)
        if self.kind == "text":
            return self.words
        least = f"{'above' if self.positive else 'at least'} {self.minimum:,}"
        bounds = least if math.isinf(self.maximum) else f"{least} and at most {self.maximum:,}"
        if self.kind == "floats":
            count = len(self.default) if isinstance(self.default, tuple) else 0
            return f"{count} numbers separated by commas, each {bounds}"
        words = f"{'a whole number' if self.kind == 'int' else 'a number'} {bounds}"
        return f"{words}, or none" if self.default is None else words

    def parse(self, dataset: str, value: object) -> Any:
        """Return ``value`` as this knob's type; text is read as on the command line.

        Raises:
            ValueError: It is of another type, or out of bounds.
        """
        read = self._read(value)
        if read is _BAD:
            shown = "'" + value + "'" if isinstance(value, str) else repr(value)
            default = ",".join(map(str, self.default)) if isinstance(self.default, tuple) else self.default
            raise ValueError(
                f"{dataset}.{self.name}: must be {self.expects()}, got {shown}. "
                f"Change it, or leave it out for {'none' if default is None else default}."
            )
        return read

    def _read(self, value: object) -> object:
        if self.default is None and (value is None or value == "none"):
            return None
        if self.kind == "choice":
            return value if value in self.choices else _BAD
        if self.kind == "text":
            return value if isinstance(value, str) and re.fullmatch(self.form, value) else _BAD
        if self.kind == "floats":
            parts = value.split(",") if isinstance(value, str) else value
            if not isinstance(parts, (tuple, list)) or not isinstance(self.default, tuple):
                return _BAD
            numbers = tuple(self._number(part) for part in parts)
            return _BAD if None in numbers or len(numbers) != len(self.default) else numbers
        number = self._number(value)
        return _BAD if number is None else number

    def _number(self, value: object) -> float | None:
        if isinstance(value, bool) or not isinstance(value, (int, float, str, np.integer, np.floating)):
            return None
        try:
            number = int(value) if self.kind == "int" else float(value)
        except (ValueError, OverflowError):
            return None
        if self.kind == "int" and not isinstance(value, str) and number != value:
            return None
        inside = self.minimum <= number <= self.maximum and math.isfinite(number)
        return number if inside and not (self.positive and number == self.minimum) else None


_BAD = object()


class Marks(NamedTuple):
    """Which rows of a stream are punctuations: each says that no later row of the stream has its key."""

    input: str
    when: str
    key: str


class Query(NamedTuple):
    """The join whose results are counted, in the words of a template."""

    where: str
    window: int
    """In ms, the same on every stream."""
    closed: str = "both"
    """``both``: a row exactly one window older than a result's newest member can be in it; ``right``: not."""
    whole: bool = False
    """Whether the window spans all rows, so that results are those of a join without one."""
    punctuations: tuple[Marks, ...] = ()
    """Rows that are punctuations; they are in no result."""
    promises: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """Columns, as ``stream.column``, that are ``unique``, ``clustered`` or ``ordered`` (ascending).

    All three hold in order of event times; a punctuation counts as a row of its cluster."""

    @property
    def duration(self) -> str:
        """The window as templates write it, such as ``5s`` or ``400ms``."""
        return f"{self.window}ms" if self.window % 1000 else f"{self.window // 1000}s"


class Truth(NamedTuple):
    """Exact result counts by second of event time; seconds without results are left out."""

    seconds: Int64s
    """Ascending; second s holds results with ``s * 1000 <= ts < (s + 1) * 1000``."""
    results: Int64s

    @property
    def total(self) -> int:
        """Results over all seconds."""
        return int(self.results.sum())


class Sample(NamedTuple):
    """A generated data set in memory."""

    streams: dict[str, Columns]
    query: Query
    truth: Truth


@dataclass(frozen=True)
class Dataset:
    """A data set that can be generated.

    Attributes:
        name: As given on the command line.
        purpose: What it is for, in one line.
        streams: Names of the streams, and of their files.
        default_rows: Rows per stream when nothing is said.
        knobs: The settings it takes.
        make: Makes the rows per stream asked for, from a seed and a value for every knob.
    """

    name: str
    purpose: str
    streams: tuple[str, ...]
    default_rows: int
    knobs: tuple[Knob, ...]
    make: Callable[[int, int, Mapping[str, Any]], Sample]

    def parse(self, given: Mapping[str, object]) -> dict[str, Any]:
        """Return a value for every knob: the one given, checked, or the default.

        Raises:
            ValueError: A knob is not known, or its value is not acceptable.
        """
        names = [knob.name for knob in self.knobs]
        for name in given:
            if name not in names:
                raise ValueError(
                    f"{self.name}: knob '{name}' is not known; known: {', '.join(sorted(names))}. "
                    "Check the spelling."
                )
        return {
            knob.name: knob.parse(self.name, given[knob.name]) if knob.name in given else knob.default
            for knob in self.knobs
        }
