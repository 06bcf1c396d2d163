"""What operators hand to strategies and take back: named arrays, a row of each per tuple.

Event times and durations are integers in *ticks*, the finest time unit of the inputs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Int8s = NDArray[np.int8]
Int64s = NDArray[np.int64]
UInt64s = NDArray[np.uint64]
Float64s = NDArray[np.float64]
Bools = NDArray[np.bool_]

NEVER = np.iinfo(np.int64).min
"""Progress of an input that has not been seen, and the bound that releases nothing."""


class Arrivals(NamedTuple):
    """A chunk of arrivals in arrival order; the operator cuts chunks at adaptation boundaries."""

    input: Int8s
    ts: Int64s
    clock: Int64s
    """The arrival column, times in units of ``Setting.arrival_nanos``, integers as they are; else a stand-in."""
    progress: Int64s
    """Largest event time seen on this input, this arrival included (the papers' iT)."""
    delay: Int64s
    """``progress - ts``."""
    frontier: Int64s
    """Smallest progress over all inputs, or NEVER until each has been seen."""
    watermark: Int64s | None = None
    """What the strategy's ``watermark_columns`` say, NEVER where they say nothing; None if it names none."""
    cells: Int64s | None = None
    """The columns the condition reads, as in ``Released``; None unless the logic has ``needs_cells = True``."""
    nulls: UInt64s | None = None

    def part(self, which: slice | Bools) -> Arrivals:
        """Return some of the arrivals, in the same order."""
        return Arrivals._make(None if array is None else array[which] for array in self)


class Released(NamedTuple):
    """Tuples in the order in which they reach the join."""

    input: Int8s
    seq: Int64s
    """Row number within the input: with ``input``, the identity of the row."""
    ts: Int64s
    late: Bools
    """True where an earlier tuple had a larger event time: too late to probe, maybe in time to be kept."""
    cells: Int64s
    """``[n, width]``: the columns the condition reads, as laid out by ``Condition.columns``; floats as bits."""
    nulls: UInt64s
    """Bit c of a tuple's mask is set where its cell c is null."""

    @classmethod
    def none(cls, width: int) -> Released:
        """Return no tuples."""
        none = np.empty(0, np.int64)
        cells = np.empty((0, width), np.int64)
        return cls(none.astype(np.int8), none, none, none.astype(np.bool_), cells, none.astype(np.uint64))

    def part(self, which: slice | Bools) -> Released:
        """Return some of the tuples, in the same order."""
        return Released._make(array[which] for array in self)


class Punctuations(NamedTuple):
    """Punctuations in the order in which the join's time passes them.

    Each says that no later tuple of its input matches. The operator holds the inputs to that: a tuple that
    contradicts one it remembers is never released.
    """

    at: Int64s
    """How many of the released tuples come before it."""
    ts: Int64s
    """The join's time when it takes effect. Every tuple at or before it has been released, or is late; but what
    follows from ``unique`` takes effect between tuples of that time."""
    pattern: Int8s
    """Its kind: index into ``Setting.patterns``."""
    low: Int64s
    """``[n, cells]``: the values, as in ``Released.cells``; of a range the lower end."""
    high: Int64s
    """Upper end of a range."""


class Finished(NamedTuple):
    """Values of which no later result has any: punctuations that the join passes on."""

    at: Int64s
    """How many of the released tuples came before."""
    ts: Int64s
    """No result with a later event time has the value."""
    classes: tuple[int, ...]
    """The key classes of the condition whose values are meant."""
    values: Int64s
    """``[n, classes]``; of a range of the one class the lower end."""
    high: Int64s | None = None
    """Upper ends of ranges, inclusive, as values of single ones; None where there are no ranges."""


class Settled(NamedTuple):
    """Results that come after newer ones, because a member had to be read from disk first."""

    ts: Int64s
    """Event time of each result: that of its newest member."""
    rows: tuple[Any, ...] | None
    """A batch of rows per input, as ``Disk`` gives them: row k of each is the member of result k;
    None when only counts are wanted."""


class Evicted(NamedTuple):
    """Tuples that a join has given up for lack of memory."""

    input: Int8s
    seq: Int64s
    at: Int64s
    """Index into released of the last tuple that could have met it; -1 if it went before the first."""


class Matches(NamedTuple):
    """What a contiguous run of released tuples gave.

    A logic with ``reorders = True`` processes the tuples of a step in an order of its own. It may yield any
    number of runs of none (``start == stop``) with results as it finds them, then one that covers the step;
    ``probe`` may have any order, and the operator puts the results of the step in order.
    """

    start: int
    stop: int
    """The run: released tuples ``start`` to ``stop`` (exclusive)."""
    rows: Int64s
    """``[results, inputs]``: the seq of each input's member; no rows when only counts are wanted."""
    probe: Int64s
    """Index into released of the tuple that completed each result; non-decreasing."""
    join_size: Int64s
    """Results that each tuple of the run completed; 0 for late ones."""
    cross_size: Float64s
    """Product of the other windows' sizes when the tuple came: the results of a cross join."""
    finished: Finished | None = None
    """What the run, and the punctuations before and after its tuples, proved finished."""
    settled: Settled | None = None
    """Results of earlier tuples; no part of ``join_size``."""
    evicted: Evicted | None = None
    """Tuples that went for lack of memory."""
    contradicts: Bools | None = None
    """Tuples of the run that contradict a punctuation, neither joined nor kept (``JudgingJoinLogic``)."""


class Held(NamedTuple):
    """Tuples in the windows of a join."""

    input: Int8s
    seq: Int64s
    ts: Int64s
    cells: Int64s
    nulls: UInt64s

    @classmethod
    def none(cls, width: int) -> Held:
        """Return no tuples; ``width`` is that of the cells."""
        none = np.empty(0, np.int64)
        return cls(none.astype(np.int8), none, none, none.reshape(0, width), none.astype(np.uint64))


class Feedback(NamedTuple):
    """What the join saw since the last adaptation; one entry per tuple that reached it."""

    now: int
    """Stream time: the largest event time seen on any input."""
    input: Int8s
    ts: Int64s
    delay: Int64s
    """Delay when the tuple arrived, before any buffering."""
    late: Bools
    join_size: Int64s
    cross_size: Float64s
    shed_size: Float64s | None = None
    """Results that each tuple did not complete because members had been shed, estimated; None where none are."""


class Tuples(NamedTuple):
    """Tuples to be scored by a shedding strategy."""

    input: Int8s
    ts: Int64s
    lifetime: Int64s
    """Ticks until the window drops the tuple; in a window of rows, how many of them."""
    cells: Int64s
    """As in ``Released``, but texts as hashes, which equal texts share for ever."""
    nulls: UInt64s
    seq: Int64s
    """Row number within the input: with ``input``, the identity of the row."""


class Keep(NamedTuple):
    """How much a join may hold, and what is worth how much."""

    scores: Float64s
    """Of each released tuple: higher means keep."""
    held: Float64s | None
    """New scores of the tuples that ``held`` has just returned; None where the old ones stay."""
    limit: Int64s
    """``[released, 1]``: how many tuples may be held once each has been processed; or ``[released, inputs]``: of
    each input. Without released tuples it has one row, how many may be held now."""
    live: Int64s
    """To be written: how many tuples were held once each had been processed."""
