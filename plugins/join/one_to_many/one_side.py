"""Which input of a join has every key once, and what that makes of the condition and of punctuations."""

from __future__ import annotations

from typing import NamedTuple

from slackwater.plugins.contract import Setting


class OneSide(NamedTuple):
    """A join seen from its unique input."""

    input: int
    key: tuple[int, ...]
    """The key classes that are unique there: they find the one partner that a tuple can have."""
    rest: tuple[int, ...]
    """The other key classes, to be tested on it."""
    clustered: bool
    """Whether tuples of the other input with the same key come in a row."""


def one_side(setting: Setting) -> OneSide:
    """Return the unique input of a join of two; raise ValueError if metadata names none.

    Where both are unique, it is the one that the other refers to, or the first. Of several unique sets of
    columns, the smallest is the key.
    """
    classes = setting.condition.classes
    if not classes:
        raise ValueError("strategy 'mjoin' needs a key; add an equality between the inputs to where")
    found: list[tuple[bool, int, int, tuple[int, ...]]] = []
    for kind, which, cells in setting.metadata:
        key = tuple(c for c, members in enumerate(classes) if members[which] in cells)
        if kind == "unique" and len({classes[c][which] for c in key}) == len(set(cells)):
            refers = any(m.kind == "foreign_key" and m.input == which for m in setting.metadata)
            found.append((refers, which, len(key), key))
    if not found:
        columns = [
            ", ".join(f"{name}.{setting.condition.columns[i][members[i]].column}" for members in classes)
            for i, name in enumerate(setting.inputs)
        ]
        raise ValueError(
            "strategy 'mjoin' must know which input has every key at most once; add "
            f"unique: [{columns[0]}] or unique: [{columns[1]}], or use pjoin"
        )
    _, which, _, key = min(found)
    others = {classes[c][1 - which] for c in key}
    in_a_row = ("clustered", "ascending", "descending")
    clustered = any(
        m.kind in in_a_row and m.input == 1 - which and set(m.cells) == others for m in setting.metadata
    )
    return OneSide(which, key, tuple(c for c in range(len(classes)) if c not in key), clustered)
