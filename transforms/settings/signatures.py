"""Signatures and docstrings made from settings models, so that every setting is described once.

``inspect.signature``, ``help()``, Beam YAML and the reference page all read what is made here.
"""

from __future__ import annotations

import inspect
import re
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from slackwater.plugins.registry.field_docs import Documented
from slackwater.plugins.registry.options import Duration, Rows

_Function = TypeVar("_Function", bound=Callable[..., Any])
_WIDTH: Final = 100
_AFTER_ARGS: Final = re.compile(r"\n\n(?:Returns|Raises):\n|\Z")


def takes_settings(model: type[Documented]) -> Callable[[_Function], _Function]:
    """Return a decorator for functions with ``**settings``: their signature and docstring list the settings."""

    def decorate(function: _Function) -> _Function:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        described: Any = function
        described.__signature__ = signature.replace(parameters=[*own, *parameters(model)])
        described.__doc__ = with_settings(function.__doc__ or "", model)
        return function

    return decorate


def parameters(model: type[Documented]) -> list[inspect.Parameter]:
    """Return a model's settings as keyword-only parameters: required ones first, a model's own before its base's.

    A default that is no plain value is shown as None, which means that the setting is left out.
    """
    found = [_parameter(name, model.model_fields[name]) for name in _own_first(model)]
    return sorted(found, key=lambda parameter: parameter.default is not inspect.Parameter.empty)


def with_settings(docstring: str, model: type[Documented]) -> str:
    """Return a docstring with a model's settings at the end of its section ``Args``, which is made if need be."""
    text = inspect.cleandoc(docstring)
    end = next(_AFTER_ARGS.finditer(text)).start()
    head, tail = text[:end].rstrip(), text[end:]
    heading = "" if "\n\nArgs:\n" in head else "\nArgs:\n"
    said = descriptions(model)
    entries = [f"{p.name}: {said[p.name]}" for p in parameters(model)]
    wrapped = [textwrap.fill(e, _WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8) for e in entries]
    return f"{head}\n{heading}" + "\n".join(wrapped) + tail + "\n"


def descriptions(model: type[Documented]) -> dict[str, str]:
    """Return a sentence about each setting, by the name that users write."""
    said = {_written(name, model.model_fields[name]): text for name, text in model.descriptions().items()}
    return {name: _sentence(" ".join(text.split())) for name, text in said.items()}


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _own_first(model: type[Documented]) -> Iterator[str]:
    declared = (name for base in model.__mro__ for name in inspect.get_annotations(base))
    yield from dict.fromkeys(name for name in declared if name in model.model_fields)


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    default: Any = inspect.Parameter.empty if field.is_required() else _shown(field.default)
    annotation = _plain(_input_type(field))
    if default is None and annotation is not Any and type(None) not in get_args(annotation):
        annotation = annotation | None
    return inspect.Parameter(
        _written(name, field), inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _shown(default: Any) -> Any:
    if isinstance(default, Duration):
        return str(default)
    return default if isinstance(default, str | int | float | tuple) else None


def _written(name: str, field: FieldInfo) -> str:
    return field.alias or name


def _input_type(field: FieldInfo) -> Any:
    """Return what may be written for a setting, which a validator may turn into something else."""
    asked = (m.json_schema_input_type for m in field.metadata if isinstance(m, BeforeValidator))
    return next((kind for kind in asked if kind is not PydanticUndefined), field.annotation)


def _plain(kind: Any) -> Any:
    """Return an annotation in the words of Python: a duration is text, a model is a mapping."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _union([_plain(argument) for argument in arguments])
    if origin is Literal:
        return _union([type(argument) for argument in arguments])
    if origin is not None:
        return origin[tuple(_plain(argument) for argument in arguments)]
    if isinstance(kind, type) and issubclass(kind, Duration | Rows):
        return str
    return dict[str, Any] if isinstance(kind, type) and issubclass(kind, BaseModel) else kind


def _union(kinds: list[Any]) -> Any:
    union: Any = None
    for kind in dict.fromkeys(kinds):
        union = kind if union is None else union | kind
    return union
