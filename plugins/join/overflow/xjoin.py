"""The join without a window whose state may be larger than memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from slackwater.plugins.contract import JoinStrategy, Setting, Snapshot
from slackwater.plugins.registry.options import Memory

if TYPE_CHECKING:
    from slackwater.plugins.join.overflow.logic import Limits, OverflowLogic


class OverflowOptions(JoinStrategy):
    """Options of joins that use the disk."""

    directory: str | None = None
    """where tuples go that do not fit into memory, as private files that are removed at the end; by default the
    system's temporary directory"""
    partitions: int = Field(default=64, ge=1, le=4096)
    """parts that each input is split into by key; on disk each is a file, and is read as a whole"""
    reread: float = Field(default=0.5, ge=0)
    """tuples to read from disk, while the input lasts, for each that comes, so that results with them need not
    wait for the end; 0 reads nothing before it"""

    @staticmethod
    def check_overflow(setting: Setting) -> None:
        """Raise ValueError if tuples of a join cannot be kept on disk."""
        if len(setting.inputs) != 2:
            raise ValueError(
                f"only a join of two inputs can use the disk, got {len(setting.inputs)}; join two first, or use "
                "symmetric_hash"
            )
        if not setting.condition.classes:
            raise ValueError(
                "only a join on equal keys can use the disk, and the condition has none; add an equality such as "
                "a.id = b.id, or use symmetric_hash"
            )

    def limits(self, memory: Memory) -> Limits:
        """Return the options as the logic takes them."""
        from slackwater.plugins.join.overflow.logic import Limits

        return Limits(memory, self.partitions, self.reread, self.directory)


class XJoin(OverflowOptions):
    """Join two inputs on equal keys without a window; what does not fit into memory goes to disk.

    XJoin, as in MJoin's experiments; further conditions are allowed. The results are those of ``symmetric_hash``:
    of two tuples that match, the one that came later must not be late. Each result has the time of its newest
    member; one that needs a tuple from disk comes after newer ones, at the latest when the inputs end. With
    ``output: counts`` a time is counted when nothing can be added to it, 16 bytes for each that waits.

    Memory is ``memory`` plus what waits for order, the rows of a chunk, and a few MB; time per tuple is constant
    plus its matches, each tuple being moved, written and read a constant number of times while a partition fits
    into a quarter of the memory.
    """

    name: ClassVar[str] = "xjoin"
    memory: Memory = Memory.parse("256MB")
    """tuples, or bytes such as 64MB, to keep in memory, per shard; bytes are turned into tuples by the average
    row"""

    @property
    def keeps_all(self) -> bool:
        return True

    @property
    def needs_window(self) -> bool:
        return False

    @property
    def takes_window(self) -> bool:
        return False

    def check(self, setting: Setting) -> None:
        self.check_overflow(setting)

    def build(self, setting: Setting, snapshot: Snapshot | None = None) -> OverflowLogic:
        # Options are read without the compiler; only a join that runs needs it.
        from slackwater.plugins.join.overflow.logic import OverflowLogic
        from slackwater.plugins.join.window.logic import SlidingWindowJoinLogic

        self.check(setting)
        return OverflowLogic(
            lambda state: SlidingWindowJoinLogic(setting, state), setting, self.limits(self.memory), (), snapshot
        )
