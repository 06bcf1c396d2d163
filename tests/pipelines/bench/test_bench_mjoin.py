"""MJoin's experiments in small: what does not depend on the clock comes out as in the paper."""

import pytest
from mjoin_cases import Maker, part, setting_of

from slackwater.pipelines.bench.joins import mjoin as bench
from slackwater.plugins.join.one_to_many import logic as mjoin_logic
from slackwater.plugins.join.one_to_many.mjoin import MetadataJoin
from slackwater.plugins.join.window.mswj import SlidingWindowJoinStrategy


@pytest.fixture(autouse=True)
def fine(monkeypatch):
    """Look at a join every few results."""
    monkeypatch.setattr(mjoin_logic, "RESULTS_AT_ONCE", 64)


def test_every_shape_that_needs_no_clock_is_met():
    rows = bench.section(rows=12_000, rounds=1)
    decided = [row for row in rows if row.met is not None and not row.timed]
    assert len(decided) == 2 * (len(bench.SHARES) + 1)
    assert [row.case for row in decided if not row.met] == []
    assert {row.figures["seconds"] > 0 for row in rows if row.timed} == {True}


@pytest.mark.parametrize("order", ["ordered", "random"])
def test_results_and_values_are_the_same_in_any_schedule(order):
    news = bench.load(6_000, order=order)
    flows = [bench.follow(strategy, news) for strategy in (bench.SCHEDULED, bench.EQUAL, bench.PLAIN)]
    kept = bench.follow(SlidingWindowJoinStrategy(), news)
    assert {flow.results[-1] for flow in flows} == {kept.results[-1]}
    assert kept.results[-1] > 5_000
    assert len({flow.finished[-1] for flow in flows}) == 1
    assert {flow.processed[-1] for flow in flows} == {len(news.released.ts) + len(news.punctuations.ts)}


def test_purging_at_once_takes_the_least_memory():
    news = bench.load(6_000, order="random")
    at_once, batch, late = (
        bench.follow(MetadataJoin(**given), news).most
        for given in ({"goal": "memory"}, {"goal": "rate"}, {"purge": "batch", "batch": 10**6})
    )
    assert at_once < batch < late
    assert bench.follow(MetadataJoin(purge="batch", batch=10**6, memory=200), news).most < late


def test_a_priority_gives_the_unique_input_the_first_turn_and_random_neither():
    """The first results need the first descriptions: all of a quota, or about as many as records."""
    news = bench.load(6_000)
    for strategy, most in ((MetadataJoin(quota=10, quota_many=1000), 150), (MetadataJoin(quota=300), 450)):
        flow = bench.follow(strategy, news)
        assert strategy.quota < flow.items(64) <= most


def test_clusters_are_taken_to_their_end():
    """With a quota of one record at a time, a cluster would otherwise alternate with descriptions."""
    news = bench.load(6_000, arrival="clustered")
    clustered = news._replace(
        setting=news.setting._replace(
            metadata=(*news.setting.metadata, bench.Metadata("clustered", 1, (0,))),
        )
    )
    strategy = MetadataJoin(quota=1, quota_many=1)
    plain, aware = (bench.follow(strategy, each) for each in (news, clustered))
    assert plain.results[-1] == aware.results[-1]
    assert aware.items(100) < 0.7 * plain.items(100)
    assert aware.most < plain.most


@pytest.mark.parametrize(("tuples", "processed"), [("sequential", 98), ("value_oriented", 1)])
def test_tuples_that_a_punctuated_value_waits_for_come_first(tuples, processed, monkeypatch):
    monkeypatch.setattr(mjoin_logic, "RESULTS_AT_ONCE", 1)
    maker = Maker(setting_of(kinds=("many",)), 0)
    for key in (50, 99):
        maker.add(1, key, 0, 1, 0)
        maker.mark(0, key, key)
    for key in range(100):
        maker.add(0, key, 0, 1, 0)
    case = maker.case()
    logic = MetadataJoin(tuples=tuples).build(case.setting)
    list(logic.punctuated_step(*part(case, 0, 3)))
    before = logic.processed
    first = next(iter(logic.punctuated_step(*part(case, 3, 102))))
    assert (first.start, first.stop, first.rows.tolist()) == (0, 0, [[50, 0]])
    assert logic.processed - before == processed
