"""The JSON Schema of templates, for editors: every transform with its settings, every strategy with options.

Made from the very models that templates are validated with, so the two cannot drift apart. Where a value is
restricted, a template variable (``"{{ name }}"``) is allowed instead.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel

from slackwater.pipelines.template.settings import Inputs, transforms
from slackwater.plugins.registry.builtin import RECALL
from slackwater.plugins.registry.manager import STAGES, manager
from slackwater.transforms.operators.inputs import FixedInputs, NamedInputs
from slackwater.transforms.operators.registry import operators

Schema = dict[str, Any]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_VARIABLE: Final = {"$ref": "#/$defs/variable"}
_NAME: Final = {"type": "string", "minLength": 1}
_ONE_INPUT: Final = {
    "description": "name of the transform to read from; name.late and the like for a join's other outputs",
    "anyOf": [
        _NAME,
        {"type": "array", "items": _NAME, "minItems": 1, "maxItems": 1},
        {"type": "object", "additionalProperties": _NAME, "minProperties": 1, "maxProperties": 1},
    ],
}
_LISTED_INPUTS: Final = {
    "description": "the transforms to put together",
    "anyOf": [
        _NAME,
        {"type": "array", "items": _NAME, "minItems": 1},
        {"type": "object", "additionalProperties": _NAME, "minProperties": 1},
    ],
}


def template_schema() -> Schema:
    """Return the JSON Schema (draft 2020-12) of templates, with the strategies that are installed."""
    definitions: dict[str, Schema] = {
        "variable": {"type": "string", "pattern": r"\{[{%].*[}%]\}", "description": "a template variable"}
    }
    for name, kind in transforms().items():
        definitions[f"{name}.config"] = _settings(kind.settings, definitions)
    for stage in STAGES:
        strategies = _strategies(stage, definitions)
        for spec in operators():
            settings = definitions[f"{spec.name}.config"]["properties"]
            if stage in settings:
                settings[stage] = {"description": settings[stage].get("description", ""), "oneOf": strategies}
    definitions["transform"] = _transform()
    listed = {"type": "array", "items": {"$ref": "#/$defs/transform"}}
    return {
        "$schema": DIALECT,
        "title": "Slackwater template",
        "description": "A pipeline in Beam YAML's dialect, with joins and aggregates over sliding windows.",
        "type": "object",
        "required": ["pipeline"],
        "additionalProperties": False,
        "properties": {
            "pipeline": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "type": {
                        "enum": ["composite", "chain"],
                        "description": "chain: each transform reads the one before; composite: by name",
                    },
                    "source": {"$ref": "#/$defs/transform", "description": "first transform of a chain"},
                    "transforms": listed,
                    "sink": {"$ref": "#/$defs/transform", "description": "last transform of a chain"},
                    "extra_transforms": listed,
                    "resource_hints": {"type": "object", "description": "for Beam; of no effect here"},
                },
            },
            "providers": {"type": "array", "description": "for Beam's own YAML runner; of no effect here"},
            "options": {"type": "object", "description": "pipeline options of Beam"},
            "tests": {"type": "array", "description": "for Beam's own YAML runner; of no effect here"},
        },
        "$defs": definitions,
    }


def _transform() -> Schema:
    """Any transform: which settings and inputs it takes follows from its type."""
    rules = []
    for name, kind in transforms().items():
        then: Schema = {"properties": {"config": {"$ref": f"#/$defs/{name}.config"}}}
        if kind.settings.model_json_schema().get("required"):
            then["required"] = ["config"]
        then["properties"]["input"] = _input(kind.inputs)
        if isinstance(kind.inputs, NamedInputs) or (
            isinstance(kind.inputs, FixedInputs) and len(kind.inputs.required) > 1
        ):
            then["required"] = [*then.get("required", []), "input"]
        rules.append({"if": {"properties": {"type": {"const": name}}, "required": ["type"]}, "then": then})
    return {
        "type": "object",
        "required": ["type"],
        "additionalProperties": False,
        "properties": {
            "type": {
                "description": "what the transform does",
                "oneOf": [
                    {"const": name, "description": (kind.settings.__doc__ or "").split("\n", 1)[0]}
                    for name, kind in transforms().items()
                ],
            },
            "name": {**_NAME, "description": "name that other transforms use; default: the type"},
            "input": {},
            "config": {"type": "object"},
            "resource_hints": {"type": "object", "description": "for Beam; of no effect here"},
        },
        "allOf": rules,
    }


def _input(inputs: Inputs) -> Schema:
    """What a transform reads from."""
    if isinstance(inputs, NamedInputs):
        return {
            "description": "inputs of the join: the name used in its settings, and the transform to read from",
            "type": "object",
            "additionalProperties": _NAME,
            "minProperties": inputs.least,
            "maxProperties": inputs.most,
        }
    if isinstance(inputs, FixedInputs):
        named: Schema = {
            "type": "object",
            "additionalProperties": False,
            "properties": {name: _NAME for name in inputs.names},
            "required": list(inputs.required),
        }
        if len(inputs.required) > 1:
            return {"description": inputs.about, **named}
        return {"description": inputs.about, "anyOf": [_NAME, named]}
    if inputs == "listed":
        return _LISTED_INPUTS
    return _ONE_INPUT if inputs == "one" else {"type": "object", "maxProperties": 0}


def _strategies(stage: str, definitions: dict[str, Schema]) -> list[Schema]:
    """One schema for each strategy of a stage, told apart by ``strategy``."""
    choices = []
    for provided in manager().strategies(stage):
        strategy = provided.strategy
        schema = _settings(strategy, definitions)
        schema["title"] = strategy.name
        schema["properties"] = {"strategy": {"const": strategy.name}, **schema["properties"]}
        if strategy.name != RECALL:
            schema["required"] = ["strategy", *schema.get("required", [])]
        choices.append(schema)
    return choices


def _settings(model: type[BaseModel], definitions: dict[str, Schema]) -> Schema:
    """Schema of a settings class; the models within it go to ``definitions``."""
    schema = model.model_json_schema(ref_template="#/$defs/{model}")
    for name, inner in schema.pop("$defs", {}).items():
        definitions[name] = _with_variables(inner)
    return _with_variables(schema)


def _with_variables(schema: Schema) -> Schema:
    """Allow a template variable wherever a value is restricted."""
    properties = schema.setdefault("properties", {})
    for name, value in properties.items():
        if value.get("type") == "string" and not value.keys() & {"enum", "const", "pattern", "format"}:
            continue
        outer = {key: value.pop(key) for key in ("description", "default", "title", "examples") if key in value}
        properties[name] = {**outer, "anyOf": [value, _VARIABLE]}
    return schema
