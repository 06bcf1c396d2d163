"""Windows and punctuated values in arrays, driven by ``kernels.join.punctuated_windows``.

PWJoin (Ding and Rundensteiner) is a join of two inputs on one attribute; these are its rules for n inputs. Let
the *signature* be the key classes that punctuations name, M the inputs that have a column of each, and v a
value of it: all members from M of a result have the same v. Let P(v) be the inputs that have punctuated v, and
L(i, v) the tuples of input i with value v that are held. No tuple with v of an input in P(v) is released any
more, late ones included (``contract.Punctuations``), and a result contains one tuple that comes after all others.

*Finished.* If some i in P(v) has no L(i, v), no later result has v: it would need a tuple of i with v, of which
none is held and none comes. If P(v) is all inputs, no later result has v: no tuple with v comes to complete it.
For two inputs the first is Theorem 4.1, the second Theorem 3.1.

*Purge.* A tuple of input j with v is useless if v is finished, or if M is all inputs and all but j have
punctuated v: the tuple that completes a later result with it is of another input, and has v. If M is all inputs,
this is all that punctuations on v can tell: let v not be finished and some i other than j not be in P(v). Every
other input holds v or may still bring it, then i may bring it, and the result contains the tuple of j.

*On-the-fly discard.* A tuple whose value is finished is dropped unseen; one that the purge rule would delete
probes, and is not kept.

*Propagation.* A value is passed on when it is finished; where only regular propagation is wanted, when P(v) is
all inputs, which implies that it is finished. So early propagation is never later. Nothing adds to L(i, v) once
i has punctuated v, so a value leaves with the last tuple of such an L(i, v), or with the punctuation if there is
none. It leaves once, unless it was forgotten and is punctuated again.

*Ranges.* A range punctuates each of its values, and the rules above hold for each. Let r be what is new in a
range of i. By the first rule all of r is finished but the values that i holds and that not all inputs have
punctuated: these get I-Nodes. So r leaves as the ranges between them, and they follow one by one. A value that is
finished and in a range joins the ranges that are finished, so that these grow together again. Where only regular
propagation is wanted, r leaves where the ranges of all inputs overlap, and values that an input punctuated one by
one leave so. Finding what is held of r takes time in proportion to its values, or to all that is held if that is
less.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from slackwater.plugins.arrays import opened_all
from slackwater.plugins.contract import (
    REMEMBERED,
    Bools,
    Finished,
    Int8s,
    Int64s,
    Matches,
    Punctuations,
    Released,
    Setting,
    Snapshot,
)
from slackwater.plugins.join.window.logic import RUN, SlidingWindowJoinLogic, _chain
from slackwater.plugins.join.window.probe_plan import probe_plan
from slackwater.transforms.kernels.join import probe as probing
from slackwater.transforms.kernels.join import punctuated_pair as paired
from slackwater.transforms.kernels.join import punctuated_windows as kernel
from slackwater.transforms.kernels.join import slots as layout
from slackwater.transforms.kernels.punctuation import inodes
from slackwater.transforms.kernels.punctuation.purge import Out

RANGES = 1 << 10
"""Separate ranges of an input at most; those that touch are one, and of too many the lowest is forgotten."""
TOLD_AT_ONCE = 1 << 12
_NONE = np.empty(0, np.int64)
_NOTHING = Punctuations(_NONE, _NONE, _NONE.astype(np.int8), np.empty((0, 1), np.int64), _NONE)
_NOTHING_GIVEN = kernel.Given(_NONE, _NONE, _NONE, np.empty((0, 1), np.int64), _NONE, np.empty(0, np.bool_))


class PunctuatedJoinLogic(SlidingWindowJoinLogic):
    """State of one shard's join with punctuations.

    Args:
        setting: the join.
        flags: I-Nodes at most: values that some input has punctuated. Those that are over stay if there may be
            ``REMEMBERED``, so that tuples which contradict are found; else they go.
        early: whether to pass on values as soon as they are finished, or when all inputs have punctuated them.
        snapshot: what ``snapshot`` returned, or None.
    """

    def __init__(self, setting: Setting, flags: int, early: bool, snapshot: Snapshot | None = None) -> None:
        condition, m = setting.condition, len(setting.inputs)
        self._classes, self._input_of, self._order = signature_of(setting)
        members = [i for i in range(m) if self._classes and all(i in condition.classes[c] for c in self._classes)]
        n_keys = len(self._classes)
        kinds = [condition.columns[i][condition.classes[self._classes[0]][i]].kind for i in members]
        self._is_range = np.array([pattern.is_range for pattern in setting.patterns] or [False])
        self._has_ranges = bool((self._is_range & (self._input_of >= 0)).any())
        self._signature = np.full((m + 1, max(6, inodes.CELLS + n_keys)), layout.NONE, np.int64)
        bits = sum(1 << i for i in members)
        judges = not self._has_ranges and flags >= REMEMBERED
        self._signature[0, :6] = (n_keys, bits, len(members) == m, early, "float" in kinds, judges)
        self._v = self._no_values(m, flags)
        self._finished: list[Finished] = []
        super().__init__(setting, snapshot)
        self._step = paired.step if self._is_paired() else kernel.step
        for i in members:
            cells = [condition.classes[c][i] for c in self._classes]
            key = self._plan.indexes[i, :, layout.COLUMNS : layout.COLUMNS + n_keys]
            sized = self._plan.indexes[i, :, layout.KEYS] == n_keys
            self._signature[1 + i, inodes.INDEX] = int(np.flatnonzero(sized & (key == cells).all(axis=1))[0])
            self._signature[1 + i, inodes.CELLS : inodes.CELLS + n_keys] = cells
        if snapshot:
            masks, done, keys = (np.array(snapshot[name]) for name in ("masks", "done", "keys"))
            for k, ranges in enumerate(snapshot["ranges"]):
                self._v.ranges[k, : len(ranges)] = ranges
                self._v.n_ranges[k] = len(ranges)
            self._reserve_values(len(masks))
            inodes.restore(self._w, self._plan, self._v, masks, done, keys, self._search)
            self._close_rings()

    def step(self, released: Released) -> Iterator[Matches]:
        return self.punctuated_step(released, _NOTHING)

    def punctuated_step(self, released: Released, punctuations: Punctuations) -> Iterator[Matches]:
        n, given = released.ts.size, self._given(punctuations)
        tuples, coming = opened_all(released), given.at.size
        start = first = 0
        while start < n or first < coming:
            live = self.live()
            end = min(n, start + max(RUN, live))
            self._have_room(n - start)
            room = 0 if self._counts_only else self._results
            rows, probe = np.empty((room, len(self._w.control) - 1), np.int64), np.empty(max(1, room), np.int64)
            before, contradicts = (start, first), None
            if self._knows_nothing and (first == coming or given.at[first] > end):
                stop, found, join_size, cross_size = self._run(released, start, end, rows, probe)
            else:
                out = self._room(coming - first, live + end - start if self._has_ranges else 0)
                join_size, cross_size = np.zeros(end - start, np.int64), np.zeros(end - start)
                contradicts = np.zeros(end - start, np.bool_)
                stop, first, found, self._now = self._step(
                    self._w, self._plan, self._v, tuples, given, start, end, first, self._now, self._search,
                    self._scratch, rows, probe, join_size, cross_size, contradicts, out,
                )  # fmt: skip
                self._take(out)
            if (stop, first) != before:
                sizes = join_size[: stop - start], cross_size[: stop - start]
                wrong = None if contradicts is None else contradicts[: stop - start]
                yield Matches(start, stop, rows[:found], probe[:found], *sizes, self._told(), contradicts=wrong)
            elif self._has_room:
                self._results *= 2
            start = stop

    @property
    def judges(self) -> Bools:
        """Of each pattern, whether tuples that contradict it are known by the I-Nodes."""
        return (self._input_of >= 0) & (self._signature[0, inodes.JUDGES] != 0)

    def _is_paired(self) -> bool:
        """Whether two inputs are joined on the columns that punctuations speak of, and by nothing else first."""
        plan, n_keys = self._plan, len(self._classes)
        return (
            len(plan.inputs) == 2
            and n_keys > 0
            and not self._has_ranges
            and bool(self._signature[0, inodes.FULL])
            and bool((plan.inputs[:, probing.INDEXES] == 1).all())
            and bool((plan.steps[:, 0, probing.STEP_KEYS] == n_keys).all())
            and bool((plan.inputs[:, probing.OWN_FROM] == plan.inputs[:, probing.OWN_TO]).all())
        )

    def _given(self, punctuations: Punctuations) -> kernel.Given:
        """Return the punctuations with their values in the order of the key classes."""
        if not punctuations.at.size:
            return _NOTHING_GIVEN
        at, ts, _, low, high = opened_all(punctuations)
        if low.shape[1] > 1:
            low = np.take_along_axis(low, self._order[punctuations.pattern], axis=1)
        inputs, is_range = self._input_of[punctuations.pattern], self._is_range[punctuations.pattern]
        return kernel.Given(at, ts, inputs, low, high, is_range)

    def evict(self, victims: Bools) -> None:
        # The dead are not laid out again.
        self._v.icontrol[0, inodes.DEAD] = 0
        super().evict(victims)
        self._close_rings()

    def held_cells(self) -> tuple[Int8s, Int64s]:
        keys = self._v.inodes[self._listed()][:, inodes.KEY : inodes.KEY + len(self._classes)]
        cells = np.zeros((len(keys), self._width), np.int64)
        member = next((i for i, row in enumerate(self._signature[1:]) if row[inodes.INDEX] != layout.NONE), 0)
        if self._classes:
            cells[:, self._signature[1 + member, inodes.CELLS : inodes.CELLS + len(self._classes)]] = keys
        return np.full(len(keys), member, np.int8), cells

    def snapshot(self) -> Snapshot:
        nodes = self._v.inodes[self._listed()]
        keys = nodes[:, inodes.KEY : inodes.KEY + len(self._classes)]
        return {
            **super().snapshot(),
            "masks": nodes[:, inodes.MASK],
            "done": nodes[:, inodes.DONE],
            "keys": np.ascontiguousarray(keys),
            "ranges": [self._v.ranges[k, :size].copy() for k, size in enumerate(self._v.n_ranges)],
        }

    @property
    def nbytes(self) -> int:
        """Bytes of the windows, their indexes and the I-Nodes."""
        return super().nbytes + sum(array.nbytes for array in self._v)

    @property
    def _knows_nothing(self) -> bool:
        """Whether this is a window join as any other for now."""
        control = self._v.icontrol
        if control[0, inodes.INODES] or control[0, inodes.DEAD]:
            return False
        return not (self._has_ranges and self._v.n_ranges.any())

    def _probe_plan(self, setting: Setting) -> probing.ProbePlan:
        return probe_plan(setting, self._classes)

    def _occupied(self) -> int:
        return self.live() + int(self._v.icontrol[0, inodes.DEAD])

    def _reserve(self, n: int) -> None:
        """Make room for ``n`` more tuples; where most slots are dead, by laying the others out anew."""
        dead = int(self._v.icontrol[0, inodes.DEAD])
        if self._occupied() + n > len(self._w.slots) and dead > self.live():
            self.evict(np.zeros(self.live(), np.bool_))
        super()._reserve(n)

    def _close_rings(self) -> None:
        """Link the I-Nodes to windows that were filled anew."""
        out = self._room(0)
        kernel.close_rings(self._w, self._plan, self._v, self._now, self._search, out)
        self._take(out)

    def _no_values(self, m: int, flags: int) -> inodes.Values:
        return inodes.Values(
            inodes=np.zeros((0, inodes.KEY + len(self._classes)), np.int64),
            itable=np.full(16, layout.NONE, np.int64),
            icontrol=np.array([[layout.NONE, layout.NONE, layout.NONE, 0, flags, 0, 0, 0]], np.int64),
            signature=self._signature,
            bits=np.zeros(1, np.uint64),
            ranges=np.empty((m + 1, RANGES if self._has_ranges else 1, 2), np.int64),
            n_ranges=np.zeros(m + 1, np.int64),
        )

    def _reserve_values(self, n: int) -> None:
        """Make room for ``n`` more I-Nodes, at least doubling, so that the kernel never has to."""
        nodes, control = self._v.inodes, self._v.icontrol
        size = len(nodes)
        wanted = min(int(control[0, inodes.LIMIT]), int(control[0, inodes.INODES]) + n)
        if wanted > size:
            larger = np.zeros((max(wanted, 2 * size, 256), nodes.shape[1]), np.int64)
            larger[:size] = nodes
            _chain(larger, layout.HEAD, size, control, layout.FREE_GROUP)
            slots = 1 << (2 * len(larger) - 1).bit_length()
            table, bits = np.full(slots, layout.NONE, np.int64), np.zeros(max(1, slots // 8), np.uint64)
            self._v = self._v._replace(inodes=larger, itable=table, bits=bits)
            inodes.rehash(self._v)
            inodes.refilter(self._v)
        elif control[0, inodes.STALE] > size:
            inodes.refilter(self._v)

    def _listed(self) -> Int64s:
        out = np.empty(int(self._v.icontrol[0, inodes.INODES]), np.int64)
        inodes.list_inodes(self._v, out)
        return out

    def _room(self, coming: int, held: int = 0) -> Out:
        """Return room for all that may be finished until ``coming`` more punctuations have passed.

        Where there are ranges, ``held`` tuples at most; the kernel stops when these have used it up.
        """
        self._reserve_values(coming + held)
        control = self._v.icontrol[0]
        size = int(control[inodes.OPEN]) + coming
        if self._has_ranges:
            size = 2 * (int(control[inodes.INODES]) + coming + held)
            size += int(self._v.n_ranges.max() + self._v.n_ranges[-1]) + TOLD_AT_ONCE
        values = np.empty((size, len(self._classes)), np.int64)
        at, ts, high = (np.empty(size, np.int64) for _ in range(3))
        return Out(np.zeros(1, np.int64), at, ts, values, high)

    def _take(self, out: Out) -> None:
        n = int(out.size[0])
        if n:
            high = out.high[:n] if self._has_ranges else None
            self._finished.append(Finished(out.at[:n], out.ts[:n], self._classes, out.values[:n], high))

    def _told(self) -> Finished | None:
        """Return what has been proved finished since the last run."""
        told, self._finished = self._finished, []
        if len(told) < 2:
            return told[0] if told else None
        at, ts, values, *high = (
            np.concatenate([getattr(f, name) for f in told])
            for name in ("at", "ts", "values", *(["high"] if told[0].high is not None else []))
        )
        return Finished(at, ts, self._classes, values, *high)


def signature_of(setting: Setting) -> tuple[tuple[int, ...], Int64s, Int64s]:
    """Return the key classes whose values the join follows; for each pattern, its input if it is on them, else
    -1; and where among the pattern's values those of the classes are.

    They are those that the first usable pattern names: key columns only, by values or by a range. Patterns on
    others serve to find tuples that contradict them, and purge nothing.
    """
    signature: tuple[int, ...] = ()
    inputs = np.full(max(1, len(setting.patterns)), -1, np.int64)
    orders: dict[int, list[int]] = {}
    for n, pattern in enumerate(setting.patterns):
        named = {
            c: members[pattern.input]
            for c, members in enumerate(setting.condition.classes)
            if members.get(pattern.input) in pattern.cells
        }
        if len(named) < len(pattern.cells):
            continue
        signature = signature or tuple(named)
        if tuple(named) == signature:
            inputs[n] = pattern.input
            orders[n] = [pattern.cells.index(cell) for cell in named.values()]
    order = np.zeros((len(inputs), len(signature)), np.int64)
    for n, places in orders.items():
        order[n] = places
    return signature, inputs, order
