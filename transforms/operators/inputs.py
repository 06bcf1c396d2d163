"""How the inputs of an operator are written in a template."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OneInput:
    """The name of a transform; its input is called ``input`` in messages."""


@dataclass(frozen=True)
class NamedInputs:
    """``{name: transform}`` with names of the user's own, which the settings use."""

    least: int
    most: int


@dataclass(frozen=True)
class FixedInputs:
    """``{name: transform}`` with names of the operator's; where one is enough, also that transform alone."""

    required: tuple[str, ...]
    optional: tuple[str, ...]
    about: str
    """What they are, for editors."""
    example: str = ""
    """What to read them from, for messages."""

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, in their order."""
        return (*self.required, *self.optional)


Inputs = OneInput | NamedInputs | FixedInputs
