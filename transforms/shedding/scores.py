"""What tuples are worth to a shedding strategy: it is asked, and remaining lifetimes are reckoned in."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from slackwater.plugins.contract import Float64s, Held, Int64s, Released, Tuples
from slackwater.plugins.guard.calls import JoinGuard, SheddingGuard
from slackwater.transforms.kernels.rows.lookup import remaining
from slackwater.transforms.rows.encoder import CellEncoder
from slackwater.transforms.settings.plan import JoinPlan


class Scores:
    """Scores of the tuples of one shard, as of one time of the join: those given at once compare.

    Args:
        plan: the join.
        logic: of the shedding strategy.
        encoder: of the tuples' cells.
        now: the time of the join when scores were last given anew.
    """

    def __init__(self, plan: JoinPlan, logic: SheddingGuard, encoder: CellEncoder, now: int) -> None:
        self._logic, self._encoder, self.now = logic, encoder, now
        self._windows = np.asarray(plan.windows, np.int64)
        self._by_rows = np.asarray(plan.setting.rows, np.int64)
        """Rows of each window, where windows are of rows."""

    def of_all(self, join: JoinGuard) -> Float64s:
        """Score all that a join holds."""
        held = join.held()
        return self._worth(self._logic.scores, held, join.lifetimes() if self._by_rows.size else None)

    def of_held(self, held: Held) -> Float64s:
        """Score tuples of windows of time."""
        return self._worth(self._logic.scores, held)

    def of_arriving(self, released: Released) -> Float64s:
        """Score tuples that come, of which a strategy may learn."""
        arriving = Held(released.input, released.seq, released.ts, released.cells, released.nulls)
        lifetime = self._by_rows[arriving.input] if self._by_rows.size else None
        return self._worth(self._logic.observe, arriving, lifetime)

    def expected(self, held: Held) -> Float64s:
        """Return the results to expect of tuples, to scale; all the same if the strategy does not know."""
        if not self._logic.scores_are_chances:
            return np.ones(held.ts.size)
        return np.maximum(self._worth(self._logic.scores, held), 0.0)

    def _worth(
        self, scores: Callable[[Tuples], Float64s], held: Held, lifetime: Int64s | None = None
    ) -> Float64s:
        """Score tuples; those that windows will drop, worth nothing, are not asked about."""
        if lifetime is None:
            lifetime = np.empty(held.ts.size, np.int64)
            remaining(held.ts, held.input, self._windows, self.now, lifetime)
        cells = self._encoder.lasting(held.input, held.cells)
        asked = Tuples(held.input, held.ts, lifetime, cells, held.nulls, held.seq)
        if lifetime.min(initial=0) >= 0:
            return self._asked(scores, asked)
        alive = lifetime >= 0
        worth = np.full(lifetime.size, -np.inf)
        worth[alive] = self._asked(scores, Tuples._make(array[alive] for array in asked))
        return worth

    def _asked(self, scores: Callable[[Tuples], Float64s], tuples: Tuples) -> Float64s:
        found = scores(tuples)
        return found * tuples.lifetime if self._logic.decays else found
