"""SlidingWindowJoin in Beam pipelines, written as Beam users write them."""

from __future__ import annotations

import json
import pickle
import random
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that, equal_to, is_empty
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp
from beam_cases import DISORDER, SCHEMA, Case, apply_case, cases, check_cases, expected, rows_of

from slackwater.transforms.beam import ArrowBatchCoder, SlidingWindowJoin
from slackwater.transforms.beam.shard import pieces, waiting_rows
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import METRICS_SCHEMA, bind

pytestmark = pytest.mark.beam
TestPipeline.__test__ = False


def pipeline() -> TestPipeline:
    return TestPipeline(runner=FnApiRunner(), options=PipelineOptions(flags=[]))


@pytest.mark.parametrize("disorder", DISORDER)
def test_results_and_late_rows_are_those_of_the_operator(disorder: str) -> None:
    with pipeline() as p:
        check_cases(p, cases(disorder))


def test_order_of_delivery_does_not_matter_where_arrival_is_a_column() -> None:
    case = next(c for c in cases("fixed") if c.name == "2 way equi 4 shards by at")
    results, late = expected(case.plan, case.rows)
    rng = random.Random(1)
    shuffled = {name: rng.sample(rows, len(rows)) for name, rows in case.rows.items()}
    with pipeline() as p:
        outputs = apply_case(p, Case(case.name, shuffled, case.settings))
        as_tuples = beam.Map(lambda row: tuple(row._asdict().values()))
        assert_that(outputs.main | as_tuples, equal_to(results))
        assert_that(outputs.late | "late" >> as_tuples, equal_to(late), "check late")


def test_pieces_in_any_order_become_the_same_chunks() -> None:
    rows = {name: [{**row, "at": row["at"] // 8} for row in given] for name, given in rows_of(2, 60).items()}
    config = JoinConfig.read({"time": "ts", "window": "30ms", "arrival": "at", "where": "a.k = b.k"})
    plan = bind(config, {"a": SCHEMA, "b": SCHEMA})
    parts = []
    for which, name in enumerate("ab"):
        for start in range(0, 60, 7):
            batch = pa.RecordBatch.from_pylist(rows[name][start : start + 7], schema=SCHEMA)
            parts += [(which, piece) for _, piece in pieces(plan, which, batch, start)]
    (whole,) = waiting_rows(plan, parts).take().steps(1000)
    random.Random(2).shuffle(parts)
    cut = list(waiting_rows(plan, parts).take().steps(13))
    assert [len(chunk.input) for chunk in cut] == [13] * 9 + [3]
    assert np.concatenate([chunk.input for chunk in cut]).tolist() == whole.input.tolist()
    for which in range(2):
        merged = pa.concat_batches([chunk.batches[which] for chunk in cut])
        assert merged == whole.batches[which]


def test_an_input_without_rows_gives_no_results() -> None:
    row_type = beam.typehints.row_type.RowTypeConstraint.from_fields([("id", int), ("ts", int)])
    with pipeline() as p:
        none = p | "None" >> beam.Create([]).with_output_types(row_type)
        some = p | "Some" >> beam.Create([beam.Row(id=1, ts=10)])
        one = {"a": none, "b": some} | "One" >> SlidingWindowJoin(time="ts", window="1s", where="a.id = b.id")
        both = {"a": none, "b": none} | "Both" >> SlidingWindowJoin(time="ts", window="1s")
        for k, outputs in enumerate((one, both)):
            for tag, rows in outputs.items():
                assert_that(rows, is_empty(), f"check {k} {tag}")


class Order(NamedTuple):
    """Its annotations are text, as in any module with the future import."""

    id: int
    created: Timestamp
    note: str | None


def test_named_tuples_with_timestamps_and_missing_values_pass_through() -> None:
    orders = [Order(1, Timestamp(10), "x"), Order(2, Timestamp(11), None)]
    with pipeline() as p:
        left = p | "Orders" >> beam.Create(orders).with_output_types(Order)
        right = p | "Clicks" >> beam.Create(
            [beam.Row(order=2, at=Timestamp(12)), beam.Row(order=1, at=Timestamp(90))]
        )
        joined = {"o": left, "c": right} | SlidingWindowJoin(
            time={"o": "created", "c": "at"}, window="5s", where="o.id = c.order"
        )
        assert_that(
            joined.main,
            equal_to(
                [
                    beam.Row(
                        o_id=2,
                        o_created=Timestamp(11),
                        o_note=None,
                        c_order=2,
                        c_at=Timestamp(12),
                        ts=Timestamp(12),
                    )
                ]
            ),
        )


def test_a_row_without_a_time_is_late_and_the_run_goes_on() -> None:
    with pipeline() as p:
        a = p | "A" >> beam.Create(
            [beam.Row(id=1, ts=10.0), beam.Row(id=2, ts=None), beam.Row(id=3, ts=float("nan"))]
        )
        b = p | "B" >> beam.Create([beam.Row(id=1, ts=12)])
        joined = {"a": a, "b": b} | SlidingWindowJoin(time="ts", window="1s", where="a.id = b.id")
        assert_that(joined.main, equal_to([beam.Row(a_id=1, a_ts=10, b_id=1, b_ts=12, ts=12)]))
        reasons = joined.late | beam.Map(lambda row: (row.input, row.reason, row.ts, json.loads(row.row)["id"]))
        assert_that(reasons, equal_to([("a", "bad_record", None, 2), ("a", "bad_record", None, 3)]), "check late")


def test_dicts_and_arrow_batches_are_taken_where_their_columns_are_given() -> None:
    case = cases("fixed")[1]
    results, _ = expected(case.plan, case.rows)
    with pipeline() as p:
        a = p | "Dicts" >> beam.Create(case.rows["a"])
        whole = pa.RecordBatch.from_pylist(case.rows["b"], schema=SCHEMA)
        batches = [whole.slice(at, 20) for at in range(0, len(whole), 20)]
        b = p | "Batches" >> beam.Create(batches).with_output_types(pa.RecordBatch)
        join = SlidingWindowJoin(**case.settings).with_schemas({"a": SCHEMA, "b": SCHEMA})
        joined = {"a": a, "b": b} | join
        assert_that(joined.main | beam.Map(lambda row: tuple(row._asdict().values())), equal_to(results))


def test_rows_join_only_within_their_beam_window() -> None:
    with pipeline() as p:
        rows = p | beam.Create([beam.Row(id=1, ts=1000), beam.Row(id=1, ts=11_000)])
        stamped = beam.Map(lambda row: TimestampedValue(row, row.ts // 1000)).with_output_types(rows.element_type)
        a, b = (
            rows | f"Times {name}" >> stamped | f"Windows {name}" >> beam.WindowInto(FixedWindows(10))
            for name in "ab"
        )
        joined = {"a": a, "b": b} | SlidingWindowJoin(time="ts", window="1m", where="a.id = b.id")
        pairs = joined.main | beam.Map(lambda row: (row.a_ts, row.b_ts))
        assert_that(pairs, equal_to([(1000, 1000), (11_000, 11_000)]))


def test_outputs_have_a_schema() -> None:
    p = pipeline()
    joined = apply_case(p, cases("none")[0])
    types = {tag: dict(rows.element_type._fields) for tag, rows in joined.items()}
    assert list(types["out"])[-2:] == ["b_at", "ts"] and types["out"]["ts"] is int
    assert types["late"] == {"input": str, "reason": str, "ts": int | None, "arrival": int | None, "row": str}
    assert types["punctuations"] == {"ts": int, "pattern": str}
    assert list(types["metrics"]) == METRICS_SCHEMA.names and types["metrics"]["slack_ms"] == float | None


def test_the_main_output_is_the_one_where_one_is_asked_for() -> None:
    joined = apply_case(pipeline(), cases("none")[0])
    assert len(joined) == 1 and list(joined.values()) == [joined.main]
    assert list(joined) == ["out", "late", "punctuations", "metrics"]
    assert joined["main"] is joined["results"] is joined["out"] and "main" in joined and "other" not in joined
    with pytest.raises(KeyError, match="there is no output 'other'; there are out, late, punctuations, metrics"):
        joined["other"]


def test_counters_tell_results_and_late_rows_by_reason() -> None:
    case = cases("none", ("at",))[0]
    results, late = expected(case.plan, case.rows)
    p = pipeline()
    apply_case(p, case)
    run = p.run()
    run.wait_until_finish()
    found = run.metrics().query(MetricsFilter().with_namespace("slackwater"))["counters"]
    assert {counter.key.metric.name: counter.committed for counter in found} == {
        "results": len(results),
        "late_too_late": len(late),
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": "0s"}, "window: must be longer than 0, got 0s"),
        ({"window": 5}, "window: must be a duration such as 250ms, 5s, 1m, 2h or 1d, got 5"),
        ({"time": "when"}, "time: input 'a' has no column 'when'; it has id, ts"),
        ({"where": "a.id = b.nope"}, "where: .*nope"),
        (
            {"disorder": {"strategy": "kslak"}},
            "disorder: no disorder strategy named 'kslak'|no strategy named 'kslak'",
        ),
    ],
)
def test_a_wrong_setting_is_named_when_the_pipeline_is_built(settings: dict[str, Any], message: str) -> None:
    p = pipeline()
    a, b = (p | name >> beam.Create([beam.Row(id=1, ts=1)]) for name in "ab")
    with pytest.raises(ConfigError, match=message):
        {"a": a, "b": b} | SlidingWindowJoin(**{"time": "ts", "window": "1s", **settings})


def test_inputs_that_cannot_be_joined_are_refused() -> None:
    p = pipeline()
    rows = p | "Rows" >> beam.Create([beam.Row(id=1, ts=1)])
    numbers = p | "Numbers" >> beam.Create([1, 2])
    untyped = p | "Untyped" >> beam.Create([1]) | beam.Map(lambda x: beam.Row(id=x, ts=json.loads(str(x))))
    join = {"time": "ts", "window": "1s"}
    with pytest.raises(ConfigError, match=r"input: needs 2 to 8 inputs with names: \{name: PCollection, …\}"):
        rows | "1" >> SlidingWindowJoin(**join)
    with pytest.raises(ConfigError, match="input: needs 2 to 8 inputs, got 1"):
        {"a": rows} | "2" >> SlidingWindowJoin(**join)
    with pytest.raises(ConfigError, match=r"input 'b' has elements without a schema \(.*int.*\); use beam.Row"):
        {"a": rows, "b": numbers} | "3" >> SlidingWindowJoin(**join)
    with pytest.raises(ConfigError, match=r"column 'ts' of input 'b' has type .*Any.*; give it one"):
        {"a": rows, "b": untyped} | "4" >> SlidingWindowJoin(**join)


def test_batches_survive_coding_and_plans_survive_pickling() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1, None, 3], "b": pa.array(["x", "y", "x"]).dictionary_encode()})
    coder = ArrowBatchCoder()
    assert coder.decode(coder.encode(batch.slice(1, 2))) == batch.slice(1, 2)
    assert coder.decode(coder.encode(batch.slice(0, 0))).schema == batch.schema
    assert isinstance(beam.coders.registry.get_coder(pa.RecordBatch), ArrowBatchCoder)
    plan = cases("none")[0].plan
    assert pickle.loads(pickle.dumps(plan)).result_schema == plan.result_schema
