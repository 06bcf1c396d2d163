"""What strategies are given, what they return, and what they may have: plain arrays, no engine types.

A strategy is a frozen options object (validated by pydantic) with ``build``, which makes a logic object, from
nothing or from a snapshot. Logic objects are called once per chunk of arrivals, never per tuple. The base classes
``DisorderLogic``, ``JoinLogic`` and ``SheddingLogic`` declare all that operators may ask of one, with a default;
``DisorderStrategy``, ``JoinStrategy`` and ``SheddingStrategy`` declare what is read from options.
"""

from slackwater.plugins.contract.arrays import (
    NEVER,
    Arrivals,
    Bools,
    Evicted,
    Feedback,
    Finished,
    Float64s,
    Held,
    Int8s,
    Int64s,
    Keep,
    Matches,
    Punctuations,
    Released,
    Settled,
    Tuples,
    UInt64s,
)
from slackwater.plugins.contract.disk import (
    Disk,
    DiskReader,
    Stored,
)
from slackwater.plugins.contract.disorder import (
    Clock,
    DisorderLogic,
    DisorderStrategy,
)
from slackwater.plugins.contract.join import (
    REMEMBERED,
    JoinLogic,
    JoinStrategy,
)
from slackwater.plugins.contract.logic import (
    Logic,
    declared,
    derived,
)
from slackwater.plugins.contract.setting import (
    UNBOUNDED,
    Condition,
    KeyFrequencies,
    Limit,
    Metadata,
    Pattern,
    Setting,
    Snapshot,
)
from slackwater.plugins.contract.shedding import (
    SheddingLogic,
    SheddingStrategy,
)
from slackwater.plugins.contract.strategy import (
    Strategy,
)

JudgingJoinLogic = LimitedJoinLogic = OverflowingJoinLogic = PunctuatedJoinLogic = JoinLogic
"""Names of capabilities that ``JoinLogic`` declares now."""

__all__ = [
    "NEVER",
    "REMEMBERED",
    "UNBOUNDED",
    "Arrivals",
    "Bools",
    "Clock",
    "Condition",
    "Disk",
    "DiskReader",
    "DisorderLogic",
    "DisorderStrategy",
    "Evicted",
    "Feedback",
    "Finished",
    "Float64s",
    "Held",
    "Int8s",
    "Int64s",
    "JoinLogic",
    "JoinStrategy",
    "JudgingJoinLogic",
    "Keep",
    "KeyFrequencies",
    "Limit",
    "LimitedJoinLogic",
    "Logic",
    "Matches",
    "Metadata",
    "OverflowingJoinLogic",
    "Pattern",
    "PunctuatedJoinLogic",
    "Punctuations",
    "Released",
    "Setting",
    "Settled",
    "SheddingLogic",
    "SheddingStrategy",
    "Snapshot",
    "Stored",
    "Strategy",
    "Tuples",
    "UInt64s",
    "declared",
    "derived",
]
