"""Options that shedding strategies share."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from slackwater.plugins.contract import SheddingStrategy


class LimitedMemory(SheddingStrategy):
    """A memory limit and how inputs share it."""

    memory: int = Field(ge=1)
    """tuples that a shard may hold, in the windows and waiting to be put in order together"""
    allocation: Literal["fixed", "variable"] = "variable"
    """variable: tuples of all inputs compete for the memory; fixed: each input has an equal share"""
