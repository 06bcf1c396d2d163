"""The m-way sliding window join."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from slackwater.plugins.contract import JoinStrategy, Setting, Snapshot

if TYPE_CHECKING:
    from slackwater.plugins.join.window.limited_logic import LimitedWindowJoinLogic


class SlidingWindowJoinStrategy(JoinStrategy):
    """Join every tuple with the windows of the other inputs as it comes, for 2 to 8 inputs.

    MSWJ (QDDH Alg. 2) over hash indexes: a tuple in order expires, probes and is inserted; a late one is
    only inserted, if its window still reaches it. Time is constant per tuple plus its matches; memory is the
    tuples of the windows. ``output: counts`` multiplies group sizes and never enumerates results of pure key
    joins.
    """

    name: ClassVar[str] = "mswj"

    @property
    def takes_rows(self) -> bool:
        return True

    @property
    def knows_bytes(self) -> bool:
        return True

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> LimitedWindowJoinLogic:
        # Options are read without the compiler; only a join that runs needs it.
        from slackwater.plugins.join.window.limited_logic import LimitedWindowJoinLogic

        return LimitedWindowJoinLogic(setting, snapshot)
