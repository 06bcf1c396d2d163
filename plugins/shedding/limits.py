"""Options that shedding strategies share."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from slackwater.plugins.contract import SheddingStrategy
from slackwater.plugins.registry.options import MemoryLimit
from slackwater.plugins.shedding.queue_options import Queue


class LimitedMemory(SheddingStrategy):
    """A memory limit and how inputs share it, and a queue in front of the join."""

    memory: MemoryLimit | None = None
    """what a shard may hold, in the windows and waiting for order: 100000 or 64MB; {0s: 100000, 10m: 50000} says
    it by stream time since the first row; none: no limit"""
    allocation: Literal["fixed", "variable"] = "variable"
    """variable: tuples of all inputs compete for the memory; fixed: each input has an equal share"""
    queue: Queue | None = None
    """queue for the rows that come while the join is busy: {rows: 10000, service_rate: 50000}; none: rows never
    wait for the processor"""

    @model_validator(mode="after")
    def _some_limit(self) -> Self:
        if self.memory is None and self.queue is None:
            raise ValueError("there is nothing to keep to; set memory, queue, or both")
        return self
