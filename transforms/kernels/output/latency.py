"""How long rows waited: counts by length, sixteen lengths to a doubling."""

import numpy as np

from slackwater.transforms.kernels.compiler import kernel

SIZE = 16 * 64


@kernel
def tally(waited, counts):  # type: ignore[no-untyped-def]
    """Add lengths of time to ``counts``; what is below 0 counts as 0."""
    for k in range(waited.size):
        value = waited[k]
        if value < 16:
            counts[max(value, 0)] += 1
        else:
            # The exponent of a double and the first four bits after the point.
            counts[(np.float64(value).view(np.int64) >> 48) - 16 * 1026] += 1
