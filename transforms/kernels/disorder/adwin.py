"""The test of ADWIN: have the values of a window changed?"""

import math

from slackwater.transforms.kernels.compiler import kernel


@kernel
def changed(buckets, spread, confidence):  # type: ignore[no-untyped-def]
    """Whether the window can be cut in two parts whose means differ by more than chance explains.

    ``buckets`` has one row per bucket, oldest first, starting with the number, sum and sum of squares of its
    values; every border between two buckets is a possible cut. ``spread`` is the range of the values. The bound
    is the one of Bifet and Gavaldà (2007) that uses the variance: with n0 and n1 values on either side,
    1/m = 1/n0 + 1/n1, and d = ln(2 ln(n) / confidence), it is sqrt(2 d variance / m) + 2 d spread / (3 m).
    """
    n = total = squares = 0.0
    for k in range(buckets.shape[0]):
        n += buckets[k, 0]
        total += buckets[k, 1]
        squares += buckets[k, 2]
    variance = max(0.0, squares / n - (total / n) ** 2)
    doubt = math.log(2 * math.log(max(n, math.e)) / confidence)
    older = part = 0.0
    for k in range(buckets.shape[0] - 1):
        older += buckets[k, 0]
        part += buckets[k, 1]
        shares = 1 / older + 1 / (n - older)
        chance = math.sqrt(2 * shares * variance * doubt) + 2 / 3 * doubt * spread * shares
        if abs(part / older - (total - part) / (n - older)) > chance:
            return True
    return False
