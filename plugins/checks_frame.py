"""The frame of the conformance suite: how checks register, compare and fail, and what they are run on."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final

import numpy as np

from slackwater.plugins.contract import UNBOUNDED, Setting, Snapshot

CHECKS: Final[dict[str, list[Callable[[Any], None]]]] = {
    stage: [] for stage in ("any", "disorder", "join", "shedding")
}
"""Every check by the stage it is for."""


class CheckFailed(AssertionError):
    """A strategy breaks the contract; the message says which one, where and how."""


def checks(stage: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Register a check; whatever it raises becomes a CheckFailed that names strategy and check."""

    def register(function: Callable[[Any], None]) -> Callable[[Any], None]:
        @wraps(function)
        def check(strategy: Any) -> None:
            try:
                function(strategy)
            except Exception as error:
                what = str(error) if isinstance(error, Differs) else f"{type(error).__name__}: {error}"
                who = f"{strategy.stage} strategy {strategy.name!r}"
                raise CheckFailed(f"{who} fails {function.__name__}: {what}") from error

        CHECKS[stage].append(check)
        return check

    return register


class Differs(Exception):
    """What a check found."""


def demand(holds: Any, otherwise: str) -> None:
    """Raise unless ``holds``."""
    if not holds:
        raise Differs(otherwise)


def same(got: Any, expected: Any, what: str) -> None:
    """Raise unless two values, or two arrays, are equal; say what differs first."""
    if isinstance(expected, np.ndarray):
        demand(np.shape(got) == expected.shape, f"{what}: {np.size(got)} values instead of {expected.size}")
        at = np.flatnonzero(np.asarray(got) != expected)
        detail = f"first at {at[0]}: {np.asarray(got)[at[0]]} instead of {expected[at[0]]}" if at.size else ""
        demand(not at.size, f"{what} differ in {at.size} of {expected.size} places, {detail}")
    else:
        demand(got == expected, f"{what}: {got!r} instead of {expected!r}")


def sample_setting(
    m: int = 2, where: str | None = "a.k = b.k", counts_only: bool = False, windowed: bool = True
) -> Setting:
    """A join of ``m`` inputs a, b, c, … with integer columns k and v and windows of 8, 9, 10, … ms, or none."""
    import pyarrow as pa

    from slackwater.transforms.condition import Condition

    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    names = tuple("abcdefgh"[:m])
    condition = Condition(where, dict.fromkeys(names, schema))
    windows = tuple(range(8, 8 + m)) if windowed else (UNBOUNDED,) * m
    return Setting(names, windows, condition, counts_only, 1_000_000)


def has_members(logic: Any, protocol: Any) -> None:
    """Raise unless a logic object has every member of its protocol."""
    members = {*protocol.__annotations__, *(name for name in vars(protocol) if not name.startswith("_"))}
    missing = sorted(name for name in members if not hasattr(logic, name))
    demand(not missing, f"{type(logic).__name__} lacks {', '.join(missing)}")


def stored(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot as it would come back from storage; refuse what cannot be stored."""
    demand(isinstance(snapshot, Mapping), f"a snapshot must be a mapping, got {type(snapshot).__name__}")
    _storable(snapshot, "snapshot")
    return copy.deepcopy(snapshot)


def _storable(value: Any, path: str) -> None:
    if isinstance(value, Mapping):
        for name, part in value.items():
            demand(isinstance(name, str), f"{path}: the key {name!r} must be text")
            _storable(part, f"{path}[{name!r}]")
    elif isinstance(value, list | tuple):
        for k, part in enumerate(value):
            _storable(part, f"{path}[{k}]")
    elif isinstance(value, np.ndarray):
        demand(value.dtype.kind in "biufSU", f"{path}: an array of {value.dtype} cannot be stored")
    else:
        plain = value is None or isinstance(value, bool | int | float | str | bytes | np.generic)
        demand(plain, f"{path}: {type(value).__name__} cannot be stored; use arrays, numbers, text or bytes")
