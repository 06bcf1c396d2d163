"""OPT-offline: the worked example, all schedules of tiny streams, and what must hold for streams of any size."""

import sys
from itertools import chain, combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.pipelines.bench.offline.optimum import optimum
from slackwater.transforms.errors import SlackwaterError

R, S = [1, 1, 1, 3, 2], [2, 3, 1, 1, 3]
EXAMPLE = {"window": 3, "closed": "right", "keys": (R, S)}
TIMES = range(5), range(5)


def in_force(setting, time):
    """The value of a setting at a time: a number, or numbers by the time from which on they hold."""
    return setting[max(at for at in setting if at <= time)] if isinstance(setting, dict) else setting


def all_pairs(times, window, closed, joins):
    """Every result of the exact join: the window at the older member's arrival decides."""
    for i, j in product(range(len(times[0])), range(len(times[1]))):
        side, older = min((0, times[0][i]), (1, times[1][j]), key=lambda member: member[1])
        own = window[side] if isinstance(window, tuple) else window
        length, apart = in_force(own, older), abs(times[0][i] - times[1][j])
        inside = length is None or apart < length or (apart == length and closed == "both")
        if inside and joins(i, j):
            yield i, j


def outcomes(times, pairs, memory, allocation):
    """The results of every possible schedule, by going through time with every possible content of memory."""
    pairs = set(pairs)
    now = sorted(set(chain(*times)))
    states = {frozenset(): {frozenset()}}
    for k, time in enumerate(now):
        new = {(side, i) for side in (0, 1) for i, at in enumerate(times[side]) if at == time}
        until = now[k + 1] if k + 1 < len(now) else time + 1
        following = {}
        for content, produced in states.items():
            there = content | new
            met = {
                (i, j)
                for (side, i), (other, j) in product(there, there)
                if (side, other) == (0, 1) and (i, j) in pairs and ((0, i) in new or (1, j) in new)
            }
            for size in range(len(there) + 1):
                for kept in combinations(sorted(there), size):
                    of_r = sum(side == 0 for side, _ in kept)
                    if all(fits(memory, allocation, at, of_r, size - of_r) for at in range(time, until)):
                        following.setdefault(frozenset(kept), set()).update(found | met for found in produced)
        states = following
    return set(chain(*states.values()))


def fits(memory, allocation, time, of_r, of_s):
    """Whether memory holds so many tuples of R and S at a time."""
    if isinstance(memory, tuple):
        return of_r <= in_force(memory[0], time) and of_s <= in_force(memory[1], time)
    size = in_force(memory, time)
    return of_r + of_s <= size if allocation == "variable" else max(of_r, of_s) <= size // 2


def rows(pairs):
    return sorted(map(tuple, np.asarray(pairs).tolist()))


def test_with_room_for_the_window_nothing_of_the_worked_example_is_missed():
    best = optimum(*TIMES, memory=6, **EXAMPLE)
    assert (best.kept, best.exact) == (7, 7)
    assert rows(best.produced()) == [(0, 2), (1, 2), (1, 3), (2, 2), (2, 3), (3, 1), (3, 4)]


def test_memory_for_one_tuple_of_each_stream_keeps_five_of_the_seven_results():
    best = optimum(*TIMES, memory=2, **EXAMPLE)
    assert (best.kept, best.exact) == (5, 7)
    assert len(best.missed()) == 2
    assert (best.stored()[1] <= 1).all()


def test_the_two_results_missed_in_the_paper_are_one_of_three_optimal_choices():
    exact = set(all_pairs(TIMES, 3, "right", lambda i, j: R[i] == S[j]))
    found = outcomes(TIMES, exact, 2, "fixed")
    assert max(map(len, found)) == 5
    missed = {tuple(sorted(exact - produced)) for produced in found if len(produced) == 5}
    assert missed == {((1, 2), (1, 3)), ((0, 2), (1, 3)), ((0, 2), (2, 3))}


def test_a_result_worth_a_little_more_makes_the_paper_s_choice_the_only_one():
    weight = np.ones((5, 5))
    weight[0, 2] = 1.25
    best = optimum(*TIMES, memory=2, weight=weight, **EXAMPLE)
    assert (best.kept, best.exact) == (5.25, 7.25)
    assert rows(best.missed()) == [(1, 2), (1, 3)]
    assert best.r_until.tolist() == [2, 1, 3, 4, 4]
    assert best.s_until.tolist() == [0, 3, 2, 3, 4]


def test_shared_memory_keeps_one_result_more():
    assert optimum(*TIMES, memory=2, allocation="variable", **EXAMPLE).kept == 6


def test_without_memory_only_simultaneous_arrivals_join():
    best = optimum(*TIMES, memory=0, **EXAMPLE)
    assert rows(best.produced()) == [(2, 2)]


def test_the_window_at_its_arrival_is_a_tuple_s_lifetime():
    best = optimum(*TIMES, **{**EXAMPLE, "window": {0: 3, 1: 2, 2: 3}}, memory=6)
    assert rows(best.produced()) == [(0, 2), (1, 2), (2, 2), (2, 3), (3, 4)]
    lifetimes = np.array([3, 2, 3, 3, 3])
    assert optimum(*TIMES, **{**EXAMPLE, "window": (lifetimes, lifetimes)}, memory=6).kept == 5


def test_results_before_the_count_starts_are_worth_nothing():
    best = optimum(*TIMES, memory=(2, 1), count_from=3, **EXAMPLE)
    assert (best.kept, best.exact) == (4, 4)
    assert rows(best.produced()) == [(1, 3), (2, 3), (3, 1), (3, 4)]
    assert best.r_until[0] == 0


def test_streams_may_be_empty():
    for times in (([], []), ([0, 1], []), ([], [3])):
        best = optimum(*times, window=1, memory=2)
        assert (best.kept, best.exact, len(best.produced())) == (0, 0, 0)
        assert [best.r_until.tolist(), best.s_until.tolist()] == list(map(list, times))


def test_missing_keys_join_nothing_and_times_may_be_fractions():
    keys = ["a", "b"], ["a", "b"]
    assert optimum([0.5, 1.25], [1.5, 1.75], window=0.5, memory=4, keys=keys).kept == 1
    assert optimum([0, 1], [0, 1], window=5, memory=4, keys=([np.nan, 1], [np.nan, 1])).kept == 1


def test_simultaneous_arrivals_join_however_short_the_window():
    assert optimum([0.0, 1e9], [1e9], window=1e-9, closed="right", memory=2).kept == 1


SMALL = st.integers(0, 3)
CHANGING = st.dictionaries(st.integers(1, 5), SMALL, max_size=3).map(lambda steps: {0: 2, **steps})
SIZES = st.one_of(SMALL, CHANGING)


def each(change):
    return lambda sizes: {at: change(n) for at, n in sizes.items()} if isinstance(sizes, dict) else change(sizes)


LENGTHS = st.one_of(st.none(), SIZES.map(each(lambda length: length + 1)))


@st.composite
def tiny(draw):
    """Streams of few tuples, any number at a time, with every kind of setting."""
    times = tuple(draw(st.lists(st.integers(0, 5), max_size=most)) for most in (4, 3))
    shape = tuple(map(len, times))

    def matrix(values):
        cells = shape[0] * shape[1]
        return np.array(draw(st.lists(values, min_size=cells, max_size=cells))).reshape(shape)

    allocation, memory = draw(
        st.one_of(
            st.tuples(st.just("variable"), SIZES),
            st.tuples(st.just("fixed"), SIZES.map(each(lambda size: 2 * size))),
            st.tuples(st.just("fixed"), st.tuples(SIZES, SIZES)),
        )
    )
    settings = {
        "window": draw(st.one_of(LENGTHS, st.tuples(LENGTHS, LENGTHS))),
        "closed": draw(st.sampled_from(["both", "right"])),
        "memory": memory,
        "allocation": allocation,
    }
    if draw(st.booleans()):
        settings["keys"] = tuple(draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)) for n in shape)
    if all(shape) and draw(st.booleans()):
        settings["condition"] = matrix(st.booleans())
    if all(shape) and draw(st.booleans()):
        settings["weight"] = matrix(st.integers(-1, 4)) / draw(st.sampled_from([1, 3]))
    return times, settings


@given(tiny())
def test_no_schedule_of_tiny_streams_is_better_and_the_one_found_is_possible(case):
    times, settings = case
    keys, condition, weight = (settings.get(name) for name in ("keys", "condition", "weight"))

    def joins(i, j):
        return (keys is None or keys[0][i] == keys[1][j]) and (condition is None or condition[i, j])

    def worth(pairs):
        return sum(1 if weight is None else weight[pair] for pair in pairs)

    exact = set(all_pairs(times, settings["window"], settings["closed"], joins))
    possible = outcomes(times, exact, settings["memory"], settings["allocation"])
    best = optimum(*times, **settings)
    assert best.exact == pytest.approx(worth(exact))
    assert best.kept == pytest.approx(max(map(worth, possible)))
    assert best.kept == pytest.approx(worth(rows(best.produced())))
    assert frozenset(rows(best.produced())) in possible
    assert sorted(rows(best.produced()) + rows(best.missed())) == sorted(exact)
    assert rows(best.produced()) == stays(times, best, exact)
    for time, (of_r, of_s) in zip(*best.stored(), strict=True):
        assert fits(settings["memory"], settings["allocation"], time, of_r, of_s)


def stays(times, best, exact):
    """The results whose older member stays until the newer one comes."""
    until = best.r_until, best.s_until
    return sorted(
        (i, j)
        for i, j in exact
        if (until[0][i] >= times[1][j] if times[0][i] <= times[1][j] else until[1][j] >= times[0][i])
    )


@st.composite
def longer(draw):
    """Streams of some hundred tuples: a few keys of different frequency, bursts and gaps."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    sizes = draw(st.tuples(st.integers(1, 120), st.integers(1, 120)))
    spread = draw(st.sampled_from([10, 60, 300]))
    domain = draw(st.sampled_from([1, 4, 20]))
    times = [random.integers(0, spread, size) for size in sizes]
    keys = tuple(np.minimum(random.geometric(0.4, size), domain) for size in sizes)
    window = draw(st.integers(1, spread))
    return times, {"keys": keys, "window": window, "closed": draw(st.sampled_from(["both", "right"]))}


@given(longer(), st.integers(0, 12), st.sampled_from(["fixed", "variable"]))
def test_chains_shared_by_equal_keys_give_as_much_as_a_chain_for_each_tuple(case, half, allocation):
    times, settings = case
    settings = {**settings, "memory": 2 * half, "allocation": allocation}
    shared = optimum(*times, **settings)
    alone = optimum(*times, weight=lambda i, j: np.ones(len(i), np.int64), **settings)
    assert (shared.kept, shared.exact) == (alone.kept, alone.exact)
    for best in (shared, alone):
        assert len(best.produced()) == best.kept
        assert len(best.produced()) + len(best.missed()) == best.exact
        stored = best.stored()[1]
        assert stored.max() <= half if allocation == "fixed" else stored.sum(axis=1).max() <= 2 * half


@given(longer())
def test_more_memory_never_gives_less_and_sharing_never_less_than_shares(case):
    times, settings = case
    everything = sum(map(len, times))
    kept = {
        allocation: [
            optimum(*times, memory=memory, allocation=allocation, **settings).kept
            for memory in (0, 2, 4, 10, 30, 2 * everything)
        ]
        for allocation in ("fixed", "variable")
    }
    assert all(own == sorted(own) for own in kept.values())
    assert all(fixed <= variable for fixed, variable in zip(*kept.values(), strict=True))
    exact = optimum(*times, memory=0, **settings).exact
    assert kept["fixed"][-1] == kept["variable"][-1] == exact


def test_whole_weights_are_added_up_exactly_and_fractions_to_the_last_result():
    weight = np.ones((5, 5), np.int64) * 10**12 + np.arange(25).reshape(5, 5)
    assert optimum(*TIMES, memory=6, weight=weight, **EXAMPLE).kept == 7 * 10**12 + 2 + 7 + 8 + 12 + 13 + 16 + 19
    assert optimum(*TIMES, memory=2, weight=weight * 1e-20, **EXAMPLE).kept == pytest.approx(5e-8)
    assert optimum(*TIMES, memory=2, weight=weight * 0, **EXAMPLE).kept == 0


@pytest.mark.parametrize(
    "change, message",
    [
        ({"memory": -2}, r"memory: must be a whole number of tuples, 0 or more, got -2"),
        ({"memory": {0: 2, 3: -4}}, r"memory: must be a whole number of tuples, 0 or more, got -4"),
        ({"memory": 1.5}, r"memory: must be a whole number of tuples, 0 or more, got 1.5"),
        ({"memory": (1, -1)}, r"memory of S: must be a whole number of tuples, 0 or more, got -1"),
        ({"memory": 3}, r"memory: 3 cannot be split evenly; give a pair, the shares of R and of S"),
        ({"memory": {2: 2}}, r"memory: no value holds at time 0; give one from there on"),
        ({"memory": (1, 1), "allocation": "variable"}, r"memory: two shares, of R and of S, are for fixed alloc"),
        ({"allocation": "shared"}, r"allocation: must be 'fixed' or 'variable', got 'shared'"),
        ({"closed": "left"}, r"closed: must be 'both' or 'right', got 'left'"),
        ({"window": 0}, r"window of R: must be more than 0 where closed is 'right', got 0"),
        ({"window": (2, -1), "closed": "both"}, r"window of S: must be 0 or more, got -1"),
        ({"window": float("nan")}, r"window of R must be finite numbers, one for each tuple"),
        ({"window": {1: 2}}, r"window of R: no value holds at time 0; give one from there on"),
        ({"window": (3, np.array([1, 2]))}, r"window of S: 2 lengths for 5 arrivals; give one for each"),
        ({"window": (1, 2, 3)}, r"window: must be one, or a pair for R and S, got 3"),
        ({"keys": (R, S[:4])}, r"keys of S: 4 for 5 arrivals; give one for each"),
        (
            {"condition": np.ones((5, 4), bool)},
            r"condition: must be a matrix of \(5, 5\) for R and S, got \(5, 4\)",
        ),
        ({"condition": np.ones((5, 5))}, r"condition: must give true or false for each pair, got float64"),
        ({"condition": lambda i, j: True}, r"condition: 1 answers for 7 pairs; give one for each"),
        ({"weight": np.full((5, 5), np.inf)}, r"weight: must give a finite number for each pair"),
        ({"weight": np.full((5, 5), 2**61)}, r"weight: values are too large to be added up; scale them down"),
        (
            {"weight": np.full((5, 5), 2**59)},
            r"weight: values are too large for OR-tools to add up; scale them down",
        ),
    ],
)
def test_settings_that_cannot_be_used_are_refused(change, message):
    with pytest.raises(SlackwaterError, match=message):
        optimum(*TIMES, **{"memory": 2, **EXAMPLE, **change})


def test_times_that_are_no_numbers_are_refused():
    with pytest.raises(SlackwaterError, match="S: arrival times must be finite numbers, one for each tuple"):
        optimum([0, 1], ["a", "b"], window=1, memory=2)


def test_missing_or_tools_are_named_with_the_remedy(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "ortools"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ortools", None)
    with pytest.raises(
        SlackwaterError, match=r"needs OR-tools; install it with: pip install 'slackwater\[offline\]'"
    ):
        optimum(*TIMES, memory=2, **EXAMPLE)
