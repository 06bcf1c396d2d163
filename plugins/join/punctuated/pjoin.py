"""The join that exploits punctuations only."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from slackwater.plugins.contract import REMEMBERED, UNBOUNDED, Setting, Snapshot
from slackwater.plugins.join.overflow.xjoin import OverflowOptions
from slackwater.plugins.registry.options import Memory

if TYPE_CHECKING:
    from slackwater.plugins.join.overflow.punctuated_logic import PunctuatedOverflowLogic
    from slackwater.plugins.join.punctuated.logic import PunctuatedJoinLogic


class PunctuatedJoin(OverflowOptions):
    """Join without a window; tuples go when punctuations prove that nothing will match them any more.

    PJoin, the baseline of PWJoin's experiments, for 2 to 8 inputs. A value is passed on as finished once every
    input has punctuated it. Memory is bounded by the punctuations alone: values that are never punctuated stay
    for ever. A window that is set holds for the results, but tells nothing of values.

    With ``memory`` set, two inputs and no window, what is too much goes to disk as in ``xjoin``. A value is
    passed on when no result with it is owed any more, which may be at the end of the input.
    """

    name: ClassVar[str] = "pjoin"
    flags: int = Field(default=REMEMBERED, ge=1)
    """punctuated values to remember at most; the oldest is forgotten, and its tuples stay"""
    memory: Memory | None = None
    """tuples, or bytes such as 64MB, to keep in memory, per shard; by default there is no limit"""

    @property
    def keeps_all(self) -> bool:
        return self.memory is not None

    @property
    def needs_window(self) -> bool:
        return False

    def check(self, setting: Setting) -> None:
        if self.memory is None:
            return
        if any(window != UNBOUNDED for window in setting.windows):
            raise ValueError("memory is for joins without a window, and there is one; leave out memory or window")
        self.check_overflow(setting)

    def build(
        self, setting: Setting, snapshot: Snapshot | None = None
    ) -> PunctuatedJoinLogic | PunctuatedOverflowLogic:
        # Options are read without the compiler; only a join that runs needs it.
        from slackwater.plugins.join.overflow.punctuated_logic import PunctuatedOverflowLogic
        from slackwater.plugins.join.punctuated.logic import PunctuatedJoinLogic, signature_of

        self.check(setting)
        if self.memory is None:
            return PunctuatedJoinLogic(setting, self.flags, False, snapshot)
        return PunctuatedOverflowLogic(
            lambda state: PunctuatedJoinLogic(setting, self.flags, False, state),
            setting,
            self.limits(self.memory),
            signature_of(setting),
            snapshot,
        )
