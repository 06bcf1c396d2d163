"""What comes behind bounded transforms: grouping and combining, on each of Beam's runners in this process."""

import apache_beam as beam
import pytest
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import window
from apache_beam.typehints.row_type import RowTypeConstraint

from slackwater.transforms.beam import Reorder, SlidingWindowAggregate, SlidingWindowJoin

pytestmark = pytest.mark.beam

RUNNERS = ["FnApiRunner", "BundleBasedDirectRunner"]
TYPE = RowTypeConstraint.from_fields([("ts", int), ("k", int)])
ROWS = [beam.Row(ts=10 * k, k=k % 3) for k in range(60)]


def joined(p, **settings):
    """Two inputs that join each row with itself and the next of its key on either side."""
    inputs = {name: p | name >> beam.Create(ROWS) for name in "ab"}
    return inputs | SlidingWindowJoin(time="ts", window="30ms", where="a.k = b.k", **settings)


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("shards", [1, 3])
def test_results_are_grouped_and_combined(runner, shards):
    with TestPipeline(runner=runner) as p:
        results = joined(p, shards=shards).out
        counts = results | beam.Map(lambda row: (row.a_k, 1)) | beam.CombinePerKey(sum)
        assert_that(counts, equal_to([(0, 58), (1, 58), (2, 58)]))


@pytest.mark.parametrize("runner", RUNNERS)
def test_results_are_combined_by_windows_of_their_own(runner):
    with TestPipeline(runner=runner) as p:
        windows = joined(p).out | beam.WindowInto(window.FixedWindows(0.3))
        counts = windows | beam.Map(lambda row: ("all", 1)) | beam.CombinePerKey(sum)
        # The first row of a key has one result less.
        assert_that(counts, equal_to([("all", 84), ("all", 90)]))


@pytest.mark.parametrize("runner", RUNNERS)
def test_inputs_may_have_windows(runner):
    with TestPipeline(runner=runner) as p:
        inputs = {
            name: p
            | name >> beam.Create(ROWS)
            | f"T{name}"
            >> beam.Map(lambda row: window.TimestampedValue(row, row.ts / 1000)).with_output_types(TYPE)
            | f"W{name}" >> beam.WindowInto(window.FixedWindows(0.3))
            for name in "ab"
        }
        results = (inputs | SlidingWindowJoin(time="ts", window="30ms", where="a.k = b.k")).out
        counts = results | beam.Map(lambda row: (row.a_k, 1)) | beam.CombinePerKey(sum)
        assert_that(counts, equal_to([(k, 28) for k in (0, 1, 2)] * 2))


@pytest.mark.parametrize("runner", RUNNERS)
def test_transforms_of_ours_come_behind_each_other(runner):
    with TestPipeline(runner=runner) as p:
        inputs = {name: p | name >> beam.Create(ROWS) for name in "ab"}
        inputs["a"] = (inputs["a"] | Reorder(time="ts")).out
        results = (inputs | SlidingWindowJoin(time="ts", window="30ms", where="a.k = b.k")).out
        sums = (results | SlidingWindowAggregate(time="ts", range="600ms", aggregates={"n": "count(*)"})).out
        assert_that(sums | beam.Map(lambda row: row.n), equal_to([174]))
