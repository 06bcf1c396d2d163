"""What shards have to tell at their end, and what an operator has to tell of all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.state import snapshot


class Account(NamedTuple):
    """What a shard has to tell at its end."""

    shard: int
    accounting: Accounting
    warnings: list[str]
    given: dict[str, int] = {}  # noqa: RUF012 - nobody adds to it
    """Rows of each output."""

    def dumps(self) -> bytes:
        """The account as bytes."""
        return snapshot.dumps({**self._asdict(), "accounting": self.accounting.snapshot()})

    @classmethod
    def loads(cls, data: bytes, inputs: tuple[str, ...]) -> Account:
        """The account that ``dumps`` wrote, of an operator with these inputs."""
        tree = snapshot.loads(data)
        return cls(**{**tree, "accounting": Accounting(inputs, tree["accounting"])})


def total(inputs: tuple[str, ...], shards: Iterable[Accounting]) -> Accounting:
    """Return the account of an operator: what became of every row, over all shards."""
    whole = Accounting(inputs)
    for shard in shards:
        whole += shard
    return whole


def each_once(name: str, warnings: Iterable[Iterable[str]]) -> list[str]:
    """Return the warnings of all shards of an operator, each once and with its name."""
    return [f"{name}: {warning}" for warning in dict.fromkeys(w for shard in warnings for w in shard)]
