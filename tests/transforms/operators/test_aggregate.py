"""SlidingWindowAggregate against the literal reading of window extents, and what holds of its outputs."""

import numpy as np
import pyarrow as pa
import pytest
from aggregate_reference import AGGREGATES, plan_of, reference, run
from hypothesis import given
from hypothesis import strategies as st

SIZES = [(10, 10), (10, 5), (12, 4), (10, 4), (7, 3), (3, 10), (4, 6), (1, 1), (1, 7), (50, 1), (300, 2)]
ROW = st.fixed_dictionaries(
    {
        "ts": st.one_of(st.integers(-40, 60), st.integers(-3, 3)),
        "w": st.one_of(st.none(), st.integers(-50, 70)),
        "k": st.sampled_from([None, "", "a", "b", "ü" * 9]),
        "j": st.sampled_from([None, 0, 1]),
        "v": st.one_of(st.none(), st.integers(-9, 9)),
        "x": st.one_of(st.none(), st.integers(-99, 99).map(lambda n: n / 4)),
    }
)
ROWS = st.lists(ROW, max_size=40).map(lambda rows: [{"id": k, **row} for k, row in enumerate(rows)])
SLACK = st.one_of(st.integers(0, 40), st.just("w"))
KEYS = st.sampled_from([[], ["k"], ["j"], ["k", "j"]])


def disorder(slack):
    if slack == "w":
        return {"strategy": "external", "watermark": "w"}
    return {"strategy": "fixed", "slack": f"{slack}ms"} if slack else {"strategy": "none"}


def settings(size, slide, keys, slack):
    return {"range": f"{size}ms", "slide": f"{slide}ms", "group_by": keys, "disorder": disorder(slack)}


@given(ROWS, st.sampled_from(SIZES), KEYS, SLACK, st.integers(1, 12), st.booleans())
def test_extents_syncs_and_late_rows_are_those_of_the_literal_reading(rows, sizes, keys, slack, cut, restart):
    expected = reference(rows, *sizes, keys, slack)
    done = run(plan_of(**settings(*sizes, keys, slack)), rows, cut, restart)
    got = done.extents(keys)
    assert got.groups == expected.groups
    assert list(got.groups) == sorted(got.groups)
    assert got.syncs == expected.syncs
    assert got.late == expected.late
    account = done.operator.accounting
    assert account.balanced(0)
    assert account.results == sum(map(len, expected.groups.values()))


@given(ROWS, st.sampled_from(SIZES), st.integers(0, 20))
def test_having_leaves_out_groups_and_no_sync_row(rows, sizes, slack):
    made = settings(*sizes, ["k"], slack)
    expected = reference(rows, *sizes, ["k"], slack, lambda values: values[0] > 1 and (values[2] or 0) < 4)
    got = run(plan_of(**made, having="n > 1 AND (sv < 4 OR sv IS NULL)"), rows, 7).extents(["k"])
    assert got.groups == expected.groups
    assert got.syncs == reference(rows, *sizes, ["k"], slack).syncs
    nothing = run(plan_of(**made, having="n < 0"), rows, 7).extents(["k"])
    assert (nothing.groups, nothing.syncs) == ({}, expected.syncs)


@given(ROWS, st.sampled_from(SIZES), SLACK)
def test_nothing_of_an_extent_comes_after_its_sync_row(rows, sizes, slack):
    done = run(plan_of(**settings(*sizes, ["k"], slack)), rows, 1)
    ended = None
    for out in done.outputs:
        for batch in out.results:
            assert ended is None or min(batch.column("extent").to_pylist()) > ended
        ends = [end for batch in out.syncs for end in batch.column("extent").to_pylist()]
        shown = {extent for batch in out.results for extent in batch.column("extent").to_pylist()}
        assert shown <= set(ends)
        assert ends == sorted(set(ends))
        assert ended is None or not ends or ends[0] > ended
        ended = ends[-1] if ends else ended


@given(
    st.lists(st.tuples(st.integers(0, 200), st.sampled_from("abc"), st.floats(-1e9, 1e9)), max_size=60),
    st.sampled_from(SIZES),
    st.integers(1, 20),
    st.booleans(),
)
def test_floating_sums_are_the_same_bits_wherever_chunks_are_cut(tuples, sizes, cut, restart):
    rows = [{"id": n, "ts": ts, "w": None, "k": k, "j": 0, "v": 1, "x": x} for n, (ts, k, x) in enumerate(tuples)]
    plan = plan_of(**settings(*sizes, ["k"], 30))
    whole, cuts = run(plan, rows), run(plan, rows, cut, restart)
    assert [repr(row) for row in cuts.rows()] == [repr(row) for row in whole.rows()]
    expected = reference(rows, *sizes, ["k"], 30)
    at = list(AGGREGATES).index("sx")
    for extent, groups in whole.extents(["k"]).groups.items():
        for key, found in groups.items():
            assert found[at] == pytest.approx(expected.groups[extent][key][at], rel=1e-9, abs=1e-3)


def test_start_and_end_are_those_of_the_extent():
    (row, *_) = run(plan_of(range="10ms", slide="4ms"), [{"id": 0, "ts": -1}]).rows()
    assert [row[name] for name in ("extent", "start", "end", "ts", "sync")] == [-1, -10, 0, 0, False]
    assert row["n"] == 1 and row["sv"] is None


# --- the paper


def sensors(times):
    return [{"id": n, "ts": ts, "v": n} for n, ts in enumerate(times)]


def test_a_range_of_five_minutes_that_slides_by_one_holds_every_row_five_times():
    """ADC sec. 2: with RANGE 5 minutes and SLIDE 1 minute a tuple belongs to five extents."""
    plan = plan_of(range="5m", slide="1m")
    rows = run(plan, sensors([600_000])).rows()
    assert [row["extent"] for row in rows] == [10, 11, 12, 13, 14]
    assert (rows[0]["start"], rows[0]["end"]) == (360_000, 660_000)
    assert (rows[-1]["start"], rows[-1]["end"]) == (600_000, 900_000)


def test_an_extent_is_complete_once_the_punctuation_reaches_its_last_tick():
    """ADC (6.2), the right way round: extent 0 of SLIDE 10 is complete at τ = 9, not at τ = 8."""
    for last, expected in ((8, []), (9, [0])):
        plan = plan_of(range="10ms", disorder={"strategy": "fixed", "slack": "1ms"})
        done = run(plan, sensors([0, last + 1]), 1, bounded=False)
        ends = [
            end for out in done.outputs[:-1] for batch in out.syncs for end in batch.column("extent").to_pylist()
        ]
        assert [end for end in ends if end >= 0] == expected


@pytest.mark.parametrize("strategy", ["none", "max"])
@pytest.mark.parametrize("cut", [1, 3, 100])
def test_rows_of_one_time_are_in_time_without_slack(strategy, cut):
    """Rows in order: the first at the last tick of an extent does not close it to others of that time."""
    done = run(plan_of(range="10ms", disorder={"strategy": strategy}), sensors([0, 9, 9, 9, 10, 19, 19, 25]), cut)
    assert done.rows("late") == []
    assert [row["n"] for row in done.rows()] == [4, 3, 1]


def test_punctuations_that_go_back_produce_no_extent_twice():
    rows = [{"id": n, "ts": 5, "w": w, "v": 1} for n, w in enumerate((30, 5, -20, 31))]
    done = run(plan_of(range="10ms", disorder={"strategy": "external", "watermark": "w"}), rows, 1)
    assert [row["extent"] for row in done.rows()] == [0]
    assert [row["extent"] for row in done.rows("syncs")] == [0, 2]
    assert [row["ts"] for row in done.rows("late")] == [5, 5, 5]


def test_slack_drop_ratio_and_buffer_limit_bound_what_waits():
    """Q2 to Q4: SLACK, DRATIO, and BSIZE, which has priority."""
    rng = np.random.default_rng(3)
    times = 10 * np.arange(2000) - rng.integers(0, 400, 2000) * (rng.random(2000) < 0.3)
    rows = [{"id": n, "ts": int(ts), "at": 10 * n, "v": 1} for n, ts in enumerate(times)]
    schema = pa.schema([(name, pa.int64()) for name in ("id", "ts", "at", "v")])
    late, waited = {}, {}
    for name, disorder in {
        "slack": {"strategy": "fixed", "slack": "400ms"},
        "ratio": {"strategy": "drop_ratio", "drop_ratio": 0.01},
        "limit": {"strategy": "drop_ratio", "drop_ratio": 0.01, "buffer_limit": 5},
    }.items():
        plan = plan_of(
            schema, range="20ms", arrival="at", disorder=disorder, metrics="100ms", aggregates={"n": "count(*)"}
        )
        done = run(plan, rows, 300)
        late[name] = len(done.rows("late")) / len(rows)
        waited[name] = max(row["buffered"] for row in done.rows("metrics"))
        assert sum(row["n"] for row in done.rows()) == len(rows) - len(done.rows("late"))
    assert late["slack"] == 0
    assert 0 < late["ratio"] < 0.02
    assert late["limit"] > 0.1
    # What waits are the rows that the punctuation has not passed, and those of the extent it is in.
    assert waited["limit"] <= 5 + 5 < min(waited["ratio"], waited["slack"])


# --- bounds


def test_a_gap_of_years_has_one_sync_row_and_costs_no_memory():
    year = 365 * 86_400_000
    plan = plan_of(range="1s", slide="100ms", disorder={"strategy": "none"})
    done = run(plan, sensors([0, 30 * year, 30 * year + 5, -50 * year]), 1)
    assert len(done.rows("syncs")) < 40
    extents = [row["extent"] for row in done.rows()]
    assert len(extents) == 20 and extents == sorted(extents)
    assert [row["ts"] for row in done.rows("late")] == [-50 * year]
    assert done.operator.nbytes < 4e6
    held = run(
        plan_of(range="1ms", disorder={"strategy": "fixed", "slack": "40000d"}), sensors([0, 30 * year, year])
    )
    assert [row["start"] for row in held.rows()] == [0, year, 30 * year]
    assert held.operator.nbytes < 4e6


def test_state_is_bounded_by_what_the_punctuation_has_not_passed():
    """Ten times the rows and the groups, the same state: rows in the slack, and records of panes in use."""
    peaks = []
    for n in (20_000, 200_000):
        schema = pa.schema([("ts", pa.int64()), ("k", pa.string()), ("v", pa.int64())])
        plan = plan_of(
            schema, range="1s", slide="200ms", group_by="k", aggregates={"n": "count(*)"},
            disorder={"strategy": "fixed", "slack": "300ms"},
        )  # fmt: skip
        from slackwater.transforms.operators.aggregate.operator import Aggregator
        from slackwater.transforms.operators.join import Chunk

        operator = Aggregator(plan)
        for start in range(0, n, 4000):
            ts = np.arange(start, start + 4000)
            batch = pa.record_batch({"ts": ts, "k": [f"vehicle {k // 7}" for k in ts], "v": ts})
            operator.push(Chunk(np.zeros(4000, np.int8), ts, [batch]))
        peaks.append((operator.accounting.max_tuples, operator.nbytes, len(repr(operator.snapshot()["groups"]))))
    assert peaks[1][0] == peaks[0][0] < 2000
    assert peaks[1][1] <= peaks[0][1]


@pytest.mark.parametrize("groups", [1, 3000])
def test_more_groups_extents_and_records_than_there_is_room_for_at_first(groups):
    """Against NumPy, with enough of everything that buffers grow and are emptied several times."""
    n, size, slide = 40_000, 64, 4
    rng = np.random.default_rng(5)
    ts = np.arange(n) // 3 - rng.integers(0, 50, n)
    key, value = rng.integers(0, groups, n), rng.integers(-9, 9, n)
    schema = pa.schema([("ts", pa.int64()), ("j", pa.int64()), ("v", pa.int64())])
    plan = plan_of(
        schema, range=f"{size}ms", slide=f"{slide}ms", group_by="j", aggregates={"n": "count(*)", "s": "sum(v)"},
        disorder={"strategy": "fixed", "slack": "60ms"},
    )  # fmt: skip
    rows = [{"ts": int(t), "j": int(j), "v": int(v)} for t, j, v in zip(ts, key, value, strict=True)]
    done = run(plan, rows, 30_000)
    assert done.rows("late") == []
    counts, sums = {}, {}
    for k in range(size // slide):
        extent = ts // slide + k
        codes, at = np.unique(extent * groups + key, return_inverse=True)
        for code, c, s in zip(codes, np.bincount(at), np.bincount(at, value), strict=True):
            place = divmod(int(code), groups)
            counts[place] = counts.get(place, 0) + int(c)
            sums[place] = sums.get(place, 0) + int(s)
    got = {(row["extent"], row["j"]): (row["n"], row["s"]) for row in done.rows()}
    assert got == {place: (counts[place], sums[place]) for place in counts}
    assert len(done.rows()) == len(got)


def test_rows_between_extents_are_in_none_and_are_not_late():
    done = run(plan_of(range="3ms", slide="10ms", disorder={"strategy": "none"}), sensors([8, 12, 3, 25, 18]))
    assert [(row["extent"], row["n"]) for row in done.rows()] == [(0, 1)]
    assert [row["ts"] for row in done.rows("late")] == [18]
    summary = done.operator.accounting.summary(10**6)
    assert summary["accounting"]["input"] == {
        "input": 5, "joined_or_expired": 4, "punctuations": 0, "late": {"too_late": 1}, "balanced": True,
    }  # fmt: skip


def test_guard_and_missing_times_are_accounted_for():
    rows = [{"id": n, "ts": ts, "v": 1} for n, ts in enumerate([5, None, 99_000, 6, 2_000, -5_000])]
    plan = plan_of(range="1s", guard={"past": "3s", "future": "10s"}, disorder={"strategy": "none"})
    done = run(plan, rows, 2)
    assert {(row["reason"], row["ts"]) for row in done.rows("late")} == {
        ("bad_record", None),
        ("future_time", 99_000),
        ("too_late", -5_000),
    }
    assert [(row["extent"], row["n"]) for row in done.rows()] == [(0, 2), (2, 1)]
    assert done.operator.accounting.balanced(0)


@pytest.mark.parametrize("strategy", ["quality_driven", "max", "heartbeat"])
def test_strategies_learn_and_metrics_do_not_depend_on_cuts(strategy):
    rng = np.random.default_rng(9)
    times = 3 * np.arange(900) - rng.integers(0, 60, 900) * (rng.random(900) < 0.4)
    rows = [{"id": n, "ts": int(ts), "at": 3 * n, "v": 1} for n, ts in enumerate(times)]
    schema = pa.schema([(name, pa.int64()) for name in ("id", "ts", "at", "v")])
    options = {"quality_driven": {"recall": 0.95, "period": "500ms", "interval": "100ms", "granularity": "5ms"}}
    plan = plan_of(
        schema, range="12ms", slide="4ms", arrival="at", metrics="100ms", aggregates={"n": "count(*)"},
        disorder={"strategy": strategy, **options.get(strategy, {})},
    )  # fmt: skip
    whole = run(plan, rows)
    assert len(whole.rows("metrics")) > 20
    assert whole.rows("metrics")[3]["latency_ms"] >= 0
    assert 0.8 < whole.operator.accounting.recall_estimate() <= 1
    for cut, restart in ((1, False), (70, True)):
        again = run(plan, rows, cut, restart)
        for output in ("results", "syncs", "late", "metrics"):
            assert again.rows(output) == whole.rows(output), output


def test_a_join_passes_what_a_having_filters_only_with_the_sync_rows():
    """Fig. 6: without its sync rows, a stream of which nothing is left holds the other until the end."""
    from slackwater.transforms.arrival.merge import in_arrival_order
    from slackwater.transforms.operators.join import Operator
    from slackwater.transforms.settings.models import JoinConfig
    from slackwater.transforms.settings.plan import bind

    made = run(plan_of(range="10ms", group_by="k", disorder={"strategy": "none"}),
               [{"id": n, "ts": 10 * n, "k": "a", "v": 1} for n in range(6)])  # fmt: skip
    active = [batch for out in made.outputs for batch in out.results]
    syncs = [batch for out in made.outputs for batch in out.syncs]
    schema = active[0].schema
    plan = bind(
        JoinConfig.read({"time": "ts", "window": "1ms", "arrival": "extent", "where": "a.k = b.k"}),
        {"a": schema, "b": schema},
    )

    def buffered(second):
        batches = [pa.Table.from_batches(rows, schema).combine_chunks() for rows in (active, second)]
        whole = [b.to_batches()[0] if b.num_rows else pa.RecordBatch.from_pylist([], schema) for b in batches]
        operator = Operator(plan)
        operator.push(in_arrival_order(whole, [b.column("extent").to_numpy() for b in whole]))
        held = len(operator.order)
        assert not operator.finish().results
        return held

    assert buffered([]) == len(made.rows())
    assert buffered(syncs) == 0
    assert all(row["sync"] and row["k"] is None and row["n"] is None for row in made.rows("syncs"))


# --- DuckDB


@pytest.mark.parametrize(("size", "slide"), [(300, 60), (60, 60), (70, 30), (20, 50)])
def test_duckdb_gives_the_same_when_nothing_is_late(size, slide):
    import duckdb

    rng = np.random.default_rng(size)
    n = 3000
    table = pa.table(
        {
            "id": np.arange(n),
            "ts": 2 * np.arange(n) - rng.integers(0, 90, n) - 1000,
            "k": pa.array([None if k == 4 else f"k{k}" for k in rng.integers(0, 5, n)]),
            "v": pa.array([None if v == 0 else int(v) for v in rng.integers(-20, 20, n)], pa.int64()),
            "x": rng.normal(0, 100, n),
        }
    )
    query = f"""
        SELECT i AS extent, k, count(*) AS n, count(v) AS nv, sum(v)::BIGINT AS sv, avg(v) AS av, min(v) AS lo,
               max(v) AS hi, sum(x) AS sx, avg(x) AS ax, min(x) AS lx, max(x) AS hx, sum(v * 2 + 1)::BIGINT
        FROM range(-1000, 1000) AS extents(i)
        JOIN table_ ON ts >= (i + 1) * {slide} - {size} AND ts < (i + 1) * {slide}
        GROUP BY i, k HAVING sum(v) > 0 OR k IS NULL
    """
    connection = duckdb.connect()
    connection.register("table_", table)
    expected = connection.execute(query).fetchall()
    plan = plan_of(
        table.schema, range=f"{size}ms", slide=f"{slide}ms", group_by="k", having="sv > 0 OR k IS NULL",
        disorder={"strategy": "fixed", "slack": "100ms"},
    )  # fmt: skip
    done = run(plan, table.to_pylist(), 700)
    assert done.rows("late") == []
    got = {(row["extent"], row["k"]): [row[name] for name in AGGREGATES] for row in done.rows()}
    assert len(got) == len(expected) > 50
    for extent, k, *values in expected:
        for mine, theirs in zip(got[extent, k], values, strict=True):
            assert mine == (theirs if theirs is None else pytest.approx(theirs, rel=1e-9, abs=1e-9))
