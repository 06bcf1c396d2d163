"""Joins with punctuations against the per-tuple reading: any strategy, any disorder, any chunks, any restart."""

import dataclasses
import json
from collections import Counter
from typing import ClassVar

import pyarrow as pa
import pytest
from conditions import EFFORT, SLACKS, chain, cuts, eq, star, windows
from hypothesis import given, settings
from hypothesis import strategies as st
from punctuation_reference import PunctuatedJoin, punctuated_join
from running import NAMES, disorder_of, numbered, plan_of, run

from slackwater.pipelines.generate import generate
from slackwater.pipelines.runners.local.runner import run as run_local
from slackwater.pipelines.template.reader import read_template_text
from slackwater.plugins import SheddingStrategy

SCHEMA = pa.schema([(name, pa.int64()) for name in ("id", "ts", "k", "v", "p")])
STRATEGIES = ("mswj", "wjoin", "pwjoin", "pjoin")
SHAPES = {"two": (star(2), "k"), "three": (star(3), "k"), "four": (star(4), "k"), "chain": (chain(3), "k")}


@st.composite
def punctuated(draw, m, size):
    """Rows in arrival order, a fifth of them punctuations (p = 1) of values that move on with time."""
    kind = st.sampled_from([0, 0, 0, 0, 1])
    delay = st.sampled_from([0, 0, 0, 0, 1, 2, 5, 9])
    value = st.sampled_from([0, 1, 2, 3, None])
    row = st.tuples(st.integers(0, m - 1), st.integers(0, 2), delay, value, value, kind)
    rows = draw(st.lists(row, max_size=size))
    arrivals, clock = [], 0
    for which, step, late, k, v, p in rows:
        clock += step
        key = None if k is None else max(0, clock // 6 + k - 2 * p)
        arrivals.append((which, {"ts": clock - late, "k": key, "v": v, "p": p}))
    return numbered(arrivals)


def says(which, row):
    """Rows with p = 1 punctuate their k; a null one says nothing."""
    if row["p"] != 1:
        return None
    return (lambda other: eq(other["k"], row["k"])), row["k"]


def expect(shape, arrivals, sizes, slack, marked):
    spec, _ = SHAPES[shape]
    members = (0, 1) if shape == "chain" else range(spec.m)
    join = PunctuatedJoin(
        sizes,
        spec.test,
        lambda which, row: says(which, row) if which in marked else None,
        lambda which, row: row["k"],
        members,
    )
    return punctuated_join(join, arrivals, slack)


def plan_with(shape, sizes, slack, marked, strategy, options=None, **more):
    spec, _ = SHAPES[shape]
    return plan_of(
        SCHEMA,
        spec.m,
        window=dict(zip(NAMES, (f"{w}ms" for w in sizes), strict=False)),
        where=spec.sql,
        disorder=disorder_of(slack),
        join={"strategy": strategy, **(options or {})},
        punctuations=[{"input": NAMES[i], "when": "p = 1", "key": "k"} for i in marked],
        **more,
    )


def finished(got):
    """(value, time) of the punctuations that left, in order."""
    return [(json.loads(row["pattern"])["a_k"], row["ts"]) for row in got.punctuations]


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=60 * EFFORT, deadline=None)
@given(data=st.data())
def test_every_strategy_gives_what_the_reading_gives(shape, data):
    m = SHAPES[shape][0].m
    arrivals = data.draw(punctuated(m, 60 if m == 2 else 40))
    sizes, slack = data.draw(windows(m)), data.draw(SLACKS)
    marked = data.draw(st.sets(st.integers(0, 1 if shape == "chain" else m - 1), min_size=1))
    edges, restores = data.draw(cuts(len(arrivals))), data.draw(cuts(len(arrivals)))
    expected = expect(shape, arrivals, sizes, slack, marked)
    # Fewer flags than rows are held to: the operator finds what contradicts, not the join.
    fewer = data.draw(st.sampled_from([{}, {"flags": 1000}]))
    states = {}
    for strategy in STRATEGIES:
        options = fewer if strategy in ("pwjoin", "pjoin") else {}
        got = run(plan_with(shape, sizes, slack, marked, strategy, options), arrivals, edges, restores)
        assert got.results == expected.results
        assert got.late_ids("too_late") == Counter(expected.late)
        assert got.late_ids("punctuation_violated") == Counter(expected.violated)
        accounting = got.operator.accounting
        assert all(accounting.balanced(i) for i in range(m))
        assert accounting.punctuations.sum() == len(expected.punctuations)
        assert accounting.finished == len(got.punctuations)
        told = {"pwjoin": expected.early, "pjoin": expected.regular}.get(strategy, [])
        assert sorted(finished(got)) == sorted(told)
        states[strategy] = {entry.identity: entry.live for entry in got.log}
    assert states["mswj"] == states["wjoin"]
    for strategy in ("pwjoin", "pjoin"):
        # Joins that judge are given tuples that contradict, too.
        assert all(n <= states["wjoin"].get(who, n) for who, n in states[strategy].items())


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=40 * EFFORT, deadline=None)
@given(data=st.data())
def test_what_leaves_is_true_and_early_is_never_later(shape, data):
    m = SHAPES[shape][0].m
    arrivals = data.draw(punctuated(m, 60))
    sizes, slack = data.draw(windows(m)), data.draw(SLACKS)
    marked = data.draw(st.sets(st.integers(0, 1 if shape == "chain" else m - 1), min_size=1))
    gave = {}
    for strategy in ("pwjoin", "pjoin"):
        got = run(plan_with(shape, sizes, slack, marked, strategy), arrivals, range(len(arrivals)))
        gave[strategy] = dict(finished(got))
        assert len(gave[strategy]) == len(got.punctuations)
        for row in got.rows:
            assert row["ts"] <= gave[strategy].get(row["a_k"], row["ts"])
    for value, ts in gave["pjoin"].items():
        assert gave["pwjoin"][value] <= ts


@settings(max_examples=40 * EFFORT, deadline=None)
@given(data=st.data())
def test_counts_are_those_of_rows(data):
    arrivals = data.draw(punctuated(3, 50))
    sizes, slack = data.draw(windows(3)), data.draw(SLACKS)
    expected = expect("three", arrivals, sizes, slack, {0, 1, 2})
    got = run(plan_with("three", sizes, slack, {0, 1, 2}, "pwjoin", output="counts"), arrivals, [7])
    assert got.counts == expected.counts
    assert sorted(finished(got)) == sorted(expected.early)


class Oldest(SheddingStrategy):
    """Keeps the newest tuples."""

    name: ClassVar[str] = "oldest"
    memory: int

    def build(self, setting, snapshot=None):
        return OldestLogic(self.memory)


class OldestLogic:
    decays = False

    def __init__(self, memory):
        self.memory = memory

    def scores(self, tuples):
        return tuples.ts.astype(float)

    def snapshot(self):
        return {}


@settings(max_examples=40 * EFFORT, deadline=None)
@given(data=st.data())
def test_shedding_neither_sees_chunks_nor_makes_what_leaves_untrue(data):
    arrivals = data.draw(punctuated(2, 90))
    plan = plan_with("two", [12, 12], data.draw(SLACKS), {0, 1}, "pwjoin")
    plan = dataclasses.replace(plan, shedding=Oldest(memory=data.draw(st.sampled_from([4, 17, 33]))))
    whole = run(plan, arrivals)
    edges, restores = data.draw(cuts(len(arrivals))), data.draw(cuts(len(arrivals)))
    for again in (run(plan, arrivals, edges, restores), run(plan, arrivals, range(len(arrivals)))):
        assert again.results == whole.results
        assert again.late_ids("shed") == whole.late_ids("shed")
        assert finished(again) == finished(whole)
    over = dict(finished(whole))
    assert all(row["ts"] <= over.get(row["a_k"], row["ts"]) for row in whole.rows)
    assert all(whole.operator.accounting.balanced(i) for i in range(2))


TEMPLATE = """
pipeline:
  transforms:
    - {type: ReadFromParquet, name: Auctions, config: {path: "{{ dir }}/auctions.parquet"}}
    - {type: ReadFromParquet, name: Bids, config: {path: "{{ dir }}/bids.parquet"}}
    - type: SlidingWindowJoin
      name: joined
      input: {auctions: Auctions, bids: Bids}
      config:
        time: ts
        arrival: arrived
        window: 6s
        where: auctions.id = bids.auction
        join: {strategy: "{{ strategy }}"}
        disorder: {strategy: fixed, slack: 1h}
        shards: {{ shards }}
        punctuations: {input: bids, when: "kind = 'closed'", key: auction}
    - {type: WriteToJson, input: joined, config: {path: "{{ dir }}/joined.jsonl"}}
    - {type: WriteToJson, input: joined.punctuations, config: {path: "{{ dir }}/over.jsonl"}}
"""


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("shards", [1, 3])
def test_a_template_runs_with_punctuations_on_any_number_of_shards(strategy, shards, tmp_path):
    """Auctions with late events: truth is that of the generator, and an auction that is over stays over."""
    made = generate("nexmark", tmp_path, rows=4_000, length=2_000, window=6_000, rate=500)
    variables = {"dir": str(tmp_path), "strategy": strategy, "shards": str(shards)}
    summary = run_local(read_template_text("auctions.yaml", TEMPLATE, variables))
    assert summary["results"] == made.results
    assert summary["late"] == {}
    assert all(account["balanced"] for account in summary["accounting"].values())
    left = [json.loads(line) for line in (tmp_path / "over.jsonl").read_text().splitlines()]
    assert summary["punctuations"]["out"] == len(left)
    assert summary["punctuations"]["in"] > 20
    over = {json.loads(row["pattern"])["auctions_id"]: row["ts"] for row in left}
    # Only bids are punctuated, so an auction is over when its last bid has left the window.
    assert (len(over) > 20) == (strategy == "pwjoin")
    joined = [json.loads(line) for line in (tmp_path / "joined.jsonl").read_text().splitlines()]
    assert all(row["ts"] <= over.get(row["auctions_id"], row["ts"]) for row in joined)
