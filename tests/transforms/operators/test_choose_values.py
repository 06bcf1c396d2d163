"""ChooseValues: what is requested is what the best or the greedy choice keeps, on every runner."""

import json
from collections import Counter

import pyarrow as pa
import pytest
from apache_beam.yaml.yaml_provider import InlineProvider
from cli_calls import call
from hypothesis import given, settings
from hypothesis import strategies as st
from running import chunk_of

from slackwater.pipelines.runners.beam import runner as run_beam
from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.reader import TemplateError, read_template, read_template_text
from slackwater.transforms.beam import ChooseValues
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.operators.choose_values.plan import bind_choose_values
from slackwater.transforms.operators.choose_values.static_join import ValueCounts, adg, ndg, of_each, optdp
from slackwater.transforms.operators.registry import open_operator
from slackwater.transforms.settings.models import ChooseValuesConfig
from slackwater.transforms.state import snapshot as snapshots

SCHEMA = pa.schema([("ts", pa.int64()), ("value", pa.string()), ("count", pa.int32())])
SUMMARY = st.lists(st.tuples(st.sampled_from("uvwxyz"), st.integers(0, 5)), max_size=8)


def plan_of(inputs="ab", schema=SCHEMA, **config):
    return bind_choose_values(ChooseValuesConfig.read({"time": "ts", **config}), dict.fromkeys(inputs, schema))


def arrivals_of(summaries):
    return [
        (i, {"ts": 10 * i + at, "value": value, "count": count})
        for i, rows in enumerate(summaries)
        for at, (value, count) in enumerate(rows)
    ]


def chosen(plan, arrivals, cuts=()):
    """Push the rows in chunks, through a snapshot before each; return the operator and all that came out."""
    operator, out = open_operator(plan), []
    for start, stop in zip([0, *cuts], [*cuts, len(arrivals)], strict=True):
        out.append(operator.push(chunk_of(plan, arrivals[start:stop], start)))
        operator = open_operator(plan, snapshots.loads(snapshots.dumps(operator.snapshot())))
    out.append(operator.finish())
    rows = [row for given in out for batch in given.results for row in batch.to_pylist()]
    late = [row for given in out for batch in given.late for row in batch.to_pylist()]
    return operator, rows, late


def relations_of(summaries):
    counts = [Counter() for _ in summaries]
    for own, rows in zip(counts, summaries, strict=True):
        for value, count in rows:
            own[value] += count
    return ValueCounts.of_summaries(*counts)


@settings(deadline=None, max_examples=60)
@given(st.tuples(SUMMARY, SUMMARY), st.integers(0, 30), st.integers(0, 30), st.booleans(), st.data())
def test_what_is_requested_has_the_results_of_the_choice(summaries, k, other, leave_out, data):
    relations = relations_of(summaries)
    whole = sum(relations.sizes)
    way = "delete" if leave_out else "retain"
    both = tuple(map(min, zip((k, other), relations.sizes, strict=True)))
    arrivals = arrivals_of(summaries)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(arrivals)), max_size=2)))
    for config, expected in (
        ({"k": k}, adg(relations, **{way: min(k, whole)})),
        ({"k": k, "method": "optdp"}, optdp(relations, **{way: min(k, whole)})),
        ({"k": {"a": k, "b": other}}, ndg(relations, **{way: both})),
        ({"k": {"a": k, "b": other}, "method": "optdp"}, optdp(relations, **{way: both})),
        ({"k": {"a": k, "b": other}, "method": "each"}, of_each(relations, **{way: both})),
    ):
        operator, rows, late = chosen(plan_of(**config, leave_out=leave_out), arrivals, cuts)
        assert sum(row["a"] * row["b"] for row in rows) == expected.results
        assert [row["value"] for row in rows] == sorted({row["value"] for row in rows})
        assert all(row["a"] and row["b"] for row in rows)
        assert {row["ts"] for row in rows} <= {max(row["ts"] for _, row in arrivals)} if arrivals else not rows
        if not leave_out:
            requested = [sum(row[name] for row in rows) for name in "ab"]
            assert (
                sum(requested) <= k
                if isinstance(config["k"], int)
                else requested[0] <= k and requested[1] <= other
            )
        assert late == []
        assert operator.accounting.balanced(0)
        assert operator.accounting.balanced(1)


def test_three_relations_are_chosen_from_each_by_itself():
    summaries = [[("u", 2), ("v", 1)], [("u", 1), ("v", 3)], [("v", 2), ("u", 2)]]
    plan = plan_of("abc", k={"a": 1, "b": 3, "c": 2})
    rows = chosen(plan, arrivals_of(summaries))[1]
    assert rows == [{"value": "v", "a": 1, "b": 2, "c": 2, "ts": 21}]
    expected = of_each(relations_of(summaries), retain=(1, 3, 2))
    assert expected.results == 4


def test_rows_that_are_no_summaries_are_late():
    arrivals = [
        (0, {"ts": 1, "value": "u", "count": 2}),
        (0, {"ts": 2, "value": None, "count": 2}),
        (0, {"ts": 3, "value": "u", "count": -1}),
        (1, {"ts": 4, "value": "u", "count": None}),
        (1, {"ts": None, "value": "u", "count": 1}),
        (1, {"ts": 6, "value": "u", "count": 3}),
    ]
    operator, rows, late = chosen(plan_of(k=9), arrivals, [2])
    assert rows == [{"value": "u", "a": 2, "b": 3, "ts": 6}]
    assert Counter((row["input"], row["reason"]) for row in late) == {
        ("a", "bad_record"): 2,
        ("b", "bad_record"): 2,
    }
    assert json.loads(late[0]["row"]) == arrivals[1][1]
    assert operator.accounting.summary(10**6)["late"] == {"bad_record": 4}
    assert operator.accounting.balanced(0)
    assert operator.accounting.balanced(1)


@pytest.mark.parametrize(
    ("config", "inputs", "message"),
    [
        ({}, "ab", "k: is missing; add it"),
        ({"k": -1}, "ab", "k: must be 0 or more, got -1"),
        ({"k": 3, "method": "best"}, "ab", "method: input should be 'optdp', 'adg', 'ndg' or 'each', got 'best'"),
        ({"k": 3, "method": "ndg"}, "ab", "method: ndg takes a number of tuples for each input; write k as"),
        ({"k": {"a": 1, "b": 1}, "method": "adg"}, "ab", "method: adg takes one number of tuples overall"),
        ({"k": {"a": 1, "b": -2}}, "ab", "k.b: must be 0 or more, got -2"),
        ({"k": {"a": 1}}, "ab", "k: says nothing of input 'b'; add it"),
        ({"k": {"a": 1, "b": 1, "c": 1}}, "ab", "k.c: there is no input 'c'; there are a, b"),
        ({"k": 3}, "abc", "k: must give a number for each of a, b, c: one overall is for two inputs"),
        ({"k": dict.fromkeys("abc", 1), "method": "optdp"}, "abc", "method: optdp is for two inputs; use each"),
        ({"k": 3, "value": "key"}, "ab", "value: input 'a' has no column 'key'; it has ts, value, count"),
        (
            {"k": 3, "count": "value"},
            "ab",
            "count: column 'value' of input 'a' must be whole numbers, got string",
        ),
        (
            {"k": 3, "value": "ts"},
            ("ts", "b"),
            "input: column 'ts' is called like a column of the results (ts, ts)",
        ),
    ],
)
def test_settings_that_cannot_be_used_are_refused(config, inputs, message):
    with pytest.raises(ConfigError) as error:
        plan_of(inputs, **config)
    assert str(error.value).startswith(message)


def test_values_of_two_types_are_refused():
    other = SCHEMA.set(1, pa.field("value", pa.int64()))
    with pytest.raises(
        ConfigError, match="column 'value' of input 'b' is int64, elsewhere string; make them alike"
    ):
        bind_choose_values(ChooseValuesConfig.read({"time": "ts", "k": 1}), {"a": SCHEMA, "b": other})


def written(folder):
    return {
        file.name.split("-")[0].split(".")[0]: sorted(json.loads(line).items() for line in file.open())
        for file in sorted(folder.iterdir())
    }


@pytest.fixture(scope="module")
def on_local(tmp_path_factory):
    out = tmp_path_factory.mktemp("proxy")
    summary = local.run(read_template("sensor-proxy", {"out": str(out)}))
    assert {name: join["results"] for name, join in summary["joins"].items()} == {"requests": 2, "joined": 9}
    return written(out)


def test_the_template_joins_what_was_requested_and_nothing_else(on_local):
    assert [dict(row) for row in on_local["requests"]] == [
        {"value": 11, "north": 4, "south": 2, "ts": 1},
        {"value": 12, "north": 1, "south": 1, "ts": 1},
    ]
    assert Counter(dict(row)["north_value"] for row in on_local["joined"]) == {11: 8, 12: 1}


def test_beam_requests_and_joins_the_same(on_local, tmp_path):
    run_beam.run(read_template("sensor-proxy", {"out": str(tmp_path)}))
    assert written(tmp_path) == on_local


def test_a_fault_is_named_with_its_place(tmp_path):
    with pytest.raises(TemplateError, match=r"sensor-proxy.*requests.*method.*ndg takes a number of tuples"):
        local.run(read_template("sensor-proxy", {"out": str(tmp_path), "method": "ndg"}))
    chain = "pipeline: {type: chain, transforms: [{type: ChooseValues, config: {time: ts, k: 1}}]}"
    with pytest.raises(TemplateError, match="several inputs, which a chain cannot; use type: composite"):
        read_template_text("t.yaml", chain)


def test_the_constructor_has_the_settings_of_templates_and_documents_each():
    schema = InlineProvider.config_schema_from_callable(ChooseValues)
    assert {field.name for field in schema.fields} == set(ChooseValuesConfig.model_fields)
    assert all(field.description for field in schema.fields)


def test_the_template_is_listed():
    assert any(line.startswith("sensor-proxy ") for line in call("templates").stdout.splitlines())
