"""The reference page is that of the transforms as they are."""

import inspect
from pathlib import Path

import pytest
import yaml
from apache_beam.yaml.yaml_provider import InlineProvider

from slackwater.pipelines.cli import transforms_page as reference
from slackwater.pipelines.template.text import providers, shipped
from slackwater.transforms import beam as transforms
from slackwater.transforms.beam.transform import OperatorTransform
from slackwater.transforms.operators.registry import operators

pytestmark = pytest.mark.beam
PAGE = Path(__file__).parents[3] / "docs" / "transforms.md"
OURS = {
    name: t for name, t in vars(transforms).items() if inspect.isclass(t) and issubclass(t, OperatorTransform)
}


def test_the_page_is_current():
    assert PAGE.read_text() == reference.page(), (
        "run: python -m slackwater.pipelines.cli.transforms_page > docs/transforms.md"
    )


def test_every_transform_is_in_templates_on_the_page_and_provided_to_beam_yaml():
    assert set(OURS) == {spec.name for spec in operators()}
    (provided,) = yaml.safe_load(Path(providers()).read_text())
    assert provided["transforms"] == {name: f"slackwater.transforms.beam.{name}" for name in sorted(OURS)}
    assert "providers" not in shipped()


@pytest.mark.parametrize("name", OURS)
def test_the_constructor_has_the_settings_of_templates_and_documents_each(name):
    schema = InlineProvider.config_schema_from_callable(OURS[name])
    assert {field.name for field in schema.fields} == set(OURS[name].settings.model_fields)
    assert all(field.description for field in schema.fields)
    assert InlineProvider.description_from_callable(OURS[name]).split("\n")[0].endswith(".")
