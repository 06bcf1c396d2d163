"""Frequencies that are known before any data is seen, as strategies get them."""

from __future__ import annotations

from typing import NamedTuple

from slackwater.plugins.contract import Float64s, Int64s


class KeyFrequencies(NamedTuple):
    """How often values of a key arrive on an input; those that are not listed never do."""

    input: int
    classes: tuple[int, ...]
    """The key classes of the condition that make up the key."""
    words: Int64s
    """``[n, classes]``: the values, as in ``Tuples.cells``; none twice."""
    share: Float64s
    """Of all arrivals of the input, how many have the value."""
