"""What operators have in common that keep nothing on disk, and whose last outputs fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from slackwater.plugins.contract import Int64s
from slackwater.transforms.arrival.intake import Intake
from slackwater.transforms.arrival.queue import InputQueue
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.output.outputs import Outputs


class InMemoryOperator:
    """A part of the interface of ``operators.ShardOperator``."""

    accounting: Accounting
    seconds: dict[str, float]
    queue: InputQueue | None = None
    _intake: Intake

    def finish(self) -> Outputs:
        """Return all that is left: the inputs have ended."""
        raise NotImplementedError

    def advance(self, progress: Int64s) -> Outputs:
        """Nothing waits for the progress of inputs."""
        return Outputs.empty()

    def hand_over(self, take: Callable[[pa.RecordBatch], None]) -> None:
        """All results of a step fit into memory."""

    def drop_late(self) -> None:
        """Late rows cost little beside the others."""

    def finishing(self) -> Iterator[Outputs]:
        """As ``finish``, which fits into memory."""
        yield self.finish()

    def close(self) -> None:
        """Nothing is on disk."""

    @property
    def warnings(self) -> list[str]:
        """What the user should know of the data, at most one line of each kind."""
        return self._intake.warnings
