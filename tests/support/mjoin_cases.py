"""One-to-many streams as they reach a join, with punctuations that hold, and what joins in them."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from slackwater.plugins import Setting
from slackwater.plugins.contract import UNBOUNDED, Metadata, Pattern, Punctuations, Released
from slackwater.transforms.expressions.condition import Condition

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
KINDS = ("many", "one", "many_range", "one_range")
"""Values and ranges that an input has punctuated."""


class Case(NamedTuple):
    """A stream of two inputs; ``one`` has every k once."""

    setting: Setting
    released: Released
    punctuations: Punctuations
    keys: list[Any]
    values: list[int]
    one: int


def setting_of(
    one: int = 0, where: str = "a.k = b.k", counts_only: bool = False, kinds: tuple[str, ...] = KINDS, **more: Any
) -> Setting:
    condition = Condition(where, {"a": SCHEMA, "b": SCHEMA})
    cells = [condition.cell_of(i, "k") for i in range(2)]
    sides = {"many": 1 - one, "one": one}
    patterns = tuple(
        Pattern(sides[kind.split("_")[0]], (cells[sides[kind.split("_")[0]]],), "range" in kind) for kind in kinds
    )
    metadata = (Metadata("unique", one, (cells[one],)), *more.get("metadata", ()))
    return Setting(("a", "b"), (UNBOUNDED,) * 2, condition, counts_only, 1_000_000, patterns, metadata)


class Maker:
    """Puts together a stream that keeps its promises."""

    def __init__(self, setting: Setting, one: int) -> None:
        self.setting, self.one = setting, one
        self.rows: list[tuple[int, int, bool, Any, int]] = []
        self.marks: list[tuple[int, int, int, int, int]] = []
        self.now = 0
        self.came: set[int] = set()
        self.over: dict[int, set[int]] = {0: set(), 1: set()}

    def add(self, which: int, key: Any, value: int, step: int, delay: int) -> None:
        if key is not None and (key in self.over[which] or (which == self.one and key in self.came)):
            return
        ts = self.now + step - delay
        self.rows.append((which, ts, ts < self.now, key, value))
        self.now = max(self.now, ts)
        if which == self.one and key is not None:
            self.came.add(key)

    def mark(self, pattern: int, low: int, high: int) -> None:
        which, _, is_range = self.setting.patterns[pattern]
        if any(mark[2:] == (pattern, low, high) for mark in self.marks):
            # The operator passes on what is new.
            return
        self.over[which] |= set(range(low, high + 1)) if is_range else {low}
        self.marks.append((len(self.rows), self.now, pattern, low, high))

    def case(self) -> Case:
        n, condition = len(self.rows), self.setting.condition
        inputs = np.array([row[0] for row in self.rows], np.int8)
        cells, nulls = np.zeros((n, condition.width), np.int64), np.zeros(n, np.uint64)
        for at, (which, _, _, key, value) in enumerate(self.rows):
            for c, cell in enumerate(condition.columns[which]):
                shown = key if cell.column == "k" else value
                cells[at, c] = 0 if shown is None else shown
                nulls[at] |= np.uint64((shown is None) << c)
        seq = np.array([int((inputs[:at] == inputs[at]).sum()) for at in range(n)], np.int64)
        ts = np.array([row[1] for row in self.rows], np.int64)
        late = np.array([row[2] for row in self.rows], np.bool_)
        at, when, pattern, low, high = np.array(self.marks, np.int64).reshape(-1, 5).T
        return Case(
            self.setting,
            Released(inputs, seq, ts, late, cells, nulls),
            Punctuations(at, when, pattern.astype(np.int8), low[:, None], high),
            [row[3] for row in self.rows],
            [row[4] for row in self.rows],
            self.one,
        )


@st.composite
def cases(draw: st.DrawFn, size: int = 80, where: str = "a.k = b.k", counts_only: bool = False) -> Case:
    """Few keys at a time that move on, a fifth of the rows punctuations, some tuples late, some keys null."""
    one = draw(st.integers(0, 1))
    kinds = tuple(draw(st.lists(st.sampled_from(KINDS), unique=True)))
    more = [Metadata("clustered", 1 - one, (0,))] if draw(st.booleans()) else []
    setting = setting_of(one, where, counts_only, kinds, metadata=more)
    maker = Maker(setting, one)
    key = st.sampled_from([0, 1, 2, 3, 4, 0, 1, 2, 3, 4, None])
    event = st.tuples(
        st.sampled_from(["one", "one", "many", "many", "many", "many", "mark"]),
        key,
        st.integers(0, 3),
        st.integers(0, 2),
        st.sampled_from([0, 0, 0, 0, 1, 4]),
    )
    for n, (what, k, value, step, delay) in enumerate(draw(st.lists(event, max_size=size))):
        base = n // 12
        if what != "mark":
            maker.add(one if what == "one" else 1 - one, None if k is None else base + k, value, step, delay)
            if what == "one" and "one" in kinds and k is not None and value < 3:
                maker.mark(kinds.index("one"), base + k, 0)
        elif kinds and k is not None:
            kind = kinds[value % len(kinds)]
            if kind.endswith("range"):
                maker.mark(kinds.index(kind), max(0, base - 2 + k - step), base - 2 + k)
            else:
                maker.mark(kinds.index(kind), base - 1 + k, 0)
    return maker.case()


def truth(case: Case, test: Any = lambda one, many: True) -> Counter[tuple[int, ...]]:
    """(seq of a, seq of b, released last) of every pair with the same key whose later member is in time."""
    found: Counter[tuple[int, ...]] = Counter()
    inputs, late, seq = case.released.input, case.released.late, case.released.seq
    for later, key in enumerate(case.keys):
        for earlier in range(later):
            if late[later] or key is None or case.keys[earlier] != key or inputs[earlier] == inputs[later]:
                continue
            one, many = (earlier, later) if inputs[earlier] == case.one else (later, earlier)
            if test(case.values[one], case.values[many]):
                pair = (one, many) if case.one == 0 else (many, one)
                found[(int(seq[pair[0]]), int(seq[pair[1]]), later)] += 1
    return found


def over(case: Case, which: int, stop: int) -> set[int]:
    """Values that an input had punctuated when ``stop`` tuples were released."""
    values: set[int] = set()
    for at, _, pattern, low, high in zip(*case.punctuations, strict=True):
        kind = case.setting.patterns[pattern]
        if kind.input == which and (at < stop or stop == len(case.keys)):
            values |= set(range(low[0], high + 1)) if kind.is_range else {int(low[0])}
    return values


def useful(case: Case, stop: int) -> set[tuple[int, int]]:
    """(input, seq) of the tuples among the first ``stop`` that a later result may contain, if promises hold."""
    inputs, seq = case.released.input.tolist(), case.released.seq.tolist()
    came = {case.keys[k] for k in range(stop) if inputs[k] == case.one}
    done = {i: over(case, i, stop) for i in range(2)}
    return {
        (inputs[k], seq[k])
        for k in range(stop)
        if case.keys[k] is not None
        and case.keys[k] not in done[1 - inputs[k]]
        and (inputs[k] == case.one or case.keys[k] not in came)
    }


def part(case: Case, start: int, stop: int) -> tuple[Released, Punctuations]:
    """The tuples from ``start`` to ``stop`` and the punctuations among them, with the last those at the end."""
    at = case.punctuations.at
    last = len(case.keys) == stop
    inside = (at >= start) & ((at < stop) | (last & (at <= stop)))
    marks = Punctuations._make(array[inside] for array in case.punctuations)
    return case.released.part(slice(start, stop)), marks._replace(at=marks.at - start)


class Joined(NamedTuple):
    """What a logic gave."""

    results: Counter[tuple[int, ...]]
    join_size: list[int]
    cross_size: list[float]
    finished: list[tuple[int, int, int]]
    """Value, time, and number of results that had been found by then."""
    held: dict[int, set[tuple[int, int]]]
    """(input, seq) of the tuples held when so many were released."""
    logic: Any


def join(strategy: Any, case: Case, cuts: Any = (), restores: Any = ()) -> Joined:
    """Run a case in steps that end at ``cuts``, and go on from a snapshot at ``restores``."""
    from slackwater.transforms.state import snapshot as snapshots

    logic = strategy.build(case.setting)
    n = len(case.keys)
    edges = sorted({0, n, *(cut for cut in (*cuts, *restores) if cut <= n)})
    joined = Joined(Counter(), [], [], [], {}, logic)
    for start, stop in zip(edges, [*edges[1:], n], strict=True):
        if start in restores:
            logic = strategy.build(case.setting, snapshots.loads(snapshots.dumps(logic.snapshot())))
        released, marks = part(case, start, stop)
        punctuated = getattr(logic, "punctuated_step", None)
        for run in logic.step(released) if punctuated is None else punctuated(released, marks):
            for row, probe in zip(run.rows.tolist(), run.probe.tolist(), strict=True):
                joined.results[(*row, start + probe)] += 1
            joined.join_size.extend(run.join_size.tolist())
            joined.cross_size.extend(run.cross_size.tolist())
            if run.finished is not None:
                told = zip(run.finished.values[:, 0].tolist(), run.finished.ts.tolist(), strict=True)
                joined.finished.extend((value, ts, joined.results.total()) for value, ts in told)
        held = logic.held()
        joined.held[stop] = set(zip(held.input.tolist(), held.seq.tolist(), strict=True))
        assert len(held.seq) == len(joined.held[stop]) == logic.live()
        if stop == n:
            break
    return joined._replace(logic=logic)
