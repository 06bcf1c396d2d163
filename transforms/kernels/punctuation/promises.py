"""Punctuations in force, and the tuples that contradict them, one row at a time.

A punctuation takes effect when the time of the join passes it: after every row of its own time, whatever the
order in which these come. Until then it is *pending*. In force it is an *entry*: values by hash, the oldest
forgotten where there are too many; ranges as a sorted union, the lowest forgotten.

Some patterns are not given but *derived* from what tuples have in the light of a static promise. A tuple that
joins on an input whose column is *unique* puts its value in force at once, late or not: even one of its own time
must not repeat it. The other promises are about order, which rows of one time do not have, so what follows from
them is a punctuation at the time of the tuple, pending like others; late tuples say nothing of order. In a
*clustered* column a tuple with another value than the one before ends that value, unless it comes back before the
time has passed. *Ascending* and *descending*: a tuple ends everything below or above its value.
"""

from typing import Any, NamedTuple

import numpy as np

from slackwater.transforms.kernels.borrow import borrowed
from slackwater.transforms.kernels.compiler import kernel
from slackwater.transforms.kernels.join.slots import HASH, NONE, take_out
from slackwater.transforms.kernels.rows.dictionary import mix

JOINS, MARKED, VIOLATES, DROPPED = range(4)
"""Verdicts: a tuple for the join; a punctuation; a tuple in order that contradicts one; a late one that does."""

# Columns of an entry after HASH, as its table is kept by ``join.slots``, and of a pending punctuation, then
# the values; those of the control record.
PATTERN = 1
ENTRY_VALUES = 2
HIGH = 1
PENDING_VALUES = 2
ON_T, ENTRIES, OLDEST, PENDING, FORGOTTEN = range(5)
# Columns of a pattern: input, whether it is a range, number of cells, whether one is a float, what it is derived
# from, then the cells.
INPUT, IS_RANGE, CELLS, IS_FLOAT, DERIVED, FIRST_CELL = range(6)
GIVEN, ELSEWHERE, UNIQUE, CLUSTERED, ASCENDING, DESCENDING = range(6)
"""Patterns that are ELSEWHERE are given too, but it is the join that remembers them and finds contradictions."""
# Columns of what the last tuples had: whether there was one, then its values.
SEEN, LAST_VALUES = range(2)
LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
LOWEST_FLOAT, HIGHEST_FLOAT = -0x10000000000000, 0x7FF8000000000000
"""Ends of all values, as words: of floats, minus infinity and NaN."""


class Promises(NamedTuple):
    """What is in force and what is pending."""

    entries: Any
    """``[capacity, 2 + values]``, a ring."""
    table: Any
    """Open addressing: positions of entries by their hash."""
    ranges: Any
    """``[patterns, capacity, 2]``: lower and upper ends, ascending and disjoint, as ``ordered`` words."""
    n_ranges: Any
    pending: Any
    """``[capacity, 2 + values]``: pattern, upper end, values."""
    last: Any
    """``[patterns, 1 + values]``: the last value of a clustered column, the extreme of an ordered one."""
    control: Any


@kernel(inline=True)
def ordered(word, is_float):  # type: ignore[no-untyped-def]
    """Return a word that compares as the value does: the bits of negative floats run backwards."""
    if is_float and word < 0:
        return word ^ 0x7FFFFFFFFFFFFFFF
    return word


@kernel(inline=True)
def _find(entries, table, pattern, values, at, n):  # type: ignore[no-untyped-def]
    """Return the hash of ``n`` values of row ``at``, and the entry that has them or NONE."""
    h = np.uint64(pattern + 1) * np.uint64(0x9E3779B97F4A7C15)
    for c in range(n):
        h = mix(h ^ np.uint64(values[at, c]))
    key = np.int64(h >> np.uint64(1))
    mask = table.size - 1
    place = key & mask
    while table[place] >= 0:
        e = table[place]
        if entries[e, HASH] == key and entries[e, PATTERN] == pattern:
            same = True
            for c in range(n):
                same = same and entries[e, ENTRY_VALUES + c] == values[at, c]
            if same:
                return key, e
        place = (place + 1) & mask
    return key, NONE


@kernel
def add_value(entries, table, control, pattern, values, at, n):  # type: ignore[no-untyped-def]
    """Put values in force; return whether they were not."""
    key, found = _find(entries, table, pattern, values, at, n)
    if found != NONE:
        return False
    if control[ENTRIES] == entries.shape[0]:
        take_out(entries, table, control[OLDEST])
        control[OLDEST] = (control[OLDEST] + 1) % entries.shape[0]
        control[ENTRIES] -= 1
        control[FORGOTTEN] = 1
    e = (control[OLDEST] + control[ENTRIES]) % entries.shape[0]
    control[ENTRIES] += 1
    entries[e, HASH] = key
    entries[e, PATTERN] = pattern
    for c in range(n):
        entries[e, ENTRY_VALUES + c] = values[at, c]
    mask = table.size - 1
    place = key & mask
    while table[place] >= 0:
        place = (place + 1) & mask
    table[place] = e
    return True


@kernel
def add_range(ranges, n_ranges, pattern, low, high):  # type: ignore[no-untyped-def]
    """Put a range in force; return whether part of it was not. Ends are ``ordered`` words."""
    n = n_ranges[pattern]
    own = ranges[pattern]
    first = 0
    while first < n and own[first, 1] < low and own[first, 1] + 1 < low:
        first += 1
    if first < n and own[first, 0] <= low and high <= own[first, 1]:
        return False
    last = first
    while last < n and (own[last, 0] <= high or own[last, 0] - 1 <= high):
        low = min(low, own[last, 0])
        high = max(high, own[last, 1])
        last += 1
    if last == first and n == own.shape[0]:
        if first == 0:
            return True
        own[: first - 1] = own[1:first].copy()
        first -= 1
        last = first
        own[first, 0] = low
        own[first, 1] = high
        return True
    rest = own[last:n].copy()
    own[first, 0] = low
    own[first, 1] = high
    own[first + 1 : first + 1 + rest.shape[0]] = rest
    n_ranges[pattern] = first + 1 + rest.shape[0]
    return True


@kernel(inline=True)
def in_range(own, n, word):  # type: ignore[no-untyped-def]
    low = 0
    high = n
    while low < high:
        middle = (low + high) >> 1
        if own[middle, 1] < word:
            low = middle + 1
        else:
            high = middle
    return low < n and own[low, 0] <= word


@kernel(inline=True)
def _is_last(last, pattern, values, n):  # type: ignore[no-untyped-def]
    for c in range(n):
        if last[pattern, LAST_VALUES + c] != values[0, c]:
            return False
    return last[pattern, SEEN] != 0


@kernel
def apply_pending(state, patterns, out_pattern, out_low, out_high, n_out):  # type: ignore[no-untyped-def]
    """Put what is pending in force; write what is new to the outputs from ``n_out`` on, return where they end."""
    entries, table, control = borrowed(state.entries), borrowed(state.table), borrowed(state.control)
    ranges, n_ranges, pending = borrowed(state.ranges), borrowed(state.n_ranges), borrowed(state.pending)
    last = borrowed(state.last)
    for p in range(control[PENDING]):
        pattern = pending[p, 0]
        n = patterns[pattern, CELLS]
        values = pending[p : p + 1, PENDING_VALUES:]
        if patterns[pattern, IS_RANGE]:
            is_float = patterns[pattern, IS_FLOAT] != 0
            low = ordered(values[0, 0], is_float)
            high = ordered(pending[p, HIGH], is_float)
            fresh = low <= high and add_range(ranges, n_ranges, pattern, low, high)
        elif patterns[pattern, DERIVED] == CLUSTERED and _is_last(last, pattern, values, n):
            fresh = False
        elif patterns[pattern, DERIVED] == ELSEWHERE:
            fresh = True
        else:
            fresh = add_value(entries, table, control, pattern, values, 0, n)
        if fresh:
            out_pattern[n_out] = pattern
            out_high[n_out] = pending[p, HIGH]
            for c in range(n):
                out_low[n_out, c] = values[0, c]
            n_out += 1
    control[PENDING] = 0
    return n_out


@kernel(inline=True)
def _read(patterns, pattern, cells, nulls, k, key):  # type: ignore[no-untyped-def]
    """Copy what row k has in the columns of a pattern to ``key``; return whether nothing is null."""
    for c in range(patterns[pattern, CELLS]):
        cell = patterns[pattern, FIRST_CELL + c]
        if (nulls[k] >> np.uint64(cell)) & np.uint64(1) != 0:
            return False
        key[0, c] = cells[k, cell]
    return True


@kernel(inline=True)
def _await(pending, control, pattern, low, high):  # type: ignore[no-untyped-def]
    at = control[PENDING]
    pending[at, 0] = pattern
    pending[at, HIGH] = high
    pending[at, PENDING_VALUES] = low
    control[PENDING] = at + 1


@kernel
def _conclude(entries, table, pending, last, control, patterns, late, key, pattern):  # type: ignore[no-untyped-def]
    """Note what a joining tuple with the values ``key`` says of later ones; return whether it is in force."""
    derived, n = patterns[pattern, DERIVED], patterns[pattern, CELLS]
    if derived == UNIQUE:
        return add_value(entries, table, control, pattern, key, 0, n)
    if late:
        return False
    if derived == CLUSTERED:
        if _is_last(last, pattern, key, n):
            return False
        if last[pattern, SEEN]:
            _await(pending, control, pattern, np.int64(0), np.int64(0))
            pending[control[PENDING] - 1, PENDING_VALUES : PENDING_VALUES + n] = last[
                pattern, LAST_VALUES : LAST_VALUES + n
            ]
        last[pattern, LAST_VALUES : LAST_VALUES + n] = key[0, :n]
    else:
        is_float = patterns[pattern, IS_FLOAT] != 0
        word = ordered(key[0, 0], is_float)
        most = last[pattern, LAST_VALUES]
        if last[pattern, SEEN] and (word <= most if derived == ASCENDING else word >= most):
            return False
        last[pattern, LAST_VALUES] = word
        lowest, highest = (LOWEST_FLOAT, HIGHEST_FLOAT) if is_float else (LOWEST, HIGHEST)
        if derived == ASCENDING and word > ordered(lowest, is_float):
            _await(pending, control, pattern, lowest, ordered(word - 1, is_float))
        elif derived == DESCENDING and word < ordered(highest, is_float):
            _await(pending, control, pattern, ordered(word + 1, is_float), highest)
    last[pattern, SEEN] = 1
    return False


@kernel(inline=True)
def _contradicts(entries, table, ranges, n_ranges, control, patterns, i, cells, nulls, k, key):  # type: ignore[no-untyped-def]
    for pattern in range(patterns.shape[0]):
        if patterns[pattern, INPUT] != i or patterns[pattern, DERIVED] == ELSEWHERE:
            continue
        n = n_ranges[pattern] if patterns[pattern, IS_RANGE] else control[ENTRIES]
        if n == 0 or not _read(patterns, pattern, cells, nulls, k, key):
            continue
        if patterns[pattern, IS_RANGE]:
            if in_range(ranges[pattern], n, ordered(key[0, 0], patterns[pattern, IS_FLOAT] != 0)):
                return True
        elif _find(entries, table, pattern, key, 0, patterns[pattern, CELLS])[1] != NONE:
            return True
    return False


@kernel
def judge(  # type: ignore[no-untyped-def]
    state, patterns, inputs, ts, late, cells, nulls, given, marks, verdict, key, out_at, out_ts, out_pattern,
    out_low, out_high,
):  # fmt: skip
    """Give every row its verdict, in order; return how many punctuations took effect.

    ``given[k]`` to ``given[k + 1]`` are the places in ``marks`` (pattern, upper end, values) of the punctuations
    that row k is; it is a tuple if there are none, and a punctuation that says nothing if ``marks`` has pattern
    NONE. Those that take effect are written to the outputs with the number of joining tuples before them.
    """
    derives = (patterns[:, DERIVED] > ELSEWHERE).any()
    judges = (patterns[:, DERIVED] != ELSEWHERE).any()
    entries, table, control = borrowed(state.entries), borrowed(state.table), borrowed(state.control)
    ranges, n_ranges, pending = borrowed(state.ranges), borrowed(state.n_ranges), borrowed(state.pending)
    cells, nulls, patterns, key = borrowed(cells), borrowed(nulls), borrowed(patterns), borrowed(key)
    last = borrowed(state.last)
    n_out = 0
    joining = 0
    for k in range(ts.size):
        if not late[k] and ts[k] > control[ON_T]:
            if control[PENDING] > 0:
                first = n_out
                n_out = apply_pending(state, patterns, out_pattern, out_low, out_high, n_out)
                for p in range(first, n_out):
                    out_at[p] = joining
                    out_ts[p] = control[ON_T]
            control[ON_T] = ts[k]
        if given[k + 1] > given[k]:
            verdict[k] = MARKED
            for p in range(given[k], given[k + 1]):
                if marks[p, 0] != NONE:
                    pending[control[PENDING]] = marks[p]
                    control[PENDING] += 1
            continue
        verdict[k] = JOINS
        if judges and _contradicts(
            entries, table, ranges, n_ranges, control, patterns, inputs[k], cells, nulls, k, key
        ):
            verdict[k] = DROPPED if late[k] else VIOLATES
            continue
        joining += 1
        if not derives:
            continue
        for pattern in range(patterns.shape[0]):
            if patterns[pattern, DERIVED] <= ELSEWHERE or patterns[pattern, INPUT] != inputs[k]:
                continue
            if not _read(patterns, pattern, cells, nulls, k, key):
                continue
            if _conclude(entries, table, pending, last, control, patterns, late[k], key, pattern):
                out_at[n_out] = joining
                out_ts[n_out] = control[ON_T]
                out_pattern[n_out] = pattern
                out_high[n_out] = 0
                for c in range(patterns[pattern, CELLS]):
                    out_low[n_out, c] = key[0, c]
                n_out += 1
    return n_out


@kernel
def in_force(state, pattern, values, out):  # type: ignore[no-untyped-def]
    """Say for each value of one column whether it is in force."""
    entries, table = borrowed(state.entries), borrowed(state.table)
    for k in range(values.shape[0]):
        out[k] = _find(entries, table, pattern, values, k, 1)[1] != NONE


@kernel
def rebuild(entries, table, control):  # type: ignore[no-untyped-def]
    """Fill the emptied table from the ring of entries."""
    mask = table.size - 1
    for k in range(control[ENTRIES]):
        e = (control[OLDEST] + k) % entries.shape[0]
        place = entries[e, HASH] & mask
        while table[place] >= 0:
            place = (place + 1) & mask
        table[place] = e
