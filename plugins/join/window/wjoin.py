"""The window join that ignores punctuations, for comparison."""

from typing import ClassVar

from slackwater.plugins.join.window.mswj import SlidingWindowJoinStrategy


class WindowJoin(SlidingWindowJoinStrategy):
    """Join within windows and let punctuations pass by unused.

    WJoin, the baseline of PWJoin's experiments: tuples stay until the window drops them, and no punctuation
    leaves. It is ``mswj`` by another name, for comparisons that say what they compare.
    """

    name: ClassVar[str] = "wjoin"
