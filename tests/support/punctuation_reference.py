"""The truth that joins with punctuations are tested against, tuple by tuple, in plain Python.

A punctuation takes effect once the join's time is past the time at which it stands; a tuple that matches one in
force is not joined and not kept. A value is finished when an input that has punctuated it holds no tuple with it,
or when all inputs have punctuated it. Nothing here is shared with the package.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from reference import NEVER, ReferenceRun, Row, Slack, Tuple, _KSlack, _Mswj, _Synchronizer

Matcher = Callable[[Row], bool]


@dataclass
class PunctuatedRun(ReferenceRun):
    """What a join gave, and what punctuations made of it."""

    violated: list[tuple[int, int]] = field(default_factory=list)
    punctuations: list[tuple[int, int]] = field(default_factory=list)
    early: list[tuple[Any, int]] = field(default_factory=list)
    """(value, time of the join) of every value that is finished, in order."""
    regular: list[tuple[Any, int]] = field(default_factory=list)
    """The same for those that every input has punctuated."""


class PunctuatedJoin:
    """Alg. 2 behind the punctuations of its inputs.

    Args:
        mark: for a row of an input, None for a tuple; else (what it says of other rows, value that it finishes).
        value: for a row of an input, the value that punctuations may finish; None if it takes no part.
        members: inputs that have such a value.
    """

    def __init__(
        self,
        windows: Sequence[int],
        condition: Callable[[dict[int, Row]], Any],
        mark: Callable[[int, Row], tuple[Matcher, Any] | None],
        value: Callable[[int, Row], Any],
        members: Sequence[int],
    ) -> None:
        self.run = PunctuatedRun()
        self.mswj = _Mswj(windows, condition, self.run)
        self.mark, self.value, self.members = mark, value, members
        self.on_t: float = NEVER
        self.now: float = NEVER
        self.pending: list[tuple[int, Matcher, Any]] = []
        self.force: list[tuple[int, Matcher]] = []
        self.over: dict[Any, set[int]] = {}

    def arrive(self, e: Tuple) -> None:
        late = e.ts < self.on_t
        if e.ts > self.on_t:
            self.take_effect()
            self.on_t = e.ts
        said = self.mark(e.input, e.row)
        if said is not None:
            self.run.punctuations.append((e.input, e.seq))
            self.pending.append((e.input, *said))
            return
        if any(which == e.input and matches(e.row) for which, matches in self.force):
            (self.run.late if late else self.run.violated).append((e.input, e.seq))
            return
        if not late:
            self.now = max(self.now, e.ts)
            self.look()
        self.mswj.on_t = max(self.mswj.on_t, self.on_t)
        self.mswj.arrive(e)

    def take_effect(self) -> None:
        for which, matches, value in self.pending:
            self.force.append((which, matches))
            if value is not None and which in self.members:
                fresh = which not in self.over.setdefault(value, set())
                self.over[value].add(which)
                if fresh:
                    self.now = max(self.now, self.on_t)
                    self.look()
        self.pending = []

    def look(self) -> None:
        """Note the values that are finished at this time."""
        windows, sizes = self.mswj.windows, self.mswj.sizes
        for value, over in self.over.items():
            every = len(over) == len(windows)
            gone = any(
                not any(x.ts >= self.now - sizes[i] and self.value(i, x.row) == value for x in windows[i])
                for i in over
            )
            for holds, told in ((every, self.run.regular), (every or gone, self.run.early)):
                if holds and value not in [known for known, _ in told]:
                    told.append((value, int(self.now)))


class SeveralValues(PunctuatedJoin):
    """A punctuation may finish several values at once."""

    def take_effect(self) -> None:
        self.pending = [
            (which, matches if n == 0 else lambda row: False, value)
            for which, matches, values in self.pending
            for n, value in enumerate([None, *values])
        ]
        super().take_effect()


DOMAIN = range(-6, 34)
"""The whole numbers of which ranges are told apart."""


def values_of(low: float, high: float) -> list[int]:
    """The values of a range that are told apart."""
    return [value for value in DOMAIN if low <= value <= high]


def told_values(got: Any, column: str = "a_k") -> list[tuple[Any, int]]:
    """(value, time) of every value that left, alone or in a range, when it first did."""
    told: dict[Any, int] = {}
    for row in got.punctuations:
        value = json.loads(row["pattern"])[column]
        values = [value]
        if isinstance(value, dict):
            low, high = value["from"], value["to"]
            values = values_of(-math.inf if low is None else low, math.inf if high is None else high)
        for value in values:
            told.setdefault(value, row["ts"])
    return list(told.items())


def punctuated_join(
    join: PunctuatedJoin, arrivals: Iterable[tuple[int, Row]], slack: Slack = "none"
) -> PunctuatedRun:
    """Join rows in the order of their arrival."""
    m = len(join.mswj.windows)
    synchronizer = _Synchronizer(m, join)  # type: ignore[arg-type]
    buffers = [_KSlack(synchronizer) for _ in range(m)]
    largest_delay = 0
    seqs: Counter[int] = Counter()
    for which, row in arrivals:
        e = Tuple(row["ts"], seqs[which], which, row)
        seqs[which] += 1
        buffer = buffers[which]
        buffer.now = max(buffer.now, e.ts)
        largest_delay = max(largest_delay, int(buffer.now - e.ts))
        k = {"none": 0, "max": largest_delay}[slack] if isinstance(slack, str) else slack
        buffer.arrive(e, k)
    held = [e for buffer in buffers for e in buffer.held] + synchronizer.held
    for e in sorted(held, key=lambda e: e[:3]):
        join.arrive(e)
    join.take_effect()
    return join.run
