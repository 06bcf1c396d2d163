"""The frame of the conformance suite: how checks register, compare and fail, and what they are run on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Any, Final

import numpy as np

from slackwater.plugins.contract import UNBOUNDED, Setting, Snapshot
from slackwater.plugins.errors import StrategyError
from slackwater.plugins.guard.returned import storable

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
                if isinstance(error, StrategyError):
                    what = str(error).partition(": ")[2].removesuffix("; mend the strategy, or use another")
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
        flat, wanted = np.asarray(got).ravel(), expected.ravel()
        at = np.flatnonzero(flat != wanted)
        detail = f"first at {at[0]}: {flat[at[0]]} instead of {wanted[at[0]]}" if at.size else ""
        demand(not at.size, f"{what} differ in {at.size} of {expected.size} places, {detail}")
    else:
        demand(got == expected, f"{what}: {got!r} instead of {expected!r}")


@cache
def sample_setting(
    m: int = 2, where: str | None = "a.k = b.k", counts_only: bool = False, windowed: bool = True
) -> Setting:
    """A join of ``m`` inputs a, b, c, … with integer columns k and v and windows of 8, 9, 10, … ms, or none."""
    import pyarrow as pa

    from slackwater.transforms.expressions.condition import Condition

    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    names = tuple("abcdefgh"[:m])
    condition = Condition(where, dict.fromkeys(names, schema))
    windows = tuple(range(8, 8 + m)) if windowed else (UNBOUNDED,) * m
    return Setting(names, windows, condition, counts_only, 1_000_000)


def stored(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot as it comes back from storage, through bytes; refuse what cannot be stored."""
    from slackwater.transforms.state.snapshot import dumps, loads

    demand(isinstance(snapshot, Mapping), f"a snapshot must be a mapping, got {type(snapshot).__name__}")
    storable(snapshot, "")
    return loads(dumps(snapshot))


def snapshot_bytes(snapshot: Snapshot) -> int:
    """Return how many bytes a snapshot takes in storage."""
    from slackwater.transforms.state.snapshot import dumps

    return len(dumps(snapshot))
