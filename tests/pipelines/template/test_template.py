"""Templates: what is read, and how they are bound to their data."""

from pathlib import Path

import pyarrow as pa
import pytest
from template_texts import CREATE, JOIN, VARIABLES, fault, read, transforms

from slackwater.pipelines.assembly.pipeline import assemble
from slackwater.pipelines.template.expression_text import parse_text
from slackwater.pipelines.template.graph import ARRIVAL, Create, Filter, MapToFields, Node, Port, Read, Write
from slackwater.pipelines.template.reader import TemplateError, read_template
from slackwater.transforms.errors import SlackwaterError
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import LATE_SCHEMA, METRICS_SCHEMA

SCHEMAS = {
    "Orders": pa.schema([("id", pa.int64()), ("ts", pa.int64())]),
    "Clicks": pa.schema([("order_id", pa.int64()), ("ts", pa.int64()), (ARRIVAL, pa.int64())]),
}


# --- what is read


def test_template_becomes_nodes_with_their_settings() -> None:
    pipeline = read(JOIN, **VARIABLES)
    assert [node.name for node in pipeline.nodes] == [
        "Orders",
        "Clicks",
        "joined",
        "WriteToJson@22",
        "WriteToJson@23",
    ]
    assert pipeline.node("Orders").config == Read("parquet", "orders.parquet")
    assert pipeline.node("Clicks").config == Read("csv", "clicks.csv")
    joined = pipeline.node("joined")
    assert joined.inputs == {"orders": Port("Orders"), "clicks": Port("Clicks")}
    assert isinstance(joined.config, JoinConfig) and str(joined.config.window) == "5s"
    assert pipeline.node("WriteToJson@23").inputs == {"input": Port("joined", "late")}
    assert pipeline.node("WriteToJson@23").config == Write("json", "late")
    assert pipeline.options == {"runner": "FnApiRunner"}


def test_lines_are_those_of_the_file() -> None:
    joined = read(JOIN, **VARIABLES).node("joined")
    assert str(joined.location) == "t.yaml:12"
    assert joined.lines[("window",)] == 17
    assert joined.lines[("disorder", "slack")] == 21
    assert joined.lines[("input", "clicks")] == 14


def test_lines_hold_where_jinja_moves_the_text() -> None:
    text = """\
pipeline:
  transforms:
{%- for name in ['A', 'B'] %}
    - type: Create
      name: {{ name }}
      config: {elements: [{x: 1}]}
{%- endfor %}
    - type: Filter
      input: A
      config: {keep: "{{ keep }}"}
    - type: Filtr
"""
    assert fault(text, keep="x >\n        0").startswith(
        "t.yaml:11: pipeline.transforms.3.type: no transform named"
    )


def test_chain_reads_from_the_transform_before() -> None:
    text = """\
pipeline:
  type: chain
  source: {type: ReadFromJson, config: {path: in}}
  transforms:
    - {type: Filter, config: {keep: {expression: a > 5 and b == 'x'}, language: python}}
    - {type: MapToFields, config: {fields: {a: a, c: {expression: b, output_type: string}}, language: sql}}
  sink: {type: WriteToCsv, config: {path: out}}
  extra_transforms:
    - {type: WriteToParquet, input: Filter, config: {path: kept}}
"""
    nodes = {node.name: node for node in read(text).nodes}
    assert {name: list(node.inputs.values()) for name, node in nodes.items()} == {
        "ReadFromJson": [],
        "Filter": [Port("ReadFromJson")],
        "MapToFields": [Port("Filter")],
        "WriteToCsv": [Port("MapToFields")],
        "WriteToParquet": [Port("Filter")],
    }
    assert nodes["Filter"].config == Filter(parse_text("a > 5 and b == 'x'", "python"))


def test_nodes_come_after_those_they_read_from() -> None:
    text = transforms(
        "{type: WriteToCsv, input: F.out, config: {path: out}}",
        "{type: Filter, name: F, input: [Create], config: {keep: element > 1}}",
        "{type: Create, config: {elements: [1, 2, {element: 3, x: y}]}}",
    )
    pipeline = read(text)
    assert [node.type for node in pipeline.nodes] == ["Create", "Filter", "WriteToCsv"]
    assert pipeline.nodes[0].config == Create(({"element": 1}, {"element": 2}, {"element": 3, "x": "y"}))
    assert pipeline.consumers(Port("F")) == [pipeline.nodes[2]]


def test_map_to_fields() -> None:
    text = transforms(
        "{type: Create, config: {elements: [1]}}",
        "{type: MapToFields, input: {i: Create}, config: {fields: {n: 1, t: y}, append: 1, drop: element}}",
    )
    config = read(text).nodes[1].config
    assert config == MapToFields({"n": parse_text("1"), "t": parse_text("y")}, True, ("element",))


def test_merge_keys_and_aliases_of_yaml_are_understood() -> None:
    text = """\
pipeline:
  transforms:
    - {type: Create, name: A, config: &c {elements: [{x: 1}]}}
    - {type: Create, name: B, config: *c}
    - {type: Create, name: C, config: {<<: *c, reshuffle: false}}
"""
    pipeline = read(text)
    assert pipeline.node("A").config == pipeline.node("B").config == pipeline.node("C").config


def test_a_path_is_read_and_shipped_templates_go_by_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(JOIN)
    assert read_template(str(path), VARIABLES).file == str(path)
    with pytest.raises(
        TemplateError, match="nope: no such file, and no shipped template has this name; shipped:"
    ):
        read_template("nope", {})
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TemplateError, match=r"mine\.yaml: is not UTF-8 text"):
        read_template(str(path), {})


# --- bound to the data


def schema_of(node: Node) -> pa.Schema:
    return SCHEMAS[node.name]


def test_every_output_has_its_columns_and_every_join_its_plan() -> None:
    assembly = assemble(read(JOIN, **VARIABLES), schema_of)
    assert assembly.schemas[Port("Clicks")].names == ["order_id", "ts"]
    assert assembly.schemas[Port("joined")].names == [
        "orders_id",
        "orders_ts",
        "clicks_order_id",
        "clicks_ts",
        "ts",
    ]
    assert assembly.schemas[Port("joined", "late")] == LATE_SCHEMA
    assert assembly.schemas[Port("joined", "metrics")] == METRICS_SCHEMA
    assert assembly.plans["joined"].windows == (5000, 5000)
    assert assembly.input_schema(assembly.pipeline.node("WriteToJson@22")) == assembly.schemas[Port("joined")]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "time: ts",
            "time: when",
            "t.yaml:16: joined.time: input 'orders' has no column 'when'; it has id, ts",
        ),
        ("{{ window }}", "0s", "t.yaml:17: joined.window: must be longer than 0, got 0s"),
        ("{{ window }}", "{orders: 1s}", "t.yaml:17: joined.window: says nothing of input 'clicks'; add it"),
        (
            "orders.id",
            "order.id",
            "t.yaml:18: joined.where: 'order.id' names no input; the inputs are orders, clicks",
        ),
        (
            "orders.id",
            "orders.no",
            "t.yaml:18: joined.where: input 'orders' has no column 'no'; it has id, ts",
        ),
        (
            "y: fixed",
            "y: fixd",
            "t.yaml:19: joined.disorder: no strategy named 'fixd'; installed: drop_ratio, external, fixed, ",
        ),
        (
            "2s",
            "fast",
            "t.yaml:21: joined.disorder.slack: option 'slack' of strategy 'fixed': must be a duration",
        ),
        (
            "slack: 2s",
            "slak: 2s",
            "t.yaml:21: joined.disorder.slak: strategy 'fixed' has no option 'slak'; its options",
        ),
        (
            "where: orders.id =",
            "hot_keys: {input: orders, values: [1]} #",
            "t.yaml:18: joined.hot_keys: needs a key that all inputs share, and the condition has none",
        ),
    ],
)
def test_faults_that_only_the_data_shows(old: str, new: str, expected: str) -> None:
    pipeline = read(JOIN.replace(old, new), **VARIABLES)
    with pytest.raises(TemplateError) as error:
        assemble(pipeline, schema_of)
    assert str(error.value).startswith(expected)


def test_negative_window_and_unknown_setting_need_no_data() -> None:
    assert fault(JOIN, clicks="c", window="-5s").startswith(
        "t.yaml:17: joined.window: must be a duration such as 250ms, 5s, 1m, 2h or 1d, got '-5s'"
    )
    assert fault(JOIN.replace("time:", "tme:"), **VARIABLES).startswith(
        "t.yaml:16: joined.tme: is not a setting; known settings: time, time_unit, "
    )


def test_faults_of_sources_and_columns_carry_the_line() -> None:
    def missing(node: Node) -> pa.Schema:
        raise SlackwaterError("no parquet file at 'orders.parquet'")

    with pytest.raises(TemplateError) as error:
        assemble(read(JOIN, **VARIABLES), missing)
    assert str(error.value) == "t.yaml:8: Orders.path: no parquet file at 'orders.parquet'"
    text = transforms(CREATE, "{type: Filter, input: A, config: {keep: y > 1}}")
    with pytest.raises(TemplateError) as error:
        assemble(read(text), lambda node: pa.schema([("x", pa.int64())]))
    assert str(error.value) == "t.yaml:5: Filter.keep: there is no column 'y'; there are x"
