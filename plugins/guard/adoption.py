"""Logic objects that do not derive from the base class of their stage get what it declares.

A plugin need not derive its logic. The guard then gives the object a class of its own, below its class and the
base, so that declared defaults hold for whatever it has not. No other code looks whether an object has a member.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from inspect import getattr_static
from types import MethodType
from typing import Any, Final

from slackwater.plugins.contract import Logic, derived

_NOTHING: Final = object()


class _Own:
    """A declared member that an object has by itself: in its ``__dict__``, or by ``__getattr__``."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, logic: Any, owner: type) -> Any:
        return self if logic is None else logic.__getattr__(self._name)


def declared_by(base: type[Logic]) -> list[str]:
    """Return the names of all members that a logic may have by what a base class declares."""
    members = [pair for cls in base.__mro__ if issubclass(cls, Logic) for pair in vars(cls).items()]
    return sorted({name for name, member in members if name[0] != "_" and not isinstance(member, derived)})


def adopted(logic: Any, base: type[Logic]) -> Any:
    """Return a logic object as one that derives from ``base``; raise TypeError if it cannot be made one."""
    if not isinstance(logic, base):
        own = (name for name in declared_by(base) if not _is_of_class(logic, name) and _has(logic, base, name))
        classes: tuple[Any, ...] = (type(logic), base)
        logic.__class__ = _below(classes, tuple(own))
    return logic


def lacking(logic: Any, base: type[Logic], required: Iterable[str]) -> list[str]:
    """Return those of ``required`` that an object has not, or only as ``base`` declares them."""
    return [name for name in required if not _has(logic, base, name)]


def _is_of_class(logic: Any, name: str) -> bool:
    return any(name in vars(cls) for cls in type(logic).__mro__)


def _has(logic: Any, base: type[Logic], name: str) -> bool:
    """Whether an object has a member by itself, by its class or by what it passes on, and not by default."""
    default = getattr_static(base, name)
    found = getattr_static(logic, name, _NOTHING)
    if found is _NOTHING and _is_of_class(logic, "__getattr__"):
        try:
            found = logic.__getattr__(name)
        except AttributeError:
            return False
    # What an object passes on may be the default of another.
    passed_on = isinstance(found, MethodType) and found.__func__ is default
    return not (found is _NOTHING or found is default or passed_on)


@lru_cache(maxsize=256)
def _below(classes: tuple[Any, ...], own: tuple[str, ...]) -> type:
    """Return a class below others; ``own`` are members that objects have by themselves."""
    members, cls = {name: _Own(name) for name in own}, classes[0]
    named = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return type(cls.__name__, classes, {**named, **members, "__slots__": ()})
