"""Watermarks that the input brings along: what they release, and what is refused."""

import numpy as np
import pyarrow as pa
import pytest
from conditions import EFFORT
from hypothesis import given, settings
from hypothesis import strategies as st
from running import SCHEMA, numbered, plan_of, run

from slackwater.plugins.checks import check_strategy, sample_arrivals, sample_setting
from slackwater.plugins.contract import NEVER
from slackwater.plugins.disorder.external import ExternalWatermarks
from slackwater.transforms.errors import ConfigError

ROWS = SCHEMA.append(pa.field("wm", pa.int64()))
EXTERNAL = {"strategy": "external", "watermark": "wm"}


def plan(schema=ROWS, **settings):
    return plan_of(schema, **{"window": "10ms", "where": "a.k = b.k", "disorder": EXTERNAL, **settings})


def test_bounds_are_the_largest_watermark_of_each_input():
    said = [3, NEVER, 2, 7, 5, NEVER]
    inputs = np.array([0, 0, 1, 0, 1, 1], np.int8)
    arrivals = sample_arrivals(6)._replace(input=inputs, watermark=np.array(said))
    logic = ExternalWatermarks(watermark="wm").build(sample_setting())
    assert logic.bounds(arrivals).tolist() == [3, 3, 2, 7, 5, 5]
    assert logic.bounds(arrivals._replace(watermark=None)).tolist() == [7, 7, 5, 7, 5, 5]


def test_the_strategy_conforms():
    check_strategy(ExternalWatermarks(watermark="wm"))
    check_strategy(ExternalWatermarks(watermark={"a": "wm", "b": "mark"}))


def test_rows_wait_for_their_watermark_and_a_broken_promise_is_late():
    steps = [(5, None), (3, None), (4, 5), (9, None), (2, None), (12, 11)]
    arrivals = numbered((which, {"ts": ts, "k": 1, "wm": wm}) for ts, wm in steps for which in (0, 1))
    got = run(plan(), arrivals)
    order = [entry.ts for entry in got.log if entry.identity[0] == 0]
    assert order == [3, 4, 5, 2, 9, 12]
    assert got.late_ids("too_late") == {(0, 4): 1, (1, 4): 1}


def test_without_watermarks_everything_waits_for_the_end():
    arrivals = numbered((k % 2, {"ts": (7 * k) % 50, "k": k % 3, "wm": None}) for k in range(50))
    got = run(plan(), arrivals)
    assert not got.late
    assert [entry.ts for entry in got.log] == sorted(row["ts"] for _, row in arrivals)
    assert got.operator.accounting.summary(10**6)["slack_ms"]["max"] in (0, None)


@settings(max_examples=40 * EFFORT, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 40), st.integers(0, 2)), max_size=60),
    st.sets(st.integers(0, 60), max_size=5),
)
def test_true_watermarks_lose_nothing_wherever_chunks_are_cut(rows, cuts):
    """A watermark just below the oldest row to come, on some of the rows."""
    arrivals = []
    for at, (which, ts, k) in enumerate(rows):
        to_come = min((t for i, t, _ in rows[at + 1 :] if i == which), default=100)
        arrivals.append((which, {"ts": ts, "k": k, "wm": to_come - 1 if k else None}))
    arrivals = numbered(arrivals)
    got = run(plan(), arrivals)
    assert not got.late_ids("too_late")
    cuts = {cut for cut in cuts if cut <= len(rows)}
    again = run(plan(), arrivals, cuts, cuts)
    assert again.results == got.results
    assert again.order == got.order


def test_columns_may_differ_by_input_and_guarded_rows_say_nothing():
    names = {"a": "wm", "b": "mark"}
    schemas = [ROWS, SCHEMA.append(pa.field("mark", pa.int64()))]
    bound = plan(schemas, disorder={**EXTERNAL, "watermark": names}, guard={"past": "20ms"})
    assert bound.watermark_columns == ("wm", "mark")
    arrivals = numbered(
        [
            (0, {"ts": 50, "k": 1, "wm": None}),
            (1, {"ts": 50, "k": 1, "mark": 60}),
            (0, {"ts": 1, "k": 1, "wm": 99}),
            (0, {"ts": 45, "k": 1, "wm": 60}),
        ]
    )
    got = run(bound, arrivals)
    assert got.late_ids() == {(0, 1): 1}
    assert got.order == [(0, 2), (0, 0), (1, 0)]


@pytest.mark.parametrize(
    ("time", "mark", "said"),
    [
        (pa.int64(), pa.int32(), [30]),
        (pa.timestamp("ms"), pa.timestamp("us"), [30_900]),
        (pa.timestamp("ms"), pa.string(), ["1970-01-01 00:00:00.030"]),
        (pa.timestamp("ms"), pa.date32(), [1]),
    ],
    ids=str,
)
def test_watermarks_are_read_like_times(time, mark, said):
    from slackwater.transforms.arrival.intake import Chunk, Intake

    schema = pa.schema([("ts", time), ("wm", mark)])
    intake = Intake(plan(schema, where=None))
    batch = pa.record_batch(
        [pa.array([40, 41], pa.int64()).cast(time), pa.array([*said, None], mark)], schema=schema
    )
    empty = batch.slice(0, 0)
    taken = intake.take(Chunk(np.zeros(2, np.int8), np.arange(2), [batch, empty]))
    assert taken.arrivals.watermark is not None
    expected = 86_400_000 if pa.types.is_date(mark) else 30
    assert taken.arrivals.watermark.tolist() == [expected, NEVER]


def test_other_strategies_are_handed_no_watermarks():
    from slackwater.transforms.arrival.intake import Chunk, Intake

    intake = Intake(plan(disorder={"strategy": "max"}))
    empty = pa.RecordBatch.from_pylist([], schema=ROWS)
    taken = intake.take(Chunk(np.zeros(0, np.int8), np.zeros(0, np.int64), [empty, empty]))
    assert taken.arrivals.watermark is None


@pytest.mark.parametrize(
    ("watermark", "path", "fault"),
    [
        (
            "mw",
            ("disorder", "watermark"),
            "input 'a' has no column 'mw'; it has id, ts, k, v, wm, text, stamp, x",
        ),
        ({"a": "wm"}, ("disorder", "watermark"), "says nothing of input 'b'; add it"),
        (
            {"a": "wm", "b": "wm", "c": "wm"},
            ("disorder", "watermark", "c"),
            "names no input; the inputs are a, b",
        ),
        (
            "stamp",
            ("disorder", "watermark"),
            "column 'stamp' of input 'a' must be of the same kind as its time 'ts', int64, got timestamp[ms]",
        ),
        (
            "x",
            ("disorder", "watermark"),
            "column 'x' of input 'a' must be of the same kind as its time 'ts', int64, got double",
        ),
    ],
    ids=str,
)
def test_columns_that_are_not_there_or_hold_no_times_are_refused(watermark, path, fault):
    more = [("text", pa.string()), ("stamp", pa.timestamp("ms")), ("x", pa.float64())]
    schema = pa.schema([*ROWS, *(pa.field(*field) for field in more)])
    with pytest.raises(ConfigError) as error:
        plan(schema, disorder={"strategy": "external", "watermark": watermark})
    assert (error.value.path, error.value.fault) == (path, fault)
    plan(schema, disorder={"strategy": "external", "watermark": "text"})


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({}, "disorder.watermark: strategy 'external' needs the option 'watermark'; add it."),
        ({"watermark": 5}, "of strategy 'external': must be a column, or {input: column}, got 5."),
        ({"watermark": {}}, "of strategy 'external': must be a column, or {input: column}, got {}."),
        (
            {"watermark": "wm", "column": "x"},
            "strategy 'external' has no option 'column'; its options are watermark",
        ),
    ],
)
def test_bad_options_are_refused_with_the_fault(options, fault):
    with pytest.raises(ConfigError) as error:
        plan(disorder={"strategy": "external", **options})
    assert fault in str(error.value)


def test_reorder_reads_watermarks_and_refuses_what_is_not_there():
    from slackwater.transforms.operators.reorder.plan import bind_reorder
    from slackwater.transforms.settings.models import ReorderConfig

    bound = bind_reorder(ReorderConfig.read({"time": "ts", "disorder": EXTERNAL}), {"input": ROWS})
    assert bound.watermark_columns == ("wm",)
    with pytest.raises(ConfigError, match=r"disorder\.watermark: input 'input' has no column 'wm'"):
        bind_reorder(ReorderConfig.read({"time": "ts", "disorder": EXTERNAL}), {"input": SCHEMA})
    with pytest.raises(ConfigError, match="strategy 'heartbeat' needs times of arrival"):
        bind_reorder(ReorderConfig.read({"time": "ts", "disorder": {"strategy": "heartbeat"}}), {"input": SCHEMA})
