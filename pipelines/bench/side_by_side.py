"""Operators that are compared by time: all run at once, a chunk each in turns.

What else the machine does comes and goes within tenths of a second. Runs that follow each other differ by a fifth
for that alone; operators that take turns with every chunk are slowed alike.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.operators.base import Operator
from slackwater.transforms.operators.registry import open_operator
from slackwater.transforms.settings.plan import JoinPlan


def side_by_side(plans: Sequence[JoinPlan], chunks: Sequence[Chunk]) -> tuple[list[float], list[Operator]]:
    """Run the operators of plans over the same chunks; return the CPU seconds of each, and the operators."""
    operators = [open_operator(plan) for plan in plans]
    seconds = [0.0] * len(plans)
    turns = list(enumerate(operators))
    for chunk in (*chunks, None):
        for which, operator in turns:
            started = time.process_time()
            operator.finish() if chunk is None else operator.push(chunk)
            seconds[which] += time.process_time() - started
        turns.reverse()
    return seconds, operators
