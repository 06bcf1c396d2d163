"""The reference itself, and the papers' worked examples on the reference and on the operator."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import reference_join
from running import SCHEMA, disorder_of, numbered, plan_of, run

from slackwater.pipelines.bench.local.per_tuple import PerTupleJoin


def letters(text):
    """``A1 b2`` as arrivals: capitals on the first input, small letters on the second, digit = time."""
    return numbered(
        (int(word[0].islower()), {"ts": int(word[1]), "k": ord(word[0].lower())}) for word in text.split()
    )


def same_key(rows):
    return rows[0]["k"] is not None and all(row["k"] == rows[0]["k"] for row in rows.values())


FIGURE_5 = {
    "A1 b1 B2 b2 C3 b3": ([0, 0, 1, 1, 0, 1], [0, 1, 1, 2, 2, 3]),
    "A1 b1 b2 C3 b3 B2": ([0, 0, 0, 0, 0, 0], [0, 1, 1, 2, 2, 0]),
    "b1 B2 b2 C3 b3 A1": ([0, 1, 1, 0, 1, 0], [0, 1, 1, 2, 2, 0]),
}


@pytest.mark.parametrize(("arrivals", "sizes"), FIGURE_5.items(), ids=["in_order", "B2_late", "A1_late"])
def test_figure_5_of_qddh(arrivals, sizes):
    rows = letters(arrivals)
    plan = plan_of(SCHEMA, window="3ms", where="a.k = b.k", disorder={"strategy": "none"})
    for got in (reference_join(rows, [3, 3], same_key), run(plan, rows)):
        assert (got.join_sizes, got.cross_sizes) == sizes


@pytest.mark.parametrize(
    ("arrivals", "selectivity", "recall"),
    [
        ("A1 b1 B2 b2 C3 b3", (3, 9), 1),
        ("A1 b1 b2 C3 b3 B2", (0, 6), 0),
        ("b1 B2 b2 C3 b3 A1", (3, 6), 1),
    ],
    ids=["in_order", "B2_late", "A1_late"],
)
def test_figure_5_of_qddh_selectivity_and_recall(arrivals, selectivity, recall):
    rows = letters(arrivals)
    true_results = 3
    plan = plan_of(SCHEMA, window="3ms", where="a.k = b.k", disorder={"strategy": "none"})
    for got in (reference_join(rows, [3, 3], same_key), run(plan, rows)):
        assert (sum(got.join_sizes), sum(got.cross_sizes)) == selectivity
        assert got.results.total() / true_results == recall


@pytest.mark.parametrize("slack", [1, 2, "max"])
def test_figure_5_is_complete_once_the_slack_covers_the_delay(slack):
    rows = letters("A1 b1 b2 C3 b3 B2")
    plan = plan_of(SCHEMA, window="3ms", where="a.k = b.k", disorder=disorder_of(slack))
    expected = 0 if slack == "max" else 3  # Max-K-slack has not seen a delay before B2 comes
    for got in (reference_join(rows, [3, 3], same_key, slack), run(plan, rows)):
        assert got.results.total() == expected


def test_figure_3_of_saj_has_seven_results():
    left, right = [1, 1, 1, 3, 2], [2, 3, 1, 1, 3]
    rows = numbered((i, {"ts": t, "k": s[t]}) for t in range(5) for i, s in enumerate((left, right)))
    plan = plan_of(
        SCHEMA, window={"size": "3ms", "closed": "right"}, where="a.k = b.k", disorder={"strategy": "none"}
    )
    assert run(plan, rows).results.total() == 7
    assert reference_join(rows, [2, 2], same_key).results.total() == 7
    inclusive = plan_of(SCHEMA, window="3ms", where="a.k = b.k", disorder={"strategy": "none"})
    assert run(inclusive, rows).results.total() == 8  # (r0, s3) is exactly 3 apart


def test_kslack_sorts_delays_up_to_k_and_passes_longer_ones_on():
    """K = 1: the tuple 3 has a delay of 1 and is put in order; 6 has a delay of 2 and stays behind 7."""
    times = (1, 4, 3, 5, 7, 8, 6, 9)
    rows = numbered([(1, {"ts": t, "k": 0}) for t in (20, 21)] + [(0, {"ts": t, "k": 0}) for t in times])
    plan = plan_of(SCHEMA, window="3ms", where="a.k = b.k", disorder=disorder_of(1))
    for got in (reference_join(rows, [3, 3], same_key, 1), run(plan, rows)):
        assert [times[seq] for which, seq in got.order if which == 0] == [1, 3, 4, 5, 7, 6, 8, 9]
    assert reference_join(rows, [3, 3], same_key, 1).late == [(0, 6)]
    assert run(plan, rows).late_ids() == Counter([(0, 6)])


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.sampled_from([None, 1, 2, 3])), max_size=40),
    st.sampled_from(["none", 0, 3, 10, "max"]),
    st.sampled_from([[5, 5, 5], [0, 4, 9]]),
)
def test_per_tuple_join_of_the_benchmarks_equals_the_reference(arrivals, slack, windows):
    rows = numbered((which, {"ts": ts, "k": k, "input": which}) for which, ts, k in arrivals)
    literal = reference_join(rows, windows, same_key, slack)
    indexed = PerTupleJoin(windows, ["k"] * 3, slack)
    results = [result for which, row in rows for result in indexed.process(which, row)] + indexed.finish()
    found = Counter((tuple(row["id"] for row in r), max(row["ts"] for row in r)) for r in results)
    assert found == literal.results
    assert Counter((which, row["id"]) for which, row in indexed.late) == Counter(literal.late)
