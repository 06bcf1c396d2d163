"""An operator from outside the package: one module, one line that registers it, and every runner knows it."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import toy_operator
from cli_calls import call

from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.json_schema import template_schema
from slackwater.pipelines.template.reader import TemplateError, read_template, read_template_text
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.operators import registry
from slackwater.transforms.operators.inputs import OneInput
from slackwater.transforms.operators.spec import OperatorSpec
from slackwater.transforms.settings.models import ReorderConfig

TEMPLATE = """
pipeline:
  transforms:
    - {type: ReadFromParquet, name: Rows, config: {path: "%(dir)s/rows.parquet"}}
    - {type: Repeat, name: again, input: Rows, config: {time: ts, times: n, most: 3}}
    - {type: WriteToParquet, name: w, input: again, config: {path: "%(dir)s/%(out)s.parquet"}}
    - {type: WriteToJson, name: l, input: again.late, config: {path: "%(dir)s/%(out)s-late.json"}}
"""
ROWS = {"ts": [3, 1, None, 2], "n": [2, 0, 1, 9]}
REPEATED = [(2, 9), (2, 9), (2, 9), (3, 2), (3, 2)]


registry._registered().pop(toy_operator.RepeatConfig)  # Its import has registered it.


@pytest.fixture(autouse=True)
def registered():
    """The toy, for one test: others list the operators that come with the package."""
    registry.register(toy_operator.SPEC)
    yield
    registry._registered().pop(toy_operator.RepeatConfig)


@pytest.fixture
def template(tmp_path):
    schema = pa.schema([("ts", pa.int64()), ("n", pa.int64())])
    pq.write_table(pa.table(ROWS, schema), tmp_path / "rows.parquet")

    def written(out):
        path = tmp_path / f"{out}.yaml"
        path.write_text(TEMPLATE % {"dir": tmp_path, "out": out})
        return path

    return written


def rows_of(folder, out):
    late = [json.loads(line) for line in (folder / f"{out}-late.json").read_text().splitlines()]
    assert [(row["input"], row["reason"]) for row in late] == [("input", "bad_record")]
    return sorted((row["ts"], row["n"]) for row in pq.read_table(folder / f"{out}.parquet").to_pylist())


def test_the_command_line_runs_it(tmp_path, template):
    result = call("run", template("local"))
    assert result.exit_code == 0, result.output
    assert rows_of(tmp_path, "local") == REPEATED


def test_check_describes_it(template):
    result = call("check", template("check"))
    assert result.exit_code == 0
    assert "repeats: n, at most 3" in result.output
    assert "shards: 1" in result.output


def test_editors_know_its_settings():
    definitions = template_schema()["$defs"]
    assert set(definitions["Repeat.config"]["properties"]) >= {"time", "times", "most"}


def test_settings_and_outputs_are_checked(tmp_path):
    text = TEMPLATE % {"dir": tmp_path, "out": "x"}
    with pytest.raises(TemplateError, match="most: input should be greater than or equal to 1, got 0"):
        read_template_text("t.yaml", text.replace("most: 3", "most: 0"))
    with pytest.raises(TemplateError, match=r"'again' has no output 'metrics'; it has again, again\.late"):
        read_template_text("t.yaml", text.replace("again.late", "again.metrics"))


def test_what_its_binder_refuses_names_line_and_setting(template):
    path = template("wrong")
    path.write_text(path.read_text().replace("times: n", "times: m"))
    with pytest.raises(TemplateError, match=r":5: again\.times: input 'input' has no column 'm'; name another"):
        local.run(read_template(str(path), {}))


@pytest.mark.beam
def test_beam_runs_it(tmp_path, template):
    from slackwater.pipelines.runners.beam import runner

    runner.run(read_template(str(template("beam")), {}), options={"runner": "FnApiRunner"})
    assert rows_of(tmp_path, "beam") == REPEATED


@pytest.mark.beam
def test_a_class_with_its_settings_makes_it_a_transform():
    import apache_beam as beam
    from apache_beam.testing.util import assert_that, equal_to

    from slackwater.transforms.beam.transform import OperatorTransform

    class Repeat(OperatorTransform):
        """Every row several times."""

        settings = toy_operator.RepeatConfig

    with beam.Pipeline() as job:
        rows = job | beam.Create([beam.Row(ts=3, n=2), beam.Row(ts=1, n=0)])
        again = (rows | Repeat(time="ts", times="n")).main | beam.Map(lambda row: (row.ts, row.n))
        assert_that(again, equal_to([(3, 2), (3, 2)]))


@pytest.mark.spark
def test_spark_runs_it(tmp_path, template, spark):
    from slackwater.pipelines.runners.spark import runner

    spark.sparkContext.addPyFile(toy_operator.__file__)
    runner.run(read_template(str(template("spark")), {}), session=spark)
    assert rows_of(tmp_path, "spark") == REPEATED


def test_a_name_or_settings_that_are_taken_are_refused():
    names = ("plan", "binder", "operator", "describer")
    code = {name: getattr(toy_operator.SPEC, name) for name in names}
    for name, settings in (("Reorder", toy_operator.RepeatConfig), ("Repeat", ReorderConfig)):
        spec = OperatorSpec(name=name, settings=settings, inputs=OneInput(), **code)
        with pytest.raises(ValueError, match=f"operator '{name}' has the name or the settings of"):
            registry.register(spec)


def test_settings_of_no_operator_are_no_operator():
    class Nobodys(toy_operator.RepeatConfig):
        """Of no operator."""

    with pytest.raises(ConfigError, match="no operator has the settings Nobodys; register it"):
        registry.operator_of(Nobodys(time="ts", times="n"))
