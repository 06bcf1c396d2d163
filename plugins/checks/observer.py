"""Calling a logic object as operators do, and watching what it does with arrays and with the world around it."""

from __future__ import annotations

import gc
import itertools
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any, Final

import numpy as np

from slackwater.plugins.checks.frame import demand, same
from slackwater.plugins.clock import clock_at
from slackwater.plugins.contract import Keep, Setting, Snapshot
from slackwater.plugins.guard.calls import guarded

_CLOCKS: Final = ("time", "monotonic", "perf_counter", "process_time")
_NOON: Final = 1_700_000_000_000_000_000
STRETCH: Final = 48
"""Chunks between two looks at what is held."""
PIECES: Final = 5 * STRETCH + 1
LEAST_LEAK: Final = 200
"""Bytes by which memory may grow in every stretch."""
MOST_NOISE: Final = 1 << 18
"""Bytes by which it may grow in all."""


def arrays_of(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all arrays in a value with their places."""
    if isinstance(value, np.ndarray):
        yield path, value
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from arrays_of(part, f"{path}[{name!r}]")
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):
        for name, part in value._asdict().items():
            yield from arrays_of(part, f"{path}.{name}")
    elif isinstance(value, list | tuple):
        for k, part in enumerate(value):
            yield from arrays_of(part, f"{path}[{k}]")


def copied(value: Any) -> Any:
    """Return a value with arrays of its own."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, Mapping):
        return {name: copied(part) for name, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make(map(copied, value))
    if isinstance(value, list | tuple):
        return type(value)(map(copied, value))
    return value


class Watched:
    """A logic object behind its guard.

    What it is given must be as before when it returns, and is overwritten then, so that one which keeps arrays
    instead of copies shows. What it has returned must stay as it was: ``settle`` looks.
    """

    def __init__(self, strategy: Any, setting: Setting, snapshot: Snapshot | None = None) -> None:
        before = copied(snapshot)
        self.logic = guarded(strategy, setting, snapshot)
        self._given = [] if snapshot is None else list(zip(arrays_of(snapshot), arrays_of(before), strict=True))
        self._returned: list[tuple[str, Any, Any]] = []
        self.notes = True
        """Whether to keep what is returned for ``settle``."""
        self.written: Any = None
        """What the last call has written where it should."""

    def call(self, method: str, *given: Any) -> Any:
        """Call a method with copies of what is given; return a copy of the answer."""
        own = [copied(part) for part in given]
        answer = getattr(self.logic, method)(*own)
        answer = list(self._noted(method, answer)) if isinstance(answer, Iterator) else self._note(method, answer)
        for before, after in zip(given, own, strict=True):
            if isinstance(after, Keep):
                self.written, before, after = after.live.copy(), before[:3], after[:3]
            for (path, expected), (_, got) in zip(arrays_of(before), arrays_of(after), strict=True):
                same(got, expected, f"{type(before).__name__}{path} that was given to {method}, after the call,")
                _scribble(got)
        return answer

    def snapshot(self) -> Snapshot:
        kept: Snapshot = self.call("snapshot")
        return kept

    def settle(self) -> None:
        """Raise if something that was returned has changed since."""
        for (path, array), (_, before) in self._given:
            same(array, before, f"what build was given at snapshot{path}, some calls later,")
        for what, array, before in self._returned:
            same(array, before, f"{what}, some calls later,")

    def _note(self, method: str, answer: Any) -> Any:
        for path, array in arrays_of(answer) if self.notes else ():
            self._returned.append((f"what {method} returned{path}", array, array.copy()))
        del self._returned[:-400]
        return copied(answer)

    def _noted(self, method: str, answers: Iterator[Any]) -> Iterator[Any]:
        for answer in answers:
            yield self._note(method, answer)


def _scribble(array: Any) -> None:
    """Overwrite an array whose call is over."""
    if array.dtype.kind == "f":
        array[...] = -1.0 - array
    elif array.size:
        array[...] = ~array


@contextmanager
def at_noon() -> Iterator[None]:
    """Stop the clock that strategies read (``plugins.clock``)."""
    with clock_at(_NOON):
        yield


@contextmanager
def disturbed() -> Iterator[None]:
    """Let the dice of the process and its clocks be others: nothing that a strategy decides may go by them."""
    state, numbers = random.getstate(), np.random.get_state()
    random.seed(20_260)
    np.random.seed(20_260)
    before = {name: getattr(time, name) for base in _CLOCKS for name in (base, f"{base}_ns")}
    calls = itertools.count(1)
    for name, clock in before.items():
        setattr(time, name, _hurried(clock, calls, 10**9 if name.endswith("_ns") else 1))
    try:
        yield
    finally:
        for name, clock in before.items():
            setattr(time, name, clock)
        random.setstate(state)
        np.random.set_state(numbers)


def _hurried(clock: Callable[[], Any], calls: Iterator[int], second: int) -> Callable[[], Any]:
    """A clock that is an hour ahead, and a minute more each time that one is looked at."""
    return lambda: clock() + (3600 + 60 * next(calls)) * second


def growth(logic: Any, pieces: Iterator[Any], sizes: Callable[[], dict[str, int]]) -> dict[str, list[int]]:
    """Return by how many bytes a logic, and what ``sizes`` tells, grow in each stretch of a long stream.

    A stretch is ``STRETCH`` pieces; as many before the first are for the logic to fill its windows.
    """
    seen = []
    for n, _ in enumerate(pieces):
        if n and n % STRETCH == 0:
            seen.append({**sizes(), "memory": held_bytes(logic)})
    return {what: np.diff([told[what] for told in seen]).tolist() for what in seen[0]}


def held_bytes(guard: Any) -> int:
    """Return the bytes of all that a logic refers to, and of what its module and classes keep beside it."""
    logic, strategy = guard.logic, guard.strategy
    own = {type(logic).__module__, type(strategy).__module__}
    waiting: list[Any] = [logic, *type(logic).__mro__, *type(strategy).__mro__]
    for name in own:
        waiting += [x for x in vars(sys.modules.get(name, strategy)).values() if _may_keep(x, own)]
    seen: set[int] = set()
    total = 0
    while waiting:
        found = waiting.pop()
        if id(found) in seen or isinstance(found, ModuleType):
            continue
        seen.add(id(found))
        if isinstance(found, type):
            waiting += vars(found).values() if found.__module__ in own else ()
        elif isinstance(found, FunctionType):
            kept = (found.__defaults__, found.__kwdefaults__, found.__closure__, found.__dict__)
            waiting += kept if found.__module__ in own else ()
        elif not type(found).__module__.startswith(_STATIC):
            total += sys.getsizeof(found)
            waiting += gc.get_referents(found) if found.__class__ is not np.ndarray else [found.base]
    return total


_STATIC: Final = ("numba", "llvmlite", "pydantic", "sqlglot", "pyarrow", "_pytest", "pytest")
"""Packages whose objects belong to no strategy."""


def _may_keep(value: Any, own: set[str]) -> bool:
    """Whether a global of a module may be where a strategy keeps something."""
    kinds = (list, dict, set, deque, np.ndarray, FunctionType)
    return isinstance(value, kinds) or type(value).__module__ in own or hasattr(value, "cache_info")


def demand_no_growth(grown: dict[str, list[int]], rows: int) -> None:
    """Raise if something has grown with the stream: in every stretch, or by a lot.

    A table that doubles, or a cache of the interpreter that fills, grows once.
    """
    for what, steps in grown.items():
        leaks = min(steps) > LEAST_LEAK or sum(steps) > MOST_NOISE
        told = ", ".join(f"{step:,}" for step in steps)
        why = "though nothing older than the windows may be kept"
        demand(not leaks, f"{what} grows with the stream: by {told} bytes in stretches of {rows} rows, {why}")
