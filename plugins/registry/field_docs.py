"""Models whose fields are described by the string below them.

pydantic can read those strings too, but it parses the source of every class when the class is made, which
takes longer than all the rest of a short command. Here the source is read when a description is asked for.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler


class Documented(BaseModel):
    """Frozen settings that refuse unknown names; built when first used."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @classmethod
    def descriptions(cls) -> dict[str, str]:
        """What is said of each field, by ``Field(description=…)`` or by the string below it."""
        said = {
            name: text
            for model in reversed(cls.__mro__)
            if issubclass(model, BaseModel) and model is not BaseModel
            for name, text in _attribute_strings(model).items()
        }
        return {name: field.description or said.get(name, "") for name, field in cls.model_fields.items()}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in cls.descriptions().items():
            if text and name in properties:
                properties[name].setdefault("description", text)
        return schema


@cache
def _attribute_strings(model: type) -> dict[str, str]:
    """The strings that follow annotated names in the body of a class; none if its source cannot be had."""
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return {}
    return {
        field.target.id: inspect.cleandoc(below.value.value)
        for field, below in pairwise(getattr(tree, "body", []))
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }
