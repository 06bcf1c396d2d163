"""How many partners a tuple would find in the join's memory, by key value."""

from __future__ import annotations

import numpy as np

from slackwater.plugins.contract import Float64s, Setting, Snapshot, Tuples
from slackwater.plugins.shedding.expected_results import ChancesLogic
from slackwater.plugins.shedding.prob import ByChance

_EXACT = ByChance(memory=1, estimate="exact")


class Partners:
    """A histogram of what the join held when it was last looked at: all that a modular queue knows (SAJ 2.3).

    Inputs that share no key with a tuple's count for nothing, as in ``ChancesLogic``.
    """

    def __init__(self, setting: Setting, snapshot: Snapshot | None = None) -> None:
        self._setting = setting
        m = len(setting.inputs)
        self._shares = np.zeros((m, m), np.bool_)
        for members in setting.condition.classes:
            self._shares[np.ix_(list(members), list(members))] = True
        np.fill_diagonal(self._shares, False)
        values = snapshot["values"] if snapshot else None
        self._shares_of = ChancesLogic(_EXACT, setting, False, values, foresees=False)
        self._live = np.array(snapshot["live"]) if snapshot else np.zeros(m)
        self._arrived = np.array(snapshot["arrived"]) if snapshot else np.zeros(m)

    def look(self, held: Tuples, arrived: Float64s) -> None:
        """Note what is held now, and how many tuples of each input have come so far."""
        self._arrived = arrived.copy()
        self._shares_of = ChancesLogic(_EXACT, self._setting, False, foresees=False)
        self._shares_of.observe(held)
        self._live = np.bincount(held.input, minlength=self._live.size).astype(np.float64)

    def matching(self, tuples: Tuples) -> Float64s:
        """Return how many held tuples of each other input match, multiplied."""
        held = np.where(self._shares, self._live, 1.0).prod(axis=1)
        return np.asarray(self._shares_of.scores(tuples) * held[tuples.input], np.float64)

    def to_come(self, tuples: Tuples) -> Float64s:
        """Return how many tuples of each other input will come while one is held, multiplied.

        By Little's law it is held as long as it takes for as many of its own input to come as are held of it.
        """
        arrived = np.maximum(1.0, self._arrived)
        met = self._live[:, None] * arrived / arrived[:, None]
        return np.asarray(np.where(self._shares, met, 1.0).prod(axis=1)[tuples.input], np.float64)

    def snapshot(self) -> Snapshot:
        return {"values": self._shares_of.snapshot(), "live": self._live.copy(), "arrived": self._arrived.copy()}
