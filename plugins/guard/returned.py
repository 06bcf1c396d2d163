"""What strategies return, checked before it reaches a kernel: type, shape, range.

A value that is wrong is refused, never converted: a bound of 1.9 that becomes 1 is another bound. All checks are
vectorised; a run of a join costs a few microseconds and four passes over its sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from slackwater.plugins.contract import Evicted, Finished, Held, Matches, Settled
from slackwater.plugins.registry.options import Memory, MemoryLimit

INT8: Final = np.dtype(np.int8)
INT64: Final = np.dtype(np.int64)
UINT64: Final = np.dtype(np.uint64)
FLOAT64: Final = np.dtype(np.float64)
BOOL: Final = np.dtype(np.bool_)


class Refused(Exception):
    """What is wrong with a returned value, in words that follow the name of the method."""


def demand(holds: Any, otherwise: str) -> None:
    """Raise unless ``holds``."""
    if not holds:
        raise Refused(otherwise)


def kind(value: Any) -> str:
    """Name the type of a value; of an array that of its items."""
    if type(value) is np.ndarray:
        return str(value.dtype)
    return "None" if value is None else type(value).__name__


def array(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...], what: str = "") -> None:
    """Refuse all but an array of this type and shape; ``what`` is its field, if it has one."""
    of = f" {what} as" if what else ""
    if type(value) is not np.ndarray:
        raise Refused(f"returned{of} {kind(value)}, must be an array of {dtype}")
    if value.dtype != dtype:
        raise Refused(f"returned{of} {value.dtype}, must be {dtype}")
    if value.shape != shape:
        raise Refused(f"returned{of} an array of shape {value.shape}, must be {shape}")


def within(values: Any, least: int, most: int, what: str) -> None:
    """Refuse integers outside ``least`` to ``most``, both included."""
    if values.size:
        low, high = int(values.min()), int(values.max())
        if low < least or high > most:
            raise Refused(f"returned {what} {low if low < least else high}, must be within {least} and {most}")


def finite(values: Any, what: str) -> None:
    """Refuse numbers that are not finite."""
    # A sum of finite numbers may overflow: then they are looked at one by one.
    if not np.isfinite(values.sum()) and not np.isfinite(values).all():
        bad = values[~np.isfinite(values)]
        raise Refused(f"returned {what} {bad[0]} in {bad.size} of {values.size} places, must be finite")


def scores(values: Any, are_chances: bool) -> None:
    """Refuse scores that do not rank, and chances that are none."""
    finite(values, "a score of")
    if are_chances and values.size and values.min() < 0:
        raise Refused(f"returned the chance {values.min()}, must be at least 0")


def number(value: Any, what: str = "", least: int = 0) -> int:
    """Return a whole number that is not below ``least``; refuse all else."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise Refused(f"returned {what}{kind(value)}, must be int")
    if value < least:
        raise Refused(f"returned {what}{value}, must be at least {least}")
    return int(value)


def flag(value: Any) -> bool:
    """Return a truth value; refuse all else."""
    if not isinstance(value, bool | np.bool_):
        raise Refused(f"is {value!r}, must be True or False")
    return bool(value)


def nothing(value: Any) -> None:
    """Refuse anything but None: a method that changes state and forgot to run, such as a generator."""
    if value is not None:
        raise Refused(f"returned {kind(value)}, must return nothing")


def interval(value: Any) -> int | None:
    """Return an interval in ticks, or None for none."""
    if value is not None and (type(value) is not int or value <= 0):
        raise Refused(f"is {value!r}, must be None or a positive int")
    return value


def memory(value: Any) -> Any:
    """Return how much may be held."""
    if not (value is None or isinstance(value, Memory | MemoryLimit) or (type(value) is int and value > 0)):
        raise Refused(f"is {value!r}, must be None, a positive int, a Memory or a MemoryLimit")
    return value


def allocation(value: Any) -> str:
    """Return how inputs share the memory."""
    demand(value in ("fixed", "variable"), f"is {value!r}, must be 'fixed' or 'variable'")
    return str(value)


def report(value: Any) -> dict[str, float]:
    """Return what a strategy tells of itself: finite numbers by name."""
    demand(isinstance(value, dict), f"returned {kind(value)}, must be a dict of numbers")
    for name, told in value.items():
        is_number = isinstance(told, int | float | np.number) and not isinstance(told, bool)
        fits = isinstance(name, str) and is_number and np.isfinite(told)
        demand(fits, f"returned {{{name!r}: {told!r}}}, must be finite numbers by name")
    return dict(value)


def snapshot(value: Any) -> Any:
    """Return a snapshot; refuse what cannot be stored, by its path."""
    demand(isinstance(value, Mapping), f"returned {kind(value)}, must be a mapping")
    storable(value, "")
    return value


def storable(value: Any, path: str) -> None:
    """Refuse what ``transforms.state.snapshot`` cannot write and read back as it was."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            demand(isinstance(name, str), f"returned the key {name!r}{_at(path)}, must be text")
            storable(part, f"{path}[{name!r}]")
    elif isinstance(value, list | tuple):
        for k, part in enumerate(value):
            storable(part, f"{path}[{k}]")
    elif isinstance(value, np.ndarray):
        fits = type(value) is np.ndarray and value.dtype.kind in "biufSU"
        demand(fits, f"returned an array of {value.dtype}{_at(path)}, must be numbers or texts")
    else:
        plain = value is None or isinstance(value, bool | int | float | str | bytes | np.generic)
        plain &= not isinstance(value, np.datetime64 | np.timedelta64 | np.void | np.complexfloating)
        demand(plain, f"returned {kind(value)}{_at(path)}, must be arrays, numbers, text or bytes")


def _at(path: str) -> str:
    return f" at {path}" if path else ""


# Joins


def held(value: Any, width: int, inputs: int, live: int) -> None:
    """Refuse tuples of a window that are not ``live`` whole ones."""
    demand(type(value) is Held, f"returned {kind(value)}, must be Held")
    array(value.input, INT8, (live,), "Held.input")
    array(value.seq, INT64, (live,), "Held.seq")
    array(value.ts, INT64, (live,), "Held.ts")
    array(value.cells, INT64, (live, width), "Held.cells")
    array(value.nulls, UINT64, (live,), "Held.nulls")
    within(value.input, 0, inputs - 1, "Held.input")


def held_cells(value: Any, width: int, inputs: int) -> None:
    """Refuse values that are not laid out as tuples are."""
    demand(type(value) is tuple and len(value) == 2, f"returned {kind(value)}, must be input and cells")
    which, cells = value
    n = len(which) if type(which) is np.ndarray else 0
    array(which, INT8, (n,), "input")
    array(cells, INT64, (n, width), "cells")
    within(which, 0, inputs - 1, "input")


def judges(value: Any, kinds: int) -> Any:
    """Return which kinds of punctuations a join judges by itself; None for none."""
    if value is not None:
        # Where nothing is punctuated, it may speak of one kind that there is not.
        array(value, BOOL, (max(1, kinds),))
    return value


def lived(keep: Any) -> None:
    """Refuse a note of what was held that is beyond what might be, or missing."""
    fits = (keep.live >= 0).all() and (keep.live <= keep.limit.sum(axis=1)).all()
    demand(fits, "wrote Keep.live that is not within 0 and Keep.limit, or did not write it")


class Runs:
    """The runs of one step, each checked as it comes.

    Args:
        tuples: how many were released.
        inputs: how many inputs the join has.
        values: for each number that ``Finished.classes`` may have, how many values it stands for.
        counts_only: whether rows are not wanted.
        reorders: whether results may come in any order, before the run that covers their tuples.
    """

    def __init__(
        self, tuples: int, inputs: int, values: Sequence[int], counts_only: bool, reorders: bool
    ) -> None:
        self._n, self._m, self._values = tuples, inputs, values
        self._counts_only, self._reorders = counts_only, reorders
        self._at = self._results = self._sizes = 0

    def take(self, run: Any) -> None:
        """Refuse a run that does not go on where the last one ended, or whose arrays do not fit it."""
        demand(type(run) is Matches, f"yielded {kind(run)}, must be Matches")
        start, stop = number(run.start, "Matches.start as "), number(run.stop, "Matches.stop as ")
        n = stop - start
        if start != self._at or n < 0 or stop > self._n:
            raise Refused(
                f"yielded a run from {start} to {stop} of {self._n} tuples, must go on at {self._at}: runs cover "
                "all of them, each once"
            )
        self._at = stop
        array(run.join_size, INT64, (n,), "Matches.join_size")
        array(run.cross_size, FLOAT64, (n,), "Matches.cross_size")
        self._check_rows(run, start, stop)
        if n:
            demand(run.join_size.min() >= 0, "returned Matches.join_size below 0")
            finite(run.cross_size, "Matches.cross_size")
            demand(run.cross_size.min() >= 0, "returned Matches.cross_size below 0")
            self._sizes += int(run.join_size.sum())
        self._results += len(run.probe)
        if not (self._reorders or self._counts_only):
            self._compare()
        self._check_rest(run, n)

    def end(self) -> None:
        """Refuse a step whose runs do not cover all its tuples."""
        demand(self._at == self._n, f"yielded runs that cover {self._at} of {self._n} tuples, must cover all")
        if not self._counts_only:
            self._compare()

    def _compare(self) -> None:
        if self._results != self._sizes:
            raise Refused(
                f"returned {self._results} Matches.rows and a Matches.join_size of {self._sizes} in all, must be "
                "the same"
            )

    def _check_rows(self, run: Matches, start: int, stop: int) -> None:
        found = len(run.probe) if type(run.probe) is np.ndarray else 0
        array(run.probe, INT64, (found,), "Matches.probe")
        array(run.rows, INT64, (found, self._m), "Matches.rows")
        if not found:
            return
        demand(not self._counts_only, f"returned {found} Matches.rows, must be none: only counts are wanted")
        if self._reorders:
            within(run.probe, 0, self._n - 1, "Matches.probe")
            return
        within(run.probe[[0, -1]], start, stop - 1, "Matches.probe")
        demand((run.probe[1:] >= run.probe[:-1]).all(), "returned Matches.probe that falls, must not")

    def _check_rest(self, run: Matches, n: int) -> None:
        if run.contradicts is not None:
            array(run.contradicts, BOOL, (n,), "Matches.contradicts")
        if run.evicted is not None:
            self._check_evicted(run.evicted)
        if run.finished is not None:
            self._check_finished(run.finished)
        if run.settled is not None:
            self._check_settled(run.settled)

    def _check_evicted(self, evicted: Any) -> None:
        demand(type(evicted) is Evicted, f"returned Matches.evicted as {kind(evicted)}, must be Evicted")
        n = len(evicted.seq) if type(evicted.seq) is np.ndarray else 0
        array(evicted.seq, INT64, (n,), "Evicted.seq")
        array(evicted.input, INT8, (n,), "Evicted.input")
        array(evicted.at, INT64, (n,), "Evicted.at")
        within(evicted.input, 0, self._m - 1, "Evicted.input")
        within(evicted.at, -1, self._n - 1, "Evicted.at")

    def _check_finished(self, finished: Any) -> None:
        demand(type(finished) is Finished, f"returned Matches.finished as {kind(finished)}, must be Finished")
        n = len(finished.ts) if type(finished.ts) is np.ndarray else 0
        array(finished.ts, INT64, (n,), "Finished.ts")
        array(finished.at, INT64, (n,), "Finished.at")
        classes = finished.classes
        least, most = 0, len(self._values)
        known = type(classes) is tuple and all(type(c) is int and least <= c < most for c in classes)
        demand(known, f"returned Finished.classes as {classes!r}, must be key classes below {most}")
        if n:
            array(finished.values, INT64, (n, sum(self._values[c] for c in classes)), "Finished.values")
        if finished.high is not None:
            array(finished.high, INT64, (n,), "Finished.high")
        within(finished.at, 0, self._n, "Finished.at")

    def _check_settled(self, settled: Any) -> None:
        demand(type(settled) is Settled, f"returned Matches.settled as {kind(settled)}, must be Settled")
        n = len(settled.ts) if type(settled.ts) is np.ndarray else 0
        array(settled.ts, INT64, (n,), "Settled.ts")
        if self._counts_only:
            demand(settled.rows is None, "returned Settled.rows, must be None: only counts are wanted")
            return
        batches = settled.rows if type(settled.rows) is tuple else ()
        demand(len(batches) == self._m, f"returned Settled.rows of {len(batches)} inputs, must be {self._m}")
        sizes = [getattr(batch, "num_rows", None) for batch in batches]
        demand(sizes == [n] * self._m, f"returned Settled.rows with {sizes} rows, must be {n} of each input")
