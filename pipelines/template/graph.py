"""A template as data: nodes in order, each with its settings checked. No engine, no files opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush
from typing import Any

import pyarrow as pa

from slackwater.transforms.expressions.tree import Expr
from slackwater.transforms.settings.models import OperatorConfig
from slackwater.transforms.settings.plan import ARRIVAL

__all__ = [
    "ARRIVAL",
    "Config",
    "Create",
    "Filter",
    "Flatten",
    "Location",
    "MapToFields",
    "Node",
    "Pipeline",
    "Port",
    "Read",
    "ReadKafka",
    "Write",
    "WriteKafka",
    "in_order",
]


@dataclass(frozen=True)
class Location:
    """Where in the template something stands."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Read:
    """Read files. ``path`` may be a glob; files are read in natural order of their names."""

    format: str
    """``parquet``, ``csv`` or ``json`` (one object per line)."""
    path: str
    schema: dict[str, pa.DataType] = field(default_factory=dict)
    """Types of columns of text formats; those of others are inferred."""
    delimiter: str = ","
    """What stands between the fields of CSV."""
    null_values: tuple[str, ...] = ()
    """Texts in CSV that are null, besides a field that is empty."""


@dataclass(frozen=True)
class Create:
    """Rows written in the template itself."""

    rows: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Filter:
    """Keep the rows for which the expression is true."""

    keep: Expr


@dataclass(frozen=True)
class MapToFields:
    """Compute columns: with ``append`` added to the existing ones (less ``drop``), else instead of them."""

    fields: dict[str, Expr]
    append: bool = False
    drop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Flatten:
    """Put the rows of several transforms together; they have the same columns, and no order among them."""


@dataclass(frozen=True)
class Write:
    """Write rows to a file or folder; ``format`` as in Read."""

    format: str
    path: str


@dataclass(frozen=True)
class ReadKafka:
    """Read JSON messages of a topic; live."""

    topic: str
    bootstrap_servers: str
    columns: dict[str, str]
    """Names, and types of JSON Schema."""
    required: tuple[str, ...] = ()
    start: str = "latest"
    """``earliest`` or ``latest``: where to begin without a checkpoint."""
    client: dict[str, str] = field(default_factory=dict)
    """Settings of Kafka's consumer."""
    seconds: int | None = None
    """After which to end."""


@dataclass(frozen=True)
class WriteKafka:
    """Write rows as JSON messages to a topic."""

    topic: str
    bootstrap_servers: str
    client: dict[str, str] = field(default_factory=dict)
    """Settings of Kafka's producer."""


Config = Read | ReadKafka | Create | Filter | MapToFields | Flatten | Write | WriteKafka | OperatorConfig


@dataclass(frozen=True)
class Node:
    """One transform. ``inputs`` maps labels to outputs of other nodes.

    The label is ``input`` if there is one, and a number for each input of Flatten.
    """

    name: str
    type: str
    inputs: dict[str, Port]
    config: Config
    location: Location
    lines: dict[tuple[str, ...], int] = field(default_factory=dict, compare=False)
    """Line of each setting by its path within ``config``, for messages."""


@dataclass(frozen=True)
class Port:
    """An output of a node: the main one is ``""``, others are ``late``, ``metrics`` and the like."""

    node: str
    output: str = ""

    def __str__(self) -> str:
        return f"{self.node}.{self.output}" if self.output else self.node


@dataclass(frozen=True)
class Pipeline:
    """All nodes, every node after those it reads from."""

    file: str
    nodes: tuple[Node, ...]
    options: dict[str, Any] = field(default_factory=dict)

    def node(self, name: str) -> Node:
        """The node with this name."""
        return self._named[name]

    def consumers(self, port: Port) -> list[Node]:
        """Nodes that read an output, in order."""
        return self._readers.get(port, [])

    @cached_property
    def _named(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def _readers(self) -> dict[Port, list[Node]]:
        found: dict[Port, list[Node]] = {}
        for node in self.nodes:
            for port in dict.fromkeys(node.inputs.values()):
                found.setdefault(port, []).append(node)
        return found


def in_order(nodes: dict[str, Node]) -> tuple[list[Node], dict[str, Node]]:
    """Return nodes after those they read from, else in the order given, and those that read from themselves."""
    names, place = list(nodes), {name: k for k, name in enumerate(nodes)}
    before = [{place[port.node] for port in node.inputs.values()} for node in nodes.values()]
    readers: list[list[int]] = [[] for _ in names]
    for k, read in enumerate(before):
        for source in read:
            readers[source].append(k)
    ready, ordered = [k for k, read in enumerate(before) if not read], list[Node]()
    while ready:
        k = heappop(ready)
        ordered.append(nodes[names[k]])
        for reader in readers[k]:
            before[reader].discard(k)
            if not before[reader]:
                heappush(ready, reader)
    return ordered, {name: nodes[name] for name, read in zip(names, before, strict=True) if read}
