"""Errors that strategies and what calls them share."""

from __future__ import annotations


class SlackwaterError(Exception):
    """The run cannot go on; the message says where, what and what to do."""


class StrategyError(SlackwaterError):
    """A strategy broke its contract; the message names it, its distribution and the method at fault."""
