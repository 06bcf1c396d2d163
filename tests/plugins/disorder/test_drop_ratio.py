"""ADC's estimate against its equations written out, the buffer limit, heartbeats, and the ratios they reach."""

import itertools
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import SCHEMA, numbered, plan_of, run

from slackwater.plugins.checks import check_strategy, sample_setting
from slackwater.plugins.clock import clock_at
from slackwater.plugins.contract import NEVER, Arrivals
from slackwater.plugins.disorder.drop_ratio.logic import z_squared
from slackwater.plugins.disorder.drop_ratio.strategy import DropRatio
from slackwater.plugins.disorder.fixed import FixedSlack
from slackwater.plugins.disorder.heartbeat import HeartbeatSlack
from slackwater.plugins.registry.manager import OptionError, manager
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.kernels.disorder import drop_ratio as kernel

INTERPRETED = os.environ.get("NUMBA_DISABLE_JIT") == "1"
ROWS = SCHEMA.append(SCHEMA.field("v").with_name("arr"))


def arrivals_of(ts, clock, inputs=None):
    """Arrivals with the progress of each input worked out."""
    ts, clock = np.asarray(ts, np.int64), np.asarray(clock, np.int64)
    inputs = np.zeros(ts.size, np.int8) if inputs is None else np.asarray(inputs, np.int8)
    progress = np.empty_like(ts)
    for i in range(2):
        progress[inputs == i] = np.maximum.accumulate(ts[inputs == i])
    return Arrivals(inputs, ts, clock, progress, progress - ts, progress)


def normal_latencies(seed, n=600, theta=50.0, sigma=200.0, outliers=0.0):
    """Exponential intervals, normal latencies; some rows early on are ``outliers`` later than that."""
    rng = np.random.default_rng(seed)
    made = np.cumsum(rng.exponential(theta, n))
    latency = np.maximum(rng.normal(6 * sigma, sigma, n), 0)
    latency[rng.choice(np.arange(20, min(n, 200)), 10, replace=False)] += outliers
    order = np.argsort(made + latency, kind="stable")
    return arrivals_of(made[order], (made + latency)[order])


def punctuations(strategy, arrivals, setting=None):
    return strategy.build(setting or sample_setting()).bounds(arrivals)


def too_late(arrivals, bounds):
    """Share of the rows that come with an event time at or before the punctuation that stands."""
    return float((arrivals.ts[1:] <= bounds[:-1]).mean())


def held(arrivals, bounds):
    """Rows above the punctuation after each arrival, on average."""
    k = np.arange(bounds.size)
    return float((np.maximum(np.searchsorted(bounds, arrivals.ts), k) - k).mean())


def written_out(arrivals, ratio):
    """Figure 5, with a list that is copied and summed for every row."""
    c = statistics.NormalDist().inv_cdf(1 - ratio) ** 2
    vseq, size, punctuation, out = [], 30, NEVER, []
    for t, ts in zip(arrivals.clock.tolist(), arrivals.ts.tolist(), strict=True):
        vseq = [*vseq, (t, t - ts)][-size:]
        if len(vseq) == size:
            latencies = [latency for _, latency in vseq]
            mu, sigma = statistics.fmean(latencies), statistics.pstdev(latencies)
            theta = (vseq[-1][0] - vseq[0][0]) / size
            n = (c + math.sqrt(c * c + 8 * c * (sigma / theta) ** 2)) / 2 if theta else math.inf
            region = math.floor(n) * theta if theta else math.sqrt(2 * c) * sigma
            punctuation = max(punctuation, math.floor(t - mu - region))
            size = int(max(30, min(n, 2 * size, 4096)))
        out.append(punctuation)
    return np.array(out)


# The equations


def test_one_percent_of_tuples_with_a_deviation_of_two_intervals_needs_nine():
    c = z_squared(0.01)
    assert math.sqrt(c) == pytest.approx(2.326, abs=5e-4)
    assert c == pytest.approx(5.41, abs=5e-3)
    n = math.floor(kernel.vseq_size(c, 100.0, 50.0))
    assert n == 9
    assert n * n - c * n - 2 * c * 100**2 / 50**2 < 0 <= (n + 1) ** 2 - c * (n + 1) - 2 * c * 100**2 / 50**2
    assert kernel.region(c, 100.0, 50.0) == 9 * 50.0


def test_the_size_solves_its_inequality_for_all_deviations_and_ratios():
    for ratio in (0.001, 0.01, 0.1, 0.4):
        c = z_squared(ratio)
        for sigma, theta in [(0, 1), (1, 1), (100, 3), (7, 900), (5000, 0.25)]:
            n = math.floor(kernel.vseq_size(c, float(sigma), float(theta)))
            spread = 2 * c * sigma**2 / theta**2
            assert n == 0 or n * n - c * n - spread <= 1e-6
            assert (n + 1) ** 2 - c * (n + 1) - spread > 0


def test_without_intervals_the_region_is_its_limit():
    c = z_squared(0.01)
    assert kernel.region(c, 100.0, 0.0) == pytest.approx(math.sqrt(2 * c) * 100)
    assert kernel.region(c, 100.0, 1e-6) == pytest.approx(math.sqrt(2 * c) * 100, rel=1e-6)
    assert kernel.region(c, 0.0, 0.0) == 0.0


def test_half_the_rows_and_more_wait_for_the_mean_latency_only():
    assert z_squared(0.5) == z_squared(0.9) == 0.0
    arrivals = normal_latencies(1, 200, sigma=10.0)
    bounds = punctuations(DropRatio(drop_ratio=0.7), arrivals)
    mean = float((arrivals.clock - arrivals.ts)[:30].mean())
    assert bounds[29] == math.floor(arrivals.clock[29] - mean)


@pytest.mark.parametrize("sigma", [0.0, 20.0, 100.0, 700.0, 9000.0])
def test_punctuations_are_those_of_the_equations(sigma):
    n = 300 if INTERPRETED else 3000
    arrivals = normal_latencies(4, n, sigma=sigma, outliers=5 * sigma)
    bounds = punctuations(DropRatio(drop_ratio=0.01), arrivals)
    assert (bounds[:29] == NEVER).all()
    assert bounds[29] > NEVER
    assert (np.diff(bounds[29:]) >= 0).all()
    assert np.abs(bounds[29:] - written_out(arrivals, 0.01)[29:]).max() <= 1  # where floats round


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 400)), min_size=30, max_size=200), st.data())
def test_any_latencies_give_the_same_punctuations_in_any_chunks_and_after_restarts(rows, data):
    clock = np.cumsum([gap for gap, _ in rows])
    arrivals = arrivals_of(clock - np.array([latency for _, latency in rows]), clock)
    strategy = DropRatio(drop_ratio=0.05, buffer_limit=data.draw(st.none() | st.integers(1, 40)))
    whole = punctuations(strategy, arrivals)
    edges = sorted({0, len(rows), *data.draw(st.sets(st.integers(0, len(rows)), max_size=6))})
    logic, parts = strategy.build(sample_setting()), []
    for start, stop in itertools.pairwise(edges):
        parts.append(logic.bounds(arrivals.part(slice(start, stop))))
        logic = strategy.build(sample_setting(), logic.snapshot())
    assert np.concatenate(parts).tolist() == whole.tolist()
    if strategy.buffer_limit is None:
        expected = written_out(arrivals, 0.05)
        assert np.abs(whole[29:] - expected[29:]).max() <= 1


def test_inputs_are_estimated_apart():
    fast, slow = normal_latencies(1, 400, sigma=20.0), normal_latencies(2, 400, sigma=900.0)
    clock = np.concatenate([fast.clock, slow.clock])
    order = np.argsort(clock, kind="stable")
    inputs = np.repeat([0, 1], 400)[order]
    both = arrivals_of(np.concatenate([fast.ts, slow.ts])[order], clock[order], inputs)
    for strategy in (DropRatio(drop_ratio=0.01), DropRatio(slack="3s", buffer_limit=20), HeartbeatSlack()):
        bounds = punctuations(strategy, both)
        assert bounds[inputs == 0].tolist() == punctuations(strategy, fast).tolist()
        assert bounds[inputs == 1].tolist() == punctuations(strategy, slow).tolist()


@pytest.mark.skipif(INTERPRETED, reason="many rows")
def test_a_corrupt_time_holds_one_full_list_up_and_leaves_no_trace():
    arrivals = normal_latencies(3, 6000, sigma=20.0)
    ts = arrivals.ts.copy()
    ts[40] = -(10**17)
    bounds = punctuations(DropRatio(drop_ratio=0.01), arrivals_of(ts, arrivals.clock))
    undisturbed = punctuations(DropRatio(drop_ratio=0.01), arrivals)
    assert bounds[:40].tolist() == undisturbed[:40].tolist()
    assert (bounds[40:4096] == bounds[39]).all()
    assert np.abs(bounds[4300:] - undisturbed[4300:]).max() <= 1


def test_the_state_stays_small():
    logic = DropRatio(drop_ratio=0.001).build(sample_setting())
    n = 500 if INTERPRETED else 20_000
    logic.bounds(normal_latencies(1, n, theta=1.0, sigma=4000.0))
    assert all(array.size <= 2 * 4096 for array in logic.snapshot().values())


# The buffer limit and the slack


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 60)), max_size=120),
    st.integers(1, 12),
    st.integers(0, 70),
)
def test_no_input_holds_more_than_the_limit_and_punctuations_move_no_further_than_that(rows, most, slack):
    arrivals = arrivals_of([ts for _, ts in rows], range(len(rows)), [which for which, _ in rows])
    bounds = punctuations(DropRatio(slack=f"{slack}ms", buffer_limit=most), arrivals)
    waiting, stands = {0: [], 1: []}, {0: NEVER, 1: NEVER}
    for (which, ts), progress, bound in zip(rows, arrivals.progress.tolist(), bounds.tolist(), strict=True):
        expected = max(stands[which], progress - slack)
        here = sorted(t for t in [*waiting[which], ts] if t > expected)
        if len(here) > most:
            expected = here[0]
        assert bound == expected
        waiting[which] = [t for t in here if t > bound]
        stands[which] = bound
        assert len(waiting[which]) <= most


def test_the_limit_goes_before_the_ratio():
    arrivals = normal_latencies(5, 2000)
    free = punctuations(DropRatio(drop_ratio=0.01), arrivals)
    limited = punctuations(DropRatio(drop_ratio=0.01, buffer_limit=6), arrivals)
    assert held(arrivals, free) > 10
    assert held(arrivals, limited) <= 6
    assert too_late(arrivals, limited) > 0.01 > too_late(arrivals, free)


def test_slack_is_the_strategy_fixed():
    arrivals = normal_latencies(5, 300)
    expected = punctuations(FixedSlack(slack="70ms"), arrivals)
    assert punctuations(DropRatio(slack="70ms"), arrivals).tolist() == expected.tolist()
    assert punctuations(DropRatio(slack="70ms", buffer_limit=10**6), arrivals).tolist() == expected.tolist()


# Heartbeats and clocks


def test_a_heartbeat_trails_the_clock_by_the_largest_latency():
    arrivals = arrivals_of([100, 110, 90, 115, 125, 128], [105, 112, 113, 120, 130, 131])
    assert punctuations(HeartbeatSlack(), arrivals).tolist() == [99, 106, 106, 106, 106, 107]


def test_only_a_latency_beyond_all_before_a_heartbeat_breaks_it():
    arrivals = normal_latencies(2)
    bounds = punctuations(HeartbeatSlack(), arrivals)
    latency = arrivals.clock - arrivals.ts
    made_at = np.searchsorted(bounds, bounds[:-1])
    slower = latency[1:] > np.maximum.accumulate(latency)[made_at]
    broken = arrivals.ts[1:] <= bounds[:-1]
    assert (np.diff(bounds) >= 0).all()
    assert broken.any()
    assert not broken[~slower].any()


@pytest.mark.parametrize("strategy", [DropRatio, HeartbeatSlack])
def test_the_arrival_column_may_have_a_unit_of_its_own(strategy):
    options = {"drop_ratio": 0.01} if strategy is DropRatio else {}
    arrivals = normal_latencies(6, 200)
    expected = punctuations(strategy(**options), arrivals)
    micros = arrivals._replace(clock=arrivals.clock * 1000 + 999)
    assert punctuations(strategy(**options, arrival_unit="us"), micros).tolist() == expected.tolist()
    seconds = arrivals._replace(clock=arrivals.clock // 1000)
    rounded = arrivals._replace(clock=arrivals.clock // 1000 * 1000)
    coarse = punctuations(strategy(**options, arrival_unit="s"), seconds)
    assert coarse.tolist() == punctuations(strategy(**options), rounded).tolist()


@pytest.mark.parametrize("strategy", [DropRatio, HeartbeatSlack])
def test_clocks_need_not_start_at_the_same_moment(strategy):
    options = {"drop_ratio": 0.01} if strategy is DropRatio else {}
    arrivals = normal_latencies(6, 400)
    apart = arrivals._replace(clock=arrivals.clock + 1_700_000_000_000)
    bounds = punctuations(strategy(**options), arrivals)
    assert np.abs(punctuations(strategy(**options), apart) - bounds).max() <= 1


@pytest.mark.parametrize("strategy", [DropRatio, HeartbeatSlack])
def test_the_wall_clock_is_read_once_per_chunk(strategy):
    options = {"drop_ratio": 0.01} if strategy is DropRatio else {}
    arrivals = arrivals_of(np.arange(4000, 4060), np.zeros(60))
    at_five = punctuations(strategy(**options), arrivals._replace(clock=np.full(60, 5000)))
    with clock_at(5_000_000_000):
        assert punctuations(strategy(**options, clock="wall"), arrivals).tolist() == at_five.tolist()
    assert not strategy(**options, clock="wall").reads_clock


# Ratios


def test_one_percent_is_kept_where_heartbeats_break_it():
    """The paper's Fig. 7: 20 data sets of 16 to 20 rows a second with normal latencies."""
    sets = [normal_latencies(s, 600, 1000 / (16 + s % 5), 150 + 100 * (s % 3)) for s in range(20)]
    ours, theirs = (
        np.array([too_late(a, punctuations(strategy, a)) for a in sets])
        for strategy in (DropRatio(drop_ratio=0.01), HeartbeatSlack())
    )
    assert ours.mean() <= 0.01
    assert (ours < 0.01).sum() >= 18
    assert (theirs > 0.01).sum() > (ours > 0.01).sum()


@pytest.mark.skipif(INTERPRETED, reason="many rows")
def test_early_outliers_move_heartbeats_and_not_ours():
    """The paper's Fig. 8."""
    sizes = {}
    for outliers in (0, 2000, 10000):
        arrivals = normal_latencies(1, 20_000, outliers=outliers)
        for strategy in (DropRatio(drop_ratio=0.01), HeartbeatSlack()):
            sizes[strategy.name, outliers] = held(arrivals, punctuations(strategy, arrivals))
    assert sizes["drop_ratio", 10000] < 1.1 * sizes["drop_ratio", 0]
    assert sizes["heartbeat", 2000] > 2 * sizes["heartbeat", 0]
    assert sizes["heartbeat", 10000] > 8 * sizes["heartbeat", 0]


# Options, conformance and the join


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({}, "strategy 'drop_ratio': must have one of the options drop_ratio and slack, got neither."),
        (
            {"drop_ratio": 0.1, "slack": "1s"},
            "strategy 'drop_ratio': must have one of the options drop_ratio and slack, got both.",
        ),
        ({"drop_ratio": 0}, "must be a share between 0 and 1, such as 0.01, got 0."),
        ({"drop_ratio": 1}, "must be a share between 0 and 1, such as 0.01, got 1."),
        ({"drop_ratio": math.nan}, "must be a share between 0 and 1, such as 0.01, got nan."),
        ({"drop_ratio": "1%"}, "option 'drop_ratio' of strategy 'drop_ratio': must be a share between 0 and 1, "),
        ({"slack": 5}, "option 'slack' of strategy 'drop_ratio': must be a duration such as 250ms"),
        ({"slack": "1s", "buffer_limit": 0}, "must be a whole number of rows, at least 1, got 0."),
        ({"slack": "1s", "buffer_limit": "5 MB"}, "must be a whole number of rows, at least 1, got '5 MB'."),
        ({"drop_ratio": 0.1, "clock": "sun"}, "'arrival' or 'wall', got 'sun'."),
        ({"drop_ratio": 0.1, "arrival_unit": "m"}, "'s', 'ms', 'us' or 'ns', got 'm'."),
    ],
)
def test_bad_options_are_refused_with_the_fault(options, fault):
    with pytest.raises(OptionError) as error:
        manager().create("disorder", {"strategy": "drop_ratio", **options})
    assert fault in str(error.value)


@pytest.mark.parametrize(
    "strategy",
    [
        DropRatio(drop_ratio=0.01),
        DropRatio(drop_ratio=0.2, buffer_limit=7),
        DropRatio(slack="5ms", buffer_limit=2),
        DropRatio(drop_ratio=0.01, arrival_unit="us"),
        HeartbeatSlack(),
    ],
    ids=str,
)
def test_all_ways_to_set_it_conform(strategy):
    check_strategy(strategy)


@pytest.mark.parametrize("name", ["drop_ratio", "heartbeat"])
def test_a_join_without_times_of_arrival_is_refused(name):
    options = {"strategy": name, "drop_ratio": 0.1} if name == "drop_ratio" else {"strategy": name}
    with pytest.raises(ConfigError, match="needs times of arrival; name their column with arrival") as error:
        plan_of(ROWS, window="5s", disorder=options)
    assert error.value.path == ("disorder",)
    plan_of(ROWS, window="5s", disorder={**options, "clock": "wall"})
    plan_of(ROWS, window="5s", disorder={"strategy": "drop_ratio", "slack": "1s"})


@pytest.mark.parametrize("options", [{"strategy": "heartbeat"}, {"strategy": "drop_ratio", "drop_ratio": 0.05}])
def test_a_join_goes_on_from_snapshots_and_tells_the_slack_it_met(options):
    n = 150
    a = normal_latencies(1, 2 * n, sigma=100.0)
    arrivals = numbered(
        (k % 2, {"ts": ts, "k": k % 3, "arr": clock})
        for k, (ts, clock) in enumerate(zip(a.ts.tolist(), a.clock.tolist(), strict=True))
    )
    plan = plan_of(ROWS, window="500ms", where="a.k = b.k", arrival="arr", disorder=options)
    whole, parts = run(plan, arrivals), run(plan, arrivals, range(0, 2 * n, 37), (100, 222))
    assert whole.results == parts.results
    assert whole.late == parts.late
    slack = whole.operator.accounting.summary(10**6)["slack_ms"]
    assert all(0 <= value < 5000 for value in slack.values())


@pytest.mark.skipif(INTERPRETED, reason="this is the other run")
def test_the_kernels_do_the_same_uncompiled():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(Path(__file__))],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
