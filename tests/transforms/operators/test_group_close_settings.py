"""GroupClose in templates: settings, columns and patterns of every type, and what is said of those at fault."""

import json

import pyarrow as pa
import pytest
from close_reference import PUNCTUATIONS, ROWS, plan_of, run
from template_texts import fault, transforms

from slackwater.pipelines.assembly.pipeline import assemble
from slackwater.pipelines.io.sources import source_schema
from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.reader import TemplateError, read_template_text
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.operators.group_close.plan import bind_group_close
from slackwater.transforms.settings.models import GroupCloseConfig

CREATE = "{type: Create, name: A, config: {elements: [{x: 1, ts: 1}]}}"
MARKS = "{type: Create, name: P, config: {elements: [{ts: 1, pattern: '{}'}]}}"


def close(input="{rows: A, punctuations: P}", **settings):
    config = {"time": "ts", "by": "x", "aggregates": {"n": "count(*)"}, **settings}
    return f"{{type: GroupClose, name: g, input: {input}, config: {json.dumps(config)}}}"


@pytest.mark.parametrize(
    ("input", "said"),
    [
        ("A", "t.yaml:6: g.input: must be {rows: transform, punctuations: transform}, such as a join and its"),
        ("{rows: A}", "must be {rows: transform, punctuations: transform}"),
        ("{rows: A, punctuations: P, more: P}", "must be {rows: transform, punctuations: transform}"),
        ("{rows: A, punctuations: A.late}", "g.input.punctuations: 'A' has no output 'late'; it has A"),
        ("{rows: B, punctuations: P}", "g.input.rows: no transform named 'B'; there are A, P, g"),
    ],
)
def test_inputs_at_fault(input, said):
    assert said in fault(transforms(CREATE, MARKS, close(input)))


def test_there_is_no_other_output_than_late():
    sink = "{type: WriteToJson, input: g.metrics, config: {path: x}}"
    assert "'g' has no output 'metrics'; it has g, g.late" in fault(transforms(CREATE, MARKS, close(), sink))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"by": "y"}, "g.by: there is no column 'y'; there are x, ts"),
        ({"by": []}, "g.by: names no column; add one, such as auctions_id"),
        ({"by": ["x", "x"]}, "g.by: names 'x' twice; remove one"),
        ({"by": "ts"}, "g.by: column 'ts' is called like a column of the results (ts, closed_by); rename it"),
        ({"aggregates": {}}, "g.aggregates: names no aggregate; add one"),
        (
            {"aggregates": {"x": "count(*)"}},
            "g.aggregates.x: there is a result column of this name already (x, ts,",
        ),
        ({"aggregates": {"n": "sum(y)"}}, "g.aggregates.n: "),
        ({"aggregates": {"n": "median(x)"}}, "g.aggregates.n: 'median(x)' is no aggregate; there are count(*)"),
        ({"time": "t"}, "g.time: input 'rows' has no column 't'; it has x, ts"),
        ({"time": {"rows": "ts"}}, "g.time: "),
        ({"window": "0s"}, "g.window: must be longer than 0, got 0s"),
        ({"window": "1us"}, "g.window: must be a whole number of ms"),
        ({"window": "300000000000d"}, "g.window: must be shorter"),
        ({"same": {"y": "z"}}, "g.same.y: names no column of by (x); write {column: by column}"),
        ({"same": {"x": "x"}}, "g.same.x: is a column of by itself; leave it out"),
        ({"shards": 0}, "g.shards: "),
        (
            {"disorder": {"strategy": "none"}},
            "g.disorder: is not a setting; known settings: time, time_unit, err",
        ),
    ],
)
def test_settings_at_fault(settings, said):
    with pytest.raises(TemplateError) as error:
        pipeline = read_template_text("t.yaml", transforms(CREATE, MARKS, close(**settings)))
        assemble(pipeline, lambda node: source_schema(node.config))
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (
            [("ts", pa.int64())],
            "input.punctuations: has no column 'pattern'; it has ts. Read the punctuations of a",
        ),
        ([("pattern", pa.string())], "input.punctuations: has no column 'ts'; it has pattern"),
        ([("ts", pa.int64()), ("pattern", pa.int64())], "column 'pattern' must be text, got int64"),
        (
            [("ts", pa.float64()), ("pattern", pa.string())],
            "column 'ts' must be an integer or a timestamp, got double",
        ),
        (
            [("ts", pa.timestamp("ms")), ("pattern", pa.string())],
            "column 'ts' is timestamp[ms], but the time 'ts' of the rows is int64; store them alike",
        ),
    ],
)
def test_punctuations_at_fault(columns, said):
    config = GroupCloseConfig.read({"time": "ts", "by": "k", "aggregates": {"n": "count(*)"}})
    with pytest.raises(ConfigError) as error:
        bind_group_close(config, {"rows": ROWS, "punctuations": pa.schema(columns)})
    assert said in str(error.value)


def test_columns_that_cannot_be_grouped_by():
    with pytest.raises(ConfigError, match="column 'xs' has type list<item: int64>, which cannot be grouped by"):
        plan_of(ROWS.append(pa.field("xs", pa.list_(pa.int64()))), by="xs")
    many = pa.schema([("ts", pa.int64()), *((f"c{n}", pa.int64()) for n in range(33))])
    with pytest.raises(ConfigError, match="names more than 32 columns; group by fewer"):
        plan_of(many, by=[f"c{n}" for n in range(33)], aggregates={"n": "count(*)"})


VALUES = {
    "int": (pa.int32(), 7, "7"),
    "whole float": (pa.int64(), 7, "7.0"),
    "unsigned": (pa.uint8(), 200, "200"),
    "float": (pa.float32(), -2.5, "-2.5"),
    "float of int": (pa.float64(), 3.0, "3"),
    "bool": (pa.bool_(), True, "true"),
    "text": (pa.large_string(), 'a "quoted" null', '"a \\"quoted\\" null"'),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), "d", '"d"'),
    "binary": (pa.binary(), b"\x00\xff", '"00ff"'),
    "decimal": (pa.decimal128(9, 2), "1.50", '"1.50"'),
    "timestamp": (pa.timestamp("us"), 1_700_000_000_000_001, '"2023-11-14 22:13:20.000001"'),
    "zoned": (pa.timestamp("ms", "UTC"), 1_700_000_000_000, '"2023-11-14 22:13:20.000Z"'),
    "date": (pa.date32(), 19675, '"2023-11-14"'),
    "null": (pa.int64(), None, "null"),
}


@pytest.mark.parametrize("shards", [1, 5])
@pytest.mark.parametrize("kind", VALUES)
def test_patterns_name_values_of_every_type(kind, shards, tmp_path):
    """Each group is closed by its own punctuation, read as JSON, in whatever shard it is."""
    type_, value, text = VALUES[kind]
    given = pa.array([value], pa.string()).cast(type_) if pa.types.is_decimal(type_) else pa.array([value], type_)
    schema = pa.schema([("ts", pa.int64()), ("g", type_)])
    plan = plan_of(schema, by="g", aggregates={"n": "count(*)"}, shards=shards)
    row = pa.RecordBatch.from_arrays([pa.array([5]), given], schema=schema)
    mark = pa.RecordBatch.from_pylist([{"ts": 5, "pattern": f'{{"g": {text}}}'}], schema=PUNCTUATIONS)
    assert plan.partitioning.routes(1, mark).shard.tolist() == plan.partitioning.routes(0, row).shard.tolist()
    done = run(plan, [(0, row.to_pylist()[0]), (1, mark.to_pylist()[0])])
    assert [(r["n"], r["closed_by"]) for r in done.rows()] == [(1, "punctuation")]


@pytest.mark.parametrize(
    "pattern",
    [
        *("", "{", "7", "[]", "null", '{"j": "x"}', '{"j": 1.5}', '{"j": true}', '{"k": 7}', '{"j": [1, "x"]}'),
        *(
            '{"j": {"from": "x"}}',
            '{"j": {"above": 3}}',
            '{"k": {"from": "a"}}',
            '{"j": {"to": 3}, "k": "a"}',
            None,
        ),
    ],
)
def test_a_pattern_that_cannot_be_read_is_a_bad_record_and_closes_nothing(pattern):
    row = {"id": 0, "ts": 1, "k": "a", "j": 1, "twin": 1, "v": 1, "x": None}
    events = [(0, row), (1, {"ts": 1, "pattern": pattern}), (1, {"ts": None, "pattern": '{"j": 1}'})]
    done = run(plan_of(by=["j", "k"]), events)
    assert [r["closed_by"] for r in done.rows()] == ["end"]
    assert [(r["input"], r["reason"]) for r in done.rows("late")] == [("punctuations", "bad_record")] * 2
    assert done.operator.accounting.balanced(1)


def test_ranges_of_floats_and_times_have_both_ends():
    schema = pa.schema([("ts", pa.int64()), ("f", pa.float64()), ("t", pa.timestamp("us"))])
    values = [-3.0, -0.5, -0.0, 0.25, 2.0, float("nan"), None]
    rows = [(0, {"ts": 1, "f": f, "t": None}) for f in values]
    plan = plan_of(schema, by="f", aggregates={"n": "count(*)"})

    def closed(plan, rows, pattern):
        found = run(plan, [*rows, (1, {"ts": 1, "pattern": pattern})]).rows()
        return [row[plan.by[0]] for row in found if row["closed_by"] == "punctuation"]

    assert closed(plan, rows, '{"f": {"from": -0.5, "to": 0.25}}') == [-0.5, 0.0, 0.25]
    assert closed(plan, rows, '{"f": {"from": -0.5, "to": null}}') == [-0.5, 0.0, 0.25, 2.0]
    assert closed(plan, rows, '{"f": {"to": -1}}') == [-3.0]
    times = [
        (0, {"ts": 1, "f": None, "t": pa.scalar(s).cast(pa.timestamp("us")).as_py()})
        for s in ("2024-01-01", "2024-01-03")
    ]
    plan = plan_of(schema, by="t", aggregates={"n": "count(*)"})
    (day,) = closed(plan, times, '{"t": {"from": "2024-01-02 00:00:00", "to": "2024-01-03"}}')
    assert day.day == 3


def test_a_column_beside_those_of_by_closes_no_group_unless_it_is_the_same():
    row = {"id": 0, "ts": 1, "k": "a", "j": 1, "twin": 1, "v": 1, "x": None}
    for pattern in ('{"j": 1, "twin": 1}', '{"j": 1, "twin": 1, "k": null}'):
        events = [(0, row), (1, {"ts": 1, "pattern": pattern}), (0, {**row, "ts": 2})]
        done = run(plan_of(by="j"), events, 1, restart=True)
        assert [r["closed_by"] for r in done.rows()] == ["end"] and not done.rows("late")
        (warning,) = done.operator.warnings
        assert "close no group, as groups are by j alone; add the column to by, or, if it always has" in warning
    events = [
        (0, row),
        (1, {"ts": 1, "pattern": '{"j": 1, "twin": 1}'}),
        (1, {"ts": 3, "pattern": '{"twin": 2}'}),
    ]
    done = run(plan_of(by="j", same={"twin": "j"}), [*events, (0, {**row, "ts": 4, "j": 2, "twin": 2})])
    assert [r["closed_by"] for r in done.rows()] == ["punctuation"]
    assert [r["reason"] for r in done.rows("late")] == ["punctuation_violated"]
    differ = [(0, row), (1, {"ts": 1, "pattern": '{"j": 1, "twin": 2}'})]
    assert [r["closed_by"] for r in run(plan_of(by="j", same={"twin": "j"}), differ).rows()] == ["end"]


def test_no_punctuation_at_all_is_worth_a_warning(tmp_path):
    some = "{type: Filter, name: None, input: P, config: {keep: ts > 5}}"
    sink = f"{{type: WriteToJson, input: g, config: {{path: {tmp_path}/g}}}}"
    text = transforms(CREATE, MARKS, some, close("{rows: A, punctuations: None}"), sink)
    summary = local.run(read_template_text("t.yaml", text))
    assert "g: no punctuation came, so none has closed a group; check that the join passes some on" in str(
        summary["warnings"]
    )
