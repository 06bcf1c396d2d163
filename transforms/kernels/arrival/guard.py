"""The guard: which event times are believed, and how far each input has come by them.

A row is *odd* if its time is further ahead of all inputs, or further behind its own, than a limit. So is the
first row of all, as nothing tells whether it is right. What becomes of an odd row, the rows after it decide.
"""

from typing import Any, NamedTuple

import numpy as np

from slackwater.transforms.kernels.borrow import borrowed
from slackwater.transforms.kernels.compiler import kernel

NEVER = np.iinfo(np.int64).min

KEEP, TOO_OLD, IN_FUTURE, NO_TIME, UNDECIDED = range(5)
PAST, AHEAD, BEHIND, WIDENS = range(4)
"""Limits in ticks, negative for none: every row behind its input by more than PAST is refused; rows ahead of all
inputs by more than AHEAD, and behind their own by more than BEHIND, are odd. With WIDENS, gaps and delays that
were believed are not odd any more."""
ACCEPTED, STRIDE, SPREAD = range(3)

AFTER = 64
"""Rows of its input after an odd one that are asked."""
ENOUGH = AFTER // 4
"""How many of them have to be near it."""
WITHIN = 1024
"""Rows of all inputs among which they are looked for."""
SEVERAL = 3


class GuardState(NamedTuple):
    """What is kept between chunks."""

    progress: Any
    """Largest time believed, of each input; NEVER if there is none."""
    jumped: Any
    """Time of the last row of each input, if that was refused for a lack of rows after it; else NEVER."""
    runs: Any
    """How many such rows in a row agreed."""
    seen: Any
    """[rows believed, up to AFTER; largest gap that was odd and believed; largest delay that was]."""


@kernel
def _reference(k, ts, known, limit):  # type: ignore[no-untyped-def]
    """Return the time of one of the rows after the first, that near which most of them are."""
    best, most = ts[k], -1
    stop = min(ts.size, k + 1 + AFTER)
    for i in range(k + 1, min(stop, k + 1 + ENOUGH)):
        if known[i]:
            near = 0
            for j in range(k + 1, stop):
                near += known[j] and abs(ts[j] - ts[i]) <= limit
            if near > most:
                best, most = ts[i], near
    return best


@kernel
def _judge(k, inputs, ts, known, clock, limit, newest, accepted, ended):  # type: ignore[no-untyped-def]
    """Return what becomes of an odd row, how many of those after it refute it, and where these are.

    It is believed if it is near the clock, if a fourth of the next AFTER rows of its input, or of those that are
    left, are near it, or if these go on anywhere but where the input was. ``newest`` is where it was, NEVER
    before the first row, which all inputs' rows judge.
    """
    t = ts[k]
    first = newest == NEVER
    if clock.size > 0 and clock[k] != NEVER and abs(t - clock[k]) <= limit:
        return KEEP, 0, t
    where = _reference(k, ts, known, limit) if first else newest
    near, agree, seen = 0, 0, 0
    stop = min(ts.size, k + 1 + WITHIN)
    for j in range(k + 1, stop):
        if known[j] and (first or inputs[j] == inputs[k]):
            seen += 1
            near += abs(ts[j] - t) <= limit
            agree += abs(ts[j] - where) <= limit
            if near == ENOUGH:
                return KEEP, 0, t
            if seen == AFTER:
                break
    if seen < AFTER and stop < k + 1 + WITHIN and not ended:
        return UNDECIDED, 0, t
    if near >= SEVERAL - 1 and 4 * near >= seen:
        return KEEP, 0, t
    if first:
        refuted = agree >= SEVERAL and 2 * agree >= seen and abs(t - where) > limit
    else:
        refuted = agree + accepted >= SEVERAL and 2 * agree >= seen
    if not refuted:
        return KEEP, 0, t
    return (IN_FUTURE if t > where else TOO_OLD), agree, where


@kernel
def track(inputs, ts, known, clock, limits, foresees, ended, state, verdict, out_progress, out_frontier):  # type: ignore[no-untyped-def]
    """Judge arrivals, follow the progress of their inputs, and return how many were judged.

    The first row that is not decided by those after it ends the run, with those behind it; without ``foresees``
    there is none: what the rows do not decide, the rows refused before it do, of which the last SEVERAL have to
    agree, or AFTER of those ahead of the clock. ``clock`` has a time of day for every row, or nothing.
    """
    progress, jumped = borrowed(state.progress), borrowed(state.jumped)
    runs, seen = borrowed(state.runs), borrowed(state.seen)
    past, ahead, behind = limits[PAST], limits[AHEAD], limits[BEHIND]
    guards = ahead >= 0 or behind >= 0
    stride, spread, accepted = seen[STRIDE], seen[SPREAD], seen[ACCEPTED]
    newest = NEVER
    for i in range(progress.size):
        newest = max(newest, progress[i])
    for k in range(ts.size):
        i = inputs[k]
        t = ts[k]
        if not known[k]:
            verdict[k] = NO_TIME
            continue
        verdict[k] = KEEP
        reached = progress[i]
        first = newest == NEVER and guards
        gap = newest != NEVER and ahead >= 0 and t - newest > ahead + stride
        old = reached != NEVER and behind >= 0 and reached - t > behind + spread
        if first or gap or old:
            limit = behind if old or ahead < 0 else ahead
            known_to = reached if old else newest
            found, agree, where = _judge(k, inputs, ts, known, clock, limit, known_to, accepted, ended)
            if found == UNDECIDED:
                return k
            beyond_clock = clock.size > 0 and clock[k] != NEVER and t - clock[k] > limit and ahead >= 0
            if first and found == KEEP and beyond_clock and not foresees and ts.size - k < SEVERAL:
                found, agree = IN_FUTURE, 0
            if (found == IN_FUTURE and ahead < 0) or (found == TOO_OLD and (behind < 0 or where - t <= behind)):
                found = KEEP
            if found != KEEP and agree < SEVERAL and not foresees:
                near = jumped[i] != NEVER and abs(t - jumped[i]) <= limit
                runs[i] = runs[i] + 1 if near else 1
                jumped[i] = t
                if runs[i] >= (AFTER if beyond_clock and not first else SEVERAL):
                    found = KEEP
            verdict[k] = found
            if found == KEEP and limits[WIDENS] > 0:
                if gap:
                    stride = seen[STRIDE] = max(stride, t - newest)
                elif old:
                    spread = seen[SPREAD] = max(spread, reached - t)
        if past >= 0 and reached != NEVER and reached - t > past:
            verdict[k] = TOO_OLD
        if verdict[k] == KEEP:
            jumped[i] = NEVER
            if accepted < AFTER:
                accepted += 1
                seen[ACCEPTED] = accepted
            reached = max(reached, t)
            progress[i] = reached
            newest = max(newest, t)
        out_progress[k] = reached
        frontier = progress[0]
        for j in range(1, progress.size):
            frontier = min(frontier, progress[j])
        out_frontier[k] = frontier
    return ts.size


@kernel
def follow(inputs, ts, known, past, state, verdict, out_progress, out_frontier):  # type: ignore[no-untyped-def]
    """As ``track``, for rows none of which is odd."""
    progress, jumped, seen = borrowed(state.progress), borrowed(state.jumped), borrowed(state.seen)
    kept = seen[ACCEPTED]
    for k in range(ts.size):
        i = inputs[k]
        t = ts[k]
        if not known[k]:
            verdict[k] = NO_TIME
            continue
        reached = progress[i]
        if past >= 0 and reached != NEVER and reached - t > past:
            verdict[k] = TOO_OLD
        else:
            verdict[k] = KEEP
            kept += 1
            jumped[i] = NEVER
            reached = max(reached, t)
            progress[i] = reached
        out_progress[k] = reached
        frontier = progress[0]
        for j in range(1, progress.size):
            frontier = min(frontier, progress[j])
        out_frontier[k] = frontier
    seen[ACCEPTED] = min(kept, AFTER)
