"""The JSON Schema of templates: it accepts what is right and refuses what is wrong."""

import copy
import json
import re
from typing import Any

import jinja2
import jinja2.meta
import jsonschema
import pytest
import yaml
from template_texts import CREATE, JOIN, read, transforms

from slackwater.pipelines.template.json_schema import template_schema
from slackwater.pipelines.template.reader import read_template, shipped


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = template_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    json.dumps(schema)
    return jsonschema.Draft202012Validator(schema)


GOOD: dict[str, Any] = yaml.safe_load(JOIN.split("\n", 1)[1].replace("{{ window }}", '"{{ window }}"'))


def test_schema_accepts_templates_with_variables_and_without(validator: Any) -> None:
    validator.validate(GOOD)
    plain = copy.deepcopy(GOOD)
    plain["pipeline"]["transforms"][2]["config"]["window"] = {"orders": "5s", "clicks": "1m"}
    validator.validate(plain)
    for text in (
        transforms(CREATE, "{type: Filter, input: A, config: {keep: {expression: x > 1}, language: sql}}"),
        transforms(
            CREATE,
            "{type: MapToFields, config: {fields: {a: x, b: 1}, append: true, drop: [x]}}",
            kind="chain",
        ),
    ):
        read(text)
        validator.validate(yaml.safe_load(text))


@pytest.mark.parametrize("name", shipped())
def test_shipped_templates_are_read_and_fit_the_schema(validator: Any, name: str) -> None:
    text = shipped()[name]
    tree = jinja2.Environment().parse(text)
    found = jinja2.meta.find_undeclared_variables(tree)
    variables = {v: "somewhere" for v in found if not re.search(rf"\b{v} *\| *default", text)}
    assert read_template(name, variables).nodes
    assert text.startswith("# "), "the first line says what the template is for"
    validator.validate(yaml.safe_load(jinja2.Template(text).render(variables)))


@pytest.mark.parametrize(
    "edit",
    [
        lambda t: t.pop("pipeline"),
        lambda t: t.update(pipelines={}),
        lambda t: t["pipeline"].update(type="tree"),
        lambda t: t["pipeline"]["transforms"].append({"type": "Slide"}),
        lambda t: t["pipeline"]["transforms"][0].pop("config"),
        lambda t: t["pipeline"]["transforms"][0]["config"].update(pth="x"),
        lambda t: t["pipeline"]["transforms"][2].update(input={"orders": "Orders"}),
        lambda t: t["pipeline"]["transforms"][2]["config"].pop("time"),
        lambda t: t["pipeline"]["transforms"][2]["config"].update(window="5 parsecs"),
        lambda t: t["pipeline"]["transforms"][2]["config"].update(output="row"),
        lambda t: t["pipeline"]["transforms"][2]["config"].update(disorder={"strategy": "fixd"}),
        lambda t: t["pipeline"]["transforms"][2]["config"].update(disorder={"strategy": "fixed"}),
        lambda t: t["pipeline"]["transforms"][2]["config"]["disorder"].update(slack=[1]),
        lambda t: t["pipeline"]["transforms"][2]["config"]["disorder"].update(slak="1s"),
    ],
)
def test_schema_refuses_wrong_templates(validator: Any, edit: Any) -> None:
    wrong = copy.deepcopy(GOOD)
    edit(wrong)
    assert not validator.is_valid(wrong)
