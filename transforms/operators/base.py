"""What operators have in common that keep nothing on disk, and whose last outputs fit into memory."""

from __future__ import annotations

from collections.abc import Iterator

from slackwater.plugins.contract import Int64s
from slackwater.transforms.arrival.intake import Intake
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.output.outputs import Outputs


class InMemoryOperator:
    """A part of the interface of ``operators.ShardOperator``."""

    accounting: Accounting
    seconds: dict[str, float]
    _intake: Intake

    def finish(self) -> Outputs:
        """Return all that is left: the inputs have ended."""
        raise NotImplementedError

    def advance(self, progress: Int64s) -> Outputs:
        """Nothing waits for the progress of inputs."""
        return Outputs.empty()

    def finishing(self) -> Iterator[Outputs]:
        """As ``finish``, which fits into memory."""
        yield self.finish()

    def close(self) -> None:
        """Nothing is on disk."""

    @property
    def warnings(self) -> list[str]:
        """What the user should know of the data, at most one line of each kind."""
        return self._intake.warnings
