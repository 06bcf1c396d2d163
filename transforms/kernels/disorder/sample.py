"""Drawing one of every so many in a row, by hashes: neither chunks nor restarts change the draw."""

import numpy as np

from slackwater.transforms.kernels.compiler import kernel
from slackwater.transforms.kernels.rows.dictionary import mix


@kernel(inline=True)
def _drawn_of(level, group):  # type: ignore[no-untyped-def]
    """Return which number is drawn of a group of ``2 ** level``; of those drawn, half are at the next level."""
    drawn = group
    for bit in range(level - 1, -1, -1):
        h = mix(np.uint64(64 * drawn + bit) + np.uint64(0x9E3779B97F4A7C15))
        drawn = 2 * drawn + np.int64(h & np.uint64(1))
    return drawn


@kernel
def draw(level, first, n, out):  # type: ignore[no-untyped-def]
    """Draw one of every ``2 ** level`` numbers; write those of the ``n`` from ``first`` on, less ``first``.

    Returns how many they are: at most two more than there are whole groups.
    """
    size = 0
    for group in range(first >> level, ((first + n - 1) >> level) + 1):
        drawn = _drawn_of(level, group) - first
        if 0 <= drawn < n:
            out[size] = drawn
            size += 1
    return size


@kernel
def is_drawn(level, numbers, out):  # type: ignore[no-untyped-def]
    """Say of each number whether it is drawn of its group."""
    for k in range(numbers.size):
        out[k] = _drawn_of(level, numbers[k] >> level) == numbers[k]
