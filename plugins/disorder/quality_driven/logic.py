"""The logic of ``quality_driven``: statistics in, K out (QDDH sec. IV)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from slackwater.plugins.contract import Arrivals, DisorderLogic, Feedback, Int64s, Setting, Snapshot
from slackwater.plugins.disorder.budget import ShedShare, recall_left
from slackwater.plugins.disorder.quality_driven.delay_statistics import DelayStatistics
from slackwater.plugins.disorder.quality_driven.productivity import ResultSizes, completed, profile
from slackwater.transforms.kernels.disorder.recall_model import smallest_slack

if TYPE_CHECKING:
    from slackwater.plugins.disorder.quality_driven.strategy import QualityDriven


class QualityDrivenLogic(DisorderLogic):
    """Buffer-Size Manager: K-slack whose K follows the model."""

    def __init__(self, options: QualityDriven, setting: Setting, snapshot: Snapshot | None) -> None:
        state = snapshot or {}
        self.interval: int | None = setting.ticks(options.interval)
        self._recall = options.recall
        self._step = setting.ticks(options.granularity)
        self._keeps = options.surplus == "keep"
        self._equal = options.selectivity == "eq"
        basic = setting.ticks(options.basic_window)
        self._delays = DelayStatistics(setting.windows, self._step, basic, state.get("delays"))
        self._sizes = ResultSizes(setting.ticks(options.period) - self.interval, state.get("sizes"))
        self._shed = ShedShare(setting.ticks(options.period) // self.interval, state.get("shed"))
        self._slack = int(state.get("slack", 0))
        self._required = float(state.get("required", self._recall))
        self._expected = float(state.get("expected", np.nan))
        self._true = float(state.get("true", 0.0))

    def bounds(self, arrivals: Arrivals) -> Int64s:
        self._delays.observe(arrivals)
        return arrivals.progress - self._slack

    def bounds_at(self, progress: Int64s) -> Int64s:
        return progress - self._slack

    def adapt(self, feedback: Feedback) -> None:
        """Choose K for the next interval (Alg. 3)."""
        self._delays.close_interval()
        self._shed.add(feedback)
        joined, crossed = completed(feedback)
        self._sizes.add(feedback, joined)
        productivity = profile(feedback, joined, crossed, self._step)
        self._true = productivity.true
        if not self._true > 0:
            return
        recall = recall_left(self._recall, self._shed.share)
        required = instant_recall(recall, self._sizes.produced, self._sizes.true, self._true)
        self._required = max(recall, required) if self._keeps else required
        changes, ratios = productivity.delays, productivity.selectivity_ratios()
        if self._equal:
            changes, ratios = changes[:0], np.ones(1)
        steps, self._expected = smallest_slack(
            self._delays.model(), changes, ratios, self._delays.largest(), self._required
        )
        self._slack = int(steps) * self._step

    def report(self) -> dict[str, float]:
        """The slack in ticks, and what the last adaptation required, expects and saw; nothing expected yet at
        first."""
        said = {"slack": float(self._slack), "required_recall": self._required, "true": self._true}
        return said if np.isnan(self._expected) else {**said, "recall": min(1.0, self._expected)}

    def snapshot(self) -> Snapshot:
        return {
            "delays": self._delays.snapshot(),
            "sizes": self._sizes.snapshot(),
            "shed": self._shed.snapshot(),
            "slack": self._slack,
            "required": self._required,
            "expected": self._expected,
            "true": self._true,
        }


def instant_recall(recall: float, produced: float, true: float, coming: float) -> float:
    """Return Γ′: the recall that the next interval needs so that a whole period meets ``recall`` (Eq. 7).

    ``produced`` of ``true`` results are those of the period so far, ``coming`` the true results to come, above
    0. QDDH prints ``max{Γ′, 1}``; a requirement is within 0 and 1, so it is clamped to both.
    """
    return min(max((recall * (true + coming) - produced) / coming, 0.0), 1.0)
