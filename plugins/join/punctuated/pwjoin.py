"""The window join that exploits punctuations."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from slackwater.plugins.contract import REMEMBERED, JoinStrategy, Setting, Snapshot

if TYPE_CHECKING:
    from slackwater.plugins.join.punctuated.logic import PunctuatedJoinLogic


class PunctuatedWindowJoin(JoinStrategy):
    """Join within windows, and drop what punctuations prove useless; tell downstream which values are finished.

    PWJoin (Ding and Rundensteiner) for 2 to 8 inputs: the results of ``mswj``, from a state that is never larger
    and shrinks with every punctuation on a join key. A value is passed on as finished as soon as an input that
    has punctuated it holds it no more, which is never later than when all inputs have punctuated it (early
    propagation, Theorem 4.1). Ranges of a key purge and are passed on as values do. Without punctuations it costs
    what ``mswj`` costs. ``slackwater.plugins.join.punctuated.cost_model`` says what it is expected to hold.
    """

    name: ClassVar[str] = "pwjoin"
    flags: int = Field(default=REMEMBERED, ge=1)
    """punctuated values to remember at most; of the oldest, tuples then stay until the window drops them"""

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> PunctuatedJoinLogic:
        # Options are read without the compiler; only a join that runs needs it.
        from slackwater.plugins.join.punctuated.logic import PunctuatedJoinLogic

        return PunctuatedJoinLogic(setting, self.flags, True, snapshot)
