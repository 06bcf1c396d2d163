"""A folder in which workers leave what the launcher needs: batches for sinks, accounts of shards.

Files are named by what they hold and appear whole, so work that is done twice leaves one copy.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import apache_beam as beam
import pyarrow as pa

from slackwater.transforms.beam.arrow import ArrowBatchCoder
from slackwater.transforms.engine.account import Account, each_once, total
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.settings.plan import ARRIVAL
from slackwater.transforms.state import snapshot


class Spool:
    """The launcher's view of the folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def folder(self, node: str) -> str:
        """Return the folder for what a node leaves, made if it is not there."""
        folder = self._root / quote(node, safe="")
        folder.mkdir(exist_ok=True)
        return str(folder)

    def batches(self, node: str) -> Iterator[pa.RecordBatch]:
        """Yield the batches for a sink in the order of their arrival numbers."""
        coder = ArrowBatchCoder()
        for file in sorted(Path(self.folder(node)).glob("*.batch")):
            yield coder.decode(file.read_bytes())

    def counted(self, node: str) -> int:
        """Return the sum of what steps of a node have counted."""
        return sum(int(file.read_bytes()) for file in Path(self.folder(node)).glob("*.count"))

    def account(self, node: str, inputs: tuple[str, ...]) -> tuple[Accounting, list[str], Counter[str]]:
        """Return a join's account over all shards, the warnings, each once, and how many rows each output has."""
        accounts = [
            Account.loads(file.read_bytes(), inputs) for file in sorted(Path(self.folder(node)).glob("*.account"))
        ]
        given = Counter[str]()
        for account in accounts:
            given.update(account.given)
        said = each_once(node, (account.warnings for account in accounts))
        return total(inputs, (account.accounting for account in accounts)), said, given


class SpoolBatches(beam.DoFn):  # type: ignore[misc, unused-ignore]
    """Leaves each batch under the number of its first row."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def process(self, element: pa.RecordBatch) -> None:
        if element.num_rows:
            first = element.column(ARRIVAL)[0].as_py()
            _leave(Path(self._folder, f"{first:020d}.batch"), ArrowBatchCoder().encode(element))


class SpoolAccounts(beam.DoFn):  # type: ignore[misc, unused-ignore]
    """Leaves the account of each shard under the shard's number."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def process(self, element: bytes) -> None:
        shard = snapshot.loads(element)["shard"]
        _leave(Path(self._folder, f"{shard:06d}.account"), element)


def leave_count(folder: str, number: int, rows: int) -> None:
    """Leave how many rows of a node's ``number``-th part there were."""
    _leave(Path(folder, f"{number:020d}.count"), str(rows).encode())


def _leave(file: Path, content: bytes) -> None:
    partial = file.with_suffix(f".{uuid.uuid4().hex}")
    partial.write_bytes(content)
    os.replace(partial, file)
