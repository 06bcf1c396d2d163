"""The window join that does not know of punctuations."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from slackwater.plugins.contract import JoinStrategy, Setting, Snapshot

if TYPE_CHECKING:
    from slackwater.plugins.join.limited_logic import LimitedWindowJoinLogic


class WindowJoin(JoinStrategy):
    """Join within windows and let punctuations pass by unused.

    WJoin, the baseline of PWJoin's experiments: tuples stay until the window drops them, and no punctuation
    leaves. It is ``mswj`` by another name, for comparisons that say what they compare.
    """

    name: ClassVar[str] = "wjoin"

    @property
    def takes_rows(self) -> bool:
        return True

    @property
    def knows_bytes(self) -> bool:
        return True

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> LimitedWindowJoinLogic:
        # Options are read without the compiler; only a join that runs needs it.
        from slackwater.plugins.join.limited_logic import LimitedWindowJoinLogic

        return LimitedWindowJoinLogic(setting, snapshot)
