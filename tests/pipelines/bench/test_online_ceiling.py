"""The ceiling without foresight is the expectation that it claims to be, and strategies stay below it."""

from itertools import product

import numpy as np
import pytest

from slackwater.pipelines.bench.offline.online_ceiling import ceiling_without_foresight
from slackwater.pipelines.bench.shedding.runs import Pair, run
from slackwater.pipelines.generate.zipf import ZIPF, chances

R, S = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.3, 0.6])
OLDER = 4


def contents(p):
    """Every window of the tuples before an arrival, as counts of values, and how likely it is."""
    for values in product(range(p.size), repeat=OLDER):
        yield np.bincount(values, minlength=p.size), p[list(values)].prod()


def best_fill(worth, counts, memory):
    """What memory finds of an arrival if it has the tuples of most worth."""
    return sum(sorted(np.repeat(worth, counts).tolist(), reverse=True)[:memory])


def expected(memory, allocation):
    """The ceiling by listing all windows."""
    if allocation == "variable":
        found = sum(
            chance_r * chance_s * best_fill(np.append(S, R), np.append(of_r, of_s), memory)
            for of_r, chance_r in contents(R)
            for of_s, chance_s in contents(S)
        )
    else:
        found = sum(chance * best_fill(S, counts, memory // 2) for counts, chance in contents(R))
        found += sum(chance * best_fill(R, counts, memory // 2) for counts, chance in contents(S))
    alike = R @ S
    return (alike + found) / ((2 * OLDER + 1) * alike)


@pytest.mark.parametrize("allocation", ["fixed", "variable"])
@pytest.mark.parametrize("memory", [0, 2, 4, 6, 8])
def test_it_is_the_expectation_over_all_windows(memory, allocation):
    found = ceiling_without_foresight(R, S, window=OLDER + 1, memory=memory, allocation=allocation)
    assert found == pytest.approx(expected(memory, allocation))


def test_it_lies_between_simultaneous_arrivals_and_everything():
    frequencies = np.array([7, 0, 2, 1]), np.array([1, 0, 0, 3])
    assert ceiling_without_foresight(*frequencies, window=10, memory=0) == pytest.approx(1 / 19)
    assert ceiling_without_foresight(*frequencies, window=10, memory=18) == pytest.approx(1)
    assert ceiling_without_foresight([1, 0], [0, 1], window=10, memory=2) == 1
    uniform = ceiling_without_foresight(np.ones(50), np.ones(50), window=400, memory=400)
    assert uniform == pytest.approx((1 + 2 * 200) / 799)


@pytest.mark.parametrize("allocation", ["fixed", "variable"])
@pytest.mark.parametrize("correlation", ["uncorrelated", "correlated", "anti"])
def test_strategies_stay_below_it_and_the_optimum_does_not(correlation, allocation):
    """On average over streams; ``prob`` that is told the chances is close to it, so it is not far too high."""
    window, seeds = 40, range(5)
    totals = dict.fromkeys(("exact", "optimum", "ceiling", "told", "prob", "life", "random"), 0.0)
    for seed in seeds:
        pair = Pair.zipf(1_600, window, seed, domain=20, skew_r=1.0, skew_s=1.0, correlation=correlation)
        best = pair.best(window, allocation)
        totals["exact"] += best.exact
        totals["optimum"] += best.kept
        totals["ceiling"] += best.exact * pair.ceiling(window, allocation)
        named = zip(("r.value", "s.value"), pair.chances, strict=True)
        known = {name: dict(enumerate(p.tolist(), 1)) for name, p in named}
        settings = {"memory": window, "allocation": allocation}
        totals["told"] += run(pair, {"strategy": "prob", "frequencies": known, **settings}).results
        for strategy in ("prob", "life", "random"):
            totals[strategy] += run(pair, {"strategy": strategy, **settings}).results
    of_ceiling = {name: total / totals["ceiling"] for name, total in totals.items()}
    assert all(of_ceiling[name] <= 1.01 for name in ("told", "prob", "life", "random")), of_ceiling
    assert of_ceiling["told"] >= 0.95, of_ceiling
    assert of_ceiling["optimum"] >= 1, of_ceiling


def test_chances_are_those_that_values_are_drawn_with():
    knobs = ZIPF.parse({"domain": 5, "skew_r": 1.0, "skew_s": 2.0})
    streams = ZIPF.make(20_000, 3, knobs).streams
    for stream, p in zip(("r", "s"), chances(3, knobs), strict=True):
        drawn = np.bincount(streams[stream]["value"], minlength=6)[1:] / 20_000
        assert drawn == pytest.approx(p, abs=0.015)
