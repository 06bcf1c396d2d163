"""The bounds of a shard that follows a scout (``transforms.disorder.scout``)."""

import numpy as np

from slackwater.transforms.kernels.compiler import kernel

NEVER = np.iinfo(np.int64).min


@kernel
def follow(clock, noted_clock, noted_bound, seen, bounds, held):  # type: ignore[no-untyped-def]
    """Say how far to release an input at each of its arrivals, given what a scout has noted at its own.

    Both are in order of their numbers; ``seen`` is the last note that earlier arrivals have come to. A row that
    arrives goes by the smallest of the ``bounds`` that it may have met: of arrivals with one number, nobody knows
    which came first. Rows that are ``held`` go by the largest since the last arrival here.

    Returns:
        The last note that these have come to.
    """
    lowest = NEVER
    for k in range(clock.size):
        largest = NEVER
        while seen + 1 < noted_clock.size and noted_clock[seen + 1] < clock[k]:
            seen += 1
            largest = max(largest, noted_bound[seen])
        if k == 0 or clock[k] != clock[k - 1]:
            lowest = noted_bound[seen]
            j = seen + 1
            while j < noted_clock.size and noted_clock[j] == clock[k]:
                lowest = min(lowest, noted_bound[j])
                j += 1
        bounds[k] = lowest
        held[k] = max(largest, lowest)
    return seen
