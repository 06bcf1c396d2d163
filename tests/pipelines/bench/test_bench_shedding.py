"""The shedding benchmark in small, and that no strategy that runs ever beats the optimum."""

import numpy as np
import pytest
from cli_calls import call
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.pipelines.bench.experiments import Row, table
from slackwater.pipelines.bench.shedding import figures, papers, real, static
from slackwater.pipelines.bench.shedding.runs import Pair, run


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 10**6),
    st.integers(1, 60),
    st.integers(1, 12),
    st.integers(1, 4),
    st.sampled_from(["fixed", "variable"]),
    st.sampled_from(["both", "right"]),
)
def test_no_strategy_keeps_more_than_the_optimum_or_holds_more_than_it_may(seed, n, window, half, kind, closed):
    """Streams at times of their own, several tuples at a time or none for a while."""
    rng = np.random.default_rng(seed)
    ts = tuple(np.sort(rng.integers(0, n, n)) for _ in range(2))
    keys = tuple(rng.integers(0, rng.integers(1, 6), n) for _ in range(2))
    pair = Pair(ts, keys, window, closed, int(rng.integers(0, 3)))
    best = pair.best(2 * half, kind)
    assert run(pair, {"strategy": "none"}).results == best.exact
    for strategy in ("random", "prob", "life"):
        ran = run(pair, {"strategy": strategy, "memory": 2 * half, "allocation": kind})
        assert ran.results <= best.kept
        assert ran.most <= 2 * half


def test_figures_have_the_shape_of_the_paper():
    """On streams long enough for shapes; which share of the optimum is reached needs longer ones."""
    rows = [*figures.by_memory(2_400, 200), *figures.uniform(5_600, 200)]
    assert [row.shape for row in rows if not row.met] == []
    of_best, of_exact, of_ceiling = figures.by_skew(2_400, 200, "correlated", (2.0,))
    assert of_best.met
    assert of_exact.met in (True, None)
    assert of_ceiling.met


def test_different_skews_gain_by_one_memory_for_both_and_the_more_skewed_stream_gets_more():
    pair = Pair.zipf(2_400, 200, 7, skew_r=1.0, skew_s=0.0)
    fixed, variable = (figures.shed(pair, "prob", 200, kind) for kind in ("fixed", "variable"))
    assert variable.results > fixed.results
    assert variable.share > 0.6
    assert fixed.share == pytest.approx(0.5, abs=0.05)
    assert 0.4 < fixed.shed / 4_800 < 0.7


def test_static_choices_are_compared_and_the_share_is_right():
    rows = static.section(5_000, 100, 500, (0.5,))
    assert [row.timed for row in rows] == [False, True]
    assert rows[0].met
    assert 0.99 <= rows[0].figures["ADG"] <= 1
    assert rows[1].figures["times"] > 1


def test_auctions_run_beside_the_optimum():
    pair = real._pair(
        "nexmark", 1_500, ("auctions", "bids"), ("id", "auction"), 60_000, punctuations="none", length=60_000
    )
    rows = list(real._rows("nexmark", pair))
    assert len(rows) == len(real.SHARES)
    assert all(row.met for row in rows)
    assert rows[0].figures["OPTV"] >= rows[0].figures["OPT of EXACT"]


def test_the_command_writes_its_tables(tmp_path, monkeypatch):
    small = {"rows": 4_000, "rounds": 1, "cases": {"few": (50, 100, 50)}}
    monkeypatch.setitem(papers.SECTIONS, "throughput", papers.SECTIONS["throughput"]._replace(quick=small))
    out = tmp_path / "shedding.md"
    done = call("bench", "shedding", "--quick", "--only", "throughput", "--out", out)
    assert done.exit_code == 0, done.output
    text = out.read_text()
    assert "| operator, few | shed 5" in text
    assert (text.count("ratio by CPU time"), text.count("ratio by the clock")) == (1, 2)
    assert "local runner, late rows not written, few" in done.stdout
    wrong = call("bench", "shedding", "--out", tmp_path / "none" / "x.md")
    assert wrong.exit_code != 0
    assert "--out: there is no folder" in wrong.output


def test_a_row_that_was_missed_stands_out():
    text = table("", "Title", [Row("one", {"x": 1.5}, "y", False), Row("two", {"x": "z"})]).markdown()
    assert "| one | x 1.5 | y | NO |" in text
    assert "| two | x z |  |  |" in text
