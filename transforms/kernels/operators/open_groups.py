"""Groups that stay open until a punctuation covers them, their window is over, or the input ends.

Groups and the values that punctuations name share one numbering (``group_index``). What a punctuation closes that
names every group column is found by its number; for one that names some of them, the groups with these values are
chained. One with a range is compared with every open group. All arrays are owned by the caller, who makes room.
"""

from typing import Any, NamedTuple

import numpy as np

from slackwater.transforms.kernels.compiler import kernel
from slackwater.transforms.kernels.operators.record_store import merge
from slackwater.transforms.kernels.punctuation.promises import ordered

NONE = -1
NEVER, ALWAYS = np.iinfo(np.int64).min, np.iinfo(np.int64).max
REMEMBERED = 1 << 20
"""Punctuations that rows are held to at most; a row that contradicts an older one opens a new group."""
RANGES = 1 << 10
"""Ranges that rows are held to at most; one within another is no more than that one."""

COUNTED, VIOLATES, TOO_LATE = range(3)
PUNCTUATION, WINDOW, END = range(3)


class Groups(NamedTuple):
    """The state of one shard."""

    records: Any
    """``[capacity, 2 + words]``: when the group was opened, counted from 1, or 0; time of its first row; integer
    and floating words of its partial aggregate."""
    reals: Any
    """The same memory as floats."""
    over: Any
    """``[capacity, 2]``: the punctuation that named the value, counted from 1, or 0, and its time."""
    links: Any
    """``[capacity, 2 * kinds]``: for each choice of group columns that punctuations name, the value that a group
    has there, and the next group that has it."""
    heads: Any
    """``[capacity]``: the first group that has a value, or NONE."""
    queue: Any
    """``[capacity, 2]``: groups in the order of opening with the count of it; only where there is a window."""
    ranges: Any
    """``[RANGES, 3 + 2 * width]``: punctuation, time, named columns as bits, lower and upper ends."""
    control: Any


OPENED, FIRST = range(2)
BY, AT = range(2)
NAMED, LOWER = 2, 3
# Entries of the control record: stream time; groups opened, open, and open at a time at most; punctuations
# applied; the part of the queue that is in use; ranges in force.
CLOCK, N_OPENED, N_OPEN, MOST_OPEN, N_OVER, QUEUED, QUEUE_END, N_RANGES, CONTROLS = range(9)


class Spec(NamedTuple):
    """What does not change."""

    window: int
    """Ticks after its first row that a group is open, or NONE."""
    ops: Any
    floating: int
    """First floating word of a record."""
    is_float: Any
    """For each group column, whether its cells are bits of floats."""


class Due(NamedTuple):
    """Punctuations to be applied, in order."""

    row: Any
    """The row that each comes before."""
    ts: Any
    value: Any
    """What it names, or NONE for a range."""
    kind: Any
    """Which choice of columns that is, or NONE for all of them."""
    ranges: Any
    """``[punctuations, 1 + 2 * width]``: named columns, ends."""


class Closed(NamedTuple):
    """Groups that were closed, in order."""

    marks: Any
    """``[capacity, 4]``: group, time, by what, when it was opened."""
    records: Any
    size: Any


@kernel
def _close(groups, group, ts, by, out):  # type: ignore[no-untyped-def]
    n = out.size[0]
    out.marks[n, 0], out.marks[n, 1], out.marks[n, 2] = group, ts, by
    out.marks[n, 3] = groups.records[group, OPENED]
    out.records[n] = groups.records[group]
    out.size[0] = n + 1
    groups.records[group, OPENED] = 0
    groups.control[N_OPEN] -= 1


@kernel
def _expire(groups, spec, out):  # type: ignore[no-untyped-def]
    """Close the groups whose window ends before stream time."""
    control = groups.control
    while control[QUEUED] < control[QUEUE_END]:
        group, opened = groups.queue[control[QUEUED], 0], groups.queue[control[QUEUED], 1]
        if groups.records[group, OPENED] == opened:
            end = groups.records[group, FIRST] + spec.window
            if end >= control[CLOCK]:
                return
            _close(groups, group, end, WINDOW, out)
        control[QUEUED] += 1


@kernel
def _within(cells, nulls, k, ends, spec):  # type: ignore[no-untyped-def]
    """Whether a group is in a range, given as named columns, lower and upper ends; null is in none."""
    width = cells.shape[1]
    for c in range(width):
        if (ends[0] >> c) & 1:
            word = ordered(cells[k, c], spec.is_float[c])
            if (nulls[k] >> np.uint64(c)) & np.uint64(1) or word < ends[1 + c] or word > ends[1 + width + c]:
                return False
    return True


@kernel
def _keep_range(groups, ends, ts):  # type: ignore[no-untyped-def]
    """Hold rows to a range from now on, in place of those that it takes in."""
    control, ranges = groups.control, groups.ranges
    width = (ends.size - 1) // 2
    n = 0
    for r in range(control[N_RANGES]):
        inside = ranges[r, NAMED] == ends[0]
        for c in range(width):
            inside = inside and ends[1 + c] <= ranges[r, LOWER + c]
            inside = inside and ends[1 + width + c] >= ranges[r, LOWER + width + c]
        if not inside:
            if n < r:
                ranges[n] = ranges[r]
            n += 1
    if n == len(ranges):
        ranges[:-1] = ranges[1:].copy()
        n -= 1
    ranges[n, 0], ranges[n, 1] = control[N_OVER], ts
    ranges[n, NAMED:] = ends
    control[N_RANGES] = n + 1


@kernel
def _apply(groups, cells, nulls, size, due, j, spec, out):  # type: ignore[no-untyped-def]
    """Close what a punctuation covers, and remember it."""
    control = groups.control
    ts, value = due.ts[j], due.value[j]
    if ts > control[CLOCK]:
        control[CLOCK] = ts
        _expire(groups, spec, out)
    control[N_OVER] += 1
    if value == NONE:
        for group in range(size):
            if groups.records[group, OPENED] and _within(cells, nulls, group, due.ranges[j], spec):
                _close(groups, group, ts, PUNCTUATION, out)
        _keep_range(groups, due.ranges[j], ts)
        return
    if groups.over[value, BY] and control[N_OVER] - groups.over[value, BY] < REMEMBERED:
        ts = min(ts, groups.over[value, AT])
    groups.over[value, BY], groups.over[value, AT] = control[N_OVER], ts
    if groups.records[value, OPENED]:
        _close(groups, value, due.ts[j], PUNCTUATION, out)
    group = groups.heads[value]
    while group != NONE:
        if groups.records[group, OPENED]:
            _close(groups, group, due.ts[j], PUNCTUATION, out)
        group = groups.links[group, 2 * due.kind[j] + 1]


@kernel
def _ended(groups, cells, nulls, group, spec):  # type: ignore[no-untyped-def]
    """Return when a punctuation that is remembered ended a group, or ALWAYS."""
    oldest = groups.control[N_OVER] - REMEMBERED
    found = ALWAYS
    for q in range(-1, groups.links.shape[1] // 2):
        value = group if q < 0 else groups.links[group, 2 * q]
        if groups.over[value, BY] > max(oldest, 0):
            found = min(found, groups.over[value, AT])
    for r in range(groups.control[N_RANGES]):
        if groups.ranges[r, 0] > oldest and _within(cells, nulls, group, groups.ranges[r, NAMED:], spec):
            found = min(found, groups.ranges[r, 1])
    return found


@kernel
def advance(groups, cells, nulls, size, ts, group, rows, row_reals, due, spec, verdict, out):  # type: ignore[no-untyped-def]
    """Add rows to their groups and apply punctuations between them; groups that are closed go to ``out``.

    ``cells`` and ``nulls`` are those of all ``size`` numbers. ``rows`` has the words of each row as in a record.
    ``verdict`` gets COUNTED; VIOLATES for a row after a punctuation that names it; TOO_LATE for one at or before
    such a punctuation, or whose window was over when it came.
    """
    control, records, reals, queue = groups.control, groups.records, groups.reals, groups.queue
    window, ops, floating = spec.window, spec.ops, spec.floating
    j = 0
    for k in range(ts.size):
        while j < due.row.size and due.row[j] <= k:
            _apply(groups, cells, nulls, size, due, j, spec, out)
            j += 1
        t, g = ts[k], group[k]
        if t > control[CLOCK]:
            control[CLOCK] = t
            if window != NONE:
                _expire(groups, spec, out)
        if window != NONE and records[g, OPENED] and t > records[g, FIRST] + window:
            # Only where a row behind stream time opened the group: the queue is not in order then.
            _close(groups, g, records[g, FIRST] + window, WINDOW, out)
        verdict[k] = COUNTED
        if records[g, OPENED]:
            merge(ops, floating, records, reals, g, rows, row_reals, k)
            continue
        ended = _ended(groups, cells, nulls, g, spec)
        if ended != ALWAYS:
            verdict[k] = VIOLATES if t > ended else TOO_LATE
            continue
        if window != NONE and t + window < control[CLOCK]:
            verdict[k] = TOO_LATE
            continue
        control[N_OPENED] += 1
        control[N_OPEN] += 1
        control[MOST_OPEN] = max(control[MOST_OPEN], control[N_OPEN])
        for c in range(FIRST + 1, ops.size):
            records[g, c] = rows[k, c]
        records[g, OPENED], records[g, FIRST] = control[N_OPENED], t
        if window != NONE:
            queue[control[QUEUE_END], 0], queue[control[QUEUE_END], 1] = g, control[N_OPENED]
            control[QUEUE_END] += 1
    while j < due.row.size:
        _apply(groups, cells, nulls, size, due, j, spec, out)
        j += 1


@kernel
def close_all(groups, size, out):  # type: ignore[no-untyped-def]
    """Close every group that is open: the input has ended."""
    for group in range(size):
        if groups.records[group, OPENED]:
            _close(groups, group, groups.control[CLOCK], END, out)


@kernel
def link(groups, kind, members, values):  # type: ignore[no-untyped-def]
    """Chain groups to the values that they have in the columns of a kind."""
    for k in range(members.size):
        groups.links[members[k], 2 * kind] = values[k]
        groups.links[members[k], 2 * kind + 1] = groups.heads[values[k]]
        groups.heads[values[k]] = members[k]
