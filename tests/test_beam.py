"""SlidingWindowJoin in Beam pipelines, written as Beam users write them, and templates on the beam runner."""

from __future__ import annotations

import json
import pickle
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

beam = pytest.importorskip("apache_beam")

from apache_beam.metrics.metric import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pipeline import PipelineVisitor
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that, equal_to, is_empty
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp
from slackwater.pipelines import local, run_beam
from slackwater.pipelines.template import read_template_text
from slackwater.transforms.beam import ArrowBatchCoder, JoinOutputs, SlidingWindowJoin
from slackwater.transforms.beam.shard import chunks, pieces
from slackwater.transforms.config import JoinConfig
from slackwater.transforms.errors import ConfigError, SlackwaterError
from slackwater.transforms.operator import Operator
from slackwater.transforms.plan import ARRIVAL, JoinPlan, bind
from slackwater.transforms.replay import arrival_numbers, in_arrival_order, shards_of

pytestmark = pytest.mark.beam

Rows = dict[str, list[dict[str, Any]]]
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("k", pa.int64()), ("x", pa.float64()), ("at", pa.int64())])

DISORDER: dict[str, dict[str, Any]] = {
    "none": {"strategy": "none"},
    "fixed": {"strategy": "fixed", "slack": "40ms"},
    "max": {"strategy": "max"},
}


@dataclass(frozen=True)
class Case:
    """A join to be compared between a runner and the operator."""

    name: str
    rows: Rows
    settings: dict[str, Any] = field(hash=False)

    @property
    def plan(self) -> JoinPlan:
        return bind(JoinConfig.read(self.settings), dict.fromkeys(self.rows, SCHEMA))


def rows_of(m: int, n: int, seed: int = 7) -> Rows:
    """Inputs a, b, … with disorder within and between them, ties, and ``at`` as the order of arrival."""
    rng = random.Random(seed)
    rows: Rows = {}
    for which, name in enumerate("abcdefgh"[:m]):
        rows[name] = [
            {
                "id": i,
                "ts": 10 * (i // 2) + 5 * which - (rng.randrange(120) if rng.random() < 0.3 else 0),
                "k": rng.randrange(4),
                "x": float(rng.randrange(10)),
                "at": i * m + (which * 3) % m,
            }
            for i in range(n)
        ]
    return rows


def cases(disorder: str, arrival: tuple[str | None, ...] = (None, "at")) -> list[Case]:
    """Joins of 2 to 4 inputs: keys and theta, one shard and four, rows and counts."""
    found = []
    for m, n in ((2, 90), (3, 50), (4, 30)):
        names = "abcd"[:m]
        equal = " AND ".join(f"a.k = {name}.k" for name in names[1:])
        theta = " AND ".join(f"abs({p}.x - {q}.x) < 1.5" for p, q in zip(names, names[1:], strict=False))
        kinds = [("equi", equal, 1), ("equi", equal, 4), ("theta", theta, 1)]
        for (kind, where, shards), column in ((k, a) for k in kinds for a in arrival):
            settings: dict[str, Any] = {
                "time": "ts",
                "window": "30ms",
                "where": where,
                "disorder": DISORDER[disorder],
                "shards": shards,
            }
            if column:
                settings["arrival"] = column
            name = f"{m} way {kind} {shards} shards by {column or 'order'}"
            found.append(Case(name, rows_of(m, n, seed=m), settings))
    counted = {"time": "ts", "window": "30ms", "where": "a.k = b.k", "output": "counts"}
    counted |= {"arrival": "at", "disorder": DISORDER[disorder]}
    return [*found, Case("counts", rows_of(2, 90, seed=2), counted)]


def expected(plan: JoinPlan, rows: Rows) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Results and late rows of operators that are fed directly, shard by shard."""
    results: list[tuple[Any, ...]] = []
    late: list[tuple[Any, ...]] = []
    batches = []
    for name, schema in plan.schemas.items():
        batch = pa.RecordBatch.from_pylist(rows[name], schema=schema)
        batches.append(batch.append_column(ARRIVAL, pa.array(np.arange(len(batch)))))
    for shard in range(plan.config.shards):
        parts, arrivals = [], []
        for i, batch in enumerate(batches):
            mine = pa.array(shards_of(plan, i, batch) == shard)
            parts.append(batch.filter(mine))
            arrivals.append(arrival_numbers(plan, i, batch.filter(mine)))
        operator = Operator(plan)
        for out in (operator.push(in_arrival_order(parts, arrivals)), operator.finish()):
            results += [tuple(row.values()) for batch in out.results for row in batch.to_pylist()]
            late += [tuple(row.values()) for batch in out.late for row in batch.to_pylist()]
    return results, late


def created(pipeline: Any, rows: Rows, label: str = "") -> dict[str, Any]:
    """The inputs of a case as PCollections."""
    elements = {name: [beam.Row(**row) for row in given] for name, given in rows.items()}
    return {name: pipeline | f"{label}{name}" >> beam.Create(given) for name, given in elements.items()}


def apply_case(pipeline: Any, case: Case) -> JoinOutputs:
    """Create the inputs of a case and join them."""
    return created(pipeline, case.rows) | case.name >> SlidingWindowJoin(**case.settings)


def check_cases(pipeline: Any, given: list[Case]) -> None:
    """Assert that a runner gives what the operator gives, all in one pipeline: joins with the same rows share
    their inputs, and one assertion sees the outputs of all of them."""
    inputs: dict[int, dict[str, Any]] = {}
    found, wanted = [], []
    for case in given:
        m = len(case.rows)
        if m not in inputs:
            inputs[m] = created(pipeline, case.rows, f"{m} way ")
        outputs = inputs[m] | case.name >> SlidingWindowJoin(**case.settings)
        for tag, expect in zip(("out", "late"), expected(case.plan, case.rows), strict=True):
            assert expect or tag == "late", f"{case.name} tests nothing"
            found.append(outputs[tag] | f"{case.name} {tag}" >> beam.Map(_tagged, case.name, tag))
            wanted += [(case.name, tag, *row) for row in expect]
    assert_that(tuple(found) | "All" >> beam.Flatten(), equal_to(wanted))


def _tagged(row: Any, *tags: str) -> tuple[Any, ...]:
    return (*tags, *row._asdict().values())


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
    whole = next(chunks(plan, parts))
    random.Random(2).shuffle(parts)
    cut = list(chunks(plan, parts, 13))
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
        right = p | "Clicks" >> beam.Create([beam.Row(order=2, at=Timestamp(12)), beam.Row(order=1, at=Timestamp(90))])
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
        a = p | "A" >> beam.Create([beam.Row(id=1, ts=10.0), beam.Row(id=2, ts=None), beam.Row(id=3, ts=float("nan"))])
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
    assert types["punctuations"] == types["metrics"] == {"json": str}


def test_the_main_output_is_the_one_where_one_is_asked_for() -> None:
    joined = apply_case(pipeline(), cases("none")[0])
    assert len(joined) == 1 and list(joined.values()) == [joined.main]
    assert list(joined) == ["out", "late", "punctuations", "metrics"]
    assert joined["main"] is joined["results"] is joined["out"] and "main" in joined and "other" not in joined
    with pytest.raises(KeyError, match="there is no output 'other'; there are out, late, punctuations, metrics"):
        joined["other"]


def test_counters_tell_results_and_late_rows_by_reason() -> None:
    case = cases("none")[0]
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


def test_labels_stay_as_they_are() -> None:
    """Job updates find state by these labels: change them only with a way to migrate."""
    labels = []

    class Labels(PipelineVisitor):
        def visit_transform(self, node: Any) -> None:
            labels.append(node.full_label)

        def enter_composite_transform(self, node: Any) -> None:
            if node.full_label:
                labels.append(node.full_label)

    p = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions(flags=[]))
    rows = [beam.Row(id=1, ts=1)]
    inputs = {name: p | name >> beam.Create(rows) for name in ("orders", "clicks")}
    inputs | "joined" >> SlidingWindowJoin(time="ts", window="5s", where="orders.id = clicks.id")
    p.visit(Labels())
    assert [label for label in labels if label.startswith("joined")] == [
        "joined",
        "joined/Batch orders",
        "joined/Batch clicks",
        "joined/Flatten",
        "joined/Join",
        "joined/Join/ParDo(JoinShard)",
        "joined/Rows",
        "joined/Late rows",
        "joined/Punctuation rows",
        "joined/Metric rows",
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": "0s"}, "window: must be longer than 0, got 0s"),
        ({"window": 5}, "window: must be a duration such as 250ms, 5s, 1m, 2h or 1d, got 5"),
        ({"time": "when"}, "time: input 'a' has no column 'when'; it has id, ts"),
        ({"where": "a.id = b.nope"}, "where: .*nope"),
        ({"disorder": {"strategy": "kslak"}}, "disorder: no disorder strategy named 'kslak'|no strategy named 'kslak'"),
        ({"shards": 4, "where": "a.id < b.id"}, "shards: the condition .* use shards: 1"),
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
    endless = p | "Endless" >> beam.Create([beam.Row(id=1, ts=1)])
    endless.is_bounded = False
    join = {"time": "ts", "window": "1s"}
    with pytest.raises(ConfigError, match=r"input: needs 2 to 8 inputs with names: \{name: PCollection, …\}"):
        rows | "1" >> SlidingWindowJoin(**join)
    with pytest.raises(ConfigError, match="input: needs 2 to 8 inputs, got 1"):
        {"a": rows} | "2" >> SlidingWindowJoin(**join)
    with pytest.raises(ConfigError, match=r"input 'b' has elements without a schema \(.*int.*\); use beam.Row"):
        {"a": rows, "b": numbers} | "3" >> SlidingWindowJoin(**join)
    with pytest.raises(ConfigError, match="column 'ts' of input 'b' has type .*Any.*; give it one"):
        {"a": rows, "b": untyped} | "4" >> SlidingWindowJoin(**join)
    with pytest.raises(ConfigError, match="input 'b' is unbounded, and live runs come with a later version"):
        {"a": rows, "b": endless} | "5" >> SlidingWindowJoin(**join)


def test_a_value_of_another_type_names_input_column_and_rows() -> None:
    p = pipeline()
    good = p | "Good" >> beam.Create([beam.Row(id=1, ts=1)])
    bad = p | "Bad" >> beam.Create([{"id": 1, "ts": 1}, {"id": "?", "ts": 2}])
    join = SlidingWindowJoin(time="ts", window="1s").with_schemas({"b": pa.schema({"id": pa.int64(), "ts": pa.int64()})})
    {"a": good, "b": bad} | join
    with pytest.raises(Exception, match="input 'b', column 'id', rows 0 to 1: .*must have the declared type, int64"):
        p.run().wait_until_finish()


def test_batches_survive_coding_and_plans_survive_pickling() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1, None, 3], "b": pa.array(["x", "y", "x"]).dictionary_encode()})
    coder = ArrowBatchCoder()
    assert coder.decode(coder.encode(batch.slice(1, 2))) == batch.slice(1, 2)
    assert coder.decode(coder.encode(batch.slice(0, 0))).schema == batch.schema
    assert isinstance(beam.coders.registry.get_coder(pa.RecordBatch), ArrowBatchCoder)
    plan = cases("none")[0].plan
    assert pickle.loads(pickle.dumps(plan)).result_schema == plan.result_schema


# Templates


TEMPLATE = """
pipeline:
  type: composite
  transforms:
    - {type: ReadFromParquet, name: A, config: {path: "%(dir)s/a*.parquet"}}
    - {type: ReadFromCsv, name: B, config: {path: "%(dir)s/b.csv"}}
    - {type: Create, name: C, config: {elements: [{k: 1, ts: 20}, {k: 2, ts: 60}, {k: 1, ts: 110}]}}
    - {type: Filter, name: Some, input: A, config: {keep: "x > 1"}}
    - {type: MapToFields, name: More, input: B, config: {append: true, language: python, fields: {y: "x * 2"}}}
    - type: SlidingWindowJoin
      name: joined
      input: {a: Some, b: More}
      config: {time: ts, window: 30ms, where: a.k = b.k, disorder: {strategy: fixed, slack: 40ms}, shards: %(shards)s}
    - type: SlidingWindowJoin
      name: chained
      input: {j: joined, c: C}
      config: {time: ts, window: 100ms, where: j.a_k = c.k, disorder: {strategy: none}}
    - {type: WriteToParquet, name: Joined, input: joined, config: {path: "%(out)s/joined.parquet"}}
    - {type: WriteToJson, name: Late, input: joined.late, config: {path: "%(out)s/late.jsonl"}}
    - {type: WriteToCsv, name: Chained, input: chained, config: {path: "%(out)s/chained.csv"}}
    - {type: WriteToJson, name: Metrics, input: chained.metrics, config: {path: "%(out)s/metrics.jsonl"}}
"""


@pytest.fixture
def data(tmp_path: Any) -> Any:
    rows = rows_of(2, 120)
    table = pa.Table.from_pylist(rows["a"], schema=SCHEMA)
    pq.write_table(table.slice(0, 70), tmp_path / "a1.parquet")
    pq.write_table(table.slice(70), tmp_path / "a2.parquet")
    lines = [",".join(map(str, row.values())) for row in rows["b"]]
    lines[5] = lines[5].replace(f",{rows['b'][5]['ts']},", ",yesterday,")
    (tmp_path / "b.csv").write_text("\n".join(["id,ts,k,x,at", *lines]) + "\n")
    return tmp_path


def written(folder: Any) -> dict[str, Counter[str]]:
    """Every file of a folder as a multiset of lines."""
    found = {}
    for file in folder.iterdir():
        if file.suffix == ".parquet":
            found[file.name] = Counter(map(str, pq.read_table(file).to_pylist()))
        else:
            found[file.name] = Counter(file.read_text().splitlines())
    return found


def without_speed(summary: dict[str, Any]) -> dict[str, Any]:
    """A summary without what differs from runner to runner: names, speed, and when state was measured."""
    timed = ("runner", "elapsed_s", "rows_per_s", "busy_s", "state", "joins", "warnings")
    joins = {name: {k: v for k, v in join.items() if k != "state"} for name, join in summary.get("joins", {}).items()}
    return {key: value for key, value in summary.items() if key not in timed} | {"joins": joins}


def test_a_template_gives_what_the_embedded_runner_gives(data: Any) -> None:
    summaries = {}
    for name, run in (("local", local.run), ("beam", run_beam.run)):
        text = TEMPLATE % {"dir": data, "out": data / name, "shards": 1}
        summaries[name] = run(read_template_text("t.yaml", text))
    assert summaries["beam"]["runner"] == "beam"
    assert summaries["beam"]["late"]["bad_record"] == 1
    assert without_speed(summaries["beam"]) == without_speed(summaries["local"])
    assert written(data / "beam") == written(data / "local")
    assert pq.read_table(data / "beam/joined.parquet") == pq.read_table(data / "local/joined.parquet")
    assert set(written(data / "beam")) == {"joined.parquet", "late.jsonl", "chained.csv", "metrics.jsonl"}


def test_a_join_of_what_several_shards_wrote_is_refused(data: Any) -> None:
    text = TEMPLATE % {"dir": data, "out": data / "out", "shards": 4}
    with pytest.raises(SlackwaterError, match="chained.input: input 'j' comes from 'joined', which has several shards"):
        run_beam.run(read_template_text("t.yaml", text))
    assert not (data / "out").exists()


SIMPLE = """
pipeline:
  transforms:
    - {type: ReadFromJson, name: A, config: {path: "%(dir)s/a.jsonl"}}
    - {type: Filter, name: Some, input: A, config: {keep: "id < %(below)s"}}
    - type: SlidingWindowJoin
      name: joined
      input: {a: Some, b: A}
      config: {time: ts, window: 1s, where: a.id = b.id, shards: 3}
    - {type: WriteToParquet, input: joined, config: {path: "%(dir)s/out/joined.parquet"}}
"""


def test_a_run_without_rows_writes_files_with_columns(tmp_path: Any) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1, "ts": 5}\n')
    summary = run_beam.run(read_template_text("t.yaml", SIMPLE % {"dir": tmp_path, "below": 0}))
    assert summary["results"] == 0 and summary["input"] == {"a": 0, "b": 1}
    assert pq.read_schema(tmp_path / "out/joined.parquet").names == ["a_id", "a_ts", "b_id", "b_ts", "ts"]


def test_results_of_shards_follow_each_other(tmp_path: Any) -> None:
    (tmp_path / "a.jsonl").write_text("".join(f'{{"id": {i % 50}, "ts": {i}}}\n' for i in range(500)))
    run_beam.run(read_template_text("t.yaml", SIMPLE % {"dir": tmp_path, "below": 99}))
    ts = pq.read_table(tmp_path / "out/joined.parquet")["ts"].to_pylist()
    assert len(ts) == 5000 and sum(later < earlier for earlier, later in zip(ts, ts[1:], strict=False)) == 2


def test_an_error_in_a_worker_is_one_sentence_and_leaves_no_file(tmp_path: Any) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1, "ts": 5}\n' * 10 + '{"id": "x" "ts"}\n')
    template = read_template_text("t.yaml", SIMPLE % {"dir": tmp_path, "below": 9})
    with pytest.raises(SlackwaterError) as caught:
        run_beam.run(template)
    assert "\n" not in str(caught.value) and "a.jsonl" in str(caught.value)
    assert not list((tmp_path).glob("out/*"))
