"""The time of day, as strategies read it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_SET: ContextVar[int | None] = ContextVar("time_of_day", default=None)


def now_nanos() -> int:
    """Return nanoseconds since 1970: now, or where an engine repeats what it has done, as it was then."""
    was = _SET.get()
    return time.time_ns() if was is None else was


@contextmanager
def clock_at(nanos: int) -> Iterator[None]:
    """Stop the clock at a time."""
    before = _SET.set(nanos)
    try:
        yield
    finally:
        _SET.reset(before)
