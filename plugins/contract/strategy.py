"""What strategies of all stages have in common: frozen options with a name."""

from __future__ import annotations

from typing import Any, ClassVar

from slackwater.plugins.registry.field_docs import Documented


class Strategy(Documented):
    """Options of a strategy. The first line of the docstring is its purpose in ``slackwater strategies``."""

    name: ClassVar[str]
    stage: ClassVar[str]

    def _stated(self, option: str, otherwise: Any = None) -> Any:
        """Return what the user states for an option; ``otherwise`` where the strategy has none of that name."""
        return self.__dict__.get(option, otherwise)
