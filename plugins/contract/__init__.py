"""What strategies are given and what they return: plain arrays, no engine types.

A strategy is a frozen options object (validated by pydantic) with ``build``, which makes a logic object,
from nothing or from a snapshot. Logic objects are called once per chunk of arrivals, never per tuple.
Event times and durations inside logic objects are integers in *ticks*: the finest time unit of the inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from slackwater.plugins.registry.field_docs import Documented

if TYPE_CHECKING:
    from slackwater.plugins.contract.frequencies import KeyFrequencies
    from slackwater.plugins.registry.options import Duration, Memory, MemoryLimit
    from slackwater.transforms.expressions.condition import Condition

Int8s = NDArray[np.int8]
Int64s = NDArray[np.int64]
UInt64s = NDArray[np.uint64]
Float64s = NDArray[np.float64]
Bools = NDArray[np.bool_]

Snapshot = Mapping[str, Any]
"""Names to numpy arrays, numbers, strings, bytes or nested snapshots: what ``state.snapshot`` can write."""

NEVER = np.iinfo(np.int64).min
"""Progress of an input that has not been seen, and the bound that releases nothing."""
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
    """A batch of rows per input, as ``contract_disk.Disk`` gives them: row k of each is the member of result k;
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
        """No tuples; ``width`` is that of the cells."""
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


@runtime_checkable
class DisorderLogic(Protocol):
    """Turns arrivals into release bounds."""

    interval: int | None
    """Stream time in ticks between calls of adapt, or None for no calls."""

    def bounds(self, arrivals: Arrivals) -> Int64s:
        """For each arrival, the event time up to which its input is released once it has arrived.

        Rows that went to other shards move inputs on too. ``bounds_at(progress)``, if there is such a method,
        returns the bound of each input once it has come so far without an arrival here; NEVER in ``progress``
        is an input of which there is nothing new, whose bound is ignored. Without the method, a bound stays as
        far behind progress as at the last arrival.
        """

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
    """Says which tuples are worth keeping; with ``scores_are_chances = True``, as results are to be expected."""

    decays: bool
    """True where the score is to be multiplied by the remaining lifetime."""
    memory: Limit
    """What may be held, in the windows and in the reorder buffer, or None for no limit, which does not change.
    Else it may: it is read once per run, a fraction of the memory; if there is less, tuples leave at once."""

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
    may_change: ClassVar[tuple[str, ...]] = ()
    """Options that may have other values when a logic is built from a snapshot: live queries may change them."""
    shares: ClassVar[bool] = False
    """Whether bounds may be learnt from a sample of all rows: all shards of a live join then follow the same."""
    needs_feedback: ClassVar[bool] = True
    """False where ``adapt`` looks at feedback for what is shed only: samples of rows are not joined then."""

    @property
    def reads_clock(self) -> bool:
        """True where ``Arrivals.clock`` must be times: a join without an arrival column is refused then."""
        return False

    @property
    def learns_from_results(self) -> bool:
        """True where arrivals are looked up among those of other inputs: one input is refused then."""
        return False

    @property
    def models_windows(self) -> bool:
        """True where windows of time are reckoned with: a join with windows of rows is refused then."""
        return self.learns_from_results

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

    @property
    def needs_window(self) -> bool:
        """False where a join may have no window; its windows are ``UNBOUNDED`` then."""
        return True

    @property
    def takes_window(self) -> bool:
        """False where a join has no window, so that one that is set is refused."""
        return True

    @property
    def takes_rows(self) -> bool:
        """True where windows may be of rows (``Setting.rows``)."""
        return False

    @property
    def knows_bytes(self) -> bool:
        """True where the logic has ``fit`` and ``bytes_for``, so that memory to shed within may be in bytes."""
        return False

    def check(self, setting: Setting) -> None:
        """Raise ValueError with fault and remedy if this join cannot be served; called before data is read."""

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> JoinLogic:
        """Return the logic for one shard, new or as it was when the snapshot was taken."""
        raise NotImplementedError


class SheddingStrategy(Strategy):
    """Base of shedding strategies; options ``weight`` and ``frequencies`` are bound to the inputs for them."""

    stage: ClassVar[str] = "shedding"

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> SheddingLogic:
        """Return the logic for one shard, new or as it was when the snapshot was taken."""
        raise NotImplementedError
