"""Shed and Punctuate in Beam pipelines, names of outputs, and what runners are not asked to do."""

import json
from typing import NamedTuple

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.spark_runner import SparkRunner
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that, equal_to

from slackwater.transforms.beam import GroupClose, Punctuate, Reorder, Shed, SlidingWindowJoin
from slackwater.transforms.errors import ConfigError

pytestmark = pytest.mark.beam
TestPipeline.__test__ = False


class Bid(NamedTuple):
    item: str
    price: int
    kind: str
    ts: int


BIDS = [
    Bid("a", 5, "bid", 10), Bid("b", 1, "bid", 30), Bid("a", 7, "bid", 20), Bid("a", 0, "closed", 40),
    Bid("b", 2, "bid", 50), Bid("a", 9, "bid", 60), Bid("b", 0, "closed", 70), Bid("c", 3, "bid", 80),
]  # fmt: skip
SLACK = {"strategy": "fixed", "slack": "10ms"}


def pipeline():
    return TestPipeline(runner=FnApiRunner(), options=PipelineOptions(flags=[]))


def test_groups_close_by_what_punctuate_says():
    with pipeline() as p:
        bids = p | beam.Create(BIDS).with_output_types(Bid)
        told = bids | Punctuate(time="ts", when="kind = 'closed'", key="item", disorder=SLACK)
        groups = {"rows": told.main, "punctuations": told.punctuations} | GroupClose(
            time="ts", by="item", aggregates={"bids": "count(*)", "best": "max(price)"}
        )
        said = told.punctuations | "Said" >> beam.Map(lambda row: (row.ts, row.pattern, row.item))
        assert_that(said, equal_to([(40, '{"item": "a"}', "a"), (70, '{"item": "b"}', "b")]), "check said")
        late = told.late | "Late" >> beam.Map(lambda row: (json.loads(row.row)["price"], row.reason))
        assert_that(late, equal_to([(9, "punctuation_violated")]), "check late")
        rows = groups.main | "Groups" >> beam.Map(lambda row: (row.item, row.bids, row.best, row.closed_by))
        closed = [("a", 2, 7, "punctuation"), ("b", 2, 2, "punctuation"), ("c", 1, 3, "end")]
        assert_that(rows, equal_to(closed), "check groups")


def test_a_join_takes_what_punctuate_says_from_an_input_of_its_own():
    with pipeline() as p:
        bids = p | "Bids" >> beam.Create(BIDS).with_output_types(Bid)
        items = p | "Items" >> beam.Create([beam.Row(item=item, ts=1) for item in "abc"])
        told = bids | Punctuate(time="ts", when="kind = 'closed'", key="item", disorder=SLACK)
        joined = {"items": items, "bids": told.main, "over": told.punctuations} | SlidingWindowJoin(
            time="ts", arrival="ts", window="1s", where="items.item = bids.item", join={"strategy": "pwjoin"},
            punctuations={"source": "over", "input": "bids", "key": "item"}, disorder={"strategy": "none"},
            unique="items.item",
        )  # fmt: skip
        prices = joined.main | "Prices" >> beam.Map(lambda row: (row.bids_item, row.bids_price))
        assert_that(prices, equal_to([("a", 5), ("a", 7), ("b", 1), ("b", 2), ("c", 3)]), "check prices")
        over = joined.punctuations | "Over" >> beam.Map(lambda row: json.loads(row.pattern)["bids_item"])
        assert_that(over, equal_to(["a", "b"]), "check over")


def test_the_least_valuable_rows_are_shed_from_dicts():
    rows = [{"ts": 0, "v": float(v)} for v in (3, 9, 1, 8, 2, 7)]
    schema = pa.schema({"ts": pa.int64(), "v": pa.float64()})
    with pipeline() as p:
        shed = p | beam.Create(rows) | Shed(
            time="ts", rate=1, queue=2, shedding={"strategy": "prob", "weight": "v"}
        ).with_schema(schema)  # fmt: skip
        assert_that(shed.main | "Values" >> beam.Map(lambda row: row.v), equal_to([3.0, 9.0, 8.0]), "check main")
        late = shed.late | "Late" >> beam.Map(lambda row: (row.input, row.reason, json.loads(row.row)["v"]))
        assert_that(late, equal_to([("rows", "shed", v) for v in (1.0, 2.0, 7.0)]), "check late")


def test_partners_say_what_a_row_is_worth():
    with pipeline() as p:
        partners = p | "Partners" >> beam.Create([beam.Row(k="a", ts=n, at=n) for n in range(50)])
        rows = p | "Rows" >> beam.Create([beam.Row(k="ab"[n % 2], ts=99, at=99) for n in range(20)])
        shed = {"rows": rows, "partners": partners} | Shed(
            time="ts",
            rate=0.01,
            queue=5,
            arrival="at",
            where="rows.k = partners.k",
            shedding={"strategy": "prob"},
        )
        assert_that(shed.main | beam.Map(lambda row: row.k), equal_to(["a"] * 6))


def test_late_rows_are_in_the_output_that_error_handling_names():
    rows = [beam.Row(id=n, ts=ts) for n, ts in enumerate([10, 20, 5])]
    with pipeline() as p:
        ordered = p | beam.Create(rows) | Reorder(
            time="ts", arrival="id", disorder={"strategy": "none"}, error_handling={"output": "bad"}
        )  # fmt: skip
        assert list(ordered) == ["out", "bad", "metrics"] and ordered.late is ordered["bad"]
        assert "late" not in ordered and ordered["good"] is ordered.main
        assert_that(ordered["bad"] | beam.Map(lambda row: row.reason), equal_to(["too_late"]))


@pytest.mark.parametrize(
    ("handling", "message"),
    [
        ({"output": "metrics"}, "error_handling.output: must be a name of its own, not that of another output"),
        ({"output": "a.b"}, "error_handling.output: string should match pattern"),
        ({}, "error_handling.output: is missing; add it"),
        ({"outptu": "x"}, "error_handling.outptu: is not a setting"),
    ],
)
def test_wrong_error_handling_is_refused(handling, message):
    with pytest.raises(ConfigError, match=message):
        Reorder(time="ts", error_handling=handling)


def test_inputs_must_be_what_the_transform_takes():
    p = pipeline()
    rows = p | beam.Create([beam.Row(id=1, ts=1)])
    with pytest.raises(ConfigError, match="input: needs one PCollection"):
        {"a": rows} | "1" >> Reorder(time="ts")
    with pytest.raises(ConfigError, match="input: needs a PCollection, or two with names: "):
        {"rows": rows, "others": rows} | "2" >> Shed(time="ts", rate=1)
    with pytest.raises(ConfigError, match="input: needs two inputs with names: "):
        rows | "3" >> GroupClose(time="ts", by="id", aggregates={"n": "count(*)"})


def test_streaming_on_beams_spark_runner_is_refused_with_the_way_out():
    way_out = "keeps no state by key in streaming .* run a template with --runner spark"
    on_spark = [
        beam.Pipeline(options=PipelineOptions(flags=[], runner="SparkRunner")),
        beam.Pipeline(runner=SparkRunner(), options=PipelineOptions(flags=[])),
    ]
    for p in on_spark:
        rows = p | beam.Create([beam.Row(id=1, ts=1)])
        rows | "Bounded" >> Reorder(time="ts")
        rows.is_bounded = False
        with pytest.raises(ConfigError, match=f"input: input 'input' is unbounded: .*{way_out}"):
            rows | "Unbounded" >> Reorder(time="ts")
    p = beam.Pipeline(options=PipelineOptions(flags=["--runner=SparkRunner", "--streaming"]))
    with pytest.raises(ConfigError, match=f"input: the pipeline runs with --streaming: .*{way_out}"):
        p | beam.Create([beam.Row(id=1, ts=1)]) | Reorder(time="ts")
