"""Flatten: what templates may say of it, and the rows of several transforms as those of one on every runner."""

import json

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from template_texts import CREATE, CREATE_B, fault, read, transforms

from slackwater.pipelines.assembly.pipeline import assemble
from slackwater.pipelines.io.sources import source_schema
from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.graph import Flatten, Port
from slackwater.pipelines.template.json_schema import template_schema
from slackwater.pipelines.template.reader import TemplateError


@pytest.mark.parametrize("given", ["[A, B]", "{x: A, y: B}"])
def test_inputs_are_listed(given):
    text = transforms(CREATE, CREATE_B, f"{{type: Flatten, input: {given}}}")
    node = read(text).node("Flatten")
    assert node.config == Flatten()
    assert node.inputs == {"0": Port("A"), "1": Port("B")}
    jsonschema.Draft202012Validator(template_schema()).validate(yaml.safe_load(text))


def test_one_input_and_a_chain_will_do():
    assert read(transforms(CREATE, "{type: Flatten, input: A}")).node("Flatten").inputs == {"0": Port("A")}
    assert read(transforms(CREATE, "{type: Flatten}", kind="chain")).node("Flatten").inputs == {"0": Port("A")}


def test_schema_refuses_an_input_that_is_none():
    text = transforms(CREATE, "{type: Flatten, input: []}")
    assert not jsonschema.Draft202012Validator(template_schema()).is_valid(yaml.safe_load(text))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("{type: Flatten}", "Flatten.input: has no input; add input: with a list of transforms"),
        ("{type: Flatten, input: []}", "Flatten.input: has no input; add input: with a list of transforms"),
        ("{type: Flatten, input: [A, C]}", "Flatten.input: no transform named 'C'; there are A, B, Flatten"),
        ("{type: Flatten, input: [A, B.late]}", "Flatten.input: 'B' has no output 'late'; it has B"),
        ("{type: Flatten, input: [A, 5]}", "Flatten.input: must be the name of a transform, got 5"),
        ("{type: Flatten, input: [A], config: {x: 1}}", "Flatten.x: is not a setting; known settings: "),
    ],
)
def test_faults_of_the_text(spec, expected):
    assert fault(transforms(CREATE, CREATE_B, spec)).startswith(f"t.yaml:6: {expected}")


def assembled_fault(*specs):
    with pytest.raises(TemplateError) as error:
        assemble(read(transforms(*specs)), lambda node: source_schema(node.config))
    return str(error.value)


def create(name, *rows):
    return f"{{type: Create, name: {name}, config: {{elements: {json.dumps(rows)}}}}}"


def test_columns_must_be_the_same():
    both = "{type: Flatten, name: F, input: [A, B]}"
    assert assembled_fault(create("A", {"x": 1}), create("B", {"y": 1}), both) == (
        "t.yaml:6: F.input: 'B' has columns y, but 'A' has x; make them alike with MapToFields"
    )
    assert assembled_fault(create("A", {"x": 1}), create("B", {"x": "1"}), both) == (
        "t.yaml:6: F.input: column 'x' of 'B' is string, but that of 'A' is int64; make them alike with "
        "MapToFields"
    )


@pytest.mark.parametrize("on_the_way", ["F", "G"])
def test_what_reads_it_needs_an_arrival_column(on_the_way):
    found = assembled_fault(
        create("A", {"ts": 1}),
        create("B", {"ts": 1}),
        "{type: Flatten, name: F, input: [A, B]}",
        "{type: Filter, name: G, input: F, config: {keep: ts > 0}}",
        f"{{type: Reorder, name: R, input: {on_the_way}, config: {{time: ts}}}}",
    )
    assert found == (
        "t.yaml:8: R.input: input 'input' comes from 'F', and Flatten keeps no order of arrival; name an "
        "arrival column"
    )


TEMPLATE = """
pipeline:
  type: composite
  transforms:
    - {type: ReadFromParquet, name: A, config: {path: "%(dir)s/a.parquet"}}
    - {type: ReadFromCsv, name: B, config: {path: "%(dir)s/b.csv"}}
    - {type: Create, name: C, config: {elements: [{at: 7, name: null, ts: 33}, {at: 40, name: null, ts: 41}]}}
    - {type: Filter, name: Some, input: A, config: {keep: "ts <> 12"}}
    - {type: Flatten, name: All, input: [Some, B, C]}
    - {type: Flatten, name: Twice, input: [All, Some]}
    - {type: Filter, name: Late ones, input: Twice, config: {keep: "ts > 30"}}
    - type: Reorder
      name: ordered
      input: All
      config: {time: ts, arrival: at, disorder: {strategy: fixed, slack: 20ms}}
    - {type: WriteToJson, name: Out, input: ordered, config: {path: "%(out)s/ordered.jsonl"}}
    - {type: WriteToJson, name: Late, input: ordered.late, config: {path: "%(out)s/late.jsonl"}}
    - {type: WriteToCsv, name: Doubled, input: Late ones, config: {path: "%(out)s/doubled.csv"}}
"""


@pytest.fixture
def folder(tmp_path):
    a = {"ts": [3, 12, 30, 60], "name": ["a3", "a12", "a30", "a60"], "at": [1, 4, 10, 20]}
    pq.write_table(pa.table(a), tmp_path / "a.parquet")
    # Not in order of arrival, with the columns in another order, and a time that is missing.
    (tmp_path / "b.csv").write_text("name,at,ts\nb25,11,25\nb1,2,1\nb?,5,\nb2,12,2\n")
    return tmp_path


def written(folder, name, run):
    out = folder / name
    run(read(TEMPLATE % {"dir": folder, "out": out}))
    return {path.name: path.read_text().splitlines() for path in sorted(out.iterdir())}


def test_rows_of_all_inputs_come_through_in_order_of_arrival(folder):
    files = written(folder, "local", local.run)
    rows = [json.loads(line) for line in files["ordered.jsonl"]]
    # b2 arrives when 3 has left.
    assert [(row["ts"], row["name"]) for row in rows] == [
        (1, "b1"), (3, "a3"), (25, "b25"), (30, "a30"), (33, None), (41, None), (60, "a60"),
    ]  # fmt: skip
    late = [json.loads(line) for line in files["late.jsonl"]]
    assert [(row["reason"], row["arrival"]) for row in late] == [("bad_record", 5), ("too_late", 12)]
    assert sorted(files["doubled.csv"][1:]) == ["33,,7", "41,,40", '60,"a60",20', '60,"a60",20']


@pytest.mark.beam
@pytest.mark.spark
def test_every_runner_gives_the_same(folder, spark):
    from slackwater.pipelines.runners.beam import runner as run_beam
    from slackwater.pipelines.runners.spark import runner as run_spark

    expected = written(folder, "expected", local.run)
    for name, run in (
        ("beam", run_beam.run),
        ("spark", lambda p: run_spark.run(p, session=spark, rows_per_batch=3)),
    ):
        got = written(folder, name, run)
        assert got["ordered.jsonl"] == expected["ordered.jsonl"]
        assert {k: sorted(v) for k, v in got.items()} == {k: sorted(v) for k, v in expected.items()}
