"""What strategies are given and what they return: plain arrays, no engine types.

A strategy is a frozen options object (validated by pydantic) with ``build``, which makes a logic object,
from nothing or from a snapshot. Logic objects are called once per chunk of arrivals, never per tuple.
Event times and durations inside logic objects are integers in *ticks*: the finest time unit of the inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from slackwater.plugins.documented import Documented

if TYPE_CHECKING:
    from slackwater.plugins.options import Duration
    from slackwater.transforms.condition import Condition

Int8s = NDArray[np.int8]
Int64s = NDArray[np.int64]
UInt64s = NDArray[np.uint64]
Float64s = NDArray[np.float64]
Bools = NDArray[np.bool_]

Snapshot = Mapping[str, Any]
"""Names to numpy arrays, numbers, strings, bytes or nested snapshots: what ``transforms.snapshot`` can write."""

NEVER = np.iinfo(np.int64).min
"""Progress of an input that has not been seen, and the bound that releases nothing."""


class Setting(NamedTuple):
    """What a logic object knows of the join it serves."""

    inputs: tuple[str, ...]
    windows: tuple[int, ...]
    """Window of each input in ticks, inclusive at both ends."""
    condition: Condition
    counts_only: bool
    nanos_per_tick: int

    def ticks(self, duration: Duration) -> int:
        """Return ``duration`` in ticks, rounded up."""
        return -(-int(duration) // self.nanos_per_tick)


class Arrivals(NamedTuple):
    """A chunk of arrivals in arrival order; the operator cuts chunks at adaptation boundaries."""

    input: Int8s
    ts: Int64s
    clock: Int64s
    """The arrival column where there is one, else the number of the arrival."""
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


class Matches(NamedTuple):
    """What a contiguous run of released tuples gave."""

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


class Held(NamedTuple):
    """Tuples in the windows of a join."""

    input: Int8s
    seq: Int64s
    ts: Int64s
    cells: Int64s
    nulls: UInt64s


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


class Tuples(NamedTuple):
    """Tuples to be scored by a shedding strategy."""

    input: Int8s
    ts: Int64s
    lifetime: Int64s
    """Ticks until the window drops the tuple."""
    cells: Int64s
    nulls: UInt64s


@runtime_checkable
class DisorderLogic(Protocol):
    """Turns arrivals into release bounds."""

    interval: int | None
    """Stream time in ticks between calls of adapt, or None for no calls."""

    def bounds(self, arrivals: Arrivals) -> Int64s:
        """For each arrival, the event time up to which its input is released once it has arrived."""

    def adapt(self, feedback: Feedback) -> None:
        """Learn from the interval that ended; what changes takes effect at the next arrival."""

    def snapshot(self) -> Snapshot:
        """Everything ``build`` needs to go on as if nothing had happened."""


@runtime_checkable
class JoinLogic(Protocol):
    """Owns the windows of one shard."""

    def step(self, released: Released) -> Iterable[Matches]:
        """Probe and insert the tuples one after the other; yield runs that cover all of them in order."""

    def live(self) -> int:
        """How many tuples the windows hold."""

    def held(self) -> Held:
        """The tuples in the windows, in any order: exactly those that a later result may contain."""

    def evict(self, victims: Bools) -> None:
        """Forget the marked ones of the tuples that ``held`` has just returned."""

    def snapshot(self) -> Snapshot:
        """Everything ``build`` needs to go on as if nothing had happened."""


@runtime_checkable
class SheddingLogic(Protocol):
    """Says which tuples are worth keeping."""

    decays: bool
    """True where the score is to be multiplied by the remaining lifetime."""
    memory: int | None
    """Tuples the windows may hold, or None for no limit."""

    def scores(self, tuples: Tuples) -> Float64s:
        """A score for each tuple: higher means keep."""

    def snapshot(self) -> Snapshot:
        """Everything ``build`` needs to go on as if nothing had happened."""


class Strategy(Documented):
    """Options of a strategy. The first line of the docstring is its purpose in ``slackwater strategies``."""

    name: ClassVar[str]
    stage: ClassVar[str]


class DisorderStrategy(Strategy):
    """Base of disorder strategies."""

    stage: ClassVar[str] = "disorder"

    @property
    def reads_clock(self) -> bool:
        """True where ``Arrivals.clock`` must be times: a join without an arrival column is refused then."""
        return False

    @property
    def learns_from_results(self) -> bool:
        """True where arrivals are looked up among those of other inputs: one input is refused then."""
        return False

    @property
    def watermark_columns(self) -> str | dict[str, str] | None:
        """Columns to be handed over as ``Arrivals.watermark``: one name for all inputs, or {input: column}."""
        return None

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> DisorderLogic:
        """Return the logic for one shard, new or as it was when the snapshot was taken."""
        raise NotImplementedError


class JoinStrategy(Strategy):
    """Base of join strategies."""

    stage: ClassVar[str] = "join"

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> JoinLogic:
        """Return the logic for one shard, new or as it was when the snapshot was taken."""
        raise NotImplementedError


class SheddingStrategy(Strategy):
    """Base of shedding strategies."""

    stage: ClassVar[str] = "shedding"

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> SheddingLogic:
        """Return the logic for one shard, new or as it was when the snapshot was taken."""
        raise NotImplementedError
