"""A queue in front of a join, tuple by tuple, in plain Python with exact fractions of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

Row = dict[str, Any]


class Waiting(NamedTuple):
    """A row that waits."""

    score: float
    ts: int
    code: int
    came: int
    which: int
    row: Row


class Known(NamedTuple):
    """What a row can be judged by."""

    held: Sequence[tuple[int, Row]]
    """What had been served at the last look."""
    arrived: Sequence[tuple[int, Row]]
    """What had arrived then."""
    before: Sequence[tuple[int, Row]]
    """What has arrived before the row, or before it is judged anew."""


class Outcome(NamedTuple):
    """What became of the rows: (input, row)."""

    served: list[tuple[int, Row]]
    shed: list[tuple[int, Row]]
    waits: list[Fraction]
    most: int


def queue_up(
    arrivals: Sequence[tuple[int, Row]],
    rows: int,
    rate: float,
    ticks_per_second: int,
    score: Callable[[int, Row, Known], float],
    look_every: int = 10**9,
) -> Outcome:
    """Serve arrivals one after the other; at most ``rows`` wait, and the one with the lowest score leaves.

    The join is looked at every ``look_every`` arrivals, and all that wait are scored anew then.
    """
    cost = Fraction(ticks_per_second) / Fraction(rate).limit_denominator(100)
    out = Outcome([], [], [], 0)
    waiting: list[Waiting] = []
    looked, held = 0, 0
    free, clock, most = Fraction(-(10**12)), -(10**12), 0
    for number, (which, row) in enumerate(arrivals):
        if number % look_every == 0:
            looked, held = number, len(out.served)
        known = Known(out.served[:held], arrivals[:looked], arrivals[:number])
        if number % look_every == 0:
            waiting = [w._replace(score=score(w.which, w.row, known)) for w in waiting]
        clock = max(clock, row["at"])
        while waiting and free <= clock:
            head = waiting.pop(0)
            out.served.append((head.which, head.row))
            out.waits.append(free - head.came)
            free += cost
        if row["ts"] is None:
            out.served.append((which, row))
        elif not waiting and free <= clock:
            out.served.append((which, row))
            out.waits.append(Fraction(0))
            free = clock + cost
        else:
            waiting.append(Waiting(score(which, row, known), row["ts"], row["id"] * 8 + which, clock, which, row))
            if len(waiting) > rows:
                lowest = min(waiting, key=lambda w: (w.score, w.ts, w.code))
                waiting.remove(lowest)
                out.shed.append((lowest.which, lowest.row))
            most = max(most, len(waiting))
    for head in waiting:
        out.served.append((head.which, head.row))
        out.waits.append(free - head.came)
        free += cost
    return out._replace(most=most)
