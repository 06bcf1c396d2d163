"""Windows of rows: each tuple finds the last rows of the other inputs that reached the join before it."""

from collections import Counter, deque
from itertools import product
from math import prod

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import NEVER, ReferenceRun, Tuple, _KSlack, _Synchronizer
from running import NAMES, SCHEMA, numbered, plan_of, run

from slackwater.transforms.errors import ConfigError


class CountJoin:
    """The last N of every input, kept in a deque; a late tuple neither looks nor enters."""

    def __init__(self, sizes):
        self.windows = [deque(maxlen=size) for size in sizes]
        self.on_t = NEVER
        self.run = ReferenceRun()

    def arrive(self, e):
        i, found, cross = e.input, 0, 0
        if e.ts < self.on_t:
            self.run.late.append((i, e.seq))
        else:
            self.on_t = e.ts
            others = [j for j in range(len(self.windows)) if j != i]
            cross = prod(len(self.windows[j]) for j in others)
            for members in product(*(self.windows[j] for j in others)):
                result = {i: e, **dict(zip(others, members, strict=True))}
                if len({x.row["k"] for x in result.values()}) == 1:
                    self.run.results[tuple(result[j].seq for j in range(len(self.windows))), e.ts] += 1
                    found += 1
            self.windows[i].append(e)
        self.run.join_sizes.append(found)
        self.run.cross_sizes.append(cross)


def reference(arrivals, sizes, slack):
    join = CountJoin(sizes)
    synchronizer = _Synchronizer(len(sizes), join)
    buffers = [_KSlack(synchronizer) for _ in sizes]
    for which, row in arrivals:
        buffer = buffers[which]
        buffer.now = max(buffer.now, row["ts"])
        buffer.arrive(Tuple(row["ts"], row["id"], which, row), slack)
    held = [e for buffer in buffers for e in buffer.held] + synchronizer.held
    for e in sorted(held, key=lambda e: e[:3]):
        join.arrive(e)
    return join.run


def streams(rng, m, n, keys=4, disorder=0.3):
    steps = rng.integers(0, 3, n) if disorder else np.ones(n, np.int64)
    ts = np.cumsum(steps) - rng.integers(0, 9, n) * (rng.random(n) < disorder)
    rows = [{"ts": int(t), "k": int(k), "v": 0} for t, k in zip(ts, rng.integers(0, keys, n), strict=True)]
    return numbered(zip(rng.integers(0, m, n).tolist(), rows, strict=True))


def join_of(m, sizes, slack, **more):
    return plan_of(
        SCHEMA,
        m,
        window={name: f"{size} rows" for name, size in zip(NAMES, sizes, strict=False)},
        where=" AND ".join(f"a.k = {name}.k" for name in NAMES[1:m]),
        disorder={"strategy": "fixed", "slack": f"{slack}ms"},
        **more,
    )


@settings(max_examples=25)
@given(st.data())
def test_the_last_rows_of_each_input_are_joined(data):
    m = data.draw(st.sampled_from([2, 3]))
    sizes = data.draw(st.lists(st.sampled_from([1, 2, 7, 30]), min_size=m, max_size=m))
    slack = data.draw(st.sampled_from([0, 4, 20]))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    arrivals = streams(rng, m, data.draw(st.sampled_from([0, 1, 40, 200])))
    edges = data.draw(st.lists(st.integers(0, len(arrivals)), max_size=4))
    expected = reference(arrivals, sizes, slack)
    got = run(join_of(m, sizes, slack), arrivals, edges, edges[:2])
    assert got.results == expected.results
    assert got.late_ids("too_late") == Counter(expected.late)
    assert (got.join_sizes, got.cross_sizes) == (expected.join_sizes, expected.cross_sizes)
    accounting = got.operator.accounting
    assert all(accounting.balanced(i) for i in range(m))
    assert accounting.missed.sum() / (1 << 20) == len(expected.late)


@settings(max_examples=20)
@given(st.data())
def test_shed_tuples_age_and_the_rest_is_found(data):
    """A limit that does not matter changes nothing; with one that does, some of the results are found, and of
    rows in order no others."""
    sizes = data.draw(st.lists(st.sampled_from([3, 8, 25]), min_size=2, max_size=2))
    strategy = data.draw(st.sampled_from(["random", "prob", "life"]))
    allocation = data.draw(st.sampled_from(["fixed", "variable"]))
    disorder = data.draw(st.sampled_from([0, 0.3]))
    arrivals = streams(np.random.default_rng(data.draw(st.integers(0, 10**6))), 2, 200, disorder=disorder)
    edges = data.draw(st.lists(st.integers(0, len(arrivals)), max_size=4))
    exact = reference(arrivals, sizes, 4)
    for memory in (5, 20, 10_000):
        shedding = {"strategy": strategy, "memory": memory, "allocation": allocation}
        plan = join_of(2, sizes, 4, shedding=shedding)
        got, whole = run(plan, arrivals, edges, edges[:2]), run(plan, arrivals)
        assert got.results == whole.results
        assert got.late_ids("shed") == whole.late_ids("shed")
        assert got.operator.accounting.max_tuples <= memory
        assert disorder or got.results <= exact.results
        assert all(got.operator.accounting.balanced(i) for i in range(2))
        if memory == 10_000:
            assert got.results == exact.results
            assert not got.late_ids("shed")


def test_what_shedding_costs_is_not_known():
    """What was shed is remembered by time, which says nothing of windows of rows: better no recall than a wrong
    one. As long as nothing is shed, it is known."""
    arrivals = streams(np.random.default_rng(1), 2, 400)
    for memory, known in ((20, False), (10_000, True)):
        plan = join_of(2, [25, 25], 4, shedding={"strategy": "prob", "memory": memory})
        account = run(plan, arrivals).operator.accounting
        summary = account.summary(10**6)
        assert ("shed" in summary["late"]) is not known
        assert account.results > 0
        assert (summary["recall_estimate"] is not None) is known
        assert summary["missed"]["shed"] == (0 if known else None)


def test_an_evicted_row_still_pushes_others_out():
    """Windows of 2 rows and room for one tuple of a: the second is shed, and with the third the first has aged
    out, though only one was ever held."""
    rows = [(0, {"ts": t, "k": 1, "v": 0}) for t in (1, 2, 3)] + [(1, {"ts": 4, "k": 1, "v": 0})]
    for memory in (1, 2, 50):
        plan = join_of(2, [2, 2], 0, shedding={"strategy": "random", "memory": memory})
        got = run(plan, numbered(rows), range(4))
        found = {pair[0] for pair, _ in got.results}
        assert found <= {1, 2}
        if memory == 50:
            assert found == {1, 2}


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"window": "0 rows"}, "window: must be a number of rows such as 400 rows, got '0 rows'"),
        ({"window": "4.5 rows"}, "window: must be a number of rows such as 400 rows, got '4.5 rows'"),
        (
            {"window": {"a": "4 rows", "b": "5s"}},
            "window.b: must be a number of rows such as 400 rows, got '5s'; windows are all of rows or all "
            "of time",
        ),
        ({"window": {"a": "4 rows"}}, "window: says nothing of input 'b'; add it"),
        (
            {"window": {"size": "4 rows", "closed": "right"}},
            "window.closed: is for windows of time, and this one is of rows; leave it out",
        ),
        (
            {"window": "4 rows", "shards": 2},
            "shards: a window of rows counts the rows of all keys; use shards: 1",
        ),
        (
            {"window": "4 rows", "join": {"strategy": "pwjoin"}},
            "window: strategy 'pwjoin' has no windows of rows; use mswj or wjoin",
        ),
        (
            {"window": "4 rows", "disorder": {"recall": 0.9}},
            "disorder: strategy 'result_slack' goes by windows of time, and these are of rows; use another, such "
            "as drop_ratio",
        ),
        (
            {"window": "4 rows", "disorder": {"strategy": "quality_driven", "recall": 0.9}},
            "disorder: strategy 'quality_driven' goes by windows of time, and these are of rows; use another, "
            "such as drop_ratio",
        ),
        (
            {"window": "4 rows", "unique": "a.k"},
            "window: windows of rows and punctuations, unique, clustered, ordered or foreign_key do not go "
            "together; use a window of time",
        ),
        (
            {"window": "4 rows", "archive": "kept"},
            "archive: works with windows of time only: otherwise a row that was missed could have met any other, "
            "and all would have to be kept; set window to a duration, or leave archive out",
        ),
    ],
)
def test_what_does_not_go_with_rows_is_refused(settings, fault):
    with pytest.raises(ConfigError) as raised:
        plan_of(pa.schema([("ts", pa.int64()), ("k", pa.int64())]), where="a.k = b.k", **settings)
    assert str(raised.value) == fault
