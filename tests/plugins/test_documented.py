"""Descriptions of options come from the string below each field, and are read only when asked for."""

import subprocess
import sys
from typing import Literal

from pydantic import Field

from slackwater.plugins.registry.field_docs import Documented


class Base(Documented):
    size: int = 1
    """how large"""
    plain: int = 0


class Inner(Documented):
    depth: int = 2
    """how deep"""


class Model(Base):
    """A model."""

    kind: Literal["a", "b"] = "a"
    """one of two,
    over two lines"""
    given: int = Field(default=3, description="said in the field")
    """and below it"""
    inner: Inner = Inner()
    """a model within"""


def test_strings_below_fields_describe_them_inherited_ones_too():
    assert Model.descriptions() == {
        "size": "how large",
        "plain": "",
        "kind": "one of two,\nover two lines",
        "given": "said in the field",
        "inner": "a model within",
    }


def test_the_json_schema_has_the_descriptions_within_models_too():
    schema = Model.model_json_schema()
    assert schema["properties"]["size"]["description"] == "how large"
    assert schema["properties"]["given"]["description"] == "said in the field"
    assert "description" not in schema["properties"]["plain"]
    assert schema["$defs"]["Inner"]["properties"]["depth"]["description"] == "how deep"


def test_a_class_without_source_has_no_descriptions():
    made = type("Made", (Documented,), {"__annotations__": {"x": int}, "x": 1})
    assert made.descriptions() == {"x": ""}


def test_checking_a_template_without_expressions_imports_nothing_slow():
    code = (
        "import sys; sys.argv = ['slackwater', 'check', 'demo']\n"
        "from slackwater.pipelines.cli.commands import main\n"
        "try: main()\n"
        "except SystemExit as stop: assert not stop.code\n"
        "slow = {'numba', 'pandas', 'pyspark', 'apache_beam', 'pyarrow.compute', 'rich'} & set(sys.modules)\n"
        "assert not slow, slow\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
