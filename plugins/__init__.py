"""Strategies: what to decide. Disorder handling, joining and shedding, all pluggable.

A complete plugin is one module with one options class, one logic object and one hook::

    # my_slack.py
    from typing import ClassVar
    import numpy as np
    from slackwater.plugins import (
        Arrivals, DisorderLogic, DisorderStrategy, Duration, Setting, Snapshot, hookimpl,
    )

    class TwiceMaxSlack(DisorderStrategy):
        \"\"\"Hold every row for twice the largest delay seen, but never longer than the cap.\"\"\"

        name: ClassVar[str] = "twice_max"
        cap: Duration = Duration.parse("1m")

        def build(self, setting: Setting, snapshot: Snapshot | None = None) -> "TwiceMaxLogic":
            return TwiceMaxLogic(setting.ticks(self.cap), snapshot)

    class TwiceMaxLogic(DisorderLogic):
        def __init__(self, cap, snapshot):
            self.cap = cap
            self.largest = snapshot["largest"] if snapshot else 0

        def bounds(self, arrivals: Arrivals):
            largest = np.maximum.accumulate(np.append(self.largest, arrivals.delay))
            self.largest = int(largest[-1])
            return arrivals.progress - np.minimum(2 * largest[1:], self.cap)

        def snapshot(self):
            return {"largest": self.largest}

    @hookimpl
    def slackwater_disorder_strategies():
        return [TwiceMaxSlack]

Name the module in the entry-point group ``slackwater`` of your distribution, or pass
``--plugin my_slack`` on the command line, and use it: ``disorder: {strategy: twice_max, cap: 30s}``.
``slackwater.plugins.checks`` is the conformance suite that the built-in strategies pass too.
"""

if __name__ != "slackwater.plugins":
    raise ImportError(f"import slackwater.plugins, not {__name__}: the folder is not a top-level package")

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slackwater.plugins.contract import (
        Arrivals,
        DisorderLogic,
        DisorderStrategy,
        Feedback,
        Held,
        JoinLogic,
        JoinStrategy,
        Matches,
        Released,
        Setting,
        SheddingLogic,
        SheddingStrategy,
        Snapshot,
        Strategy,
        Tuples,
    )
    from slackwater.plugins.hookspecs import hookimpl
    from slackwater.plugins.registry.options import Duration

__all__ = [
    "Arrivals",
    "DisorderLogic",
    "DisorderStrategy",
    "Duration",
    "Feedback",
    "Held",
    "JoinLogic",
    "JoinStrategy",
    "Matches",
    "Released",
    "Setting",
    "SheddingLogic",
    "SheddingStrategy",
    "Snapshot",
    "Strategy",
    "Tuples",
    "hookimpl",
]
_ELSEWHERE = {"Duration": "registry.options", "hookimpl": "hookspecs"}
"""Modules of what is not in ``contract``."""


def __getattr__(name: str) -> Any:
    """Import on first use: the command line answers ``--help`` without loading arrays."""
    if name in __all__:
        return getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'contract')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
