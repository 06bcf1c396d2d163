"""What logic objects of all stages have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from slackwater.plugins.contract.setting import Snapshot

if TYPE_CHECKING:
    declared = derived = property
else:

    class declared:
        """An attribute with a default. A logic sets it, or overrides it by a property or a class attribute."""

        def __init__(self, default: Callable[[Any], Any]) -> None:
            self._default = default
            self.__doc__ = default.__doc__

        def __get__(self, logic: Any, owner: type | None = None) -> Any:
            return self if logic is None else self._default(logic)

    class derived(declared):
        """What follows from the methods that a logic overrides; nothing to be set or overridden."""


class Logic:
    """The state of a strategy in one shard.

    The base classes declare every capability that operators know, with a default that does nothing. Those that
    change what the operator does are declared by overriding the method.
    """

    __slots__ = ()

    def snapshot(self) -> Snapshot:
        """Return everything ``build`` needs to go on as if nothing had happened."""
        raise NotImplementedError
