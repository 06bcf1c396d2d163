"""Counts rows where they are read: the accounts of all operators must add up to them.

Sources count what they read, Filter what it drops, operators what leaves them. So for every input of an operator
it is known, without asking the operator, how many rows it was sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from slackwater.pipelines.template.graph import Filter, Flatten, MapToFields, Pipeline, Port
from slackwater.transforms.errors import AccountError
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.settings.plan import Plan


class Sent(NamedTuple):
    """Rows on their way to an input or a sink."""

    source: int
    """That were read, or that operators before it gave."""
    filtered: int
    """Of these, what Filter dropped."""

    @property
    def rows(self) -> int:
        """Rows that are left."""
        return self.source - self.filtered


class Ledger:
    """Counts of one run. Each port and each Filter is counted by one thread at a time."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._given: Counter[Port] = Counter()
        self._dropped: Counter[str] = Counter()

    def give(self, port: Port, rows: int) -> None:
        """Count rows that a source has read, or an operator has put out."""
        self._given[port] += rows

    def drop(self, name: str, rows: int) -> None:
        """Count rows that a Filter has dropped."""
        self._dropped[name] += rows

    def sent(self, port: Port) -> Sent:
        """Return how many rows have come out of a port."""
        node = self._pipeline.node(port.node)
        if not isinstance(node.config, Filter | MapToFields | Flatten):
            return Sent(self._given[port], 0)
        before = [self.sent(given) for given in node.inputs.values()]
        return Sent(
            sum(part.source for part in before),
            sum(part.filtered for part in before) + self._dropped[node.name],
        )

    def settle(self, joins: Mapping[str, tuple[Plan, Accounting]], written: Mapping[str, int]) -> None:
        """Raise AccountError unless every row that was read is accounted for, and all output was written.

        Args:
            joins: plan and account of every operator, by name.
            written: rows that each sink has written, by its name.
        """
        for name, (plan, account) in joins.items():
            inputs = self._pipeline.node(name).inputs
            settle(name, account, [self.sent(inputs[label]) for label in plan.inputs])
            settle_outputs(name, plan, account, self._read_outputs(name, plan))
        for name, rows in written.items():
            (port,) = self._pipeline.node(name).inputs.values()
            sent = self.sent(port).rows
            if rows != sent:
                raise AccountError.of(f"{name}: {_rows(sent)} came from {str(port)!r}, and {rows} were written")

    def _read_outputs(self, name: str, plan: Plan) -> dict[str, int]:
        """Return the rows of an operator's outputs that something reads."""
        ports = [
            port for output in ("", *plan.side_outputs) if self._pipeline.consumers(port := Port(name, output))
        ]
        return {port.output: self._given[port] for port in ports}


def settle(name: str, account: Accounting, sent: list[Sent]) -> None:
    """Raise AccountError unless an operator accounts for the rows that each input was sent; note these."""
    for i, (label, given) in enumerate(zip(account.inputs, sent, strict=True)):
        if not account.received[i] == account.accounted(i) == given.rows:
            raise AccountError.of(
                f"{name}: of input {label!r}, {_rows(given.source)} were read, {given.filtered} filtered out, "
                f"{account.received[i]} received and {account.accounted(i)} accounted for"
            )
    account.source = [given.source for given in sent]
    account.filtered = [given.filtered for given in sent]


def settle_live(name: str, account: Accounting, sent: list[Sent]) -> None:
    """Raise AccountError unless an operator that goes on has received the rows that each input was sent.

    What it holds is in none of its accounts yet, so these may come to less, and to no more.
    """
    for i, (label, given) in enumerate(zip(account.inputs, sent, strict=True)):
        if not account.accounted(i) <= account.received[i] == given.rows:
            raise AccountError(
                f"{name}: of input {label!r}, {_rows(given.rows)} were read, {account.received[i]} received and "
                f"{account.accounted(i)} accounted for so far; rows were lost or came twice, also in what was "
                "written: please report it"
            )


def settle_outputs(name: str, plan: Plan, account: Accounting, given: Mapping[str, int]) -> None:
    """Raise AccountError if other numbers of rows came out of an operator than its account says."""
    counted = {"late": account.late_rows().total()}
    if not plan.setting.counts_only:
        counted[""] = account.results
    for output in counted.keys() & given.keys():
        if given[output] != counted[output]:
            raise AccountError.of(
                f"{Port(name, output)}: {_rows(counted[output])} are accounted for, and {given[output]} came out"
            )


def _rows(n: int) -> str:
    return f"{n} row{'' if n == 1 else 's'}"
