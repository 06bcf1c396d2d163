"""Reorder: order out, late rows beside, nothing lost, nothing doubled; the same on every runner."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_calls import call
from hypothesis import given
from hypothesis import strategies as st

from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.reader import read_template_text
from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.operators.reorder.operator import ReorderOperator
from slackwater.transforms.operators.reorder.plan import bind_reorder
from slackwater.transforms.settings.models import ReorderConfig
from slackwater.transforms.state import snapshot as snapshots

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("name", pa.string())])


def plan_of(**settings):
    return bind_reorder(ReorderConfig.read({"time": "ts", "guard": "none", **settings}), {"input": SCHEMA})


def run(plan, times, cut, restart=False):
    """Return the rows that came out in order, and the late ones."""
    rows = [{"id": k, "ts": ts, "name": f"row {k}"} for k, ts in enumerate(times)]
    operator = ReorderOperator(plan)
    outputs = []
    for start in range(0, len(rows), cut):
        batch = pa.RecordBatch.from_pylist(rows[start : start + cut], schema=SCHEMA)
        number = np.arange(start, start + batch.num_rows)
        outputs.append(operator.push(Chunk(np.zeros(batch.num_rows, np.int8), number, [batch])))
        if restart:
            operator = ReorderOperator(plan, snapshots.loads(snapshots.dumps(operator.snapshot())))
    outputs.append(operator.finish())
    out = [row for output in outputs for batch in output.results for row in batch.to_pylist()]
    late = [row for output in outputs for batch in output.late for row in batch.to_pylist()]
    return out, late


DISORDER = st.one_of(
    st.sampled_from([{"strategy": "none"}, {"strategy": "max"}]),
    st.integers(0, 40).map(lambda k: {"strategy": "fixed", "slack": f"{k}ms" if k else 0}),
)


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 60)), max_size=60), DISORDER, st.integers(1, 20), st.booleans()
)
def test_rows_come_out_sorted_or_late_and_each_exactly_once(times, disorder, cut, restart):
    out, late = run(plan_of(disorder=disorder), times, cut, restart)
    sorted_times = [row["ts"] for row in out]
    assert sorted_times == sorted(sorted_times)
    ids = [row["id"] for row in out] + [json.loads(row["row"])["id"] for row in late]
    assert sorted(ids) == list(range(len(times)))
    assert {row["reason"] for row in late} <= {"too_late", "bad_record"}
    assert [k for k, ts in enumerate(times) if ts is None] == sorted(
        row["arrival"] for row in late if row["reason"] == "bad_record"
    )


@given(st.lists(st.integers(0, 60), max_size=60), st.integers(0, 40))
def test_a_row_is_late_only_if_its_delay_is_larger_than_the_slack(times, slack):
    _, late = run(plan_of(disorder={"strategy": "fixed", "slack": f"{slack}ms" if slack else 0}), times, 60)
    newest = np.maximum.accumulate(times) if times else []
    for row in late:
        assert newest[row["arrival"]] - row["ts"] > slack


def test_enough_slack_leaves_nothing_late():
    times = [5, 1, 9, 2, 30, 28]
    out, late = run(plan_of(disorder={"strategy": "fixed", "slack": "7ms"}), times, 2)
    assert [row["ts"] for row in out] == sorted(times)
    assert late == []
    assert out[0] == {"id": 1, "ts": 1, "name": "row 1"}


def test_an_unknown_time_column_is_refused():
    with pytest.raises(ConfigError, match=r"time: input 'input' has no column 'when'; it has id, ts, name"):
        bind_reorder(ReorderConfig.read({"time": "when"}), {"input": SCHEMA})
    with pytest.raises(ConfigError, match=r"window: is not a setting; known settings: time"):
        ReorderConfig.read({"time": "ts", "window": "5s"})
    with pytest.raises(ConfigError, match=r"input: needs one input, got 2"):
        bind_reorder(ReorderConfig.read({"time": "ts"}), {"a": SCHEMA, "b": SCHEMA})


TEMPLATE = """\
pipeline:
  type: composite
  transforms:
    - {type: ReadFromParquet, name: Rows, config: {path: "%(dir)s/rows.parquet"}}
    - type: Reorder
      name: ordered
      input: Rows
      config: {time: ts, arrival: id, disorder: {strategy: fixed, slack: 20ms}}
    - {type: WriteToJson, name: Out, input: ordered, config: {path: "%(dir)s/%(name)s-out"}}
    - {type: WriteToJson, name: Late, input: ordered.late, config: {path: "%(dir)s/%(name)s-late"}}
providers:
  - {type: python, config: {}, transforms: {Reorder: slackwater.transforms.beam.Reorder}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("reorder")
    rng = np.random.default_rng(2)
    times = 5 * np.arange(300) - rng.integers(0, 90, 300) * (rng.random(300) < 0.3)
    table = pa.table({"id": np.arange(300), "ts": times, "name": [f"row {k}" for k in range(300)]})
    pq.write_table(table, path / "rows.parquet")
    return path


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def written(folder, name, start):
    start(read_template_text("t.yaml", TEMPLATE % {"dir": folder, "name": name}))
    return lines(folder / f"{name}-out.jsonl"), lines(folder / f"{name}-late.jsonl")


def test_a_template_reorders_a_file(folder):
    out, late = written(folder, "local", local.run)
    assert [row["ts"] for row in out] == sorted(row["ts"] for row in out)
    assert len(out) + len(late) == 300
    assert late


@pytest.mark.beam
@pytest.mark.beam_spark
@pytest.mark.spark
def test_every_runner_gives_the_same_order_and_the_same_late_rows(folder, spark):
    from slackwater.pipelines.runners.beam import runner as run_beam
    from slackwater.pipelines.runners.spark import runner as run_spark

    expected = written(folder, "expected", local.run)
    assert written(folder, "beam", run_beam.run) == expected
    assert written(folder, "beam-spark", lambda p: run_beam.run(p, spark=True)) == expected
    assert written(folder, "spark", lambda p: run_spark.run(p, session=spark, rows_per_batch=70)) == expected


@pytest.mark.beam
def test_beam_yaml_runs_the_same_file(folder):
    expected = written(folder, "again", local.run)
    template = folder / "t.yaml"
    template.write_text(TEMPLATE % {"dir": folder, "name": "yaml"})
    command = [sys.executable, "-m", "apache_beam.yaml.main", f"--yaml_pipeline_file={template}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    out = [row for path in sorted(folder.glob("yaml-out-*")) for row in lines(path)]
    late = [row for path in sorted(folder.glob("yaml-late-*")) for row in lines(path)]
    assert sorted(row["id"] for row in out) == sorted(row["id"] for row in expected[0])
    assert sorted(map(str, late)) == sorted(map(str, expected[1]))


@pytest.mark.beam
def test_the_transform_works_in_a_beam_pipeline():
    import apache_beam as beam
    from apache_beam.testing.test_pipeline import TestPipeline
    from apache_beam.testing.util import assert_that, equal_to

    from slackwater.transforms.beam import Reorder

    with TestPipeline() as p:
        rows = p | beam.Create([beam.Row(ts=ts, at=k) for k, ts in enumerate([3, 1, 9, 2])])
        ordered = rows | Reorder(time="ts", arrival="at", disorder={"strategy": "fixed", "slack": "2ms"})
        assert_that(ordered.main | beam.Map(lambda row: row.ts), equal_to([1, 3, 9]))
        assert_that(
            ordered.late | "Late ids" >> beam.Map(lambda row: (row.ts, row.reason)),
            equal_to([(2, "too_late")]),
            "late",
        )


@pytest.mark.spark
def test_the_function_works_on_frames(spark):
    from slackwater.transforms.spark import reorder

    frame = spark.createDataFrame([(3, 0), (1, 1), (9, 2), (2, 3)], "ts long, at long")
    ordered = reorder(frame, time="ts", arrival="at", disorder={"strategy": "fixed", "slack": "2ms"})
    assert [row.ts for row in ordered.results.collect()] == [1, 3, 9]
    assert [(row.ts, row.reason) for row in ordered.late.collect()] == [(2, "too_late")]


def test_check_shows_what_is_reordered(folder):
    template = folder / "check.yaml"
    template.write_text(TEMPLATE % {"dir": folder, "name": "x"})
    done = call("check", template)
    assert done.exit_code == 0, done.output
    assert "ordered: Reorder" in done.output
    assert "disorder: fixed (slack 20ms)" in done.output
