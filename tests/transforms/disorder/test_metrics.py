"""Measurements per interval: what they say, that chunks do not show, and that every runner gives the same."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_calls import call, write_template
from running import SCHEMA, chunk_of, numbered, plan_of

from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.runners.metrics_file import metrics_to
from slackwater.pipelines.template.reader import read_template_text
from slackwater.transforms.operators.join import Operator
from slackwater.transforms.state import snapshot as snapshots

ARRIVALS = numbered((k % 2, {"ts": 10 * k - (75 if k % 5 == 4 else 0), "k": k % 3, "v": 0}) for k in range(60))


def metrics_of(plan, arrivals, cut=None, restart=False):
    operator = Operator(plan)
    batches = []
    for start in range(0, len(arrivals), cut or len(arrivals)):
        part = arrivals[start : start + (cut or len(arrivals))]
        batches += operator.push(chunk_of(plan, part, start)).metrics
        if restart:
            operator = Operator(plan, snapshots.loads(snapshots.dumps(operator.snapshot())))
    batches += operator.finish().metrics
    return pa.Table.from_batches(batches).to_pylist()


@pytest.fixture
def plan():
    fixed = {"strategy": "fixed", "slack": "20ms"}
    return plan_of(SCHEMA, window="50ms", where="a.k = b.k", disorder=fixed, metrics="100ms")


def test_rows_add_up_to_the_run(plan):
    rows = metrics_of(plan, ARRIVALS)
    operator = Operator(plan)
    outputs = [operator.push(chunk_of(plan, ARRIVALS)), operator.finish()]
    assert sum(row["produced"] for row in rows) == sum(b.num_rows for out in outputs for b in out.results)
    assert sum(row["late"] for row in rows) == sum(b.num_rows for out in outputs for b in out.late) > 0
    assert [row["ts"] for row in rows[:3]] == [100, 200, 300]
    assert {row["slack_ms"] for row in rows if row["slack_ms"] is not None} == {20.0}


def test_latency_is_the_stream_time_that_passed_until_a_row_was_joined(plan):
    arrivals = numbered(
        [(0, {"ts": 0, "k": 1}), (1, {"ts": 0, "k": 1}), (0, {"ts": 30, "k": 1}), (1, {"ts": 30, "k": 1})]
    )
    rows = metrics_of(plan, [*arrivals, *numbered([(0, {"ts": 140, "k": 1})])])
    assert rows[0]["latency_ms"] == 30.0
    assert rows[0]["buffered"] == 2


@pytest.mark.parametrize("cut", [1, 7, 23])
def test_chunks_and_snapshots_change_no_row(plan, cut):
    assert metrics_of(plan, ARRIVALS, cut, restart=True) == metrics_of(plan, ARRIVALS)


def test_without_an_interval_nothing_is_measured():
    plan = plan_of(SCHEMA, window="50ms", where="a.k = b.k", disorder={"strategy": "none"})
    operator = Operator(plan)
    assert operator.push(chunk_of(plan, ARRIVALS)).metrics == operator.finish().metrics == []


TEMPLATE = """
pipeline:
  type: composite
  transforms:
    - {type: ReadFromParquet, name: A, config: {path: "%(dir)s/a.parquet"}}
    - {type: ReadFromParquet, name: B, config: {path: "%(dir)s/b.parquet"}}
    - type: SlidingWindowJoin
      name: joined
      input: {a: A, b: B}
      config:
        {time: ts, arrival: id, window: 50ms, where: a.k = b.k, disorder: {strategy: max}, metrics: 100ms}
    - {type: WriteToJson, name: M, input: joined.metrics, config: {path: "%(dir)s/%(name)s"}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("metrics")
    for i, name in enumerate("ab"):
        rows = [{**row, "id": k} for k, (which, row) in enumerate(ARRIVALS) if which == i]
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path / f"{name}.parquet")
    return path


def rows_of(folder, name, run):
    run(read_template_text("t.yaml", TEMPLATE % {"dir": folder, "name": name}))
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


@pytest.mark.beam
@pytest.mark.beam_spark
@pytest.mark.spark
def test_every_runner_measures_the_same(folder, spark):
    from slackwater.pipelines.runners.beam import runner as run_beam
    from slackwater.pipelines.runners.spark import runner as run_spark

    expected = rows_of(folder, "local", local.run)
    assert len(expected) > 4
    assert rows_of(folder, "beam", run_beam.run) == expected
    assert rows_of(folder, "beam-spark", lambda p: run_beam.run(p, spark=True)) == expected
    assert rows_of(folder, "spark", lambda p: run_spark.run(p, session=spark)) == expected


def test_the_metrics_option_writes_a_line_per_interval_with_the_name_of_the_join(tmp_path):
    file = tmp_path / "m.jsonl"
    done = call("run", write_template(tmp_path), "--set", "slack=0s", "--metrics", file)
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["join"] for line in lines] == ["joined"] * len(lines)
    assert [line["ts"] for line in lines] == [2000, 3000, 3000]
    assert not list(tmp_path.glob("*.partial"))


def test_a_folder_for_metrics_that_is_not_there_is_refused(tmp_path):
    done = call("run", write_template(tmp_path), "--set", "slack=0s", "--metrics", tmp_path / "no" / "m.jsonl")
    assert done.exit_code == 2
    assert "--metrics: there is no folder" in done.stderr


def test_without_the_option_the_pipeline_is_left_alone(folder):
    pipeline = read_template_text("t.yaml", TEMPLATE % {"dir": folder, "name": "x"})
    with metrics_to(None, pipeline) as measured:
        assert measured is pipeline
