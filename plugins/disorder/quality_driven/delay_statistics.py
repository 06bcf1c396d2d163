"""The Statistics Manager of QDDH: delays and leads of every input."""

from __future__ import annotations

import math

import numpy as np

from slackwater.plugins.contract import NEVER, Arrivals, Float64s, Snapshot
from slackwater.plugins.disorder.histogram import Histogram, coarse
from slackwater.plugins.disorder.quality_driven.adaptive_window import AdaptiveWindow, Observed
from slackwater.transforms.kernels.disorder.recall_model import DelayModel


class DelayStatistics:
    """Histograms of the coarse delays, and mean leads over the slowest input, over adaptive windows.

    Rates are not kept: they cancel out of QDDH's Eq. (5), and its estimate of the true results is summed from
    what the join did. Memory is bounded by the different coarse delays of the windows, not by rows.
    """

    def __init__(self, windows: tuple[int, ...], step: int, basic: int, snapshot: Snapshot | None = None) -> None:
        m = len(windows)
        unit = math.gcd(step, basic, *windows)
        self._step = step
        self._scaled = (np.maximum(np.array(windows, np.int64) // unit, 1), step // unit, basic // unit)
        self.histories = [AdaptiveWindow(snapshot["histories"][i] if snapshot else None) for i in range(m)]
        self._codes = Histogram.empty()
        """Arrivals since the last adaptation by coarse delay * inputs + input."""
        self._lead, self._leads = np.zeros(m), np.zeros(m)
        if snapshot:
            self._codes = Histogram(*snapshot["codes"])
            self._lead[:], self._leads[:] = snapshot["leads"]

    def observe(self, arrivals: Arrivals) -> None:
        """Count a chunk of arrivals; how arrivals are cut into chunks makes no difference."""
        m = len(self.histories)
        self._codes += Histogram.of(coarse(arrivals.delay, self._step) * m + arrivals.input)
        known = slice(int(np.searchsorted(arrivals.frontier, NEVER, side="right")), None)
        lead = (arrivals.progress[known] - arrivals.frontier[known]) // self._step
        self._lead += np.bincount(arrivals.input[known], lead, m)
        self._leads += np.bincount(arrivals.input[known], minlength=m)

    def close_interval(self) -> None:
        """Hand the arrivals since the last call to the adaptive windows."""
        m = len(self.histories)
        which = self._codes.bins % m
        for i, history in enumerate(self.histories):
            at = which == i
            delays = Histogram(self._codes.bins[at] // m, self._codes.counts[at])
            history.add(Observed.of(delays, self._lead[i], self._leads[i]))
        self._codes = Histogram.empty()
        self._lead[:] = self._leads[:] = 0

    def largest(self) -> int:
        """Largest coarse delay of any input (MaxDH), 0 if nothing is known."""
        return max(int(history.total.delays.bins.max(initial=0)) for history in self.histories)

    def leads(self) -> Float64s:
        """Mean lead of each input less the smallest of them, in steps of g: the estimate of K_sync."""
        means = np.array([history.total.mean_lead for history in self.histories])
        return np.asarray(means - means.min(), np.float64)

    def model(self) -> DelayModel:
        """What the search for K needs to know."""
        delays = [history.total.delays for history in self.histories]
        below = [np.cumsum(np.append(0, h.counts)) for h in delays]
        mass = [np.cumsum(np.append(0, h.counts * h.bins)) for h in delays]
        windows, step, basic = self._scaled
        return DelayModel(
            bins=np.concatenate([h.bins for h in delays]),
            below=np.concatenate(below),
            mass=np.concatenate(mass),
            first=np.cumsum([0, *(h.bins.size for h in delays)]),
            shift=np.floor(self.leads()).astype(np.int64),
            windows=windows,
            step=step,
            basic=basic,
        )

    def snapshot(self) -> Snapshot:
        return {
            "histories": [history.snapshot() for history in self.histories],
            "codes": list(self._codes),
            "leads": [self._lead.copy(), self._leads.copy()],
        }
