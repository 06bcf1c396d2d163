"""What a tuple is worth: learnt chances, predicates, what lies beyond, weights."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from conditions import EFFORT, FOUR_WAY, THREE_WAY, TWO_WAY, cuts, eq, known, streams
from hypothesis import given, settings
from hypothesis import strategies as st
from running import SCHEMA, plan_of, run
from scoring import Scorer, foreseen, joined

from slackwater.pipelines.bench.offline.optimum import optimum
from slackwater.transforms.errors import ConfigError

WORDS = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.float64()), ("w", pa.string())])


def scorer(where, m=2, schema=SCHEMA, **options):
    shedding = {"strategy": "prob", "memory": 8, "estimate": "exact", **options}
    return Scorer(plan_of(schema, m, window="9ms", where=where, shedding=shedding))


def close(got, expected):
    np.testing.assert_allclose(got, expected, rtol=1e-9)


CONDITIONS = {
    "a.k = b.k": lambda a, b: eq(a["k"], b["k"]),
    "abs(a.v - b.v) <= 1.5": lambda a, b: known(lambda x, y: abs(x - y) <= 1.5, a["v"], b["v"]),
    "a.w <> b.w OR a.k < b.k": lambda a, b: a["w"] != b["w"] or a["k"] < b["k"],
    "a.w = 'x' AND b.w IN ('x', 'y') OR a.v > b.v": lambda a, b: (
        (a["w"] == "x" and b["w"] in "xy") or (a["v"] > b["v"])
    ),
    "a.v * a.v + b.v * b.v <= 9": lambda a, b: a["v"] ** 2 + b["v"] ** 2 <= 9,
}


@pytest.mark.parametrize("where", CONDITIONS)
def test_a_tuple_is_worth_the_share_of_arrivals_that_match_it(where):
    rng = np.random.default_rng(7)
    rows = [
        {"k": int(k), "v": float(v), "w": w}
        for k, v, w in zip(
            rng.integers(0, 5, 200), rng.normal(0, 3, 200), rng.choice(list("xyz"), 200), strict=True
        )
    ]
    known_of = scorer(where, schema=WORDS)
    known_of.observe([(1, row) for row in rows])
    share = [sum(CONDITIONS[where](a, b) for b in rows) / len(rows) for a in rows[:50]]
    assert max(share) > 0.05
    if where == "a.k = b.k":
        share = [foreseen([b["k"] for b in rows], a["k"]) for a in rows[:50]]
    close(known_of.scores(0, rows[:50]), share)


def test_values_that_do_not_repeat_are_not_expected_again():
    """Each auction comes once, and bids come for it: bids are worth nothing, auctions without bids a share."""
    auctions, bids = list(range(10)), [k for k in range(8) for _ in range(k + 1)]
    for estimate in ("exact", "decayed", "sketch"):
        chances = scorer("a.k = b.k", estimate=estimate, half_life=10**12)
        chances.observe([*((0, {"k": k}) for k in auctions), *((1, {"k": k}) for k in bids)])
        np.testing.assert_allclose(chances.scores(1, [{"k": k} for k in bids]), 0, atol=1e-9)
        got = np.array(chances.scores(0, [{"k": k} for k in auctions]))
        np.testing.assert_allclose(got, [foreseen(bids, k) for k in auctions], rtol=1e-6)
        assert got[9] == got[8] > got[0] > 0


def test_predicates_are_tested_as_if_keys_were_equal():
    chances = scorer("a.k = b.k AND a.v + b.v > b.k")
    chances.observe([(1, {"k": k, "v": v}) for k in (1, 2) for v in (0, 1, 2, 3)] + [(1, {"k": 9, "v": 0})])
    passing = sum(v > 1 for v in (0, 1, 2, 3, 0, 1, 2, 3, 0)) / 9
    keys = [1, 1, 1, 1, 2, 2, 2, 2, 9]
    expected = [foreseen(keys, k) * passing for k in (1, 3)]
    close(chances.scores(0, [{"k": 1, "v": 0}, {"k": 3, "v": 2}]), expected)


def test_arrivals_that_can_never_join_count_for_nothing():
    chances = scorer("a.k = b.k AND b.v > 0")
    chances.observe([(1, {"k": 1, "v": v}) for v in (0, 1, 1)] + [(1, {"k": 2, "v": v}) for v in (0, None)])
    one, two = chances.scores(0, [{"k": 1}, {"k": 2}])
    able = 2 / 5
    close([one, two], [able * foreseen([1, 1], k) for k in (1, 2)])


def test_rare_matches_are_learnt_from_similar_tuples():
    """At most one pair in 376 matches, so that most tuples see no partner in a sample of 256."""
    near = scorer("abs(a.v - b.v) <= 0.05", schema=WORDS)
    arrived = np.random.default_rng(0).normal(100, 15, 10_000)
    near.observe([(k % 2, {"v": float(v)}) for k, v in enumerate(arrived)])
    values = np.arange(40, 161, 4.0)
    truth = 0.1 / 15 / np.sqrt(2 * np.pi) * np.exp(-(((values - 100) / 15) ** 2) / 2)
    got = near.scores(0, [{"v": v} for v in values])
    assert np.corrcoef(got, truth)[0, 1] > 0.95
    assert sum(got) == pytest.approx(sum(truth), rel=0.1)


def test_what_lies_beyond_the_middle_of_a_chain_counts():
    """Of b, k = 1 and k = 2 are equally frequent; but c never has the v that comes with k = 1."""
    chances = scorer("a.k = b.k AND b.v = c.v", 3)
    c = [(2, {"k": 0, "v": v}) for v in (7, 7, 7, 8)]
    b = [(1, {"k": k, "v": v}) for k, v in ((1, 5), (2, 7), (1, 5), (2, 7), (3, 8))]
    chances.observe([*c, *b])
    in_c = {v: foreseen([7, 7, 7, 8], v) for v in (5, 7, 8)}
    worths = [in_c[v] for v in (5, 7, 5, 7, 8)]
    got = chances.scores(0, [{"k": k} for k in (1, 2, 3, 4)])
    close(got, [foreseen([1, 2, 1, 2, 3], k, worths) for k in (1, 2, 3, 4)])
    assert got[1] > got[0]
    chances.observe([(0, {"k": 2})] * 3 + [(0, {"k": 1})])
    in_a = [foreseen([2, 2, 2, 1], k) for k in (2, 1)]
    close(chances.scores(1, [{"k": 2, "v": 7}, {"k": 1, "v": 5}]), [in_a[0] * in_c[7], in_a[1] * in_c[5]])


def test_what_lies_beyond_counts_for_predicates_too():
    chances = scorer("a.k < b.k AND b.v = c.v", 3)
    chances.observe([(2, {"k": 0, "v": v}) for v in (7, 8, 8, 8)])
    chances.observe([(1, {"k": k, "v": v}) for k, v in ((1, 7), (2, 8), (3, 9))])
    in_c = [foreseen([7, 8, 8, 8], v) for v in (7, 8, 9)]
    close(chances.scores(0, [{"k": 0}, {"k": 1}, {"k": 2}]), [sum(in_c[k:]) / 3 for k in (0, 1, 2)])


def test_a_weight_is_averaged_over_partners_that_pass():
    chances = scorer("a.k < b.k", weight="a.v * b.v - 2")
    chances.observe([(1, {"k": k, "v": v}) for k, v in ((1, 50), (5, 1), (6, 3), (7, None), (8, -4))])
    weights = [max(0, 2 * v - 2) for v in (1, 3, -4)] + [0]
    close(chances.scores(0, [{"k": 4, "v": 2}]), [4 / 5 * sum(weights) / 4])


def test_partners_of_a_key_share_in_what_they_are_worth():
    """Both keys come equally often, but results of the second are worth three times as much."""
    chances = scorer("a.k = b.k", weight="a.v * b.v")
    chances.observe([(0, {"k": 3, "v": 2})] * 4)
    chances.observe([(1, {"k": k, "v": v}) for k, v in ((1, 1), (2, 3)) * 10])
    one, two = chances.scores(0, [{"k": 1, "v": 1}, {"k": 2, "v": 1}])
    repeats = 1 - 2 / 20
    close([one, two], [repeats * 2 / 4, repeats * 2 * 3 / 4])


@pytest.mark.parametrize(
    ("weight", "fault"),
    [
        ("a.v *", r"shedding.weight: cannot read 'a.v \*'"),
        (" ", "shedding.weight: the expression is empty; write a number such as a.price"),
        ("a.v * b.q", "shedding.weight: input 'b' has no column 'q'; it has ts, k, v, w"),
        ("z.v", "shedding.weight: 'z.v' names no input; the inputs are a, b"),
        ("v", "shedding.weight: column 'v' is in several inputs; write it as input.column"),
        ("a.w", "shedding.weight: a.w is text, not a number; a weight must be one"),
        ("a.v > b.v", "is a truth value, not a number; a weight must be one"),
        ("NULL", "shedding.weight: NULL is NULL, not a number; a weight must be one"),
        ("a.v + b.w", "shedding.weight: b.w is text, not a number; arithmetic needs numbers"),
        ("system('x')", "shedding.weight: .* is not supported; supported are columns"),
    ],
)
@pytest.mark.parametrize("strategy", ["prob", "life"])
def test_a_weight_that_is_no_number_is_refused(weight, fault, strategy):
    with pytest.raises(ConfigError, match=fault):
        plan_of(
            WORDS, window="9ms", where="a.k = b.k",
            shedding={"strategy": strategy, "memory": 4, "weight": weight},
        )  # fmt: skip


def zipf(rng, n, skew, domain):
    chance = 1.0 / np.arange(1, domain + 1) ** skew
    return rng.choice(domain, n, p=chance / chance.sum())


W, N = 150, 3000
TS = 2 * np.arange(N), 2 * np.arange(N) + 1


def results(columns, where, **shedding):
    """Results of two inputs whose windows hold W tuples each, with memory for half of these."""
    schemas = {name: pa.RecordBatch.from_pydict(own).schema for name, own in zip("ab", columns, strict=True)}
    limits = {"strategy": "prob", "memory": W, **shedding}
    plan = plan_of(schemas, window=f"{2 * W}ms", where=where, disorder={"strategy": "none"}, shedding=limits)
    return joined(plan, columns)


@pytest.mark.parametrize(("weight", "gain"), [("a.x * b.y", 1.04), ("a.x", 1.03)])
def test_with_weights_the_summed_weight_is_larger_and_below_the_optimum(weight, gain):
    rng = np.random.default_rng(1)
    a = {"ts": TS[0], "k": zipf(rng, N, 1, 50), "x": rng.integers(1, 4, N) ** 3}
    b = {"ts": TS[1], "k": zipf(rng, N, 1, 50), "y": rng.integers(0, 5, N)}

    def worth(i, j):
        return a["x"][i] * (b["y"][j] if "y" in weight else 1)

    def total(**shedding):
        rows = results([a, b], "a.k = b.k", **shedding)
        return int(worth(rows["a_ts"].to_numpy() // 2, rows["b_ts"].to_numpy() // 2).sum())

    best = optimum(
        *TS, window=2 * W, memory=W, allocation="variable", keys=(a["k"], b["k"]), weight=worth
    )  # fmt: skip
    assert total(strategy="random") < 0.6 * best.kept
    assert gain * total() < total(weight=weight) <= best.kept
    assert gain * total() < total(weight=weight, estimate="sketch") <= best.kept
    assert total(strategy="life", weight=weight) <= best.kept


def test_a_skewed_band_join_keeps_clearly_more_than_by_chance():
    rng = np.random.default_rng(2)
    a, b = ({"ts": ts, "v": rng.exponential(10, N)} for ts in TS)
    where = "abs(a.v - b.v) <= 0.5"
    best = optimum(
        *TS, window=2 * W, memory=W, allocation="variable",
        condition=lambda i, j: abs(a["v"][i] - b["v"][j]) <= 0.5,
    )  # fmt: skip
    random, prob, life = (
        results([a, b], where, strategy=name).num_rows for name in ("random", "prob", "life")
    )  # fmt: skip
    assert 0.47 < random / best.exact < 0.53
    assert 1.3 * random < prob <= best.kept
    assert random < life <= best.kept


@pytest.mark.parametrize("estimate", ["exact", "decayed", "sketch"])
def test_of_one_to_many_those_are_kept_that_others_refer_to(estimate):
    """Every key comes once on a, and on b again and again for a while; a holds a quarter of the memory's rows."""
    rng = np.random.default_rng(4)
    a = {"ts": TS[0], "k": np.arange(N)}
    b = {"ts": TS[1], "k": np.maximum(0, np.arange(N) - rng.integers(0, W, N))}
    random, prob, life = (
        results([a, b], "a.k = b.k", memory=W, allocation="variable", strategy=name, **options).num_rows
        for name, options in (("random", {}), ("prob", {"estimate": estimate}), ("life", {"estimate": estimate}))
    )
    assert random < 0.6 * N
    assert min(prob, life) > 1.5 * random


def test_a_sketch_never_counts_too_few_and_seldom_many_too_many():
    """Count-min: above the count by e / width of all, with a chance of at most e to the power of minus rows.

    For a new value it may take one that was seen, so that it takes values to repeat rather too often.
    """
    rng = np.random.default_rng(5)
    n, width = 20_000, 1024
    keys = zipf(rng, n, 1.1, 5000)
    sketch = scorer("a.k = b.k", estimate="sketch", width=width, half_life=10**12)
    sketch.observe([(1, {"k": int(k)}) for k in keys])
    count = Counter(keys.tolist())
    got = np.array(sketch.scores(0, [{"k": k} for k in range(5000)])) * n
    counts = np.array([count[k] for k in range(5000)])
    assert (got - (1 - len(count) / n) * counts).min() > -1e-3
    assert (got - counts > np.e * n / width).mean() <= np.exp(-4)
    assert sketch.logic.nbytes < 64 * width


def test_decayed_counts_follow_a_change_that_exact_ones_do_not():
    """After two half-lives a quarter is left of what was before; of that, eight half-lives were seen."""
    before, after = [(1, {"k": 1})] * 4000, [(1, {"k": 2})] * 1000
    followed = (1 - 2.0**-2) / (1 - 2.0**-10)
    growth = 2.0 ** (1 / 500)
    decayed = 1 - (1 + growth**4000) / ((growth**5000 - 1) / (growth - 1))
    for estimate, share, repeats in (
        ("exact", 1 / 5, 1 - 2 / 5000), ("decayed", followed, decayed), ("sketch", followed, decayed)
    ):  # fmt: skip
        chances = scorer("a.k = b.k", estimate=estimate, half_life=500)
        chances.observe([*before, *after])
        close(chances.scores(0, [{"k": 1}, {"k": 2}]), [repeats * (1 - share), repeats * share])


SPECS = [*TWO_WAY, *THREE_WAY, *FOUR_WAY]


@settings(max_examples=40 * EFFORT)
@given(st.data())
def test_chunks_and_restarts_do_not_show(data):
    spec = data.draw(st.sampled_from(SPECS))
    arrivals = data.draw(streams(spec.m, 120, 60))
    shedding = {
        "strategy": data.draw(st.sampled_from(["prob", "life"])),
        "memory": data.draw(st.sampled_from([3, 9, 24])),
        "estimate": data.draw(st.sampled_from(["exact", "decayed", "sketch"])),
        "half_life": data.draw(st.sampled_from([1, 20])),
        "weight": data.draw(st.sampled_from([None, "a.v * b.k - 1", "a.k / b.v"])),
    }
    if data.draw(st.booleans()) and spec.sql == "a.k = b.k" and spec.m == 2:
        shedding["frequencies"] = {"a.k": {0: 1, 2: 2}, "b.k": {1: 0.5, 2: 0.25}}
    plan = plan_of(
        SCHEMA, spec.m, window="20ms", where=spec.sql, disorder={"strategy": "fixed", "slack": "3ms"},
        shedding=shedding,
    )  # fmt: skip
    whole = run(plan, arrivals)
    assert all(entry.live <= shedding["memory"] for entry in whole.log)
    n = len(arrivals)
    for again in (
        run(plan, arrivals, data.draw(cuts(n)), data.draw(cuts(n))),
        run(plan, arrivals, range(n)),
    ):
        assert again.results == whole.results
        assert again.late_ids("shed") == whole.late_ids("shed")
