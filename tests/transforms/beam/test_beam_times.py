"""Beam's timestamps of results, the types of elements, and outputs by name: what steps behind a join rely on."""

from __future__ import annotations

import dataclasses
import re
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.test_stream import TestStream
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.trigger import AccumulationMode
from apache_beam.transforms.userstate import get_dofn_specs
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp
from live_cases import END

from slackwater.transforms.beam import JoinOutputs, Punctuate, Reorder, Shed, SlidingWindowAggregate
from slackwater.transforms.beam import SlidingWindowJoin as Join
from slackwater.transforms.beam.live import IdleLiveShard, LiveShard
from slackwater.transforms.errors import ConfigError

pytestmark = pytest.mark.beam
TestPipeline.__test__ = False
TestStream.__test__ = False

SECOND = 1000
ORDERS = [(1, 1_000), (2, 61_000), (3, 130_000)]
CLICKS = [(1, 2_500), (1, 3_000), (2, 62_000), (3, 131_500), (3, 139_000)]


class Event(NamedTuple):
    id: int
    ts: int


def stamped(pair: Any, at: float | None = None) -> Any:
    """A row with Beam's timestamp, in seconds; by default its own time."""
    return TimestampedValue(Event(*pair), pair[1] / SECOND if at is None else at)


class Stamp(beam.DoFn):
    """Gives the time that Beam has of an element, in milliseconds, and a column of it."""

    def __init__(self, *columns: str) -> None:
        self._columns = columns

    def process(self, row: Any, at: Any = beam.DoFn.TimestampParam) -> Any:
        yield (at.micros // 1000, *(getattr(row, name) for name in self._columns))


def pipeline(runner: Any = None) -> TestPipeline:
    return TestPipeline(runner=runner or FnApiRunner(), options=PipelineOptions(flags=[]))


def joined(p: Any, windows: Any = None, **settings: Any) -> JoinOutputs:
    inputs = {}
    for name, rows in (("orders", ORDERS), ("clicks", CLICKS)):
        inputs[name] = (
            p | name >> beam.Create(rows) | f"Stamp {name}" >> beam.Map(stamped).with_output_types(Event)
        )
        if windows is not None:
            inputs[name] = inputs[name] | f"Window {name}" >> beam.WindowInto(windows)
    settings = {"time": "ts", "window": "10s", "where": "orders.id = clicks.id", **settings}
    return inputs | "Join" >> Join(**settings)


@pytest.mark.parametrize("windows", [None, FixedWindows(60)])
def test_results_have_their_event_time_as_timestamp(windows: Any) -> None:
    with pipeline() as p:
        results = joined(p, windows)
        times = results.main | beam.ParDo(Stamp("ts"))
        assert_that(times, equal_to([(ts, ts) for _, ts in CLICKS]))


def test_windows_and_combines_behind_a_join_go_by_event_time() -> None:
    with pipeline() as p:
        by_minute = joined(p).main | beam.Map(lambda row: (row.orders_id, 1)) | beam.WindowInto(FixedWindows(60))
        counted = by_minute | beam.CombinePerKey(sum) | beam.ParDo(InWindow())
        assert_that(counted, equal_to([(0, 1, 2), (60, 2, 1), (120, 3, 2)]))


class InWindow(beam.DoFn):
    """Gives the beginning of the window of a pair, in seconds, and the pair."""

    def process(self, pair: Any, window: Any = beam.DoFn.WindowParam) -> Any:
        yield (int(window.start), *pair)


def test_a_time_outside_its_window_is_brought_to_its_bounds() -> None:
    rows = list(enumerate([5_000, 70_000, 500_000]))
    with pipeline() as p:
        given = p | beam.Create(rows) | beam.Map(stamped, 90).with_output_types(Event)
        ordered = given | beam.WindowInto(FixedWindows(60)) | Reorder(time="ts", disorder={"strategy": "max"})
        times = ordered.main | beam.ParDo(Stamp("id"))
        assert_that(times, equal_to([(60_000, 0), (70_000, 1), (119_999, 2)]))


def test_late_rows_and_aggregates_have_their_event_time_too() -> None:
    rows = [beam.Row(id=n, ts=ts) for n, ts in enumerate([10, 20_000, 5])]
    with pipeline() as p:
        given = p | beam.Create(rows)
        ordered = given | Reorder(time="ts", disorder={"strategy": "none"}, arrival="id")
        assert_that(ordered.late | "Late" >> beam.ParDo(Stamp("reason")), equal_to([(5, "too_late")]), "late")
        extents = given | SlidingWindowAggregate(
            time="ts", range="10s", aggregates={"n": "count(*)"}, disorder={"strategy": "fixed", "slack": "1d"}
        )
        found = extents.main | "Extents" >> beam.ParDo(Stamp("ts", "n"))
        assert_that(found, equal_to([(10_000, 10_000, 2), (30_000, 30_000, 1)]), "extents")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_whole_numbers_are_taken_in_their_unit(unit: str) -> None:
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    with pipeline() as p:
        rows = p | beam.Create([beam.Row(id=1, ts=7 * per_second), beam.Row(id=2, ts=1 << 60)])
        ordered = rows | Reorder(time="ts", time_unit=unit, disorder={"strategy": "fixed", "slack": "1d"})
        last = min((1 << 60) * (10**6 / per_second), 9223371950454775000) // 1000
        stamps = ordered.main | beam.ParDo(Stamp("id")) | beam.Map(lambda at: (round(at[0] / 1e6), at[1]))
        assert_that(stamps, equal_to([(round(7_000 / 1e6), 1), (round(last / 1e6), 2)]))


def test_live_results_have_their_event_time_and_combine_within_the_lateness() -> None:
    options = PipelineOptions(flags=[])
    options.view_as(StandardOptions).streaming = True
    names = ("orders", "clicks")
    stream = TestStream(output_tags=list(names))
    for name, rows in (("orders", ORDERS), ("clicks", CLICKS)):
        for k, ts in rows:
            stream.add_elements([TimestampedValue((k, ts), ts / SECOND)], tag=name)
    for name in names:
        # Beam's own time goes on while the join waits: its results are behind it by what it waits.
        stream.advance_watermark_to(139, tag=name)
    for k, name in enumerate(names):
        later = [TimestampedValue((-k, at * SECOND), at) for at in (200, 240)]
        stream.add_elements(later, tag=name)
    for name in names:
        stream.advance_watermark_to(END, tag=name)
    for name in names:
        stream.advance_watermark_to_infinity(tag=name)
    with TestPipeline(runner="BundleBasedDirectRunner", options=options) as p:
        given = p | stream
        inputs = {
            name: given[name] | f"Rows {name}" >> beam.Map(lambda pair: Event(*pair)).with_output_types(Event)
            for name in names
        }
        results = inputs | Join(
            time="ts", window="10s", where="orders.id = clicks.id", disorder={"strategy": "fixed", "slack": "20s"}
        )
        assert_that(results.main | beam.ParDo(Stamp("ts")), equal_to([(ts, ts) for _, ts in CLICKS]), "times")
        counts = (
            results.main
            | "Keys" >> beam.Map(lambda row: (row.orders_id, 1))
            | beam.WindowInto(
                FixedWindows(60), allowed_lateness=20 * 60, accumulation_mode=AccumulationMode.DISCARDING
            )
            | beam.CombinePerKey(sum)
            | beam.ParDo(InWindow())
            | "Sum" >> beam.Map(lambda found: (found[:2], found[2]))
        )

        def added_up(found: Any) -> None:
            total: Counter[Any] = Counter()
            for key, n in found:
                total[key] += n
            assert total == {(0, 1): 2, (60, 2): 1, (120, 3): 2}

        assert_that(counts, added_up, "counts")


def test_a_live_join_runs_on_the_direct_runner() -> None:
    start = time.time()
    with beam.Pipeline(runner="DirectRunner", options=PipelineOptions(flags=[])) as p:
        ticks = p | PeriodicImpulse(Timestamp(start), Timestamp(start + 0.4), fire_interval=0.2)
        inputs = {
            name: ticks
            | name >> beam.Map(lambda t: Event(int(float(t) * 10), int(float(t) * 1000))).with_output_types(Event)
            for name in "ab"
        }
        results = inputs | Join(time="ts", window="1ms", where="a.id = b.id")
        assert_that(results.main | beam.ParDo(Stamp("ts")), _at_their_times)


def _at_their_times(found: Any) -> None:
    assert len(found) >= 2
    assert all(at == ts for at, ts in found)


def test_a_timer_by_the_clock_is_declared_with_idle_timeout_only() -> None:
    assert {spec.time_domain for spec in get_dofn_specs(LiveShard(*_live()))[1]} == {TimeDomain.WATERMARK}
    idle = get_dofn_specs(IdleLiveShard(*_live(idle_timeout="1m")))[1]
    assert {spec.time_domain for spec in idle} == {TimeDomain.WATERMARK, TimeDomain.REAL_TIME}


def _live(**settings: Any) -> Any:
    from beam_cases import SCHEMA

    from slackwater.transforms.settings.models import JoinConfig
    from slackwater.transforms.settings.plan import bind

    config = JoinConfig.read({"time": "ts", "window": "1s", "where": "a.k = b.k", **settings})
    return bind(config, {"a": SCHEMA, "b": SCHEMA}), 0


class Bid(NamedTuple):
    item: str
    price: int
    at: datetime
    ts: int

    @property
    def dear(self) -> bool:
        """A method that only rows of this class have."""
        return self.price > 5


@dataclasses.dataclass
class Ask:
    item: str
    price: int
    ts: int


BIDS = [Bid("a", 5, datetime(2024, 1, 1, 12), 10), Bid("b", 9, datetime(2024, 1, 2), 20)]
PASSING = {
    "Reorder": Reorder(time="ts"),
    "Shed": Shed(time="ts", rate=1000),
    "Punctuate": Punctuate(time="ts", unique="item"),
}


@pytest.mark.parametrize("name", PASSING)
def test_the_type_of_elements_survives(name: str) -> None:
    with pipeline() as p:
        passed = p | beam.Create(BIDS).with_output_types(Bid) | PASSING[name]
        assert passed.main.element_type is Bid
        assert_that(passed.main, equal_to(BIDS), "rows")
        assert_that(passed.main | beam.Map(lambda bid: bid.dear), equal_to([False, True]), "methods")


def test_the_examples_of_the_page_run(capsys: Any) -> None:
    page = Path(__file__).parents[3] / "docs" / "beam.md"
    examples = [
        text for text in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL) if "import" in text
    ]
    assert len(examples) == 2
    for text in examples:
        exec(text, {})
    assert "orders_id=1" in capsys.readouterr().out


def test_dataclasses_survive() -> None:
    rows = [Ask("a", 1, 10), Ask("b", 2, 20)]
    with pipeline() as p:
        ordered = p | beam.Create(rows).with_output_types(Ask) | Reorder(time="ts")
        assert ordered.main.element_type is Ask
        assert_that(ordered.main, equal_to(rows))


def test_error_handling_renames_the_attribute() -> None:
    with pipeline() as p:
        given = p | beam.Create([beam.Row(id=1, ts=1)])
        ordered = given | Reorder(time="ts", error_handling={"output": "bad"})
        assert ordered.bad is ordered["bad"] is ordered.late
        with pytest.raises(AttributeError, match="there is no output 'worse'; there are out, bad, metrics"):
            _ = ordered.worse


def test_a_step_on_all_outputs_is_told_to_take_one() -> None:
    p = pipeline()
    ordered = p | beam.Create([beam.Row(id=1, ts=1)]) | Reorder(time="ts")
    said = (
        r"these are several outputs, out, late, metrics, and a step takes one of them; write outputs\.main \| …"
    )
    with pytest.raises(ConfigError, match=said):
        ordered | beam.Map(print)
    with pytest.raises(ConfigError, match=said):
        ordered | "Show" >> beam.Map(print)
