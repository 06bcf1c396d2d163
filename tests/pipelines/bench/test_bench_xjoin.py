"""The measurements of ``xjoin``: results that agree, and memory that does not follow the data."""

from slackwater.pipelines.bench.joins import xjoin


def test_a_state_of_ten_times_the_memory_gives_the_same_results(monkeypatch):
    monkeypatch.setattr(xjoin, "_alone", lambda *given: xjoin.measure(*given) | {"peak_mb": 0})
    rows = xjoin.section(rows=12_000)
    in_memory, spilled, _, tenth, in_bytes = (row.figures for row in rows)
    assert in_memory["results"] == spilled["results"] == in_bytes["results"] > 10_000
    assert (in_memory["spilled tuples"], tenth["spilled tuples"]) == (0, 0)
    assert spilled["spilled tuples"] > 0.85 * 24_000
    assert in_bytes["spilled mb"] > 0
    assert spilled["before end"] < in_memory["before end"]
    assert all(row.met for row in rows if row.shape and not row.timed)


def test_resident_memory_does_not_follow_the_data():
    """Ten times the data within the same limit, each in a process of its own."""
    small, large, unlimited = (
        xjoin._alone(strategy, rows, memory)["peak_mb"]
        for strategy, rows, memory in (
            ("xjoin", 40_000, 20_000),
            ("xjoin", 400_000, 20_000),
            ("symmetric_hash", 400_000, None),
        )
    )
    assert large - small < 0.25 * (unlimited - small)
