"""Live joins in Beam: windows, shards, kinds of elements, bundles that fail, and what is reported."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import (
    FixedWindows,
    IntervalWindow,
    Sessions,
    SlidingWindows,
    TimestampedValue,
)
from live_cases import LOOK, SCHEMA, Clock, Rows, Seen, Watermark, play, row

from slackwater.transforms.beam import ArrowJoin, ChooseValues, GroupClose, SlidingWindowJoin, live
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.operators.join import Chunk, Operator, Outputs
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import bind
from slackwater.transforms.state.journal import Shards

pytestmark = pytest.mark.beam
SETTINGS: dict[str, Any] = {
    "time": "ts",
    "window": "100ms",
    "where": "a.k = b.k",
    "disorder": {"strategy": "fixed", "slack": "30ms"},
}


def join(**settings: Any) -> SlidingWindowJoin:
    return SlidingWindowJoin(**{**SETTINGS, **settings}).with_schemas({"a": SCHEMA, "b": SCHEMA})


def windowed(windows: Any, **options: Any) -> Any:
    return lambda name, rows: rows | f"Window {name}" >> beam.WindowInto(windows, **options)


def ids(seen: list[Seen]) -> Counter[tuple[Any, ...]]:
    return Counter(pair for looked in seen for pair in looked.ids)


def disordered(n: int, seed: int = 1, keys: int = 5) -> list[Rows]:
    """Bundles of both inputs, of one row or some."""
    rng = random.Random(seed)
    events: list[Rows] = []
    for i in range(n):
        rows = [
            row(10 * i + j, 10 * i + j - (rng.randrange(100) if rng.random() < 0.3 else 0), rng.randrange(keys))
            for j in range(rng.randrange(1, 9))
        ]
        events.append(Rows(rng.choice("ab"), rows))
    return events


def operators(events: list[Rows], shards: int = 1) -> tuple[Counter[Any], int]:
    """Results and late rows of operators that are given the same, one for each shard."""
    plan = bind(JoinConfig.read({**SETTINGS, "shards": shards}), {"a": SCHEMA, "b": SCHEMA})
    found: Counter[Any] = Counter()
    late = 0
    for shard in range(shards):
        operator = Operator(plan)
        outputs = []
        for event in events:
            which = "ab".index(event.input)
            batch = pa.RecordBatch.from_pylist(list(event.rows), schema=SCHEMA)
            batch = batch.filter(pa.array(plan.partitioning.routes(which, batch).home == shard))
            batches = [pa.RecordBatch.from_pylist([], schema=SCHEMA)] * 2
            batches[which] = batch
            n = batch.num_rows
            outputs.append(operator.push(Chunk(np.full(n, which, np.int8), np.arange(n), batches)))
        outputs.append(operator.finish())
        rows = [r for out in outputs for batch in out.results for r in batch.to_pylist()]
        found += Counter((r["a_id"], r["b_id"]) for r in rows)
        late += sum(batch.num_rows for out in outputs for batch in out.late)
    return found, late


@pytest.mark.parametrize("shards", [1, 4])
def test_results_are_those_of_an_operator_for_each_shard(shards: int) -> None:
    events = disordered(20)
    seen = play([*events, LOOK], join(shards=shards))
    results, late = operators(events, shards)
    assert ids(seen) == results
    assert sum(len(looked["late"]) for looked in seen) == late > 0
    assert seen[0]["out"] and seen[1]["out"], "some of them before the end"


class Typed(NamedTuple):
    id: int
    ts: int
    k: int


def as_row(r):  # type: ignore[no-untyped-def]
    """Without annotations, so that Beam infers the columns."""
    return beam.Row(id=int(r["id"]), ts=int(r["ts"]), k=int(r["k"]))


def as_typed(r: Any) -> Typed:
    return Typed(r["id"], r["ts"], r["k"])


def as_batch(r: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([r], schema=SCHEMA)


KINDS = {"row": (as_row, None), "tuple": (as_typed, Typed), "arrow": (as_batch, pa.RecordBatch)}


@pytest.mark.parametrize("kind", KINDS)
def test_elements_may_be_rows_tuples_or_arrow_batches(kind: str) -> None:
    make, type_ = KINDS[kind]

    def prepare(name: str, rows: Any) -> Any:
        step = beam.Map(make)
        return rows | f"Make {name}" >> (step if type_ is None else step.with_output_types(type_))

    events = disordered(6)
    given = SlidingWindowJoin(**SETTINGS)
    given = given.with_schemas({"a": SCHEMA, "b": SCHEMA}) if type_ is pa.RecordBatch else given
    assert ids(play(events, given, prepare=prepare)) == operators(events)[0]


def test_an_arrival_column_orders_the_rows_that_come_together() -> None:
    together = [row(1, 200, at=3), row(2, 100, at=1), row(3, 150, at=2)]
    script = [Rows("b", [row(1, 90, at=0), row(2, 900, at=0)]), Rows("a", together)]
    seen = play(script, join(arrival="at", disorder={"strategy": "none"}))
    assert ids(seen) == {(2, 1): 1, (3, 1): 1}
    assert not seen[0]["late"]


def test_rows_join_within_a_window_and_results_stay_in_it() -> None:
    rows = [Rows("a", [row(1, 950), row(2, 1010)]), Rows("b", [row(1, 990), row(2, 1020)])]
    script = [*rows, LOOK, Watermark(0.9), LOOK, Watermark(1.0), LOOK, Watermark(2.0), LOOK]
    held, before, first, second, end = play(script, join(), prepare=windowed(FixedWindows(1)))
    assert not held["out"] and not before["out"] and not end["out"]
    assert first.ids == [(1, 1)] and first.windows == [IntervalWindow(0, 1)]
    assert second.ids == [(2, 2)] and second.windows == [IntervalWindow(1, 2)]


def test_a_row_joins_in_each_of_its_sliding_windows() -> None:
    rows = [Rows("a", [row(1, 480)]), Rows("b", [row(1, 510)])]
    seen = play([*rows, LOOK], join(), prepare=windowed(SlidingWindows(1, 0.5)))
    assert ids(seen) == {(1, 1): 1}
    assert [str(window) for looked in seen for window in looked.windows] == ["[0.0, 1.0)"]


def test_bounded_rows_join_within_windows_too() -> None:
    events = [Rows("a", [row(1, 480), row(2, 950)]), Rows("b", [row(1, 510), row(2, 1010)])]

    def pairs(p: Any, label: str, windows: Any) -> Any:
        inputs = {}
        for name, rows in events:
            stamped = beam.Map(lambda r: TimestampedValue(r, r["ts"] / 1000))
            created = p | f"{label} {name}" >> beam.Create(rows) | f"Stamp {label} {name}" >> stamped
            inputs[name] = created | f"Window {label} {name}" >> beam.WindowInto(windows)
        found = (inputs | label >> join()).main
        return found | f"Ids {label}" >> beam.Map(
            lambda r, window=beam.DoFn.WindowParam: (r.a_id, r.b_id, float(window.start))
        )

    with TestPipeline(runner=FnApiRunner(), options=PipelineOptions(flags=[])) as p:
        assert_that(pairs(p, "fixed", FixedWindows(1)), equal_to([(1, 1, 0.0)]), "check fixed")
        both = [(1, 1, 0.0), (2, 2, 0.5)]
        assert_that(pairs(p, "sliding", SlidingWindows(1, 0.5)), equal_to(both), "check sliding")


def test_idle_inputs_release_results_into_their_window() -> None:
    script = [Rows("a", [row(1, 950)]), Rows("b", [row(1, 990)]), Clock(60), LOOK]
    idle, end = play(script, join(idle_timeout="1m"), prepare=windowed(FixedWindows(1)))
    assert idle.ids == [(1, 1)] and idle.windows == [IntervalWindow(0, 1)]
    assert not end["out"]


def test_rows_that_beam_lets_in_after_the_end_of_a_window_are_joined() -> None:
    script = [
        Rows("a", [row(1, 950)]), Rows("b", [row(1, 960)]), Watermark(1.0), LOOK,
        Rows("a", [row(2, 970)]), LOOK, Watermark(4.0), LOOK, Watermark(7.0), LOOK,
    ]  # fmt: skip
    prepare = windowed(FixedWindows(1), allowed_lateness=5)
    at_end, held, before, expired, _ = play(script, join(), prepare=prepare)
    assert at_end.ids == [(1, 1)]
    assert not held["out"] and not before["out"]
    assert expired.ids == [(2, 1)]


def test_groups_are_closed_as_punctuations_come() -> None:
    rows = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
    marks = pa.schema([("ts", pa.int64()), ("pattern", pa.string())])
    given = GroupClose(time="ts", by="k", aggregates={"n": "count(*)"}, idle_timeout="1m")
    script = [
        Rows("rows", [{"ts": 1, "k": 5}, {"ts": 2, "k": 6}]),
        Rows("punctuations", [{"ts": 2, "pattern": '{"k": 5}'}]), LOOK,
        Rows("rows", [{"ts": 3, "k": 6}]), LOOK,
        Rows("punctuations", [{"ts": 9, "pattern": '{"k": 6}'}]), LOOK, Clock(60), LOOK,
    ]  # fmt: skip
    seen = play(script, given.with_schemas({"rows": rows, "punctuations": marks}), names=("rows", "punctuations"))
    assert [[(r["k"], r["n"]) for r in looked["out"]] for looked in seen] == [[], [(5, 1)], [], [(6, 2)], []]


def test_a_worker_that_never_has_the_shard_restores_it(monkeypatch: pytest.MonkeyPatch) -> None:
    costs: list[Any] = []
    monkeypatch.setattr(live, "_SHARDS", Shards(0))
    monkeypatch.setattr(live, "report_journal", costs.append)
    events = disordered(8)
    seen = play(events, join(idle_timeout="1m"))
    assert ids(seen) == operators(events)[0]
    assert costs[-1].read_bytes > costs[-1].stored_bytes, "the whole log, and the summary"


def test_a_join_that_measures_its_speed_is_written_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """How fast it was cannot be repeated."""
    costs: list[Any] = []
    monkeypatch.setattr(live, "_SHARDS", Shards(0))
    monkeypatch.setattr(live, "report_journal", costs.append)
    events = disordered(6)
    seen = play(events, join(shedding={"strategy": "random", "queue": {"rows": 1000}}))
    assert ids(seen) == operators(events)[0], "nothing is shed where all rows may wait"
    assert all(cost._found.base_bytes and not cost._found.log_bytes for cost in costs)


def test_a_bundle_that_is_tried_again_doubles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def fail_often(opened: Any) -> None:
        """The shard has been left, with its new state: this is as late as a bundle can fail."""
        calls.append(opened)
        if len(calls) % 3:
            raise OSError("the machine is on fire")

    monkeypatch.setattr(live, "report_journal", fail_often)
    events = disordered(9)
    results, late = operators(events)
    seen = play(events, join(idle_timeout="1m"))
    assert ids(seen) == results
    assert sum(len(looked["late"]) for looked in seen) == late
    assert len(calls) == 3 * 10, "bundles, and the end, at the third attempt"


def test_a_runner_that_runs_every_bundle_twice_gets_every_result_once() -> None:
    events = [Rows(name, [row(i, 10 * i, i % 3) for i in range(50)]) for name in "ab"]
    results, _ = operators(events)
    with TestPipeline(runner=FnApiRunner(bundle_repeat=2), options=PipelineOptions(flags=[])) as p:
        inputs = {}
        for event in events:
            inputs[event.input] = p | f"Create {event.input}" >> beam.Create(event.rows)
            inputs[event.input].is_bounded = False
        found = inputs | join()
        pairs = found.main | "Ids" >> beam.Map(lambda r: (r.a_id, r.b_id))
        assert_that(pairs, equal_to(list(results.elements())))


def test_an_error_names_the_shard_the_input_and_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    push = Operator.push

    def fail_on_b(self: Operator, chunk: Chunk) -> Any:
        if (chunk.input == 1).any():
            raise OSError("the machine is on fire")
        return push(self, chunk)

    monkeypatch.setattr(Operator, "push", fail_on_b)
    events = [Rows("a", [row(1, 100), row(2, 110)]), Rows("b", [row(1, 100), row(2, 110), row(3, 120)])]
    fire = r"unexpected OSError, at test_beam_live_state.py:\d+: the machine is on fire; please report it"
    with pytest.raises(Exception, match=f"shard 0, input 'b' arrivals 2 to 4: {fire}"):
        play(events, join())
    rows = "input 'a' arrivals 100 to 110, input 'b' arrivals 100 to 120"
    with pytest.raises(Exception, match=f"shard 0, {rows}: {fire}"), TestPipeline(runner=FnApiRunner()) as p:
        _ = {event.input: p | event.input >> beam.Create(event.rows) for event in events} | join()


def many(n: int) -> list[Rows]:
    """Bundles of 200 rows, a second each, up to 60 ms out of order."""
    rng = np.random.default_rng(4)
    events = []
    for i in range(n):
        ts = 1000 * i + np.sort(rng.integers(0, 1000, 200)) - rng.integers(0, 60, 200)
        keys = rng.integers(0, 500, 200).tolist()
        events.append(Rows("ab"[i % 2], [row(200 * i + j, t, keys[j]) for j, t in enumerate(ts.tolist())]))
    return events


def test_a_worker_that_has_the_shard_reads_almost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    costs: list[Any] = []
    monkeypatch.setattr(live, "report_journal", costs.append)
    play(many(20), join(window="1m"))
    read, stored = (sum(getattr(opened, name) for opened in costs) for name in ("read_bytes", "stored_bytes"))
    assert len(costs) == 21, "bundles, and the end"
    assert read < 0.05 * stored
    assert max(opened.read_bytes for opened in costs) < 600


def test_beam_is_told_what_happens() -> None:
    events = many(10)
    p = TestPipeline(runner=FnApiRunner(), options=PipelineOptions(flags=[]))
    inputs = {}
    for name in "ab":
        rows = [r for event in events if event.input == name for r in event.rows]
        inputs[name] = p | f"Create {name}" >> beam.Create(rows)
        inputs[name].is_bounded = False
    _ = inputs | join(window="1m", shedding={"strategy": "random", "memory": 500})
    result = p.run()
    result.wait_until_finish()
    query = result.metrics().query(MetricsFilter().with_namespace("slackwater"))
    counters = {found.key.metric.name: found.committed for found in query["counters"]}
    spread = {found.key.metric.name: found.committed for found in query["distributions"]}
    assert counters["results"] > 0
    assert set(counters) >= {"late_shed", "journal_read", "journal_written", "journal_stored"}
    assert 2000 - 500 <= counters["late_shed"] + counters.get("late_too_late", 0) <= 2000
    assert counters["journal_written"] > 50_000
    assert spread["slack_ms"].max == spread["slack_ms"].min == 30
    assert 0 < spread["recall_ppm"].max <= 1_000_000
    assert 0 < spread["state_tuples"].max <= 500 < spread["state_bytes"].max
    now = {found.key.metric.name: found.committed.value for found in query["gauges"]}
    assert set(now) == {f"{name}_now" for name in spread} and now["slack_ms_now"] == 30


def test_what_cannot_be_live_is_refused() -> None:
    fault = "input 'a' is unbounded, and an archive needs inputs that end; read bounded input, such as files"
    with pytest.raises(ConfigError, match=fault):
        play([], join(archive="/tmp/never"))
    schema = pa.schema([("value", pa.int64()), ("count", pa.int64()), ("ts", pa.int64())])
    with pytest.raises(ConfigError, match="input 'a' is unbounded, and ChooseValues needs inputs that end"):
        play([], ChooseValues(time="ts", k=3).with_schemas({"a": schema, "b": schema}))
    plan = bind(JoinConfig.read(SETTINGS), {"a": SCHEMA, "b": SCHEMA})
    with pytest.raises(ConfigError, match="input 'a' is unbounded, and ArrowJoin needs inputs that end"):
        play([], ArrowJoin(plan))


def test_inputs_with_other_windows_are_refused() -> None:
    def some(name: str, rows: Any) -> Any:
        return rows if name == "a" else windowed(FixedWindows(5))(name, rows)

    fault = r"inputs 'a' and 'b' have different windows, GlobalWindows\(\) and FixedWindows\(size=.*; rows join"
    with pytest.raises(ConfigError, match=fault):
        play([], join(), prepare=some)
    with pytest.raises(ConfigError, match=r"input 'a' has windows that merge, Sessions\(gap_size=.*use others"):
        play([], join(), prepare=windowed(Sessions(5)))


def test_a_row_that_is_lost_fails_the_join_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even when the runner tries again: the shard is then given all rows again."""
    push = Operator.push

    def losing(operator: Operator, chunk: Chunk) -> Outputs:
        """Give it nothing instead of the piece that has the tenth row."""
        if 9 in chunk.arrival:
            nothing = [batch.slice(0, 0) for batch in chunk.batches]
            chunk = chunk._replace(input=chunk.input[:0], arrival=chunk.arrival[:0], batches=nothing)
        return push(operator, chunk)

    events = disordered(6)
    assert ids(play(events, join())) == operators(events)[0], "with all rows it does not fail"
    monkeypatch.setattr(Operator, "push", losing)
    with pytest.raises(
        Exception, match=r"of input '[ab]', a shard was given \d+ rows, received \d+ and accounts"
    ):
        play(events, join())
