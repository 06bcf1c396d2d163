"""The join without a window, in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from slackwater.plugins.contract import JoinStrategy, Setting, Snapshot

if TYPE_CHECKING:
    from slackwater.plugins.join.window.limited_logic import LimitedWindowJoinLogic


class SymmetricHashJoin(JoinStrategy):
    """Join every tuple with all tuples of the other inputs that came before, for 2 to 8 inputs.

    There is no window: tuples are kept to the end, so memory grows with the input; ``xjoin`` puts what is too
    much on disk. Any condition; time is constant per tuple plus its matches. A tuple that comes late is kept
    and does not probe, so a result counts if the member that came last was not late.
    """

    name: ClassVar[str] = "symmetric_hash"

    @property
    def needs_window(self) -> bool:
        return False

    @property
    def takes_window(self) -> bool:
        return False

    @property
    def knows_bytes(self) -> bool:
        return True

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> LimitedWindowJoinLogic:
        # Options are read without the compiler; only a join that runs needs it.
        from slackwater.plugins.join.window.limited_logic import LimitedWindowJoinLogic

        return LimitedWindowJoinLogic(setting, snapshot)
