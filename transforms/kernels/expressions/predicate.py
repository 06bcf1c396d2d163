"""A vectorised register machine for join conditions.

A condition is a *program*: one row ``[op, target, a, b]`` per instruction, a constant in ``b`` as bits. Each
instruction works on a block of up to BLOCK candidates, so the cost of dispatch is shared by the block and
the inner loops are the compiler's to vectorise. Nothing is compiled per condition, and no text of a template
is ever executed. Every register has a null flag per candidate; logic is three-valued as in SQL.
Division by zero, modulo zero and the root of a negative number give null. NaN equals itself and is larger
than every number, as in key equalities. A whole number that does not fit into 64 bits is a null of its own, LOST:
where the verdict depends on it, a program with CHECK fails.
"""

from typing import Any

import numpy as np

from slackwater.transforms.expressions.opcodes import (
    ABS_F,
    ABS_I,
    ADD_F,
    ADD_I,
    AND,
    CHECK,
    CONST,
    DATA,
    DIV_F,
    EQ_F,
    EQ_I,
    IN,
    IS_NULL,
    LE_F,
    LE_I,
    LOAD,
    LT_F,
    LT_I,
    MAX_F,
    MAX_I,
    MIN_F,
    MIN_I,
    MOD_F,
    MOD_I,
    MUL_F,
    MUL_I,
    NEG_F,
    NEG_I,
    NOT,
    SQRT_F,
    SUB_F,
    SUB_I,
    TO_FLOAT,
    Lost,
)
from slackwater.transforms.kernels.compiler import kernel
from slackwater.transforms.kernels.expressions import mixed_types as mixed
from slackwater.transforms.kernels.expressions.mixed_types import LOST

BLOCK = 256
_LOWEST = np.int64(-(2**63))
_SMALL = np.int64(1 << 31)


@kernel
def run(program, first, last, records, first_cell, rows, n, ints, null):  # type: ignore[no-untyped-def]
    """Run instructions ``first`` to ``last`` on ``n`` candidates; the verdict is left in register 0.

    Candidate k has the record ``rows[i, k]`` of each input i: null bits in column 0, cells from ``first_cell``
    on. Registers are int64; a float is kept as its bits.
    """
    floats = ints.view(np.float64)
    for pc in range(first, last):
        op = program[pc, 0]
        t = program[pc, 1]
        a = program[pc, 2]
        b = program[pc, 3]
        if op == LOAD:
            for k in range(n):
                row = rows[a, k]
                ints[t, k] = records[row, first_cell + b]
                null[t, k] = (records[row, 0] >> b) & 1
        elif op == CONST:
            for k in range(n):
                ints[t, k] = b
                null[t, k] = a
        elif op == TO_FLOAT:
            for k in range(n):
                floats[t, k] = float(ints[a, k])
                null[t, k] = null[a, k]
        elif op < ADD_F:
            _int_op(op, t, a, b, n, ints, null)
        elif op < AND:
            _float_op(op, t, a, b, n, ints, floats, null)
        elif op <= IS_NULL:
            _logic_op(op, t, a, b, n, ints, null)
        elif op == IN:
            _search(program, pc + 1, t, a, b, n, ints, null)
        elif op == CHECK:
            for k in range(n):
                if null[t, k] & LOST != 0:
                    raise Lost
        elif op != DATA:
            mixed.compare(op, t, a, b, n, ints, floats, null)


@kernel
def _int_op(op, t, a, b, n, ints, null):  # type: ignore[no-untyped-def]
    if op == NEG_I or op == ABS_I:
        for k in range(n):
            x = ints[a, k]
            lost = x == _LOWEST and null[a, k] == 0
            ints[t, k] = -x if op == NEG_I or x < 0 else x
            null[t, k] = LOST if lost else null[a, k]
        return
    if op == MIN_I or op == MAX_I:
        for k in range(n):
            x = ints[a, k]
            y = ints[b, k]
            if null[a, k]:
                x = y
            elif null[b, k]:
                y = x
            ints[t, k] = min(x, y) if op == MIN_I else max(x, y)
            null[t, k] = null[a, k] & null[b, k]
        return
    if op == MOD_I:
        for k in range(n):
            x = ints[a, k]
            y = ints[b, k]
            if y == 0:
                null[t, k] = 1
                ints[t, k] = 0
            else:
                null[t, k] = null[a, k] | null[b, k]
                ints[t, k] = _remainder(x, y)
        return
    for k in range(n):
        null[t, k] = null[a, k] | null[b, k]
    if op == ADD_I:
        for k in range(n):
            x = ints[a, k]
            y = ints[b, k]
            total = x + y
            ints[t, k] = total
            null[t, k] |= LOST * ((((x ^ total) & (y ^ total)) < 0) & (null[t, k] == 0))
    elif op == SUB_I:
        for k in range(n):
            x = ints[a, k]
            y = ints[b, k]
            total = x - y
            ints[t, k] = total
            null[t, k] |= LOST * ((((x ^ y) & (x ^ total)) < 0) & (null[t, k] == 0))
    elif op == MUL_I:
        for k in range(n):
            x = ints[a, k]
            y = ints[b, k]
            ints[t, k] = x * y
            if null[t, k] == 0 and not (-_SMALL <= x <= _SMALL and -_SMALL <= y <= _SMALL):
                null[t, k] = LOST * _too_large(x, y)
    elif op == LT_I:
        for k in range(n):
            ints[t, k] = ints[a, k] < ints[b, k]
    elif op == LE_I:
        for k in range(n):
            ints[t, k] = ints[a, k] <= ints[b, k]
    elif op == EQ_I:
        for k in range(n):
            ints[t, k] = ints[a, k] == ints[b, k]
    else:
        for k in range(n):
            ints[t, k] = ints[a, k] != ints[b, k]


@kernel
def _remainder(x, y):  # type: ignore[no-untyped-def]
    """Return the remainder with the sign of the dividend."""
    if y == _LOWEST:
        return np.int64(0) if x == y else x
    r = x % abs(y)
    return r - abs(y) if x < 0 and r != 0 else r


@kernel
def _too_large(x, y):  # type: ignore[no-untyped-def]
    """Return whether a product does not fit into 64 bits."""
    if x == 0 or y == 0:
        return False
    if x == _LOWEST or y == _LOWEST:
        return x != 1 and y != 1
    limit = np.uint64(2**63 - 1) + np.uint64((x < 0) != (y < 0))
    return np.uint64(abs(x)) > limit // np.uint64(abs(y))


@kernel
def _search(program, first, t, a, size, n, ints, null):  # type: ignore[no-untyped-def]
    """Look for words among the ``size`` constants from instruction ``first`` on, which are in order."""
    for k in range(n):
        x = ints[a, k]
        low = first
        high = first + size
        while low < high:
            middle = (low + high) // 2
            if program[middle, 3] < x:
                low = middle + 1
            else:
                high = middle
        ints[t, k] = low < first + size and program[low, 3] == x
        null[t, k] = null[a, k]


@kernel
def _float_op(op, t, a, b, n, ints, floats, null):  # type: ignore[no-untyped-def]
    if op == NEG_F or op == ABS_F or op == SQRT_F:
        for k in range(n):
            x = floats[a, k]
            null[t, k] = null[a, k]
            if op == NEG_F:
                floats[t, k] = -x
            elif op == ABS_F:
                floats[t, k] = abs(x)
            elif x < 0.0:
                null[t, k] = 1
                floats[t, k] = 0.0
            else:
                floats[t, k] = np.sqrt(x)
        return
    if op == MIN_F or op == MAX_F:
        for k in range(n):
            x = floats[a, k]
            y = floats[b, k]
            if null[a, k]:
                x = y
            elif null[b, k]:
                y = x
            smaller = x <= y or y != y
            floats[t, k] = x if smaller == (op == MIN_F) else y
            null[t, k] = null[a, k] & null[b, k]
        return
    if op == DIV_F or op == MOD_F:
        for k in range(n):
            x = floats[a, k]
            y = floats[b, k]
            if y == 0.0:
                null[t, k] = 1
                floats[t, k] = 0.0
            else:
                null[t, k] = null[a, k] | null[b, k]
                floats[t, k] = x / y if op == DIV_F else np.fmod(x, y)
        return
    for k in range(n):
        null[t, k] = null[a, k] | null[b, k]
    if op == ADD_F:
        for k in range(n):
            floats[t, k] = floats[a, k] + floats[b, k]
    elif op == SUB_F:
        for k in range(n):
            floats[t, k] = floats[a, k] - floats[b, k]
    elif op == MUL_F:
        for k in range(n):
            floats[t, k] = floats[a, k] * floats[b, k]
    elif op == LT_F:
        for k in range(n):
            x = floats[a, k]
            y = floats[b, k]
            ints[t, k] = (x < y) | ((y != y) & (x == x))
    elif op == LE_F:
        for k in range(n):
            x = floats[a, k]
            y = floats[b, k]
            ints[t, k] = (x <= y) | (y != y)
    elif op == EQ_F:
        for k in range(n):
            x = floats[a, k]
            y = floats[b, k]
            ints[t, k] = (x == y) | ((x != x) & (y != y))
    else:
        for k in range(n):
            x = floats[a, k]
            y = floats[b, k]
            ints[t, k] = (x != y) & ((x == x) | (y == y))


@kernel
def _logic_op(op, t, a, b, n, ints, null):  # type: ignore[no-untyped-def]
    """AND, OR and NOT after Kleene: a null operand decides nothing that the other one does not."""
    for k in range(n):
        x = ints[a, k] != 0
        x_null = null[a, k] != 0
        if op == IS_NULL:
            ints[t, k] = x_null
            null[t, k] = null[a, k] & LOST
            continue
        if op == NOT:
            ints[t, k] = not x
            null[t, k] = null[a, k]
            continue
        y = ints[b, k] != 0
        y_null = null[b, k] != 0
        unknown = null[a, k] | null[b, k]
        if op == AND:
            false = (not x and not x_null) or (not y and not y_null)
            ints[t, k] = x and y and not x_null and not y_null
            null[t, k] = 0 if false else unknown
        else:
            true = (x and not x_null) or (y and not y_null)
            ints[t, k] = true
            null[t, k] = 0 if true else unknown


def cells_read(program: Any, which: int) -> set[int]:
    """Return the cells of an input that a program reads, in no order."""
    return set(program[(program[:, 0] == LOAD) & (program[:, 2] == which), 3].tolist())


@kernel
def select(program, records, rows, ints, null, out):  # type: ignore[no-untyped-def]
    """Write to ``out`` whether each aligned candidate passes the whole program; cells start in column 1."""
    block = ints.shape[1]
    n = out.size
    for start in range(0, n, block):
        size = min(block, n - start)
        run(program, 0, len(program), records, 1, rows[:, start : start + size], size, ints, null)
        for k in range(size):
            out[start + k] = ints[0, k] != 0 and null[0, k] == 0
