"""Signatures and docstrings of transforms and functions come from their settings models."""

import inspect

import pytest

from slackwater.plugins.registry.field_docs import Documented
from slackwater.plugins.registry.options import Duration
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.settings.models import JoinConfig, Settings
from slackwater.transforms.settings.signatures import parameters, takes_settings


class Base(Settings):
    size: int = 1
    """how large"""


class Toy(Base):
    name: str
    """what it is called;
    over two lines"""
    pause: Duration = Duration.parse("5s")
    """how long"""
    more: dict[str, int] | None = None
    """further sizes"""


@takes_settings(Toy)
def made(rows: list[int], **settings: object) -> Toy:
    """Make a toy.

    Args:
        rows: of it.

    Raises:
        ConfigError: A setting is wrong.
    """
    return Toy.read(settings)


def test_the_signature_has_required_settings_first_and_own_ones_before_those_of_the_base():
    shown = inspect.signature(made)
    assert list(shown.parameters) == ["rows", "name", "pause", "more", "size"]
    assert shown.parameters["name"].default is inspect.Parameter.empty
    assert [shown.parameters[name].default for name in ("pause", "more", "size")] == ["5s", None, 1]
    assert shown.parameters["pause"].annotation is str
    assert shown.parameters["more"].annotation == dict[str, int] | None
    assert all(p.kind is p.KEYWORD_ONLY for p in list(shown.parameters.values())[1:])


def test_the_docstring_describes_every_setting_after_the_parameters():
    assert inspect.getdoc(made) == (
        "Make a toy.\n\nArgs:\n    rows: of it.\n    name: What it is called; over two lines.\n"
        "    pause: How long.\n    more: Further sizes.\n    size: How large.\n\n"
        "Raises:\n    ConfigError: A setting is wrong."
    )


@pytest.mark.parametrize("error", [TypeError, ConfigError])
def test_a_wrong_keyword_names_the_nearest_setting(error):
    with pytest.raises(error, match=r"^paus: is not a setting; known settings: .*; did you mean pause\?$"):
        made([], name="x", paus="1s")
    with pytest.raises(error, match=r"^name: is missing; add it$"):
        made([])


def test_every_setting_of_a_join_is_described_and_models_are_mappings():
    shown = {p.name: p for p in parameters(JoinConfig)}
    assert shown.keys() == JoinConfig.model_fields.keys()
    assert all(JoinConfig.descriptions().values())
    assert not any(
        isinstance(p.annotation, type) and issubclass(p.annotation, Documented) for p in shown.values()
    )
