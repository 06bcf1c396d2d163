"""Errors that a user caused and can mend: they are shown as one line, never as a traceback."""

from __future__ import annotations

import traceback
from pathlib import Path

from slackwater.plugins.errors import SlackwaterError, StrategyError

__all__ = [
    "AccountError",
    "ArgumentError",
    "ConfigError",
    "ShardError",
    "SlackwaterError",
    "StateError",
    "StrategyError",
    "unexpected",
]

_PACKAGE = Path(__file__).resolve().parents[1]


class ShardError(SlackwaterError):
    """A shard could not take what it was given; the message names the shard, its inputs and their rows."""


class StateError(SlackwaterError):
    """State that was stored is damaged, or of another version: nothing of it is used."""


class AccountError(SlackwaterError):
    """Rows were lost, or came twice: a fault of a strategy, or of ours. Nothing is published."""

    @classmethod
    def of(cls, fault: str) -> AccountError:
        """Return the error that says which numbers do not agree, and what to do."""
        return cls(f"{fault}; rows were lost or came twice, so no output is published: please report it")


class ConfigError(SlackwaterError):
    """A setting is wrong.

    Attributes:
        fault: what is wrong and how to mend it.
        path: the keys that lead to the setting, from the transform's config inwards.
    """

    def __init__(self, fault: str, *path: str) -> None:
        super().__init__(": ".join(filter(None, [".".join(path), fault])))
        self.fault = fault
        self.path = path


class ArgumentError(ConfigError, TypeError):
    """A setting is unknown or missing; as a keyword argument it is Python's TypeError too."""


def unexpected(error: BaseException) -> str:
    """Return what to tell of an error that nobody foresaw: what it is, the last place of ours, whom to tell."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(_PACKAGE)] or frames
    place = f", at {Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else ""
    message = " ".join(str(error).split())
    return f"unexpected {type(error).__name__}{place}: {message or 'it says nothing more'}; please report it"
