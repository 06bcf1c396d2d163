"""The operator of a plan: what engines drive, whatever it computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from slackwater.plugins.contract import Held, Int64s, Snapshot
from slackwater.transforms.arrival.intake import Chunk, Intake
from slackwater.transforms.arrival.queue import InputQueue
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.output.outputs import Outputs


class Operator:
    """One shard: takes chunks of arrivals, and can be taken to another process between any two.

    What has a default here suits an operator that keeps nothing on disk, and whose last outputs fit into memory.
    """

    accounting: Accounting
    """What became of every row."""
    seconds: dict[str, float]
    """Where the time went: kernel, materialise and adapt."""
    queue: InputQueue | None = None
    """Where rows wait in front of it, if they do: it is told how fast the operator is."""
    _intake: Intake

    def push(self, chunk: Chunk) -> Outputs:
        """Take arrivals; return what they complete and the rows they prove late."""
        raise NotImplementedError

    def idle(self, members: Sequence[int]) -> Outputs:
        """Hold nothing back for inputs that bring no rows, until they do; return what that lets go.

        Args:
            members: all of them, those that were idle before included.
        """
        raise NotImplementedError

    def advance(self, progress: Int64s) -> Outputs:
        """Follow the inputs where rows that went to other shards have brought them; return what that lets go.

        By default, nothing waits for the progress of inputs.

        Args:
            progress: largest event time in ticks of the rows of each member, NEVER if there were none.
        """
        return Outputs.empty()

    def finish(self) -> Outputs:
        """Return all that is left: the inputs have ended."""
        raise NotImplementedError

    def finishing(self) -> Iterator[Outputs]:
        """Yield all that is left, in parts that fit into memory."""
        yield self.finish()

    def drop_late(self) -> None:
        """Count late rows and make none, if that spares work: nobody reads them."""

    def hand_over(self, take: Callable[[pa.RecordBatch], None]) -> None:
        """Give results away before a step is over, where they are many bytes; by default they are never."""

    @property
    def warnings(self) -> list[str]:
        """What the user should know of the data, at most one line of each kind."""
        return self._intake.warnings

    @property
    def nbytes(self) -> int:
        """Bytes of everything held."""
        raise NotImplementedError

    def close(self) -> None:
        """Remove what is on disk; the operator is of no use any more."""

    def snapshot(self) -> Snapshot:
        """Everything needed to go on in another process, as ``transforms.state.snapshot`` writes it."""
        raise NotImplementedError


def nothing_held(width: int) -> Held:
    """Return the tuples that an operator without windows holds; ``width`` is the number of their cells."""
    none = np.empty(0, np.int64)
    return Held(none.astype(np.int8), none, none, np.empty((0, width), np.int64), none.astype(np.uint64))
