"""The driver of a shard: what every engine does with an operator, in one place.

An engine hands over rows with their numbers of arrival, says how far its inputs have come, and passes on what
comes out. The driver relies on these laws, and keeps them:

- *Where chunks are cut changes no result.* Rows are therefore pushed in steps, of ``STEP_ROWS`` where an engine
  may read more at a time (``test_driver.test_cuts_change_no_result``).
- *Rows are pushed in order of arrival over all inputs*, equal numbers in the order of the inputs. Where an engine
  knows how far inputs have come, no row is pushed before all inputs have passed it
  (``test_frontier.test_rows_come_in_order_of_arrival_however_inputs_are_read``).
- *Every row is in exactly one account.* The rows that an operator was given, but for copies that another shard
  accounts for, are those that it received, and at its end those that it accounts for
  (``test_driver.test_a_lost_row_fails_the_shard``).
- *A shard is deterministic*: the same rows at the same time of day lead to the same state. The time of day is
  therefore handed over, and rows can be given again after a fault
  (``test_driver.test_a_shard_goes_on_from_its_snapshot``).

An error names the shard and the rows that it came up at (``faults``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Final

import numpy as np
import pyarrow as pa

from slackwater.plugins.clock import clock_at
from slackwater.plugins.contract import Int64s, Snapshot
from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.engine.faults import naming_rows
from slackwater.transforms.operators.base import Operator
from slackwater.transforms.operators.registry import open_operator
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.output.outputs import Outputs
from slackwater.transforms.settings.plan import Plan

STEP_ROWS: Final = 1 << 17
"""Rows that an operator is given at a time: bounds what it builds up before results leave."""
_GIVEN: Final = "given"
"""In a snapshot, beside what the operator keeps."""


class ShardDriver:
    """Drives the operator of one shard.

    Args:
        plan: what it does.
        shard: its number.
        snapshot: what ``snapshot`` returned, or None.
        operator: the operator, where it is not the one that the plan names.
    """

    def __init__(
        self,
        plan: Plan,
        shard: int = 0,
        snapshot: Snapshot | None = None,
        operator: Operator | None = None,
    ) -> None:
        self.plan, self.shard = plan, shard
        self.operator = open_operator(plan, snapshot, shard) if operator is None else operator
        given = (snapshot or {}).get(_GIVEN, self.accounting.received)
        self.given: Int64s = np.array(given, np.int64)
        """Rows of each input that the operator was given, but for copies."""
        self.ended = False

    @property
    def accounting(self) -> Accounting:
        """What became of the rows."""
        return self.operator.accounting

    @property
    def warnings(self) -> list[str]:
        """What the user should know of the data."""
        return self.operator.warnings

    @property
    def nbytes(self) -> int:
        """Bytes of everything that the operator holds."""
        return self.operator.nbytes

    @property
    def measures(self) -> bool:
        """Whether the operator goes by how fast it is: then it would not do the same again."""
        return self.plan.queue is not None and self.plan.queue.service_rate is None

    def hand_over(self, take: Callable[[pa.RecordBatch], None]) -> None:
        """Let results that are many bytes go before their step is over, instead of being among its outputs."""
        self.operator.hand_over(take)

    def drop_late(self) -> None:
        """Make no late rows: nothing reads them."""
        self.operator.drop_late()

    def take(self, chunks: Iterable[Chunk], nanos: int | None = None) -> Iterator[Outputs]:
        """Push arrivals chunk by chunk; yield what each gives."""
        for chunk in chunks:
            yield self.push(chunk, nanos)

    def push(self, chunk: Chunk, nanos: int | None = None) -> Outputs:
        """Give the operator arrivals; return what they complete and the rows they prove late.

        Args:
            chunk: arrivals in order.
            nanos: the time of day at which they are taken, unless it is that of the clock.
        """
        self.given += np.bincount(chunk.at_home, minlength=self.given.size)
        with _at(nanos), naming_rows(self.plan, self.shard, chunk):
            return self.operator.push(chunk)

    def idle(self, members: Sequence[int], nanos: int | None = None) -> Outputs:
        """Hold nothing back for inputs that bring no rows; return what that lets go."""
        with _at(nanos), naming_rows(self.plan, self.shard):
            return self.operator.idle(members)

    def advance(self, progress: Int64s, nanos: int | None = None) -> Outputs:
        """Follow the inputs where rows of other shards have brought them; return what that lets go."""
        with _at(nanos), naming_rows(self.plan, self.shard):
            return self.operator.advance(progress)

    def finish(self) -> Iterator[Outputs]:
        """Yield all that is left, in parts that fit into memory: the inputs have ended.

        Raises:
            ShardError: Not every row is accounted for.
        """
        with naming_rows(self.plan, self.shard):
            yield from self.operator.finishing()
            self.accounting.settle(self.given)
        self.ended = True

    def measure(self, seconds: float) -> None:
        """Tell an operator that goes by how fast it is how long it was busy since the last time."""
        if self.measures and self.operator.queue is not None:
            self.operator.queue.measure(seconds)

    def snapshot(self) -> Snapshot:
        """Everything needed to go on in another process: what the operator keeps, and the rows given."""
        return {**self.operator.snapshot(), _GIVEN: self.given.copy()}

    def close(self) -> None:
        """Remove what is on disk; the shard is of no use any more."""
        self.operator.close()


def since_last(before: int, now: int, n: int) -> Int64s:
    """Return when ``n`` rows came that were taken now: one after the other since the last ones were."""
    return before + (now - before) * np.arange(1, n + 1) // max(1, n)


def _at(nanos: int | None) -> Any:
    return nullcontext() if nanos is None else clock_at(nanos)
