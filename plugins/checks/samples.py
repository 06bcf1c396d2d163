"""Joins and tuples to check join strategies on, and what Alg. 2, read word by word, makes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np

from slackwater.plugins.checks.frame import demand, sample_setting
from slackwater.plugins.contract import NEVER, UNBOUNDED, Metadata, Released, Setting

Results = Counter[tuple[int, ...]]
"""The seq of every input's member of each result, and how often."""


class Sample(NamedTuple):
    m: int
    where: str | None
    test: Callable[[Sequence[Any]], bool]
    """What the condition says of one (k, v) per input; None is null."""
    unique: bool = False
    """Whether every k comes once in the first input, as metadata says; such a sample has no windows."""


def _equal(x: Any, y: Any) -> bool:
    return x is not None and x == y


_SAMPLES: Final = [
    Sample(2, "a.k = b.k", lambda r: _equal(r[0][0], r[1][0])),
    Sample(2, "a.k = b.k", lambda r: _equal(r[0][0], r[1][0]), unique=True),
    Sample(2, "a.k = b.k AND a.v <= b.v", lambda r: _equal(r[0][0], r[1][0]) and r[0][1] <= r[1][1]),
    Sample(2, "a.v + 1 < b.v", lambda r: r[0][1] + 1 < r[1][1]),
    Sample(2, None, lambda r: True),
    Sample(3, "a.k = b.k AND b.v = c.v", lambda r: _equal(r[0][0], r[1][0]) and r[1][1] == r[2][1]),
    Sample(3, "a.k = b.k AND b.k = c.k", lambda r: _equal(r[0][0], r[1][0]) and r[1][0] == r[2][0]),
]


class Stream(NamedTuple):
    """What kind of tuples reach the join."""

    seed: int = 11
    nulls: bool = True
    per_tick: int = 2
    """Tuples of one event time."""
    delays: tuple[int, ...] = (0, 0, 0, 0, 0, 0, 4, 20)
    far: bool = False
    """Whether times, row numbers and keys are larger than floats can tell apart."""


STREAMS: Final = (
    Stream(),
    # Late by what windows are long, and a tick less or more; many of one time.
    Stream(5, False, 3, (0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11)),
    Stream(6, True, 1, (0, 0, 0, 0, 0, 0, 3, 12), far=True),
)
_FAR: Final = 1 << 60


def sample_released(setting: Setting, n: int = 120, nulls: bool = True, stream: Stream = STREAMS[0]) -> Released:
    """Tuples as they reach the join: mostly in order, a few late, with ties and with null keys."""
    rng = np.random.default_rng(stream.seed)
    m = len(setting.inputs)
    inputs = rng.integers(0, m, n).astype(np.int8)
    ts = np.arange(n) // stream.per_tick - rng.choice(stream.delays, n)
    newest = np.maximum.accumulate(ts)
    seq = np.array([np.count_nonzero(inputs[:k] == inputs[k]) for k in range(n)], np.int64)
    values = {"k": rng.integers(0, 3, n), "v": rng.integers(0, 4, n)}
    null_key = rng.random(n) < (0.15 if nulls and stream.nulls else 0.0)
    if setting.metadata:
        values["k"] = np.where(inputs == 0, seq, rng.integers(0, n // m, n))
    if stream.far:
        values["k"] = values["k"] + (1 << 53)
    cells, bits = np.zeros((n, setting.condition.width), np.int64), np.zeros(n, np.uint64)
    for i, columns in enumerate(setting.condition.columns):
        for c, cell in enumerate(columns):
            mine = inputs == i
            cells[mine, c] = values[cell.column][mine]
            if cell.column == "k":
                bits[mine & null_key] |= np.uint64(1 << c)
    late = ts < newest
    if stream.far:
        ts, seq = ts + _FAR, seq + (1 << 40)
    return Released(inputs, seq, ts, late, cells, bits)


Rule = Callable[[int, int], bool]
"""Whether the tuple of an input with a row number is evicted."""
EVICTIONS: Final[dict[int, Rule]] = {
    40: lambda i, seq: seq % 2 == 0,
    70: lambda i, seq: i == 0,
    71: lambda i, seq: False,
    100: lambda i, seq: True,
}
"""Tuples before which some of those that are held are evicted."""


def brute_force(
    setting: Setting, sample: Sample, released: Released, evictions: Mapping[int, Rule] = MappingProxyType({})
) -> Any:
    """Alg. 2 of QDDH word by word: per tuple its results, its cross size and how many the windows hold
    then; and what they hold in the end.

    What was found is remembered: all strategies are asked the same.
    """
    asked = (sample.m, sample.where, setting.windows, tuple(evictions), *(array.tobytes() for array in released))
    if asked not in _FOUND:
        _FOUND[asked] = _alg2(setting, sample, released, evictions)
    return _FOUND[asked]


_FOUND: Final[dict[Any, Any]] = {}


def _alg2(setting: Setting, sample: Sample, released: Released, evictions: Mapping[int, Rule]) -> Any:
    windows: list[list[int]] = [[] for _ in setting.inputs]
    now: Any = NEVER
    out = []
    for k, (i, ts) in enumerate(zip(released.input.tolist(), released.ts.tolist(), strict=True)):
        results, cross = Results(), 0.0
        if k in evictions:
            windows = [[x for x in w if not evictions[k](j, int(released.seq[x]))] for j, w in enumerate(windows)]
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
        if ts >= now - setting.windows[i]:
            windows[i].append(k)
        out.append((results, cross, sum(map(len, windows))))
    return out, {(int(released.input[x]), int(released.seq[x])) for w in windows for x in w}


def _values(setting: Setting, released: Released, x: int) -> tuple[Any, Any]:
    """k and v of a tuple, as far as the condition reads them."""
    found: dict[str, Any] = {"k": None, "v": None}
    for c, cell in enumerate(setting.condition.columns[released.input[x]]):
        is_null = (int(released.nulls[x]) >> c) & 1
        found[cell.column] = None if is_null else int(released.cells[x, c])
    return found["k"], found["v"]


WINDOWS: Final = ((8, 9, 10), (13, 2, 5), (0, 4, 1))


def served(
    strategy: Any, counts_only: bool = False, windows: tuple[int, ...] = WINDOWS[0]
) -> Iterator[tuple[Sample, Setting]]:
    """The sample joins that the strategy serves: those whose ``build`` does not raise ValueError."""
    refusal, count = None, 0
    for sample in _SAMPLES:
        setting = sample_setting(sample.m, sample.where, counts_only, strategy.takes_window)
        if setting.windows[0] != UNBOUNDED:
            setting = setting._replace(windows=windows[: sample.m])
        if sample.unique:
            unique = (Metadata("unique", 0, (0,)),)
            setting = setting._replace(windows=(UNBOUNDED,) * sample.m, metadata=unique)
        try:
            strategy.build(setting)
        except ValueError as error:
            refusal = error
            continue
        count += 1
        yield sample, setting
    demand(count, f"build refuses every sample join, the last with: {refusal}")


def cut(released: Released, start: int, stop: int) -> Released:
    arrays: Any = (array[start:stop].copy() for array in released)
    return Released(*arrays)


def useful_of(windows: set[tuple[int, int]], released: Released) -> set[tuple[int, int]]:
    """Those tuples in the windows of a one-to-many join whose partner may still come."""
    came = {int(k) for k in released.cells[released.input == 0, 0]}
    key = {(int(i), int(seq)): int(k) for i, seq, k in zip(*released[:2], released.cells[:, 0], strict=True)}
    return {who for who in windows if who[0] == 0 or key[who] not in came}
