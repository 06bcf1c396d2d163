"""SlidingWindowAggregate in the hands of Beam, Beam YAML and Spark programs, and on the command line."""

import json

import pytest
from cli_calls import call

from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.reader import read_template
from slackwater.transforms.settings.models import AggregateConfig

ROWS = [(3, "a", 5), (12, "b", 1), (9, "a", 7), (31, "a", 2), (5, "b", 4)]
SETTINGS = {
    "time": "ts",
    "arrival": "at",
    "range": "10ms",
    "group_by": ["k"],
    "aggregates": {"n": "count(*)", "top": "max(v)"},
    "disorder": {"strategy": "fixed", "slack": "5ms"},
}
GROUPS = [(0, 0, 10, "a", 2, 7), (1, 10, 20, "b", 1, 1), (3, 30, 40, "a", 1, 2)]
ENDS = [-1, 0, 1, 2, 3]


def columns(row):
    return (row.extent, row.start, row.end, row.k, row.n, row.top)


@pytest.mark.beam
def test_the_transform_works_in_a_beam_pipeline():
    import apache_beam as beam
    from apache_beam.testing.test_pipeline import TestPipeline
    from apache_beam.testing.util import assert_that, equal_to

    from slackwater.transforms.beam import SlidingWindowAggregate

    with TestPipeline() as p:
        rows = p | beam.Create([beam.Row(ts=ts, k=k, v=v, at=at) for at, (ts, k, v) in enumerate(ROWS)])
        found = rows | SlidingWindowAggregate(**SETTINGS)
        few = rows | "Few" >> SlidingWindowAggregate(**{**SETTINGS, "having": "n > 1"})
        assert_that(found.main | beam.Map(columns), equal_to(GROUPS))
        assert_that(few.main | "Few rows" >> beam.Map(columns), equal_to(GROUPS[:1]), "few")
        ends = found.syncs | beam.Map(lambda row: (row.extent, row.sync, row.k, row.n, row.ts))
        assert_that(ends, equal_to([(i, True, None, None, 10 * (i + 1)) for i in ENDS]), "ends")
        late = found.late | "Late" >> beam.Map(lambda row: (row.ts, row.reason))
        assert_that(late, equal_to([(5, "too_late")]), "late")


@pytest.mark.beam
def test_two_operators_that_read_one_input_both_get_all_of_it():
    """FnApiRunner fuses stateful steps that nothing keeps apart, and then fires the timers of one of them."""
    import apache_beam as beam
    from apache_beam.testing.test_pipeline import TestPipeline
    from apache_beam.testing.util import assert_that, equal_to

    from slackwater.transforms.beam import Reorder, SlidingWindowAggregate

    with TestPipeline() as p:
        rows = p | beam.Create([beam.Row(ts=ts, k=k, v=v, at=at) for at, (ts, k, v) in enumerate(ROWS)])
        first = rows | "First" >> Reorder(time="ts", arrival="at")
        second = rows | "Second" >> SlidingWindowAggregate(**SETTINGS)
        third = second.main | "Third" >> Reorder(time="ts", arrival="extent")
        for name, output, expected in (
            ("first", first, [3, 12, 31]),
            ("second", second, [10, 20, 40]),
            ("third", third, [10, 20, 40]),
        ):
            assert_that(output.main | f"{name} ts" >> beam.Map(lambda row: row.ts), equal_to(expected), name)


@pytest.mark.beam
def test_the_constructor_has_the_settings_of_templates_and_documents_each():
    from apache_beam.yaml.yaml_provider import InlineProvider

    from slackwater.transforms.beam import SlidingWindowAggregate

    schema = InlineProvider.config_schema_from_callable(SlidingWindowAggregate)
    assert {field.name for field in schema.fields} == set(AggregateConfig.model_fields)
    assert all(field.description for field in schema.fields)
    assert InlineProvider.description_from_callable(SlidingWindowAggregate).startswith(
        "Groups and aggregates rows"
    )


@pytest.mark.spark
def test_the_function_works_on_frames(spark):
    from slackwater.transforms.spark import sliding_window_aggregate

    frame = spark.createDataFrame(
        [(*row, at) for at, row in enumerate(ROWS)], "ts long, k string, v int, at long"
    )
    found = sliding_window_aggregate(frame, **SETTINGS)
    assert sorted(map(columns, found.results.collect())) == GROUPS
    assert [row.extent for row in found.syncs.collect()] == ENDS
    assert all(row.sync and row.k is None for row in found.syncs.collect())
    assert [(row.ts, row.reason) for row in found.late.collect()] == [(5, "too_late")]
    assert found.metrics.collect() == []


def test_check_shows_what_is_aggregated():
    done = call("check", "congestion-toll")
    assert done.exit_code == 0, done.output
    for line in (
        "Vehicles: Flatten (0 = active, 1 = active.syncs)",
        "range: 5m, slide 30s",
        "range: 30s, slide 30s",
        "group by: vehicle, segment",
        "aggregates: speed = avg(speed), reports = count(*)",
        "having: speed < 40",
        "disorder: fixed (slack 40s)",
    ):
        assert line in done.output


def test_both_templates_are_listed():
    lines = call("templates").stdout.splitlines()
    assert any(line.startswith("speeding ") and "Q1 to Q4" in line for line in lines)
    assert any(line.startswith("congestion-toll ") and "toll" in line for line in lines)


def test_the_road_is_congested_when_the_speeds_say_so(tmp_path):
    """The toll template against its own data, read row by row."""
    summary = local.run(read_template("congestion-toll", {"out": str(tmp_path)}))
    reports = read_template("congestion-toll", {}).node("Reports").config.rows
    expected = set()
    for extent in range(60):
        end = 30_000 * (extent + 1)
        for segment in ("north", "south"):
            speeds = [r["speed"] for r in reports if r["segment"] == segment and end - 300_000 <= r["ts"] < end]
            if speeds and sum(speeds) / len(speeds) < 40:
                active = [r for r in reports if r["segment"] == segment and end - 30_000 <= r["ts"] < end]
                expected |= {(extent, segment, r["vehicle"]) for r in active}
    tolls = [json.loads(line) for line in (tmp_path / "congestion-toll.jsonl").read_text().splitlines()]
    found = [(row["vehicles_extent"], row["vehicles_segment"], row["vehicles_vehicle"]) for row in tolls]
    assert sorted(found) == sorted(expected) and len(found) > 30
    assert summary["late"] == {}


def test_a_road_that_is_never_congested_costs_nobody_a_toll(tmp_path):
    summary = local.run(read_template("congestion-toll", {"out": str(tmp_path), "speed": "1"}))
    assert (tmp_path / "congestion-toll.jsonl").read_text() == ""
    assert summary["joins"]["congested"]["results"] == 0
    assert summary["joins"]["tolls"]["input"]["traffic"] > 40
