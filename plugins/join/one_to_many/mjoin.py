"""The one-to-many join that uses metadata (MJoin)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from slackwater.plugins.contract import UNBOUNDED, Setting, Snapshot
from slackwater.plugins.join.one_to_many.one_side import one_side
from slackwater.plugins.join.overflow.xjoin import OverflowOptions
from slackwater.plugins.registry.options import Memory

if TYPE_CHECKING:
    from slackwater.plugins.join.one_to_many.logic import OneToManyJoinLogic
    from slackwater.plugins.join.overflow.punctuated_logic import PunctuatedOverflowLogic


class MetadataJoin(OverflowOptions):
    """Join one to many without a window, and keep only what metadata does not prove useless.

    MJoin (Ding, Rundensteiner and Heineman) for two inputs, of which one has every key once (``unique``). A tuple
    of the other input goes as soon as it has met its partner; the partner goes when a punctuation, the end of a
    cluster or an ordered input says that nothing will match it any more. Values are passed on as finished as soon
    as no later result can have them. Within a step, the order of processing is free: it decides how soon results
    are found, never which. Purging takes a pass over the state: after every punctuation it keeps memory smallest,
    after many it costs least (Rules 1 and 2).

    With ``memory`` set, what is too much goes to disk as in ``xjoin``; a value is passed on when no result with
    it is owed any more, which may be at the end of the input.
    """

    name: ClassVar[str] = "mjoin"
    goal: Literal["rate", "memory"] = "rate"
    """what to optimise: rate purges in batches, memory at once"""
    purge: Literal["immediate", "batch"] | None = None
    """when to purge: after every punctuation, or after many; default: as goal says"""
    batch: int = Field(default=100, ge=1)
    """punctuations between two purges in batches; also purged is when memory is full, and after every step"""
    streams: Literal["random", "priority"] = "priority"
    """which input to take from: either at random, or the unique one first, by quotas"""
    quota: int = Field(default=100, ge=1)
    """tuples of the unique input to take before the other one gets its turn"""
    quota_many: int = Field(default=1000, ge=1)
    """tuples of the other input to take before the unique one gets its turn"""
    tuples: Literal["sequential", "value_oriented"] = "value_oriented"
    """order within the unique input: as they come, or first those that a punctuated value waits for"""
    memory: Memory | None = None
    """tuples, or bytes such as 64MB, to keep in memory, per shard: full, it is purged whatever the batch, and
    what is still too much goes to disk as in xjoin; by default there is no limit"""
    flags: int = Field(default=1_000_000, ge=1)
    """punctuated values to remember without a tuple; of forgotten ones, later tuples stay"""

    @property
    def keeps_all(self) -> bool:
        return True

    @property
    def needs_window(self) -> bool:
        return False

    @property
    def purges_at_once(self) -> bool:
        """Whether to purge after every punctuation."""
        return self.purge == "immediate" or (self.purge is None and self.goal == "memory")

    def check(self, setting: Setting) -> None:
        if len(setting.inputs) != 2:
            raise ValueError(f"strategy 'mjoin' joins two inputs, got {len(setting.inputs)}; use pjoin or mswj")
        if any(window < UNBOUNDED for window in setting.windows):
            raise ValueError("strategy 'mjoin' joins without a window; remove window, or use pwjoin")
        one_side(setting)

    def build(
        self, setting: Setting, snapshot: Snapshot | None = None
    ) -> OneToManyJoinLogic | PunctuatedOverflowLogic:
        # Options are read without the compiler; only a join that runs needs it.
        from slackwater.plugins.join.one_to_many.logic import OneToManyJoinLogic, signature_of
        from slackwater.plugins.join.overflow.punctuated_logic import PunctuatedOverflowLogic

        self.check(setting)
        if self.memory is None:
            return OneToManyJoinLogic(setting, self, snapshot)
        return PunctuatedOverflowLogic(
            lambda state: OneToManyJoinLogic(setting, self, state),
            setting,
            self.limits(self.memory),
            signature_of(setting),
            snapshot,
        )
