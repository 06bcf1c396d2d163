"""How a tuple finds its partners in the windows: the probe plan, and one probe after it.

There is a *plan* per input: an order of the other inputs, the index to look each one up in, and the predicates
that can be tested once it is bound. Enumeration is an iterative backtracking over blocks of candidates; when only
counts are wanted, the steps that nothing depends on are multiplied, not enumerated. Of two inputs without
predicates, the partners are one group, as it stands.
"""

from typing import Any, NamedTuple

import numpy as np

from slackwater.transforms.kernels.borrow import borrowed
from slackwater.transforms.kernels.compiler import kernel
from slackwater.transforms.kernels.expressions import predicate
from slackwater.transforms.kernels.expressions.predicate import BLOCK
from slackwater.transforms.kernels.join.slots import (
    COUNT,
    HEAD,
    LINKS,
    NEXT,
    NONE,
    NULLS,
    SEQ,
    find_group,
    hash_key,
)

# Columns of the search, a record per input or step; the last record holds the key that is looked up.
BOUND, SIZE, AT, CURSOR, CANDIDATES = range(5)
# Columns of the plan's tables.
WINDOW, INDEXES, OWN_FROM, OWN_TO, MULTIPLY_FROM, ROWS = range(6)
NO_ROWS = 1 << 62
"""ROWS of a window of time: more than there are."""
STEP_INPUT, STEP_INDEX, STEP_KEYS, TEST_FROM, TEST_TO, SOURCES = range(6)


class ProbePlan(NamedTuple):
    """How tuples are probed and indexed."""

    inputs: Any
    """Per input: window, number of indexes, instructions for predicates on it alone, step to multiply from, and
    how many rows the window has at most: a window of rows is endless in time, and late tuples do not enter it."""
    steps: Any
    """``[probing input, step]``: input bound, index used, keys, instructions; then (input, cell) per key."""
    indexes: Any
    """``[input, index]``: number of keys, then their cells."""
    program: Any
    first_cell: int
    """Column of a slot at which its cells start."""


@kernel(inline=True)
def borrowed_plan(plan):  # type: ignore[no-untyped-def]
    inputs, steps, indexes, program, first_cell = plan
    return ProbePlan(borrowed(inputs), borrowed(steps), borrowed(indexes), borrowed(program), first_cell)


@kernel
def passing(slots, program, first_cell, first, last, which, d, n, search, scratch):  # type: ignore[no-untyped-def]
    """Move those of the ``n`` candidates of step ``d`` that pass the instructions to the front; count them."""
    rows = scratch[0]
    for i in range(search.shape[0] - 1):
        if i != which:
            for k in range(n):
                rows[i, k] = search[i, BOUND]
    for k in range(n):
        rows[which, k] = search[d, CANDIDATES + k]
    predicate.run(program, first, last, slots, first_cell, rows, n, scratch[1], scratch[2])
    kept = 0
    for k in range(n):
        if scratch[1, 0, k] != 0 and scratch[2, 0, k] == 0:
            search[d, CANDIDATES + kept] = search[d, CANDIDATES + k]
            kept += 1
    return kept


@kernel(inline=True)
def lookup_group(slots, groups, table, steps, indexes, first_cell, i, d, search):  # type: ignore[no-untyped-def]
    """Return the group to join at step ``d`` given the slots already bound, or NONE."""
    j = steps[i, d, STEP_INPUT]
    x = steps[i, d, STEP_INDEX]
    n_keys = steps[i, d, STEP_KEYS]
    for c in range(n_keys):
        slot = search[steps[i, d, SOURCES + 2 * c], BOUND]
        column = steps[i, d, SOURCES + 2 * c + 1]
        if (slots[slot, NULLS] >> column) & 1 != 0:
            return NONE
        search[-1, c] = slots[slot, first_cell + column]
    h = hash_key(j * indexes.shape[1] + x, search, n_keys)
    return find_group(slots, groups, table, indexes, first_cell, j, x, h, search, n_keys)


@kernel(inline=True)
def _product(slots, groups, table, steps, indexes, first_cell, i, d, search):  # type: ignore[no-untyped-def]
    """Return how many ways the steps from ``d`` on can be bound, by the sizes of their groups alone."""
    ways = 1
    for step in range(d, steps.shape[1]):
        g = lookup_group(slots, groups, table, steps, indexes, first_cell, i, step, search)
        if g == NONE:
            return 0
        ways *= groups[g, COUNT]
    return ways


# fmt: off
@kernel(inline=True)
def _enumerate(  # type: ignore[no-untyped-def]
    slots, groups, table, steps, indexes, program, first_cell, i, multiply_from, k, search, scratch,
    out_rows, out_probe, n_out,
):
    # fmt: on
    """Go through the candidates of every step; the first one's cursor is set, the probing slot is bound.

    Returns the number of results, or -1 when ``out_rows`` is too small.
    """
    m = search.shape[0] - 1
    last = steps.shape[1] - 1
    found = 0
    d = np.int64(0)
    search[0, SIZE] = 0
    search[0, AT] = 0
    while d >= 0:
        j = steps[i, d, STEP_INPUT]
        if search[d, AT] == search[d, SIZE]:
            s = search[d, CURSOR]
            if s == NONE:
                d -= 1
                continue
            link = LINKS + 3 * steps[i, d, STEP_INDEX] + NEXT
            n = 0
            while s != NONE and n < BLOCK:
                search[d, CANDIDATES + n] = s
                n += 1
                s = slots[s, link]
            search[d, CURSOR] = s
            first = steps[i, d, TEST_FROM]
            stop = steps[i, d, TEST_TO]
            if stop > first:
                n = passing(slots, program, first_cell, first, stop, j, d, n, search, scratch)
            search[d, SIZE] = n
            search[d, AT] = 0
            if d == last:
                if out_rows.shape[0] > 0:
                    if n_out + found + n > out_rows.shape[0]:
                        return -1
                    for r in range(n):
                        row = n_out + found + r
                        for c in range(m):
                            out_rows[row, c] = slots[search[c, BOUND], SEQ]
                        out_rows[row, j] = slots[search[d, CANDIDATES + r], SEQ]
                        out_probe[row] = k
                found += n
                search[d, AT] = n
            continue
        search[j, BOUND] = search[d, CANDIDATES + search[d, AT]]
        search[d, AT] += 1
        if d + 1 == multiply_from:
            found += _product(slots, groups, table, steps, indexes, first_cell, i, d + 1, search)
            continue
        d += 1
        g = lookup_group(slots, groups, table, steps, indexes, first_cell, i, d, search)
        search[d, CURSOR] = NONE if g == NONE else groups[g, HEAD]
        search[d, SIZE] = 0
        search[d, AT] = 0
    return found


@kernel(inline=True)
def _pair(slots, groups, steps, i, g, k, search, out_rows, out_probe, n_out):  # type: ignore[no-untyped-def]
    """Join the bound tuple of input ``i`` of two with all of group ``g``; as ``probe``."""
    found = groups[g, COUNT]
    if n_out + found > out_rows.shape[0]:
        return np.int64(-1)
    seq = slots[search[i, BOUND], SEQ]
    link = LINKS + 3 * steps[i, 0, STEP_INDEX] + NEXT
    slot = groups[g, HEAD]
    for row in range(n_out, n_out + found):
        out_rows[row, i] = seq
        out_rows[row, 1 - i] = slots[slot, SEQ]
        out_probe[row] = k
        slot = slots[slot, link]
    return found


# fmt: off
@kernel(inline=True)
def probe(  # type: ignore[no-untyped-def]
    slots, groups, table, inputs, steps, indexes, program, first_cell, i, slot, k, search, scratch,
    out_rows, out_probe, n_out,
):
    # fmt: on
    """Join a placed tuple of input ``i`` with the windows of the others; return the number of results.

    It is -1 when ``out_rows`` is too small.
    """
    g = first_group(slots, groups, table, inputs, steps, indexes, first_cell, i, slot, search)
    if g == NONE:
        return 0
    return probe_group(
        slots, groups, table, inputs, steps, indexes, program, first_cell, i, g, k, search, scratch, out_rows,
        out_probe, n_out,
    )  # fmt: skip


@kernel(inline=True)
def first_group(slots, groups, table, inputs, steps, indexes, first_cell, i, slot, search):  # type: ignore[no-untyped-def]
    """Bind a placed tuple; return the group that its first step joins it with, or NONE."""
    for j in range(inputs.shape[0]):
        search[j, BOUND] = slot
    return lookup_group(slots, groups, table, steps, indexes, first_cell, i, np.int64(0), search)


# fmt: off
@kernel(inline=True)
def probe_group(  # type: ignore[no-untyped-def]
    slots, groups, table, inputs, steps, indexes, program, first_cell, i, g, k, search, scratch, out_rows,
    out_probe, n_out,
):
    # fmt: on
    """Join the bound tuple of input ``i`` with group ``g`` and with what follows; as ``probe``."""
    if inputs[i, MULTIPLY_FROM] == 0:
        found = groups[g, COUNT]
        if inputs.shape[0] > 2:
            found *= _product(slots, groups, table, steps, indexes, first_cell, i, np.int64(1), search)
        return found
    if inputs.shape[0] == 2 and steps[i, 0, TEST_FROM] == steps[i, 0, TEST_TO] and out_rows.shape[0] > 0:
        return _pair(slots, groups, steps, i, g, k, search, out_rows, out_probe, n_out)
    search[0, CURSOR] = groups[g, HEAD]
    return _enumerate(
        slots, groups, table, steps, indexes, program, first_cell, i,
        inputs[i, MULTIPLY_FROM], k, search, scratch, out_rows, out_probe, n_out,
    )  # fmt: skip


@kernel
def qualify(slots, program, first_cell, first, stop, i, slot, search, scratch):  # type: ignore[no-untyped-def]
    """Return whether the tuple passes the predicates that speak of its input alone."""
    search[0, CANDIDATES] = slot
    for j in range(search.shape[0] - 1):
        search[j, BOUND] = slot
    one = np.int64(1)
    return passing(slots, program, first_cell, first, stop, np.int64(i), one - 1, one, search, scratch) == 1
