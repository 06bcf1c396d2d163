"""The dynamic programs of OPTDP (SAJ 3.2)."""

import numpy as np

from slackwater.transforms.kernels.compiler import kernel


@kernel
def retain_overall(a, b, k):  # type: ignore[no-untyped-def]
    """Return how many tuples of each component to retain, ``k`` in all, for the most results.

    Components have ``a`` and ``b`` tuples. By Lemma 1, the best ``p`` tuples of one are shared out evenly
    until the smaller side is used up. O(k) time for each tuple, 4 bytes for each component and tuple retained.
    """
    components = len(a)
    choice = np.zeros((components, k + 1), np.int32)
    best = np.full(k + 1, -1, np.int64)
    best[0] = 0
    reached = 0
    for i in range(components):
        before = best.copy()
        size = min(a[i] + b[i], k)
        for p in range(1, size + 1):
            half = min(p // 2, a[i], b[i])
            gain = half * (p - half)
            for j in range(p, min(k, reached + p) + 1):
                if before[j - p] + gain > best[j]:
                    best[j] = before[j - p] + gain
                    choice[i, j] = p
        reached = min(k, reached + size)
    retained = np.zeros(components, np.int64)
    left = k
    for i in range(components - 1, -1, -1):
        retained[i] = choice[i, left]
        left -= retained[i]
    return retained


@kernel
def retain_of_each(a, b, ka, kb):  # type: ignore[no-untyped-def]
    """Return how many tuples of either side of each component to retain, ``ka`` and ``kb`` in all.

    O(ka kb) time for each pair of tuples that join, 8 bytes for each component and cell of ``ka`` times ``kb``.
    """
    components = len(a)
    choice = np.zeros((components, ka + 1, kb + 1, 2), np.int32)
    best = np.full((ka + 1, kb + 1), -1, np.int64)
    best[0, 0] = 0
    for i in range(components):
        before = best.copy()
        for p in range(min(a[i], ka) + 1):
            for q in range(min(b[i], kb) + 1):
                for x in range(p, ka + 1):
                    for y in range(q, kb + 1):
                        if before[x - p, y - q] >= 0 and before[x - p, y - q] + p * q > best[x, y]:
                            best[x, y] = before[x - p, y - q] + p * q
                            choice[i, x, y, 0] = p
                            choice[i, x, y, 1] = q
    retained = np.zeros((components, 2), np.int64)
    x, y = ka, kb
    for i in range(components - 1, -1, -1):
        retained[i, 0], retained[i, 1] = choice[i, x, y]
        x -= retained[i, 0]
        y -= retained[i, 1]
    return retained
