"""The one-to-many join against brute force and the join that keeps everything, in every order of processing."""

import dataclasses
from collections import Counter
from typing import ClassVar

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from conditions import EFFORT, SLACKS
from hypothesis import given, settings
from hypothesis import strategies as st
from mjoin_cases import SCHEMA, Case, Maker, cases, join, over, part, setting_of, truth, useful
from running import disorder_of, numbered, plan_of, run

from slackwater.plugins import JoinStrategy
from slackwater.plugins.contract import UNBOUNDED, Metadata, Pattern, Setting
from slackwater.plugins.join.one_to_many.mjoin import MetadataJoin
from slackwater.plugins.join.one_to_many.one_side import one_side
from slackwater.plugins.join.window.mswj import SlidingWindowJoinStrategy
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.expressions.condition import Condition

OPTIONS = st.builds(
    MetadataJoin,
    goal=st.sampled_from(["rate", "memory"]),
    purge=st.sampled_from([None, "immediate", "batch"]),
    batch=st.sampled_from([1, 3, 100]),
    streams=st.sampled_from(["random", "priority"]),
    quota=st.sampled_from([1, 2, 7, 100]),
    quota_many=st.sampled_from([1, 3, 100]),
    tuples=st.sampled_from(["sequential", "value_oriented"]),
    memory=st.sampled_from([None, 1, 5]),
)
CUTS = st.lists(st.integers(0, 80), max_size=4)


def finished_truth(case: Case) -> set[int]:
    """Values that no result could have after the end, of those that came or were punctuated."""
    inputs = case.released.input.tolist()
    came, waiting = (
        {
            key
            for key, which in zip(case.keys, inputs, strict=True)
            if key is not None and (which == case.one) == one
        }
        for one in (True, False)
    )
    done = {i: over(case, i, len(case.keys)) for i in range(2)}
    known = came | waiting | done[0] | done[1]
    return {
        v
        for v in known
        if (v in done[1 - case.one] and (v in came or v not in waiting))
        or (v in done[case.one] and v not in came)
    }


@settings(max_examples=150 * EFFORT, deadline=None)
@given(case=cases(), options=OPTIONS, cuts=CUTS, restores=CUTS)
def test_any_order_gives_every_result_and_keeps_what_is_useful(case, options, cuts, restores):
    got = join(options, case, cuts, restores)
    assert got.results == truth(case)
    whole = join(SlidingWindowJoinStrategy(), case, cuts)
    assert got.results == whole.results
    assert (got.join_size, got.cross_size) == (whole.join_size, whole.cross_size)
    for stop, held in got.held.items():
        assert held == useful(case, stop)
        assert held <= whole.held.get(stop, held)
    values = [value for value, _, _ in got.finished]
    assert len(values) == len(set(values))
    known = finished_truth(case)
    assert set(values) <= known
    if not any(pattern.is_range for pattern in case.setting.patterns):
        assert set(values) == known
    key_of = {case.released.seq[k]: key for k, key in enumerate(case.keys) if case.released.input[k] == case.one}
    for value, ts, before in got.finished:
        mine = [(n, row) for n, row in enumerate(got.results.elements()) if key_of[row[case.one]] == value]
        assert all(n < before and case.released.ts[row[2]] <= ts for n, row in mine)


RESIDUALS = {
    "a.k = b.k AND a.v <= b.v": lambda a, b: a <= b,
    "a.k = b.k AND b.v > 0": lambda a, b: b > 0,
    "a.k = b.k AND a.v = b.v": lambda a, b: a == b,
}


@pytest.mark.parametrize("where", RESIDUALS)
@settings(max_examples=40 * EFFORT, deadline=None)
@given(data=st.data())
def test_the_rest_of_the_condition_is_tested_on_the_pair(where, data):
    case = data.draw(cases(where=where))
    test = RESIDUALS[where]
    expected = truth(case, lambda one, many: test(*((one, many) if case.one == 0 else (many, one))))
    got = join(data.draw(OPTIONS), case, data.draw(CUTS), data.draw(CUTS))
    assert got.results == expected
    assert got.held[len(case.keys)] == useful(case, len(case.keys))


@settings(max_examples=40 * EFFORT, deadline=None)
@given(case=cases(counts_only=True), options=OPTIONS, cuts=CUTS)
def test_counts_are_those_of_rows(case, options, cuts):
    got = join(options, case, cuts)
    assert not got.results
    assert got.join_size == [sum(1 for row in truth(case) if row[2] == k) for k in range(len(case.keys))]


@settings(max_examples=40 * EFFORT, deadline=None)
@given(case=cases(), options=OPTIONS, cut=st.integers(10, 60), odd=st.integers(0, 1))
def test_what_is_evicted_is_in_no_later_result(case, options, cut, odd):
    logic = options.build(case.setting)
    n = len(case.keys)
    before, gone = Counter(), set()
    for start, stop in ((0, min(cut, n)), (min(cut, n), n)):
        released, marks = part(case, start, stop)
        found = Counter(
            (*row, start + probe)
            for run in logic.punctuated_step(released, marks)
            for row, probe in zip(run.rows.tolist(), run.probe.tolist(), strict=True)
        )
        if start == 0:
            before = found
            held = logic.held()
            victims = np.arange(len(held.seq)) % 2 == odd
            gone = set(zip(held.input[victims].tolist(), held.seq[victims].tolist(), strict=True))
            logic.evict(victims)
    expected = [row for row in truth(case) if row[2] >= cut and not {(0, row[0]), (1, row[1])} & gone]
    assert found == Counter(expected) if n > cut else not expected
    assert before == Counter(row for row in truth(case) if row[2] < cut)


def test_a_value_whose_tuples_were_evicted_is_finished_only_with_both_inputs():
    """Who evicts may keep what it evicts elsewhere, and join it later."""
    maker = Maker(setting_of(kinds=("many",)), 0)
    maker.add(1, 7, 0, 1, 0)
    maker.mark(0, 7, 7)
    maker.mark(0, 8, 8)
    maker.add(0, 7, 0, 1, 0)
    case = maker.case()
    for evicted, at_first, then in (([True], [], [7]), ([False], [8], [7])):
        logic = MetadataJoin().build(case.setting)
        released, marks = part(case, 0, 2)
        list(logic.step(released.part(slice(0, 1))))
        logic.evict(np.array(evicted))
        told = []
        for step in (
            (released.part(slice(0, 0)), marks._replace(at=marks.at - 1)),
            (released.part(slice(1, 2)), None),
        ):
            runs = logic.step(step[0]) if step[1] is None else logic.punctuated_step(*step)
            told.append([v for run in runs if run.finished for v in run.finished.values[:, 0].tolist()])
        assert told == [at_first, then]


def test_larger_streams_are_the_natural_join_of_another_engine():
    """Tables outgrow their first size, results the room for them; DuckDB says what joins."""
    rng = np.random.default_rng(3)
    maker = Maker(setting_of(kinds=("many",)), 0)
    ones = rng.permutation(3_000)
    events = [(int(at), 0, int(k)) for at, k in zip(rng.integers(0, 40_000, 3_000), ones, strict=True)]
    events += [(int(at), 1, min(2_999, int(at) // 14)) for at in rng.integers(0, 40_000, 12_000)]
    events = [*sorted(events), *[(40_000, 1, 2_999)] * 20_000]
    closed = 0
    for at, which, key in events:
        maker.add(which, key, 0, 0, 0)
        while closed < min(2_999, at // 14) - 40:
            maker.mark(0, closed, closed)
            closed += 1
    case = maker.case()
    tables = [
        pa.table({"id": case.released.seq[mine], "k": case.released.cells[mine, 0]})
        for mine in (case.released.input == 0, case.released.input == 1)
    ]
    a, b = tables  # noqa: RUF059 - DuckDB finds them by name
    expected = duckdb.sql("SELECT a.id, b.id FROM a JOIN b USING (k)").fetchall()
    assert (a.num_rows, len(expected)) > (2_000, 25_000)
    for options in ({"goal": "memory"}, {"streams": "random", "tuples": "sequential"}, {"quota_many": 10**6}):
        got = join(MetadataJoin(**options), case, range(0, len(case.keys), 9_000), [18_000])
        assert Counter(row[:2] for row in got.results.elements()) == Counter(expected)
        assert len(got.logic._state.slots) < 40_000


class Promised(JoinStrategy):
    """Another join strategy, told that a.k is unique."""

    name: ClassVar[str] = "promised"
    inner: JoinStrategy

    def build(self, setting, snapshot=None):
        return self.inner.build(setting._replace(metadata=(Metadata("unique", 0, (0,)),)), snapshot)


ROWS = pa.schema([(name, pa.int64()) for name in ("id", "ts", "k", "p")])


@st.composite
def punctuated_arrivals(draw):
    """Rows in arrival order: every k once in a, some rows of b closing a k; delayed on both sides."""
    event = st.tuples(
        st.sampled_from([0, 1, 1, 1]), st.integers(0, 6), st.integers(0, 2), st.sampled_from([0, 0, 0, 1, 5]),
        st.sampled_from([0, 0, 0, 0, 1]),
    )  # fmt: skip
    rows, clock, came = [], 0, set()
    for which, k, step, delay, p in draw(st.lists(event, max_size=120)):
        clock += step
        key = clock // 6 + k
        if which == 0 and key in came:
            continue
        came |= {key} if which == 0 else set()
        rows.append((which, {"ts": clock - delay, "k": key - 4 * p * which, "p": p * which}))
    return numbered(rows)


@settings(max_examples=50 * EFFORT, deadline=None)
@given(
    arrivals=punctuated_arrivals(), options=OPTIONS, slack=SLACKS, cuts=CUTS, restores=CUTS,
    output=st.sampled_from(["rows", "counts"]),
)  # fmt: skip
def test_the_operator_gives_the_results_in_order_whatever_the_strategy(
    arrivals, options, slack, cuts, restores, output
):
    def plan_with(strategy):
        return dataclasses.replace(
            plan_of(
                ROWS, where="a.k = b.k", disorder=disorder_of(slack), join={"strategy": "pjoin"}, output=output,
                punctuations={"input": "b", "when": "p = 1", "key": "k"},
            ),
            join=strategy,
        )  # fmt: skip

    restores = [restore for restore in restores if restore <= len(arrivals)]
    plain = run(plan_with(SlidingWindowJoinStrategy()), arrivals)
    got = run(plan_with(Promised(inner=options)), arrivals, cuts, restores)
    if output == "counts":
        assert got.counts == plain.counts
        return
    assert got.results == plain.results
    times = [row["ts"] for row in got.rows]
    assert times == sorted(times)
    assert got.late_ids() == plain.late_ids()
    over = {row["pattern"]: row["ts"] for row in got.punctuations}
    assert len(over) == len(got.punctuations)
    for row in got.rows:
        assert row["ts"] <= over.get(f'{{"a_k": {row["a_k"]}, "b_k": {row["a_k"]}}}', row["ts"])


def test_values_leave_with_their_last_result():
    rows = [(0, 1, 7, 0), (1, 2, 7, 0), (1, 3, 8, 0), (1, 4, 7, 1), (1, 4, 8, 1), (1, 5, 9, 0), (0, 6, 8, 0)]
    arrivals = numbered([(which, {"ts": ts, "k": k, "p": p}) for which, ts, k, p in rows])
    plan = plan_of(
        ROWS, where="a.k = b.k", disorder={"strategy": "none"}, join={"strategy": "pjoin"},
        punctuations={"input": "b", "when": "p = 1", "key": "k"},
    )  # fmt: skip
    for cuts in ((), range(7)):
        got = run(dataclasses.replace(plan, join=Promised(inner=MetadataJoin())), arrivals, cuts)
        left = {row["pattern"]: row["ts"] for row in got.punctuations}
        assert left == {'{"a_k": 7, "b_k": 7}': 4, '{"a_k": 8, "b_k": 8}': 6}
        assert [row["ts"] for row in got.rows] == [2, 6]
        assert got.log[-1].live == 1


def test_ranges_of_one_column_of_several_and_of_numbers_with_a_point():
    schema = pa.schema([("k", pa.float64()), ("v", pa.int64())])
    condition = Condition("a.k = b.k AND a.v = b.v", {"a": schema, "b": schema})
    unique = (Metadata("unique", 0, (0, 1)),)
    patterns = (Pattern(1, (0,), True), Pattern(1, (1,), False), Pattern(1, (1, 0), False))
    setting = Setting(("a", "b"), (UNBOUNDED,) * 2, condition, False, 1, patterns, unique)
    words = np.array([-2.5, -1.0, 0.5]).view(np.int64)
    ends = np.array([-3.0, -2.0]).view(np.int64)
    maker = Maker(setting, 0)
    for value in range(3):
        maker.add(0, None, value, 1, 0)
    case = maker.case()
    released = case.released._replace(
        cells=np.array([[word, v] for v, word in enumerate(words)]), nulls=np.zeros(3, np.uint64)
    )
    logic = MetadataJoin().build(setting)
    list(logic.step(released))
    assert logic.live() == 3
    given_ = ((0, [ends[0], 0], ends[1], 2), (1, [1, 0], 0, 1), (2, [2, words[2]], 0, 0))
    for pattern, low, high, left in given_:
        marks = case.punctuations._replace(
            at=np.zeros(1, np.int64), ts=np.zeros(1, np.int64), pattern=np.array([pattern], np.int8),
            low=np.array([low], np.int64), high=np.array([high], np.int64),
        )  # fmt: skip
        (run_,) = logic.punctuated_step(released.part(slice(0, 0)), marks)
        assert logic.live() == left
        assert run_.finished.values.tolist() == [[words[2 - left], 2 - left]]


def test_forgotten_flags_keep_tuples_and_change_no_result():
    maker = Maker(setting_of(kinds=("many",)), 0)
    for k in range(3_000):
        maker.mark(0, k, k)
        maker.add(1, k + 3_000, 0, 1, 0)
    for k in range(6_000):
        maker.add(0, k, 0, 1, 0)
    case = maker.case()
    got = join(MetadataJoin(flags=10), case, [3_000])
    assert got.results == truth_by_key(case)
    assert 3_000 < got.logic.live() <= 6_000
    assert join(MetadataJoin(), case, [3_000]).logic.live() == 3_000
    assert len(got.logic._state.entries) <= 8_192


def truth_by_key(case):
    """As ``truth``, for large cases without late tuples."""
    inputs, seq = case.released.input.tolist(), case.released.seq.tolist()
    ones = {key: k for k, key in enumerate(case.keys) if inputs[k] == case.one}
    pairs = [(ones[key], k) for k, key in enumerate(case.keys) if inputs[k] != case.one and key in ones]
    return Counter((seq[one], seq[many], max(one, many)) for one, many in pairs)


def setting_with(where, metadata, inputs=("a", "b"), windows=None):
    condition = Condition(where, dict.fromkeys(inputs, SCHEMA))
    windows = windows or (UNBOUNDED,) * len(inputs)
    return Setting(inputs, windows, condition, False, 1, (), tuple(metadata))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            setting_with("a.k = b.k AND b.k = c.k", [], ("a", "b", "c")),
            r"^strategy 'mjoin' joins two inputs, got 3; use pjoin or mswj$",
        ),
        (
            setting_with("a.k = b.k", [], windows=(5, 5)),
            r"^strategy 'mjoin' joins without a window; remove window, or use pwjoin$",
        ),
        (
            setting_with("a.k < b.k", [Metadata("unique", 0, (0,))]),
            r"^strategy 'mjoin' needs a key; add an equality between the inputs to where$",
        ),
        (
            setting_with("a.k = b.v", [Metadata("clustered", 0, (0,))]),
            r"^strategy 'mjoin' must know which input has every key at most once; "
            r"add unique: \[a\.k\] or unique: \[b\.v\], or use pjoin$",
        ),
        (setting_with("a.k = b.k AND a.v > 0", [Metadata("unique", 0, (0, 1))]), r"^strategy 'mjoin' must know"),
    ],
)
def test_joins_that_are_not_one_to_many_are_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        MetadataJoin().build(setting)


def test_a_template_without_metadata_is_told_what_to_write():
    message = r"^join: strategy 'mjoin' must know which input has every key at most once; add unique: \[a\.k\] or"
    with pytest.raises(ConfigError, match=message):
        plan_of(ROWS, where="a.k = b.k", join={"strategy": "mjoin"})
    with pytest.raises(ConfigError, match=r"^join: strategy 'mjoin' joins without a window; remove window"):
        plan_of(ROWS, where="a.k = b.k", window="5s", join={"strategy": "mjoin"})


def test_the_unique_input_is_the_one_referred_to_and_the_key_the_smallest():
    both = [Metadata("unique", i, (0,)) for i in (0, 1)]
    assert one_side(setting_with("a.k = b.k", both)).input == 0
    assert one_side(setting_with("a.k = b.k", [*both, Metadata("foreign_key", 0, (0,))])).input == 1
    pair = [Metadata("unique", 1, (0, 1)), Metadata("unique", 1, (1,)), Metadata("ascending", 0, (1,))]
    assert one_side(setting_with("a.k = b.k AND a.v = b.v", pair)) == (1, (1,), (0,), True)
