"""Comparisons of numbers that lie in registers in different ways: exact, by their values."""

import numpy as np

from slackwater.transforms.expressions.opcodes import CMP_IF, CMP_II, CMP_IU, SIGN
from slackwater.transforms.kernels.compiler import kernel

LOST = 2
"""In a null flag: the number was known, and did not fit into 64 bits."""
_LOWEST = np.int64(-(2**63))
_SPLIT = 134217729.0
"""2**27 + 1 splits a float into halves whose products are exact."""


@kernel
def compare(op, t, a, b, n, ints, floats, null):  # type: ignore[no-untyped-def]
    """Compare numbers of two layouts: -1, 0 or 1, as the one in register ``a`` is the smaller, equal or larger.

    The other one is in the other of the registers ``t`` and ``t + 1``; ``b`` is how many decimal places more the
    second has, of whole numbers, or else how many the first has.
    """
    if op == SIGN:
        for k in range(n):
            null[t, k] = null[a, k]
            if ints[a, k] >= 0 and null[a, k] == 0:
                null[t, k] = LOST
            ints[t, k] = ints[a, k] ^ _LOWEST
        return
    other = 2 * t + 1 - a
    scale = np.int64(1)
    for _ in range(b):
        scale *= 10
    for k in range(n):
        x = ints[a, k]
        unknown = null[a, k] | null[other, k]
        if op == CMP_II:
            y = ints[other, k] // scale
            sign = (x > y) - (x < y)
            if sign == 0 and ints[other, k] % scale != 0:
                sign = -1
        elif op == CMP_IU:
            y = ints[other, k] ^ _LOWEST
            if x < 0 or y < 0:
                sign = -1
            else:
                whole = x // scale
                sign = (whole > y) - (whole < y)
                if sign == 0 and x % scale != 0:
                    sign = 1
        elif op == CMP_IF:
            sign = _compare_scaled(x, float(scale), floats[other, k])
        else:
            sign = _compare_unsigned(np.uint64(x ^ _LOWEST), floats[other, k])
        ints[t, k] = sign
        null[t, k] = unknown


@kernel
def _compare_scaled(x, scale, y):  # type: ignore[no-untyped-def]
    """Compare the whole number ``x``, divided by ``scale``, with a float, exactly; scale is below 2**63."""
    if y != y or y >= 9.3e18:
        return -1
    if y <= -9.3e18:
        return 1
    if abs(y) < 1e-200 and (x != 0 or y == 0.0):
        return (x > 0) - (x < 0)
    if abs(y) < 1e-200:
        return -1 if y > 0.0 else 1
    # The product of y and scale is high + low, without an error (Dekker).
    high = y * scale
    low = 0.0
    if scale > 1.0:
        p = _SPLIT * y
        y1 = p - (p - y)
        y2 = y - y1
        p = _SPLIT * scale
        s1 = p - (p - scale)
        s2 = scale - s1
        low = ((y1 * s1 - high) + y1 * s2 + y2 * s1) + y2 * s2
    if high >= 9223372036854775808.0:
        if high > 9223372036854775808.0 or low >= 0.0 or x < 0:
            return -1
        distance = -float(np.uint64(2**63) - np.uint64(x))
        return (distance > low) - (distance < low)
    if high < -9223372036854775808.0:
        return 1
    whole = np.floor(high)
    y_int = np.int64(whole)
    # Unsigned differences do not overflow; large ones decide, whatever their last bits.
    distance = float(np.uint64(x) - np.uint64(y_int)) if x >= y_int else -float(np.uint64(y_int) - np.uint64(x))
    distance -= high - whole
    return (distance > low) - (distance < low)


@kernel
def _compare_unsigned(x, y):  # type: ignore[no-untyped-def]
    """Compare a whole number from 0 to 2**64 - 1 with a float, exactly."""
    if y != y or y >= 18446744073709551616.0:
        return -1
    if y < 0.0:
        return 1
    whole = np.floor(y)
    y_int = np.uint64(whole)
    if x != y_int:
        return 1 if x > y_int else -1
    return -1 if y > whole else 0
