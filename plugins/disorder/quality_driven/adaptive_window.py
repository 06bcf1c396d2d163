"""How much of the past still describes the present: ADWIN over intervals."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from slackwater.plugins.contract import Float64s, Snapshot
from slackwater.plugins.disorder.histogram import Histogram
from slackwater.transforms.kernels.disorder.adwin import changed

_CONFIDENCE: Final = 0.002
_BUCKETS: Final = 5


class Observed(NamedTuple):
    """What was seen of one input over one or more adaptation intervals."""

    delays: Histogram
    """Coarse delays of its tuples."""
    sums: Float64s
    """Number, sum and sum of squares of the delays; sum and number of the leads over the slowest input."""

    @classmethod
    def of(cls, delays: Histogram, lead: float = 0.0, leads: float = 0.0) -> Observed:
        """Everything about an interval: its delays, and the sum of ``leads`` measured leads."""
        bins, counts = delays.bins.astype(np.float64), delays.counts
        weighted = bins * counts
        return cls(delays, np.array([counts.sum(), weighted.sum(), weighted @ bins, lead, leads]))

    @property
    def mean_lead(self) -> float:
        """Mean lead over the slowest input, 0 if there was none to measure."""
        return float(self.sums[3] / max(self.sums[4], 1.0))

    def __add__(self, other: Any) -> Observed:
        return Observed(self.delays + other.delays, self.sums + other.sums)

    def __sub__(self, other: Any) -> Observed:
        return Observed(self.delays - other.delays, self.sums - other.sums)


class AdaptiveWindow:
    """The recent history of one input, as long as the mean of its delays has not changed.

    ADWIN (Bifet and Gavaldà, SDM 2007), to which QDDH leaves the length of its statistics: whenever the window
    can be cut in two so that the means of the parts differ by more than chance explains, at a confidence of
    0.002, its oldest part is dropped. The second term of the bound is scaled by the largest delay in the
    window, because delays are not within [0, 1].

    Values enter by whole adaptation intervals instead of one by one, so a change is noticed at the end of the
    interval in which ADWIN would have noticed it, and a cut misses the change by at most one bucket; the cost
    is one test of all cuts per interval, whatever the rate. Buckets of intervals are merged by twos as they
    age, at most five of a size: n intervals are kept as no more than 5 log2(n) + 5 histograms.
    """

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self._sizes: list[list[Observed]] = []
        """Buckets of 2^k intervals at k, oldest first."""
        self.total = Observed.of(Histogram.empty())
        """Everything in the window."""
        for buckets in snapshot["buckets"] if snapshot else []:
            self._sizes.append([Observed(Histogram(bins, counts), sums) for bins, counts, sums in buckets])
            for bucket in self._sizes[-1]:
                self.total += bucket

    def __len__(self) -> int:
        """Intervals in the window; those without tuples do not count."""
        return sum(len(buckets) << k for k, buckets in enumerate(self._sizes))

    def add(self, observed: Observed) -> None:
        """Take what an interval showed; forget what no longer belongs to the present."""
        if not observed.delays.counts.size:
            return
        self.total += observed
        for buckets in self._sizes:
            buckets.append(observed)
            if len(buckets) <= _BUCKETS:
                break
            observed = buckets.pop(0) + buckets.pop(0)
        else:
            self._sizes.append([observed])
        while self._has_changed():
            self.total -= self._sizes[-1].pop(0)
            while not self._sizes[-1]:
                self._sizes.pop()

    def _has_changed(self) -> bool:
        sums = np.array([bucket.sums for buckets in reversed(self._sizes) for bucket in buckets])
        return bool(changed(sums, float(self.total.delays.bins[-1]), _CONFIDENCE))

    def snapshot(self) -> Snapshot:
        return {"buckets": [[[*b.delays, b.sums] for b in buckets] for buckets in self._sizes]}
