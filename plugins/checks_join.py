"""Checks of join strategies, against a word-by-word reading of Alg. 2 on small samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np

from slackwater.plugins.checks_frame import checks, demand, has_members, same, sample_setting, stored
from slackwater.plugins.contract import NEVER, UNBOUNDED, JoinLogic, Matches, Metadata, Released, Setting

Results = Counter[tuple[int, ...]]
"""The seq of every input's member of each result, and how often."""


class _Sample(NamedTuple):
    m: int
    where: str | None
    test: Callable[[Sequence[Any]], bool]
    """What the condition says of one (k, v) per input; None is null."""
    unique: bool = False
    """Whether every k comes once in the first input, as metadata says; such a sample has no windows."""


def _equal(x: Any, y: Any) -> bool:
    return x is not None and x == y


_SAMPLES: Final = [
    _Sample(2, "a.k = b.k", lambda r: _equal(r[0][0], r[1][0])),
    _Sample(2, "a.k = b.k", lambda r: _equal(r[0][0], r[1][0]), unique=True),
    _Sample(2, "a.k = b.k AND a.v <= b.v", lambda r: _equal(r[0][0], r[1][0]) and r[0][1] <= r[1][1]),
    _Sample(2, "a.v + 1 < b.v", lambda r: r[0][1] + 1 < r[1][1]),
    _Sample(2, None, lambda r: True),
    _Sample(3, "a.k = b.k AND b.v = c.v", lambda r: _equal(r[0][0], r[1][0]) and r[1][1] == r[2][1]),
    _Sample(3, "a.k = b.k AND b.k = c.k", lambda r: _equal(r[0][0], r[1][0]) and r[1][0] == r[2][0]),
]


def sample_released(setting: Setting, n: int = 120, nulls: bool = True) -> Released:
    """Tuples as they reach the join: mostly in order, a few late, with ties and with null keys."""
    rng = np.random.default_rng(11)
    m = len(setting.inputs)
    inputs = rng.integers(0, m, n).astype(np.int8)
    ts = np.arange(n) // 2 - rng.choice([0, 0, 0, 0, 0, 0, 4, 20], n)
    newest = np.maximum.accumulate(ts)
    seq = np.array([np.count_nonzero(inputs[:k] == inputs[k]) for k in range(n)], np.int64)
    values = {"k": rng.integers(0, 3, n), "v": rng.integers(0, 4, n)}
    null_key = rng.random(n) < (0.15 if nulls else 0.0)
    if setting.metadata:
        values["k"] = np.where(inputs == 0, seq, rng.integers(0, n // m, n))
    cells, bits = np.zeros((n, setting.condition.width), np.int64), np.zeros(n, np.uint64)
    for i, columns in enumerate(setting.condition.columns):
        for c, cell in enumerate(columns):
            mine = inputs == i
            cells[mine, c] = values[cell.column][mine]
            if cell.column == "k":
                bits[mine & null_key] |= np.uint64(1 << c)
    return Released(inputs, seq, ts, ts < newest, cells, bits)


def _brute_force(
    setting: Setting, sample: _Sample, released: Released, without: frozenset[Any] = frozenset()
) -> Any:
    """Alg. 2 of QDDH word by word: per tuple its results and its cross size; then what the windows hold."""
    windows: list[list[int]] = [[] for _ in setting.inputs]
    now: Any = NEVER
    out = []
    for k, (i, ts) in enumerate(zip(released.input.tolist(), released.ts.tolist(), strict=True)):
        results, cross = Results(), 0.0
        if not released.late[k]:
            now = ts
            windows = [
                [x for x in w if released.ts[x] >= now - size]
                for w, size in zip(windows, setting.windows, strict=True)
            ]
            cross = float(np.prod([len(w) for j, w in enumerate(windows) if j != i]))
            for members in product(*([k] if j == i else w for j, w in enumerate(windows))):
                if sample.test([_values(setting, released, x) for x in members]):
                    results[tuple(int(released.seq[x]) for x in members)] += 1
        if ts >= now - setting.windows[i] and (i, int(released.seq[k])) not in without:
            windows[i].append(k)
        out.append((results, cross))
    return out, {(int(released.input[x]), int(released.seq[x])) for w in windows for x in w}


def _values(setting: Setting, released: Released, x: int) -> tuple[Any, Any]:
    """k and v of a tuple, as far as the condition reads them."""
    found: dict[str, Any] = {"k": None, "v": None}
    for c, cell in enumerate(setting.condition.columns[released.input[x]]):
        is_null = (int(released.nulls[x]) >> c) & 1
        found[cell.column] = None if is_null else int(released.cells[x, c])
    return found["k"], found["v"]


def _served(strategy: Any, counts_only: bool = False) -> Iterator[tuple[_Sample, Setting]]:
    """The sample joins that the strategy serves: those whose ``build`` does not raise ValueError."""
    refusal, served = None, 0
    for sample in _SAMPLES:
        setting = sample_setting(sample.m, sample.where, counts_only, getattr(strategy, "takes_window", True))
        if sample.unique:
            unique = (Metadata("unique", 0, (0,)),)
            setting = setting._replace(windows=(UNBOUNDED,) * sample.m, metadata=unique)
        try:
            strategy.build(setting)
        except ValueError as error:
            refusal = error
            continue
        served += 1
        yield sample, setting
    demand(served, f"build refuses every sample join, the last with: {refusal}")


def _cut(released: Released, start: int, stop: int) -> Released:
    arrays: Any = (array[start:stop].copy() for array in released)
    return Released(*arrays)


def _joined(logic: JoinLogic, released: Released, chunk: int = 1 << 30) -> list[tuple[Results, int, float]]:
    """Step through ``released`` by chunks; per tuple its results, join size and cross size."""
    out: list[tuple[Results, int, float]] = []
    for start in range(0, max(1, released.ts.size), chunk):
        part = _cut(released, start, start + chunk)
        at = 0
        found = [Results() for _ in range(part.ts.size)]
        sizes: list[tuple[int, float]] = []
        for run in logic.step(part):
            _runs_on(run, at, getattr(logic, "reorders", False))
            for k, row in zip(run.probe, run.rows, strict=True):
                found[k][tuple(int(seq) for seq in row)] += 1
            sizes += [
                (int(join), float(cross)) for join, cross in zip(run.join_size, run.cross_size, strict=True)
            ]
            at = run.stop
        same(at, part.ts.size, "tuples covered by the runs of a chunk")
        out += [(results, *size) for results, size in zip(found, sizes, strict=True)]
    return out


def _runs_on(run: Matches, at: int, reorders: bool) -> None:
    """A run starts where the last one ended, is not empty, and its arrays fit its length."""
    same(run.start, at, "start of a run")
    demand(reorders or run.stop > run.start, f"a run from {run.start} to {run.stop} covers nothing")
    for name in ("join_size", "cross_size"):
        same(len(getattr(run, name)), run.stop - run.start, f"length of {name}")
    same(len(run.probe), len(run.rows), "length of probe, against rows")
    in_order = not len(run.probe) or (np.diff(run.probe) >= 0).all()
    demand(reorders or in_order, "probe must be non-decreasing")


def _useful(windows: set[tuple[int, int]], released: Released) -> set[tuple[int, int]]:
    """Those tuples in the windows of a one-to-many join whose partner may still come."""
    came = {int(k) for k in released.cells[released.input == 0, 0]}
    key = {(int(i), int(seq)): int(k) for i, seq, k in zip(*released[:2], released.cells[:, 0], strict=True)}
    return {who for who in windows if who[0] == 0 or key[who] not in came}


@checks("join")
def check_join_logic_keeps_to_the_contract(strategy: Any) -> None:
    """The logic has all members."""
    for _, setting in _served(strategy):
        logic = strategy.build(setting)
        has_members(logic, JoinLogic)


@checks("join")
def check_join_matches_brute_force(strategy: Any) -> None:
    """Results, join sizes and cross sizes of every tuple are those of Alg. 2."""
    for sample, setting in _served(strategy):
        released = sample_released(setting)
        expected, _ = _brute_force(setting, sample, released)
        for k, ((rows, join, cross), (true_rows, true_cross)) in enumerate(
            zip(_joined(strategy.build(setting), released), expected, strict=True)
        ):
            where = f"where {sample.where}, tuple {k}"
            same(rows, true_rows, f"{where}: results")
            same((join, cross), (true_rows.total(), true_cross), f"{where}: join size and cross size")


@checks("join")
def check_counts_match_rows(strategy: Any) -> None:
    """With ``counts_only`` there are no rows, and the join sizes are the same."""
    for sample, setting in _served(strategy, counts_only=True):
        released = sample_released(setting)
        expected, _ = _brute_force(setting, sample, released)
        got = _joined(strategy.build(setting), released)
        demand(not any(rows for rows, _, _ in got), f"where {sample.where}: rows although only counts are wanted")
        sizes = np.array([join for _, join, _ in got])
        same(sizes, np.array([rows.total() for rows, _ in expected]), f"where {sample.where}: join sizes")


@checks("join")
def check_chunking_does_not_change_results(strategy: Any) -> None:
    """Where the operator cuts its chunks must not show; empty chunks neither."""
    for sample, setting in _served(strategy):
        released = sample_released(setting)
        whole = _joined(strategy.build(setting), released)
        for chunk in (1, 13):
            logic = strategy.build(setting)
            _joined(logic, _cut(released, 0, 0))
            same(_joined(logic, released, chunk), whole, f"where {sample.where}: results by {chunk}")


@checks("join")
def check_held_and_evict(strategy: Any) -> None:
    """``held`` is what the windows hold, ``live`` their number; what is evicted is in no later result."""
    for sample, setting in _served(strategy):
        released = sample_released(setting, nulls=False)
        logic = strategy.build(setting)
        _joined(logic, _cut(released, 0, 60))
        _, windows = _brute_force(setting, sample, _cut(released, 0, 60))
        held = logic.held()
        tuples = [(int(i), int(seq)) for i, seq in zip(held.input, held.seq, strict=True)]
        if sample.unique:
            useful = _useful(windows, _cut(released, 0, 60))
            demand(useful <= set(tuples) <= windows, f"where {sample.where}: tuples held of a one-to-many join")
        else:
            same(sorted(tuples), sorted(windows), f"where {sample.where}: tuples held")
        same(logic.live(), len(tuples), f"where {sample.where}: live()")
        victims = np.arange(len(tuples)) % 2 == 0
        logic.evict(victims)
        gone = frozenset(t for t, evicted in zip(tuples, victims, strict=True) if evicted)
        same(logic.live(), len(tuples) - len(gone), f"where {sample.where}: live() after evict")
        expected, _ = _brute_force(setting, sample, released, gone)
        after = [rows for rows, _, _ in _joined(logic, _cut(released, 60, 120))]
        same(after, [rows for rows, _ in expected[60:]], f"where {sample.where}: results after evict")


@checks("join")
def check_join_snapshot_resumes_identically(strategy: Any) -> None:
    """A logic built from a snapshot goes on like the one that was stopped."""
    for sample, setting in _served(strategy):
        released = sample_released(setting)
        logic = strategy.build(setting)
        _joined(logic, _cut(released, 0, 60))
        resumed = strategy.build(setting, stored(logic.snapshot()))
        rest = _cut(released, 60, 120)
        same(_joined(resumed, rest), _joined(logic, rest), f"where {sample.where}: results after a restart")
