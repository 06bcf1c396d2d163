"""Static joins: Lemma 1, every subset of small relations, and the factors that are proven."""

from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.transforms.errors import SlackwaterError
from slackwater.transforms.operators.choose_values import static_join
from slackwater.transforms.operators.choose_values.static_join import (
    ValueCounts,
    adg,
    best_edges,
    ndg,
    of_each,
    of_each_by_results,
    optdp,
)


def results(*relations):
    """Size of the join of lists of values."""
    counts = [Counter(values) for values in relations]
    return sum(np.prod([own[value] for own in counts]) for value in counts[0])


def best_of_each(relations, sizes):
    """The most results that any subsets of these sizes have."""
    return max(results(*kept) for kept in product(*map(combinations, relations, sizes)))


def best_overall(a, b, k):
    return max(best_of_each((a, b), (n, k - n)) for n in range(max(0, k - len(b)), min(len(a), k) + 1))


VALUES = st.lists(st.integers(0, 3), max_size=6)
SHARE = st.floats(0, 1)


def part(share, values):
    return round(share * len(values))


def test_lemma_1_on_four_and_two_tuples():
    assert best_edges(4, 2, np.arange(1, 7)).tolist() == [0, 1, 2, 4, 6, 8]
    assert best_edges(2, 4, np.arange(1, 7)).tolist() == [0, 1, 2, 4, 6, 8]
    whole = ValueCounts.of_values(["x"] * 4, ["x"] * 2)
    assert [optdp(whole, retain=k).results for k in range(1, 7)] == [0, 1, 2, 4, 6, 8]


@given(st.integers(0, 6), st.integers(0, 6))
def test_lemma_1_is_the_best_way_to_share_out(m, n):
    for p in range(m + n + 1):
        assert best_edges(m, n, p) == max(x * (p - x) for x in range(p + 1) if x <= m and p - x <= n)


@given(VALUES, VALUES, SHARE)
def test_optdp_is_as_good_as_the_best_of_all_subsets(a, b, share):
    k = part(share, a + b)
    chosen = optdp(ValueCounts.of_values(a, b), retain=k)
    assert sum(chosen.sizes) == k
    assert chosen.results == best_overall(a, b, k)


@given(VALUES, VALUES, SHARE, SHARE)
def test_optdp_of_each_relation_is_as_good_as_the_best_of_all_subsets(a, b, share_a, share_b):
    sizes = part(share_a, a), part(share_b, b)
    chosen = optdp(ValueCounts.of_values(a, b), retain=sizes)
    assert chosen.sizes == sizes
    assert chosen.results == best_of_each((a, b), sizes)


COUNTS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=8)


def counted(pairs):
    return ValueCounts(np.arange(len(pairs)), np.array(pairs, np.int64))


@given(COUNTS, SHARE)
def test_adg_retains_at_least_half_and_loses_at_most_twice_as_much(pairs, share):
    whole = counted(pairs)
    k = round(share * sum(whole.sizes))
    best, greedy = (choose(whole, retain=k) for choose in (optdp, adg))
    assert sum(greedy.sizes) == k
    assert best.results <= 2 * greedy.results
    assert whole.results - greedy.results <= 2 * (whole.results - best.results)


@given(COUNTS, SHARE, SHARE)
def test_ndg_loses_at_most_twice_as_much(pairs, share_a, share_b):
    whole = counted(pairs)
    sizes = round(share_a * whole.sizes[0]), round(share_b * whole.sizes[1])
    best, greedy = (choose(whole, retain=sizes) for choose in (optdp, ndg))
    assert greedy.sizes == sizes
    assert whole.results - greedy.results <= 2 * (whole.results - best.results)


def test_ndg_may_retain_less_than_half_of_what_is_possible():
    whole = ValueCounts.of_summaries({1: 1, 2: 1, 3: 1, 9: 3}, {1: 4, 2: 4, 3: 4, 9: 3})
    assert ndg(whole, retain=(3, 3)).results == 3
    assert optdp(whole, retain=(3, 3)).results == 9
    assert best_of_each(([1, 2, 3, 9, 9, 9], [*[1, 2, 3] * 4, 9, 9, 9]), (3, 3)) == 9


@given(st.lists(VALUES, min_size=2, max_size=3), st.tuples(SHARE, SHARE, SHARE))
def test_each_relation_by_itself_loses_at_most_as_many_times_as_there_are_relations(relations, shares):
    relations = [values[:5] for values in relations]
    sizes = [part(share, values) for share, values in zip(shares, relations, strict=False)]
    whole = ValueCounts.of_values(*relations)
    kept = of_each(whole, retain=sizes)
    assert kept.sizes == tuple(sizes)
    lost, least = whole.results - kept.results, whole.results - best_of_each(relations, sizes)
    assert lost <= len(relations) * least


@given(
    st.sets(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 2)), max_size=25),
    st.tuples(SHARE, SHARE, SHARE),
)
def test_any_join_of_three_relations_loses_at_most_three_times_as_much(found, shares):
    rows = np.array(sorted(found), np.int64).reshape(-1, 3)
    every = [range(4), range(5), range(3)]
    sizes = [part(share, own) for share, own in zip(shares, every, strict=True)]

    def left(kept):
        return sum(all(np.isin(row, own) for row, own in zip(result, kept, strict=True)) for result in found)

    masks = of_each_by_results(
        [np.bincount(column, minlength=len(own)) for column, own in zip(rows.T, every, strict=True)], retain=sizes
    )
    assert [mask.sum() for mask in masks] == sizes
    best = max(left(kept) for kept in product(*map(combinations, every, sizes)))
    assert len(found) - left([np.flatnonzero(mask) for mask in masks]) <= 3 * (len(found) - best)


@given(COUNTS, SHARE, SHARE)
def test_deleting_is_retaining_the_others(pairs, share_a, share_b):
    whole = counted(pairs)
    n, (of_a, of_b) = sum(whole.sizes), whole.sizes
    k, sizes = round(share_a * n), (round(share_a * of_a), round(share_b * of_b))
    others = of_a - sizes[0], of_b - sizes[1]
    for choose in (optdp, adg):
        assert (choose(whole, delete=k).counts == choose(whole, retain=n - k).counts).all()
    for choose in (optdp, ndg, of_each):
        assert (choose(whole, delete=sizes).counts == choose(whole, retain=others).counts).all()


@given(COUNTS, SHARE)
def test_what_is_retained_is_there_and_what_is_not_needed_has_no_results(pairs, share):
    whole = counted(pairs)
    for choose in (optdp, adg):
        chosen = choose(whole, retain=round(share * sum(whole.sizes)))
        assert (chosen.counts <= whole.counts).all()
        assert chosen.needed().results == chosen.results
        assert chosen.needed().counts.all()


def test_values_come_out_with_the_number_to_fetch_of_each():
    whole = ValueCounts.of_values(["a", "a", "b", "c"], ["a", "c", "c", "c", "d"])
    assert whole.values.tolist() == ["a", "b", "c", "d"]
    assert whole.counts.tolist() == [[2, 1], [1, 0], [1, 3], [0, 1]]
    assert (whole.results, whole.sizes) == (5, (4, 5))
    chosen = optdp(whole, retain=4)
    assert chosen.counts.tolist() == [[0, 0], [0, 0], [1, 3], [0, 0]]
    assert (chosen.needed().values.tolist(), chosen.results) == (["c"], 3)


def test_empty_relations_have_no_results():
    for whole in (
        ValueCounts.of_values([], []),
        ValueCounts.of_values(["a"], []),
        ValueCounts.of_summaries({}, {}),
    ):
        assert whole.results == 0
        assert optdp(whole, delete=0).results == adg(whole, delete=0).results == 0
        assert ndg(whole, retain=(0, 0)).results == optdp(whole, retain=(0, 0)).results == 0
    assert ValueCounts.of_values(["a"], []).values.tolist() == ["a"]
    assert ValueCounts.of_values([np.nan], [np.nan]).results == 0


@pytest.mark.parametrize("skew", [0.25, 0.5])
def test_adg_is_on_average_within_half_a_percent_of_the_optimum_at_the_size_of_the_paper(skew):
    weights = 1 / np.arange(1, 1001) ** skew
    shares = []
    for seed in range(5):
        random = np.random.default_rng(seed)
        sizes = [random.multinomial(50_000, random.permutation(weights / weights.sum())) for _ in "AB"]
        whole = ValueCounts(np.arange(1000), np.stack(sizes, axis=1))
        shares.append(adg(whole, retain=5000).results / optdp(whole, retain=5000).results)
    assert np.mean(shares) >= 0.995


TWO = ValueCounts.of_values([1, 1, 2], [1, 2])
THREE = ValueCounts.of_values([1], [1, 2], [1])


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: optdp(TWO), "give either retain or delete, and not both"),
        (lambda: adg(TWO, retain=1, delete=1), "give either retain or delete, and not both"),
        (lambda: adg(TWO, retain=-1), "retain: must be a whole number from 0 to 5, all tuples, got -1"),
        (lambda: optdp(TWO, delete=6), "delete: must be a whole number from 0 to 5, all tuples, got 6"),
        (lambda: optdp(TWO, retain=1.5), "retain: must be a whole number from 0 to 5, all tuples, got 1.5"),
        (lambda: ndg(TWO, retain=(1, 3)), "retain: must be a whole number from 0 to 2, all tuples, got 3"),
        (lambda: ndg(TWO, retain=(1, 1, 1)), "retain: must have 2 numbers, one for each relation, got 3"),
        (lambda: of_each(THREE, delete=(1, 1)), "delete: must have 3 numbers, one for each relation, got 2"),
        (lambda: ndg(TWO, retain=2), "ndg: takes a pair, the tuples of A and of B; use adg for a number overall"),
        (lambda: adg(TWO, retain=(1, 1)), "adg: takes a number of tuples overall; use ndg for a number of each"),
        (lambda: optdp(THREE, retain=2), "relations: must be two here, got 3; use of_each"),
        (lambda: ValueCounts.of_values([1]), r"counts: must be a matrix of 1 values and two or more relations"),
        (lambda: ValueCounts.of_summaries({1: -1}, {}), "counts: must be whole numbers .int64., 0 or more"),
        (lambda: ValueCounts.of_summaries({1: 0.5}, {}), "counts: must be whole numbers .int64., 0 or more"),
        (lambda: ValueCounts.of_summaries({1: 2**40}, {1: 2**40}), "more results than a 64-bit number can count"),
    ],
)
def test_what_cannot_be_chosen_is_refused(call, message):
    with pytest.raises(SlackwaterError, match=message):
        call()


def test_optdp_refuses_tables_that_are_too_large(monkeypatch):
    monkeypatch.setattr(static_join, "LARGEST", 40)
    with pytest.raises(SlackwaterError, match=r"optdp: its table would take 0.0 GiB; use adg instead"):
        optdp(TWO, retain=5)
    with pytest.raises(SlackwaterError, match=r"optdp: its table would take 0.0 GiB; use ndg instead"):
        optdp(TWO, retain=(2, 2))
