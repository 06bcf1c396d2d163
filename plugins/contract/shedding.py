"""Shedding strategies: which tuples are worth keeping?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from slackwater.plugins.contract.arrays import Float64s, Tuples
from slackwater.plugins.contract.logic import Logic, declared
from slackwater.plugins.contract.setting import Limit, Setting, Snapshot
from slackwater.plugins.contract.strategy import Strategy

if TYPE_CHECKING:
    from slackwater.plugins.shedding.queue_options import Queue


class SheddingLogic(Logic):
    """Scores tuples. It must have ``scores`` and ``snapshot``, and ``memory`` if there is a limit."""

    __slots__ = ()

    @declared
    def memory(self) -> Limit:
        """What may be held, in the windows and in the reorder buffer, or None for no limit, which stays so.

        A limit may change: it is read once per run, a fraction of the memory. If there is less, tuples leave at
        once.
        """
        return None

    @declared
    def decays(self) -> bool:
        """True where the score is to be multiplied by the remaining lifetime."""
        return False

    @declared
    def scores_are_chances(self) -> bool:
        """True where scores are in proportion to the results to be expected.

        A queue then adds the partners that the join holds, and the memory that a recall would take is estimated.
        """
        return False

    @declared
    def allocation(self) -> str:
        """``variable`` if tuples of all inputs compete for the memory, ``fixed`` if inputs have equal shares."""
        return "variable"

    @declared
    def renewal(self) -> int:
        """Tuples for which scores stay good.

        Held tuples are scored anew after as many, or twice the memory if that is more; if it is 0, after a
        quarter of the memory.
        """
        return 0

    @declared
    def nbytes(self) -> int:
        """Bytes of what has been learnt, part of a memory in bytes."""
        return 0

    def bytes_after(self, tuples: int) -> int:
        """Return ``nbytes`` at most, once so many more tuples have come."""
        return self.nbytes

    def scores(self, tuples: Tuples) -> Float64s:
        """Return a score for each tuple: higher means keep. Nothing is learnt from being asked."""
        raise NotImplementedError

    def observe(self, tuples: Tuples) -> Float64s:
        """As ``scores``, for tuples that arrive, in order; each may be learnt from in turn."""
        return self.scores(tuples)


class SheddingStrategy(Strategy):
    """Base of shedding strategies."""

    stage: ClassVar[str] = "shedding"

    @property
    def sheds(self) -> bool:
        """False where nothing is ever shed."""
        return True

    @property
    def stated_memory(self) -> Limit:
        """What a shard may hold, as far as it is known before data is read: the option ``memory``."""
        memory: Limit = self._stated("memory")
        return memory

    @property
    def stated_queue(self) -> Queue | None:
        """The queue in front of the join: the option ``queue``."""
        queue: Queue | None = self._stated("queue")
        return queue

    @property
    def stated_weight(self) -> str | None:
        """SQL for what a result is worth, which becomes ``Condition.weight``: the option ``weight``."""
        weight: str | None = self._stated("weight")
        return weight

    @property
    def needs_partners(self) -> bool:
        """True where rows are worth what they may find, so that a lone input has nothing to go by."""
        return self._stated("weight", "") is None

    @property
    def stated_frequencies(self) -> dict[str, Any]:
        """How often key values arrive, which becomes ``Setting.frequencies``: the option ``frequencies``."""
        return self._stated("frequencies") or {}

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> SheddingLogic:
        """Return the logic for one shard, new or as it was when the snapshot was taken."""
        raise NotImplementedError
