"""The operator against the per-tuple reference: any condition, any disorder, any chunks, any restart."""

from collections import Counter

import pytest
from conditions import EFFORT, FOUR_WAY, SLACKS, THREE_WAY, TWO_WAY, WIDE, cuts, star, streams, windows
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import reference_join
from running import NAMES, SCHEMA, disorder_of, numbered, plan_of, run


def check(spec, arrivals, sizes, slack, *cuts_and_restores):
    """Rows and counts, cut and restarted anywhere, equal the reference in results, late rows and sizes."""
    expected = reference_join(arrivals, sizes, spec.test, slack)
    window = dict(zip(NAMES, (f"{w}ms" for w in sizes), strict=False))
    for output in ("rows", "counts"):
        plan = plan_of(SCHEMA, spec.m, window=window, where=spec.sql, disorder=disorder_of(slack), output=output)
        got = run(plan, arrivals, *cuts_and_restores)
        if output == "rows":
            assert got.results == expected.results
            stamps = [row["ts"] for row in got.rows]
            assert stamps == sorted(stamps)
        else:
            assert got.counts == expected.counts
            assert all(entry.run_results == 0 for entry in got.log), "counting made rows"
        assert got.order == expected.order
        assert got.join_sizes == expected.join_sizes
        assert got.cross_sizes == expected.cross_sizes
        assert got.late_ids("too_late") == Counter(expected.late)
        accounting = got.operator.accounting
        assert accounting.results == expected.results.total()
        assert all(accounting.balanced(i) for i in range(spec.m))
        assert accounting.received.sum() == len(arrivals)
        assert accounting.in_order.sum() + len(expected.late) == len(arrivals)


@pytest.mark.parametrize("spec", TWO_WAY, ids=lambda spec: str(spec.sql))
@settings(max_examples=25 * EFFORT)
@given(data=st.data())
def test_two_inputs(spec, data):
    arrivals = data.draw(streams(2, 50))
    n = len(arrivals)
    check(spec, arrivals, data.draw(windows(2)), data.draw(SLACKS), data.draw(cuts(n)), data.draw(cuts(n)))


@pytest.mark.parametrize("spec", THREE_WAY, ids=lambda spec: str(spec.sql))
@settings(max_examples=20 * EFFORT)
@given(data=st.data())
def test_three_inputs(spec, data):
    arrivals = data.draw(streams(3, 30))
    n = len(arrivals)
    check(spec, arrivals, data.draw(windows(3)), data.draw(SLACKS), data.draw(cuts(n)), data.draw(cuts(n)))


@pytest.mark.parametrize("spec", FOUR_WAY, ids=lambda spec: str(spec.sql))
@settings(max_examples=15 * EFFORT)
@given(data=st.data())
def test_four_inputs(spec, data):
    arrivals = data.draw(streams(4, 24))
    n = len(arrivals)
    check(spec, arrivals, data.draw(windows(4)), data.draw(SLACKS), data.draw(cuts(n)), data.draw(cuts(n)))


@pytest.mark.parametrize("spec", WIDE, ids=lambda spec: f"{spec.m}: {spec.sql}")
@settings(max_examples=6 * EFFORT)
@given(data=st.data())
def test_five_to_eight_inputs(spec, data):
    arrivals = data.draw(streams(spec.m, 2 * spec.m))
    arrivals = numbered(arrivals + [(i, {"ts": 8, "k": 1, "v": 1}) for i in range(spec.m)])
    n = len(arrivals)
    check(spec, arrivals, data.draw(windows(spec.m)), data.draw(SLACKS), data.draw(cuts(n)), data.draw(cuts(n)))


@settings(max_examples=20 * EFFORT)
@given(streams(2, 60), SLACKS)
def test_every_row_a_chunk_of_its_own(arrivals, slack):
    check(star(2), arrivals, [5, 5], slack, range(len(arrivals)), range(0, len(arrivals), 3))


def test_windows_are_inclusive_at_both_ends():
    plan = plan_of(SCHEMA, window={"a": "3ms", "b": "5ms"}, where="a.k = b.k", disorder={"strategy": "max"})
    rows = [(0, {"ts": t, "k": t}) for t in (0, 1, 10, 11)] + [
        (1, {"ts": t, "k": k}) for t, k in ((3, 0), (5, 1), (5, 10), (5, 11))
    ]
    rows = numbered(sorted(rows, key=lambda arrival: arrival[1]["ts"]))
    found = {(row["a_ts"], row["b_ts"]) for row in run(plan, rows).rows}
    assert found == {(0, 3), (10, 5)}  # 1 is more than 3 before 5; 5 is more than 5 before 11


def test_closed_right_leaves_out_the_far_end():
    plan = plan_of(SCHEMA, window={"a": "3ms", "b": "5ms", "closed": "right"}, disorder={"strategy": "max"})
    rows = numbered([(0, {"ts": 0}), (0, {"ts": 1}), (1, {"ts": 3}), (0, {"ts": 8}), (0, {"ts": 7})])
    found = {(row["a_ts"], row["b_ts"]) for row in run(plan, rows).rows}
    assert found == {(1, 3), (7, 3)}


def test_no_rows_at_all():
    got = run(plan_of(SCHEMA, window="1s", where="a.k = b.k"), [])
    assert (got.rows, got.late) == ([], [])
    assert got.operator.accounting.recall_estimate() == 1.0


def test_one_input_never_comes():
    got = run(plan_of(SCHEMA, window="1s", where="a.k = b.k"), numbered((0, {"ts": t, "k": 1}) for t in range(9)))
    assert got.rows == []
    assert len(got.order) == 9


def test_times_before_the_epoch():
    arrivals = numbered((t % 2, {"ts": t - 1000, "k": 0}) for t in range(40))
    check(star(2), arrivals, [5, 5], 2, [11], [20])
