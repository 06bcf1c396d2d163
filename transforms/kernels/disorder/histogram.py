"""Sparse histograms: ascending bins, each with a count."""

import numpy as np

from slackwater.transforms.kernels.compiler import kernel


@kernel
def merge(bins, counts, other_bins, other_counts, sign):  # type: ignore[no-untyped-def]
    """Return ``counts + sign * other_counts`` by bin, without the bins that come to nothing."""
    n, m = bins.size, other_bins.size
    out_bins, out_counts = np.empty(n + m, np.int64), np.empty(n + m, np.int64)
    i = j = size = 0
    while i < n or j < m:
        if j == m or (i < n and bins[i] < other_bins[j]):
            at, count = bins[i], counts[i]
            i += 1
        elif i == n or other_bins[j] < bins[i]:
            at, count = other_bins[j], sign * other_counts[j]
            j += 1
        else:
            at, count = bins[i], counts[i] + sign * other_counts[j]
            i += 1
            j += 1
        if count != 0:
            out_bins[size] = at
            out_counts[size] = count
            size += 1
    return out_bins[:size].copy(), out_counts[:size].copy()
