"""A join within a memory limit does exactly what SAJ says, tuple by tuple."""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.plugins.contract import Keep, Released
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import bind

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
WINDOWS = {"a": "9ms", "b": "4ms", "c": "6ms"}


class Tuple(NamedTuple):
    score: float
    ts: int
    code: int
    k: int
    v: int

    @property
    def input(self) -> int:
        return self.code & 7


def plan_of(m: int, where: str) -> Any:
    names = "abc"[:m]
    config = JoinConfig.read(
        {"time": "ts", "guard": "none", "window": {n: WINDOWS[n] for n in names}, "where": where}
    )
    return bind(config, {n: SCHEMA for n in names})


def reference(m, windows, tuples, late, limits, shared):
    """Expire, probe, then let the lowest score go while there are too many; the newcomer is one of them."""
    held: list[Tuple] = []
    results, evicted, sizes, now = [], [], [], -(10**9)
    for at, new in enumerate(tuples):
        if not late[at]:
            now = new.ts
            held = [t for t in held if t.ts >= now - windows[t.input]]
            partners = [[t for t in held if t.input == i and t.k == new.k] for i in range(m) if i != new.input]
            combos: list[list[Tuple]] = [[]]
            for group in partners:
                combos = [[*c, t] for c in combos for t in group]
            for combo in combos:
                members = sorted([*combo, new], key=lambda t: t.input)
                if sum(t.v for t in members) >= 0:
                    results.append((at, tuple(t.code >> 3 for t in members)))
        if not late[at] or new.ts >= now - windows[new.input]:
            held.append(new)
        for h in [None] if shared else range(m):
            mine = [t for t in held if h is None or t.input == h]
            while len(mine) > limits[at][h or 0]:
                # Shrinking comes before the newcomer is weighed against the lowest of the rest.
                others = [t for t in mine if t != new]
                lowest = min(others if len(others) > limits[at][h or 0] else mine)
                evicted.append((lowest.code, at))
                held.remove(lowest)
                mine.remove(lowest)
        sizes.append(len(held))
    return sorted(results), sorted(evicted), sizes


@settings(max_examples=60)
@given(st.data())
def test_the_lowest_score_leaves_whenever_there_is_one_too_many(data):
    m, shared = data.draw(st.sampled_from([2, 3])), data.draw(st.booleans())
    where = " AND ".join(f"a.k = {n}.k" for n in "bc"[: m - 1])
    where += f" AND {' + '.join(f'{n}.v' for n in 'abc'[:m])} >= 0"
    plan = plan_of(m, where)
    n = data.draw(st.integers(1, 120))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    inputs, ts = rng.integers(0, m, n).astype(np.int8), np.cumsum(rng.integers(0, 3, n))
    late = rng.random(n) < 0.15
    on_t = np.maximum.accumulate(np.where(late, 0, ts))
    ts = np.where(late, on_t - rng.integers(1, 12, n), ts)
    seq = np.array([int((inputs[:k] == inputs[k]).sum()) for k in range(n)])
    cells = np.stack([rng.integers(0, 3, n), rng.integers(-2, 3, n)], axis=1)
    top = data.draw(st.sampled_from([1, 3, 8, 30]))
    limits = rng.integers(max(0, top - 3), top + 1, (n, 1 if shared else m))
    scores = rng.integers(0, 4, n).astype(np.float64)
    released = Released(inputs, seq, ts, late, cells, np.zeros(n, np.uint64))
    tuples = [
        Tuple(float(scores[k]), int(ts[k]), int(seq[k] * 8 + inputs[k]), *map(int, cells[k])) for k in range(n)
    ]
    results, evicted, sizes = reference(m, plan.windows, tuples, late, limits, shared)
    logic = plan.join.build(plan.setting)
    cuts = sorted({0, n, *data.draw(st.lists(st.integers(0, n), max_size=4))})
    got_results, got_evicted, got_sizes = [], [], []
    for start, stop in pairwise(cuts):
        if data.draw(st.booleans()):
            logic = plan.join.build(plan.setting, logic.snapshot())
        part = slice(start, stop)
        keep = Keep(scores[part], None if start else np.empty(0), limits[part], np.zeros(stop - start, np.int64))
        for matches in logic.limited_step(released.part(part), keep):
            got_results += [
                (int(at) + start, tuple(map(int, row)))
                for row, at in zip(matches.rows, matches.probe, strict=True)
            ]
            if matches.evicted is not None:
                e = matches.evicted
                got_evicted += list(zip((e.seq * 8 + e.input).tolist(), (e.at + start).tolist(), strict=True))
        got_sizes += keep.live.tolist()
        assert logic.live() == len(logic.held().ts) == got_sizes[-1]
    assert sorted(got_results) == results
    assert sorted(got_evicted) == evicted
    assert got_sizes == sizes
