"""The one-to-many join of two inputs, driven by ``kernels.join.schedule``.

Let *a* be the input on which the key is unique, *b* the other. Of tuples with value v, a brings one at most,
a(v); b brings any number, and each has a(v) as its only partner.

*Results.* A pair is a result unless its later-released member was late (``contract.JoinLogic``). It is looked at
once, when the second of the two to be processed meets the first, so the order of processing changes nothing:
which of them was released last is known from their numbers.

*Purge.* A tuple of b that has met a(v) is useless: no other tuple of a has v. It goes at once; one that comes
after a(v) is never kept. a(v) is useless once b has punctuated v and its tuples with v that were released before
have been processed: none is left and none comes. As b is processed in order, that is when the punctuation is. A
tuple of b is useless if a has punctuated v and a(v) has not come.

*On-the-fly drop.* a(v) meets what waits and is not kept if b has punctuated v; a tuple of b is not kept if a has
punctuated v without a(v). Tuples with a null key join nothing and are not kept.

*Finished.* Call a over for v if it has brought a(v) or punctuated v, b if it has punctuated v. If b is over and
none of its tuples with v waits, no later result has v: it would need one, and those that have met a(v) are done.
If a is over and a(v) is not held, none has v either. With both over, one of the two is the case: what waits for
a(v) meets it. So a value is passed on with the punctuation of b, or if tuples wait for a(v) then with that or
with the punctuation of a. It leaves once, unless it was forgotten, or settled, and is punctuated again, as two
kinds of punctuations of an input may do; a range finishes the values that are known, and others as their a(v)
comes. Its time is the latest of those of the punctuation and of all results with v. Once tuples of b have been
evicted, they may wait elsewhere: from then on a value leaves only when a is over too. That a(v) came is
remembered when it is evicted.

*Clusters* and *order* (1-NC) come as punctuations. Besides, a cluster of b that meets a(v) is taken to its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from slackwater.plugins.arrays import opened_all
from slackwater.plugins.contract import (
    NEVER,
    Bools,
    Finished,
    Held,
    Int8s,
    Int64s,
    JoinLogic,
    Matches,
    Punctuations,
    Released,
    Setting,
    Snapshot,
)
from slackwater.plugins.join.one_to_many.one_side import OneSide, one_side
from slackwater.transforms.kernels.expressions.predicate import BLOCK
from slackwater.transforms.kernels.join import entries as layout
from slackwater.transforms.kernels.join import one_to_many as rules
from slackwater.transforms.kernels.join import schedule as kernel

if TYPE_CHECKING:
    from slackwater.plugins.join.one_to_many.mjoin import MetadataJoin

RESULTS_AT_ONCE = 1 << 13
"""Results are handed on as they are found, this many at a time."""
RANGES = 1 << 10
"""Separate ranges of one side at most; the lowest is forgotten, and its tuples stay."""
_FINISHED_AT_ONCE = 1 << 12
_SMALLEST = 1 << 10


class OneToManyJoinLogic(JoinLogic):
    """State of one shard's one-to-many join.

    Args:
        setting: the join.
        options: purging and scheduling.
        snapshot: what ``snapshot`` returned, or None.
    """

    reorders: bool = True

    def __init__(self, setting: Setting, options: MetadataJoin, snapshot: Snapshot | None = None) -> None:
        side = one_side(setting)
        self._one, self._classes = side.input, side.key
        self._width, self._counts_only = setting.condition.width, setting.counts_only
        self._patterns = _Patterns(setting, side)
        self._plan = _plan(setting, side, options, self._patterns.end_one)
        registers = int(self._plan.program[:, 1].max(initial=0)) + 1
        self._scratch = np.zeros((3, max(2, registers), BLOCK), np.int64)
        self._key = np.zeros(len(side.key), np.int64)
        self._results = RESULTS_AT_ONCE
        self._seen = np.zeros(2, np.int64)
        self.processed = 0
        """Tuples and punctuations processed so far, within a step too."""
        control = np.zeros(layout.EVICTED + 1, np.int64)
        control[layout.PASSED] = NEVER
        ranges = np.empty((2 * len(side.key), RANGES, 2), np.int64)
        self._state = layout.State(
            *self._tables(_SMALLEST, _SMALLEST), ranges, np.zeros(len(ranges), np.int64), control
        )
        if snapshot:
            self._restore(snapshot)

    def step(self, released: Released) -> Iterator[Matches]:
        return self.punctuated_step(released, self._patterns.nothing())

    def punctuated_step(self, released: Released, punctuations: Punctuations) -> Iterator[Matches]:
        n, tuples = released.ts.size, opened_all(released)
        given = self._patterns.read(punctuations)
        queues = self._queues(tuples[0], given)
        join_size, cross_size = np.zeros(n, np.int64), self._cross_sizes(released)
        out = self._out(join_size)
        before, none = self.processed, np.empty(0, np.int64)
        while True:
            reason = kernel.run(self._state, self._plan, tuples, given, queues, self._key, self._scratch, out)
            self.processed = before + int(queues.turn[kernel.PROCESSED])
            if reason == kernel.DONE:
                break
            if reason == kernel.STATE_FULL:
                self._reserve()
                continue
            if out.size.any():
                yield Matches(0, 0, *_rows(out), none, np.empty(0), self._finished(out, n))
            else:
                self._results *= 2
            out = self._out(join_size)
        self._state.control[layout.BASE] += n
        if n or out.size.any():
            yield Matches(0, n, *_rows(out), join_size, cross_size, self._finished(out, n))

    def live(self) -> int:
        return int(self._state.control[layout.LIVE : layout.LIVE + 2].sum())

    def held(self) -> Held:
        slots = self._state.slots[self._listed()]
        return Held(
            np.where(slots[:, layout.SIDE] == layout.ONE, self._one, 1 - self._one).astype(np.int8),
            slots[:, layout.SEQ].copy(),
            slots[:, layout.TS].copy(),
            slots[:, layout.CELLS :].copy(),
            slots[:, layout.NULLS].astype(np.uint64),
        )

    def evict(self, victims: Bools) -> None:
        layout.forget_slots(self._state, self._listed()[victims])
        self._sweep()

    def held_cells(self) -> tuple[Int8s, Int64s]:
        keys = self._known()[:, layout.KEY :]
        cells = np.zeros((len(keys), self._width), np.int64)
        cells[:, self._plan.keys[layout.ONE]] = keys
        return np.full(len(keys), self._one, np.int8), cells

    def snapshot(self) -> Snapshot:
        self._sweep()
        control = self._state.control
        return {
            "slots": self._state.slots[: control[layout.SLOTS]].copy(),
            "entries": self._known().copy(),
            "ranges": [own[:n].copy() for own, n in zip(self._state.ranges, self._state.n_ranges, strict=True)],
            "control": control.copy(),
            "seen": self._seen.copy(),
        }

    @property
    def most(self) -> int:
        """The most tuples that were in memory, within a step too: live ones, and those for a purge to free."""
        return int(self._state.control[layout.MOST])

    @property
    def nbytes(self) -> int:
        """Bytes of all tables."""
        return sum(array.nbytes for array in self._state)

    def _restore(self, snapshot: Snapshot) -> None:
        slots, known = snapshot["slots"], snapshot["entries"]
        tables = self._tables(max(_SMALLEST, 2 * len(slots)), max(_SMALLEST, 2 * len(known)))
        self._state = layout.State(*tables, *self._state[3:])
        self._state.slots[: len(slots)], self._state.entries[: len(known)] = slots, known
        self._state.control[:] = snapshot["control"]
        self._seen[:] = snapshot["seen"]
        for n, own in enumerate(snapshot["ranges"]):
            self._state.ranges[n, : len(own)], self._state.n_ranges[n] = own, len(own)
        self._sweep()

    def _sweep(self) -> None:
        layout.sweep(self._state, int(self._plan.options[rules.FLAG_LIMIT]))

    def _reserve(self) -> None:
        """Make room where a table is full: by a sweep, and if that leaves little, by doubling the table."""
        self._sweep()
        old, control = self._state, self._state.control
        sizes = [
            len(table) * (1 + (4 * int(used) > 3 * len(table)))
            for table, used in ((old.slots, control[layout.SLOTS]), (old.entries, control[layout.ENTRIES]))
        ]
        if sizes == [len(old.slots), len(old.entries)]:
            return
        self._state = layout.State(*self._tables(*sizes), *old[3:])
        self._state.slots[: len(old.slots)], self._state.entries[: len(old.entries)] = old.slots, old.entries
        self._sweep()

    def _tables(self, slots: int, entries: int) -> tuple[Int64s, Int64s, Int64s]:
        return (
            np.zeros((slots, layout.CELLS + self._width), np.int64),
            np.zeros((entries, layout.KEY + len(self._classes)), np.int64),
            np.full(1 << (2 * entries - 1).bit_length(), layout.NONE, np.int64),
        )

    def _queues(self, inputs: Int8s, given: tuple[Any, ...]) -> kernel.Queues:
        n = inputs.size + len(given[0])
        one, many = np.empty(n, np.int64), np.empty(n, np.int64)
        n_one, n_many = kernel.fill_queues(inputs, self._one, given[0], given[2], one, many)
        turn = np.zeros(kernel.PROCESSED + 1, np.int64)
        turn[kernel.SIDE], turn[kernel.PICKED], turn[kernel.LAST] = layout.ONE, layout.NONE, layout.NONE
        return kernel.Queues(one[:n_one], many[:n_many], np.empty(n_one, np.int64), turn)

    def _cross_sizes(self, released: Released) -> Any:
        """How many tuples of the other input were released before each, as in a join that keeps them all."""
        is_one = released.input == self._one
        before = np.stack([np.cumsum(is_one) - is_one, np.cumsum(~is_one) - ~is_one]) + self._seen[:, None]
        self._seen += (int(is_one.sum()), int((~is_one).sum()))
        others = np.where(is_one, before[1], before[0])
        return np.where(released.late, 0.0, others.astype(np.float64))

    def _out(self, join_size: Int64s) -> rules.Out:
        room = 0 if self._counts_only else self._results
        finished = len(self._state.entries) + _FINISHED_AT_ONCE
        return rules.Out(
            np.zeros(2, np.int64), np.empty((room, 2), np.int64), np.empty(room, np.int64), join_size,
            np.empty(finished, np.int64), np.empty((finished, len(self._classes)), np.int64),
        )  # fmt: skip

    def _finished(self, out: rules.Out, n: int) -> Finished | None:
        found = int(out.size[1])
        if not found:
            return None
        return Finished(np.full(found, n, np.int64), out.ts[:found], self._classes, out.values[:found])

    def _listed(self) -> Int64s:
        used = self._state.slots[: self._state.control[layout.SLOTS]]
        return np.flatnonzero(used[:, layout.SIDE] != layout.NONE)

    def _known(self) -> Int64s:
        known = self._state.entries[: self._state.control[layout.ENTRIES]]
        return known[known[:, layout.FLAGS] & layout.GONE == 0]


class _Patterns:
    """How the kinds of punctuations speak of the key.

    Those that name all of it end a value; a range, or a value of one column among several, is a range of that
    column. Others tell nothing of the key alone.
    """

    def __init__(self, setting: Setting, side: OneSide) -> None:
        n = max(1, len(setting.patterns))
        self.kinds = np.full((n, 2), layout.NONE, np.int64)
        """Side, and the column of the key if it is a range; NONE for no side, and for no range."""
        self.order = np.zeros((n, len(side.key)), np.int64)
        self._is_range = np.zeros(n, np.bool_)
        for p, (which, cells, is_range) in enumerate(setting.patterns):
            places = [setting.condition.classes[c][which] for c in side.key]
            if not set(cells) <= set(places) or (len(cells) > 1 and set(cells) != set(places)):
                continue
            ends = len(cells) == len(places) and not is_range
            self.kinds[p] = (which != side.input, layout.NONE if ends else places.index(cells[0]))
            self._is_range[p] = is_range
            if ends:
                self.order[p] = [cells.index(place) for place in places]
        self.end_one = bool((self.kinds == (layout.ONE, layout.NONE)).all(axis=1).any())
        """Whether values of the unique input are punctuated."""

    def read(self, punctuations: Punctuations) -> tuple[Any, ...]:
        """Return punctuations as the kernel wants them: at, ts, side, column, low, high."""
        at, ts, pattern, low, high = opened_all(punctuations)
        side, column = self.kinds[pattern].T.copy()
        low = np.take_along_axis(low, self.order[pattern], axis=1)
        return at, ts, side, column, low, np.where(self._is_range[pattern], high, low[:, 0])

    def nothing(self) -> Punctuations:
        none = np.empty(0, np.int64)
        return Punctuations(none, none, np.empty(0, np.int8), np.empty((0, self.order.shape[1]), np.int64), none)


def signature_of(setting: Setting) -> tuple[tuple[int, ...], Int64s, Int64s]:
    """Return the key; of each pattern its input if it names values of all of it, else -1; and their order."""
    side = one_side(setting)
    patterns = _Patterns(setting, side)
    which, column = patterns.kinds.T
    named = (which != layout.NONE) & (column == layout.NONE)
    inputs = np.where(which == layout.ONE, side.input, 1 - side.input)
    return side.key, np.where(named, inputs, -1), patterns.order


def _plan(setting: Setting, side: OneSide, given: MetadataJoin, awaits_one: bool) -> rules.Plan:
    condition = setting.condition
    sides = (side.input, 1 - side.input)
    program = condition.assemble(condition.predicates)
    options = np.zeros(rules.QUOTA + 2, np.int64)
    options[rules.ONE_INPUT] = side.input
    options[rules.TESTS] = bool(side.rest) or len(program) > 0
    options[rules.AWAITS_ONE] = awaits_one
    options[rules.IMMEDIATE] = given.purges_at_once
    options[rules.BATCH] = given.batch
    options[rules.FLAG_LIMIT] = given.flags
    full = given.memory is not None and not given.memory.in_bytes
    options[rules.SLOT_LIMIT] = given.memory.amount if full and given.memory else np.iinfo(np.int64).max
    options[rules.RANDOM] = given.streams == "random"
    options[rules.BY_VALUE] = given.tuples == "value_oriented"
    options[rules.CLUSTERED] = side.clustered
    options[rules.QUOTA :] = (given.quota, given.quota_many)
    return rules.Plan(
        np.array([[condition.classes[c][i] for c in side.key] for i in sides], np.int64),
        np.array([[condition.classes[c][i] for i in sides] for c in side.rest], np.int64).reshape(-1, 2),
        np.array(
            [condition.columns[side.input][condition.classes[c][side.input]].kind == "float" for c in side.key]
        ),
        program,
        options,
    )


def _rows(out: rules.Out) -> tuple[Int64s, Int64s]:
    found = int(out.size[0])
    return out.rows[:found], out.probe[:found]
