"""The part of a recall target that is left to disorder when rows are shed as well."""

from __future__ import annotations

from typing import Final

from slackwater.plugins.contract import Feedback, Snapshot

NEARLY: Final = 0.99
"""A recall is met if this share of it is reached (QDDH's Φ(.99Γ))."""
LEAST_LEFT: Final = 0.1
"""Share of the results that may be missed that is left to disorder, however many are lost by shedding."""


def recall_left(recall: float, shed: float) -> float:
    """Return the recall that disorder handling must reach when shedding loses a share ``shed`` of the results.

    Together they may lose ``1 - recall``, so disorder may lose the rest, but never has to do with less than a
    tenth of it: full recall would mean the largest delay. Where shedding alone loses more than may be lost, no
    slack can help, and rows that wait take memory from the windows. What is left to disorder then grows by as
    much as shedding is beyond that, until it is all that may be lost. So the answer is between ``recall`` and
    ``1 - (1 - recall) / 10``, and small changes of ``shed`` change it little.
    """
    if not shed > 0:
        return recall
    may_miss = 1 - recall
    return 1 - max(may_miss - shed, LEAST_LEFT * may_miss, min(may_miss, shed - may_miss))


class ShedShare:
    """The share of the results of the latest intervals that shedding cost, as far as disorder had left them."""

    def __init__(self, intervals: int, snapshot: Snapshot | None = None) -> None:
        self._intervals = max(1, intervals)
        self._sizes: list[list[float]] = [list(sizes) for sizes in snapshot["sizes"]] if snapshot else []
        """Results of each interval that were lost, and all that there were."""

    def add(self, feedback: Feedback) -> None:
        """Take what the join saw in one more interval."""
        if feedback.shed_size is None:
            return
        lost = float(feedback.shed_size.sum())
        self._sizes.append([lost, lost + float(feedback.join_size.sum())])
        del self._sizes[: -self._intervals]

    @property
    def share(self) -> float:
        lost, all_of_them = (
            (sum(sizes) for sizes in zip(*self._sizes, strict=True)) if self._sizes else (0.0, 0.0)
        )
        return max(0.0, lost / all_of_them) if all_of_them > 0 else 0.0

    def snapshot(self) -> Snapshot:
        return {"sizes": [list(sizes) for sizes in self._sizes]}
