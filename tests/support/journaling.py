"""What an engine does to a journal, in one process: a store whose bundles fail, and workers that share it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from slackwater.plugins.clock import clock_at, now_nanos
from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.operators.base import Operator
from slackwater.transforms.operators.registry import open_operator
from slackwater.transforms.output.outputs import Outputs
from slackwater.transforms.settings.plan import JoinPlan
from slackwater.transforms.state.journal import LEAST_LOG, Journal, Opened, Shards
from slackwater.transforms.state.log import give_again, idle_given, rows_given


class FailedBundle(Exception):
    """A bundle that an engine throws away."""


@dataclass
class Content:
    """What a store holds."""

    summary: bytes | None = None
    base: bytes = b""
    log: list[tuple[int, bytes]] = field(default_factory=list)


class MemoryStore:
    """State of one shard: writes of a bundle are seen within it, and by others once it has succeeded."""

    def __init__(self, skips: bool = True) -> None:
        self.content = Content()
        self.chooses = skips

    @contextmanager
    def bundle(self) -> Iterator[None]:
        before = replace(self.content, log=list(self.content.log))
        try:
            yield
        except FailedBundle:
            self.content = before

    def summary(self) -> bytes | None:
        return self.content.summary

    def base(self) -> bytes:
        return self.content.base

    def log(self, first: int) -> Iterable[bytes]:
        """Newest first: an engine need not keep the order."""
        return [entry for number, entry in reversed(self.content.log) if number >= first or not self.chooses]

    def put_summary(self, summary: bytes) -> None:
        self.content.summary = summary

    def put_base(self, base: bytes, gone: range) -> None:
        self.content.base = base
        left = [(number, entry) for number, entry in self.content.log if number not in gone]
        self.content.log = left if self.chooses else []

    def append(self, number: int, entry: bytes) -> None:
        self.content.log.append((number, entry))

    def clear(self) -> None:
        self.content = Content()


class Worker:
    """A process that may hold the shard."""

    def __init__(self, plan: JoinPlan, least_log: int = LEAST_LOG, most: int = 4) -> None:
        self._plan, self._least_log, self._most = plan, least_log, most
        self.forget()

    def forget(self) -> None:
        """Lose everything in memory."""
        self.shards: Shards[Operator] = Shards(self._most)
        plan = self._plan
        self._journal = Journal(
            self.shards,
            lambda snapshot: open_operator(plan, snapshot),
            lambda operator, given: give_again(plan, operator, given),
            self._least_log,
        )

    def give(self, store: Any, given: Chunk | Sequence[int], key: Any = "shard") -> tuple[Outputs, Opened[Any]]:
        """Give the shard rows, or the word that inputs are idle; return what came out, and what it cost."""
        with self._journal.open(key, store) as opened:
            if isinstance(given, Chunk):
                with clock_at(now_nanos()):
                    entry = rows_given(given, now_nanos())
                    out = opened.shard.push(given)
            else:
                entry = idle_given(given)
                out = opened.shard.idle(given)
            opened.log(entry)
        return out, opened

    def end(self, store: Any, key: Any = "shard") -> Outputs:
        """Let the inputs end."""
        with self._journal.open(key, store) as opened:
            out = opened.shard.finish()
            opened.end()
        return out


def part_of(chunk: Chunk, start: int, stop: int) -> Chunk:
    """Return some of the arrivals of a chunk."""
    before = np.bincount(chunk.input[:start], minlength=len(chunk.batches))
    counts = np.bincount(chunk.input[start:stop], minlength=len(chunk.batches))
    batches = [b.slice(int(a), int(n)) for b, a, n in zip(chunk.batches, before, counts, strict=True)]
    return Chunk(chunk.input[start:stop], chunk.arrival[start:stop], batches)


def rows_of(outputs: Iterable[Outputs]) -> dict[str, Any]:
    """All rows of every output, step by step; those of a step in any order, as a probe finds its partners."""
    gathered: dict[str, list[Any]] = {}
    for out in outputs:
        for name, batches in out._asdict().items():
            rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
            gathered.setdefault(name, []).append(sorted(rows, key=repr))
    return gathered
