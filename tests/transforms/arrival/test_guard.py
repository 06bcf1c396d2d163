"""The guard: rows with a wrong clock are refused, progress stays, and ordinary data are as without it."""

import aggregate_reference
import numpy as np
import pyarrow as pa
import pytest
import running
from aggregate_reference import run as run_aggregate
from running import SCHEMA, chunk_of, disorder_of, run

from slackwater.plugins.clock import clock_at
from slackwater.plugins.contract import NEVER
from slackwater.transforms.arrival.intake import PartProgress
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.operators.join import Operator
from slackwater.transforms.settings.models import GuardConfig, JoinConfig

DAY = 86_400_000
YEAR = 365 * DAY
NOW = 1_700_000_000_000
STRATEGIES = [{"strategy": "none"}, disorder_of(40), {"strategy": "max"}]


def plan_of(schema, **settings):
    """A join with the default guard unless told."""
    return running.plan_of(schema, **{"guard": {}, **settings})


def stream(n=400, seed=1, start=NOW, step=10):
    """Rows of two inputs, a little out of order."""
    random = np.random.default_rng(seed)
    times = start + step * np.arange(n) + random.integers(-30, 1, n)
    rows = [(int(random.integers(2)), {"id": k, "ts": int(t), "k": k % 3}) for k, t in enumerate(times)]
    return rows


def with_bad(rows, *bad):
    """Insert (place, input, time) rows."""
    out = list(rows)
    for number, (place, which, ts) in enumerate(sorted(bad, reverse=True)):
        out.insert(place, (which, {"id": 10_000 + number, "ts": ts, "k": 0}))
    return out


def refused(got):
    """Late rows in the order of their arrival; within a step they are written by input."""
    return sorted(got.late, key=lambda row: row["arrival"])


def found(got):
    return got.results, {(row["reason"], row["ts"]) for row in got.late}


AHEAD = NOW + 10 * YEAR
BACK = NOW - 10 * YEAR
BAD = {
    "once": [(150, 0, AHEAD)],
    "first": [(0, 0, AHEAD)],
    "first of each": [(0, 0, AHEAD), (1, 1, AHEAD)],
    "twice": [(150, 0, AHEAD), (151, 0, AHEAD + 7)],
    "twice apart": [(150, 0, AHEAD), (170, 0, AHEAD + 7)],
    "twice at first": [(0, 0, AHEAD), (1, 0, AHEAD + 5)],
    "in each input": [(150, 0, AHEAD), (160, 1, AHEAD)],
    "last": [(400, 1, AHEAD)],
    "a bad device": [(20 * k, k % 2, AHEAD + k) for k in range(19)],
    "back": [(150, 0, BACK)],
    "back at first": [(0, 1, BACK)],
    "back twice": [(150, 0, BACK), (151, 0, BACK)],
    "both ways": [(0, 1, BACK), (100, 0, AHEAD), (200, 0, BACK)],
}


@pytest.mark.parametrize("disorder", STRATEGIES, ids=["none", "fixed", "max"])
@pytest.mark.parametrize("name", BAD)
def test_rows_with_a_wrong_clock_are_refused_and_nothing_else_changes(name, disorder):
    plan = plan_of(SCHEMA, window="200ms", where="a.k = b.k", disorder=disorder)
    rows = stream()
    clean_rows, clean_late = found(run(plan, rows))
    assert clean_rows
    for cuts in ((), range(0, 440, 73)):
        got = run(plan, with_bad(rows, *BAD[name]), range(0, 440, 7) if cuts else (), cuts)
        result_rows, late = found(got)
        assert result_rows == clean_rows
        assert late - clean_late == {("future_time" if ts > NOW else "too_late", ts) for _, _, ts in BAD[name]}
        assert all(got.operator.accounting.balanced(i) for i in range(2))


@pytest.mark.parametrize("name", ["once", "first", "first of each", "twice", "twice at first", "in each input"])
def test_a_limit_in_the_settings_holds_when_the_bad_row_is_first_or_comes_twice(name):
    bad = [(place, which, ts - 10 * YEAR + 2 * DAY) for place, which, ts in BAD[name]]
    plan = plan_of(SCHEMA, window="200ms", where="a.k = b.k", disorder=disorder_of(40), guard={"future": "1d"})
    rows = stream()
    clean_rows, clean_late = found(run(plan, rows))
    for cuts in ((), range(0, 440, 3)):
        got = run(plan, with_bad(rows, *bad), cuts)
        assert found(got) == (clean_rows, clean_late | {("future_time", ts) for _, _, ts in bad})


def test_without_the_guard_one_bad_row_costs_nearly_all():
    rows = with_bad(stream(), (20, 0, AHEAD), (25, 1, AHEAD))
    settings = {"window": "200ms", "where": "a.k = b.k", "disorder": {"strategy": "none"}}
    for off in ("none", "off", False, {"past": "none", "future": "none"}):
        got = run(plan_of(SCHEMA, **settings, guard=off), rows)
        assert sum(row["reason"] == "too_late" for row in got.late) > 300
    assert sum(row["reason"] == "too_late" for row in run(plan_of(SCHEMA, **settings), rows).late) < 200


GAPS = {
    "days": [DAY] * 9,
    "years": [2 * YEAR] * 6,
    "one of years": [0, 0, 0, 3 * YEAR, 0],
    "months": [30 * DAY, 1, 60 * DAY, 90 * DAY, 200 * DAY],
    "back years": [3 * YEAR, -2 * YEAR, 3 * YEAR, -4 * YEAR],
}


@pytest.mark.parametrize("disorder", STRATEGIES, ids=["none", "fixed", "max"])
@pytest.mark.parametrize(
    ("burst", "gaps"), [(n, gaps) for n in (1, 2, 5, 30) for gaps in GAPS.values() if n == 30 or min(gaps) >= 0]
)
def test_sparse_streams_and_bursts_after_a_silence_are_as_without_the_guard(gaps, burst, disorder):
    rows, start = [], NOW
    for number, gap in enumerate([0, *gaps]):
        start += gap
        some = stream(burst, number, start)
        rows += [(which, {**row, "id": len(rows) + i}) for i, (which, row) in enumerate(some)]
    settings = {"window": "200ms", "where": "a.k = b.k", "disorder": disorder}
    without = run(plan_of(SCHEMA, **settings, guard="none"), rows)
    for cuts in ((), range(0, len(rows), 17)):
        got = run(plan_of(SCHEMA, **settings), rows, range(0, len(rows), 3) if cuts else (), cuts)
        assert cuts or got.rows == without.rows
        assert (got.results, refused(got)) == (without.results, refused(without))


@pytest.mark.parametrize("disorder", STRATEGIES, ids=["none", "fixed", "max"])
def test_a_shuffled_archive_of_many_years_is_as_without_the_guard(disorder):
    random = np.random.default_rng(3)
    times = NOW + random.integers(0, 12 * YEAR, 600)
    rows = [(k % 2, {"id": k, "ts": int(t), "k": 1}) for k, t in enumerate(times)]
    settings = {"window": "5d", "where": "a.k = b.k", "disorder": disorder}
    got = run(plan_of(SCHEMA, **settings), rows, range(0, 600, 50))
    without = run(plan_of(SCHEMA, **settings, guard="none"), rows)
    assert (got.rows, refused(got)) == (without.rows, refused(without))


def test_an_arrival_clock_confirms_a_lone_jump():
    schema = pa.schema(
        [("id", pa.int64()), ("ts", pa.timestamp("ms")), ("k", pa.int64()), ("at", pa.timestamp("us"))]
    )
    rows = [(which, {**row, "at": 1000 * row["ts"] + 50_000}) for which, row in stream(100)]
    late = NOW + 3 * YEAR
    rows.append((0, {"id": 100, "ts": late, "k": 1, "at": 1000 * late}))
    settings = {"window": "200ms", "where": "a.k = b.k", "arrival": "at", "disorder": disorder_of(40)}
    assert not run(plan_of(schema, **settings), rows, range(0, 100, 9)).late
    rows[-1][1]["at"] = rows[-2][1]["at"] + 1
    assert [row["reason"] for row in run(plan_of(schema, **settings), rows).late] == ["future_time"]


def test_an_aggregate_has_the_guard_too():
    plan = aggregate_reference.plan_of(range="100ms", disorder={"strategy": "none"}, guard={})
    rows = [{"id": k, "ts": NOW + 10 * k, "v": 1} for k in range(200)]
    bad = [{"id": 900, "ts": AHEAD, "v": 1}, *rows[:50], {"id": 901, "ts": AHEAD, "v": 1}, *rows[50:]]
    done = run_aggregate(plan, bad, 9, restart=True)
    assert [row["reason"] for row in done.rows("late")] == ["future_time"] * 2
    assert done.rows("results") == run_aggregate(plan, rows).rows("results")


def live(operator, plan, rows, n=1, nanos=NOW * 10**6):
    late = []
    with clock_at(nanos):
        for start in range(0, len(rows), n):
            out = operator.push(chunk_of(plan, rows[start : start + n], start))
            late += [row for batch in out.late for row in batch.to_pylist()]
    return late


@pytest.mark.parametrize("n", [1, 50])
def test_live_rows_are_judged_at_once_by_the_clock_and_by_those_they_come_with(n):
    plan = plan_of(SCHEMA, window="200ms", where="a.k = b.k", disorder=disorder_of(40))
    operator = Operator(plan)
    bad = with_bad(stream(), (0, 0, AHEAD), (100, 0, AHEAD), (101, 0, AHEAD), (230, 1, AHEAD))
    late = live(operator, plan, bad, n)
    assert {(row["reason"], row["ts"]) for row in late} == {("future_time", AHEAD)}
    assert len(late) == 4
    assert not operator.entry.intake.holds
    # The same stream two years later: the clock says so too.
    assert not live(operator, plan, stream(start=NOW + 2 * YEAR), n, (NOW + 2 * YEAR) * 10**6)
    # A simulation that goes on in a time that no clock knows is believed before long.
    late = live(operator, plan, stream(start=NOW + 30 * YEAR), n)
    assert len(late) < 150
    assert not live(operator, plan, stream(start=NOW + 30 * YEAR + 5000), n)


def test_shards_are_not_led_astray_by_a_wrong_clock_elsewhere():
    plan = plan_of(SCHEMA, window="200ms", where="a.k = b.k", disorder=disorder_of(40))
    rows = [row for _, row in with_bad(stream(), (0, 0, AHEAD), (100, 0, AHEAD), (101, 0, AHEAD))]
    part = PartProgress(plan, 0)
    with clock_at(NOW * 10**6):
        counts = part.follow(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
        assert counts.sum() == 400
        assert part.reached == max(row["ts"] for row in rows if row["ts"] < AHEAD)
        operator = Operator(plan)
        operator.push(chunk_of(plan, stream(100)))
        before = operator.entry.intake.progress.tolist()
        operator.advance(np.array([AHEAD, NEVER]))
        assert operator.entry.intake.progress.tolist() == before


def test_limits_are_durations_or_none():
    with pytest.raises(ConfigError, match="future"):
        JoinConfig.read({"time": "ts", "window": "1s", "guard": {"future": 5}})
    with pytest.raises(ConfigError, match="guard"):
        JoinConfig.read({"time": "ts", "window": "1s", "guard": "sometimes"})
    for off in ("none", "off", False):
        assert JoinConfig.read({"time": "ts", "guard": off}).guard == GuardConfig(past="none", future="none")
    assert JoinConfig.read({"time": "ts", "guard": {"past": "off"}}).guard == GuardConfig(past="none")
