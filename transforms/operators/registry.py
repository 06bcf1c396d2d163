"""The operator of a plan: what engines drive, whatever it computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from slackwater.plugins.contract import Int64s, Snapshot
from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.arrival.queue import InputQueue
from slackwater.transforms.errors import StateError
from slackwater.transforms.operators.choose_values.plan import ChooseValuesPlan
from slackwater.transforms.operators.join import Operator
from slackwater.transforms.operators.shed.plan import ShedPlan
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.output.outputs import Outputs
from slackwater.transforms.settings.plan import JoinPlan
from slackwater.transforms.state.snapshot import ANEW, restoring


class ShardOperator(Protocol):
    """One shard: takes chunks of arrivals, and can be taken to another process between any two."""

    accounting: Accounting
    seconds: dict[str, float]
    queue: InputQueue | None
    """Where rows wait in front of it, if they do: it is told how fast the operator is."""

    def hand_over(self, take: Callable[[pa.RecordBatch], None]) -> None:
        """Let ``take`` have results before their step is over, where they are many bytes."""

    def drop_late(self) -> None:
        """Count late rows and make none: nobody reads them."""

    def push(self, chunk: Chunk) -> Outputs:
        """Take arrivals; return what they complete and the rows they prove late."""

    def idle(self, members: Sequence[int]) -> Outputs:
        """Hold nothing back for inputs that bring no rows, until they do; return what that lets go.

        Args:
            members: all of them, those that were idle before included.
        """

    def advance(self, progress: Int64s) -> Outputs:
        """Follow the inputs where rows that went to other shards have brought them; return what that lets go.

        Args:
            progress: largest event time in ticks of the rows of each member, NEVER if there were none.
        """

    def finish(self) -> Outputs:
        """Return all that is left: the inputs have ended."""

    def finishing(self) -> Iterator[Outputs]:
        """Yield all that is left, in parts that fit into memory."""

    @property
    def warnings(self) -> list[str]:
        """What the user should know of the data."""

    @property
    def nbytes(self) -> int:
        """Bytes of everything held."""

    def close(self) -> None:
        """Remove what is on disk; the operator is of no use any more."""

    def snapshot(self) -> Snapshot:
        """Everything needed to go on in another process."""


def open_operator(plan: JoinPlan, snapshot: Snapshot | None = None, shard: int = 0) -> ShardOperator:
    """Return the operator of a shard of a plan, new or as it was when the snapshot was taken.

    Raises:
        StateError: The snapshot is of another plan.
    """
    if snapshot is None:
        return _opened(plan, snapshot, shard)
    noted = snapshot.get("strategies", plan.strategies)
    if noted != plan.strategies:
        raise StateError(
            f"the stored state is of a shard with the strategies {', '.join(noted)}, and this one has "
            f"{', '.join(plan.strategies)}; {ANEW}"
        )
    with restoring():
        return _opened(plan, snapshot, shard)


def _opened(plan: JoinPlan, snapshot: Snapshot | None, shard: int) -> ShardOperator:
    if "syncs" in plan.side_outputs:
        # What it needs to evaluate expressions takes a while to load.
        from slackwater.transforms.operators.aggregate.operator import Aggregator
        from slackwater.transforms.operators.aggregate.plan import AggregatePlan

        assert isinstance(plan, AggregatePlan)
        return Aggregator(plan, snapshot)
    if isinstance(plan, ChooseValuesPlan):
        from slackwater.transforms.operators.choose_values.operator import ValueChooser

        return ValueChooser(plan, snapshot)
    if plan.arrives_by_time:
        from slackwater.transforms.operators.group_close.operator import GroupCloser
        from slackwater.transforms.operators.group_close.plan import GroupClosePlan

        assert isinstance(plan, GroupClosePlan)
        return GroupCloser(plan, snapshot)
    if isinstance(plan, ShedPlan):
        from slackwater.transforms.operators.shed.operator import LoadShedder

        return LoadShedder(plan, snapshot)
    return Operator(plan, snapshot, shard)
