"""Shards in Spark's state store: their journal, and what a micro-batch reads and writes of it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from slackwater.plugins.contract import Int64s, Snapshot
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.output.outputs import Outputs
from slackwater.transforms.settings.plan import Plan
from slackwater.transforms.spark.blobs import (
    ACCOUNT,
    LATE,
    METRICS,
    PUNCTUATION,
    RESULT,
    SYNC,
    blobs_of,
)
from slackwater.transforms.spark.checkpoint import Settings, plan_before
from slackwater.transforms.spark.observation import counts_of
from slackwater.transforms.spark.shard import Given, Shard
from slackwater.transforms.state import snapshot as snapshots
from slackwater.transforms.state.journal import LEAST_LOG, Journal, Opened, Shards

PART_BYTES: Final = 1 << 22
"""Bytes of a base that are one value of Spark's: it copies values several times on their way."""
SHARDS: Shards[Shard] = Shards(most=64)
"""Those of all joins that this worker process works on."""


class Output(NamedTuple):
    """A row of ``packing.OUTPUT`` without its shard and number."""

    kind: str
    blob: bytes
    counts: dict[str, Any] | None = None
    """Of an account."""


class SparkStore:
    """The state of one shard in state variables of ``transformWithState``.

    Base and log are maps from numbers: whoever is behind gets the entries that it missed one by one. A list would
    be read as a whole.
    """

    chooses = True

    def __init__(self, summary: Any, base: Any, log: Any, settings: Any) -> None:
        self._summary, self._base, self._log, self._settings = summary, base, log, settings

    def summary(self) -> bytes | None:
        found = self._summary.get()
        return None if found is None else bytes(found[0])

    def base(self) -> bytes:
        return b"".join(_values(self._base, 0))

    def log(self, first: int) -> Iterator[bytes]:
        return _values(self._log, first)

    def put_summary(self, summary: bytes) -> None:
        self._summary.update((summary,))

    def put_base(self, base: bytes, gone: range) -> None:
        self._base.clear()
        for number in gone:
            self._log.removeKey((number,))
        for place, start in enumerate(range(0, len(base), PART_BYTES)):
            self._base.updateValue((place,), (base[start : start + PART_BYTES],))

    def append(self, number: int, entry: bytes) -> None:
        self._log.updateValue((number,), (entry,))

    def clear(self) -> None:
        for variable in (self._summary, self._base, self._log, self._settings):
            variable.clear()

    def settings(self) -> Settings | None:
        """What the shard was made with (``resuming``); None if it is new."""
        found = self._settings.get()
        return None if found is None else _settings(found[0])

    def put_settings(self, settings: Settings) -> None:
        """Replace that."""
        text = json.dumps(settings)
        self._settings.update((f"{zlib.crc32(text.encode()):08x} {text}",))


def _settings(stored: str) -> Settings:
    check, _, text = stored.partition(" ")
    if check == f"{zlib.crc32(text.encode()):08x}":
        return json.loads(text)
    # Else it was written before there were checksums: it is refused as of another format, whatever else it says.
    with snapshots.restoring("what the checkpoint says of its settings"):
        return {**json.loads(stored), "format": snapshots.VERSION - 1}


def _values(variable: Any, first: int) -> Iterator[bytes]:
    """Yield the values of consecutive numbers."""
    while (found := variable.getValue((first,))) is not None:
        yield bytes(found[0])
        first += 1


class StateBytes(NamedTuple):
    """What a micro-batch gave a shard, and what that cost of its state, in bytes; adds up over micro-batches."""

    given: int = 0
    """Rows, as they were packed."""
    read: int = 0
    written: int = 0
    stored: int = 0
    """What there is to read when it has been left."""

    def plus(self, other: StateBytes) -> StateBytes:
        """Return both together."""
        return StateBytes(*map(sum, zip(self, other, strict=True)))


class ShardOf(NamedTuple):
    """A shard of a query."""

    plan: Plan
    settings: Settings
    """What ``resuming.settings_of`` says of the plan."""
    query: str
    """What tells the query from others that the same workers run."""
    number: int
    scouts: bool = False
    """Whether it gets samples to learn from."""
    cache_bytes: int | None = None
    """What the worker may hold of shards between micro-batches, if that is limited other than by default."""


def check_settings(plan: Plan, settings: Settings, store: SparkStore) -> None:
    """Note what all shards are made with, in the state of the ROLL, which is there however many there are.

    A shard knows its own settings only; with other keys, none would be found.

    Raises:
        CheckpointError: The checkpoint is that of another plan.
    """
    before = store.settings()
    if before is not None:
        plan_before(plan, settings, before)
    if before != settings:
        store.put_settings(settings)


def open_shard(of: ShardOf, store: SparkStore) -> Opened[Shard]:
    """Return a shard as the store has it, for ``give``, to be used in a ``with``.

    Args:
        of: which.
        store: its state.

    Raises:
        CheckpointError: The state is that of another plan.
    """
    plan, settings, query, number, scouts, most_bytes = of
    if most_bytes is not None:
        SHARDS.bound(most_bytes)
    former: list[Plan] = []

    def restore(snapshot: Snapshot | None) -> Shard:
        before = store.settings()
        found = None if before is None else plan_before(plan, settings, before)
        former.extend(filter(None, [found]))
        return Shard(found or plan, snapshot, number, scouts)

    opened = Journal(SHARDS, restore, _again, LEAST_LOG).open((query, number), store)
    if opened.is_new:
        store.put_settings(settings)
    if former:
        snapshot = snapshots.loads(snapshots.dumps(opened.shard.snapshot()))
        opened.shard = Shard(plan, snapshot, number, scouts)
        # What was given before cannot be given again to a shard with this plan.
        opened.log(None)
        store.put_settings(settings)
    return opened


def give(opened: Opened[Shard], given: Given) -> Iterator[Output]:
    """Give a shard rows, and yield what comes out; log it, so that leaving the shard commits it."""
    shard = opened.shard
    for outputs in shard.take(given):
        yield from as_blobs(outputs)
    opened.log(given.dumps() if shard.repeats else None)
    if shard.ended:
        opened.end()
    elif shard.on_disk:
        opened.let_go()


def _again(shard: Shard, entry: bytes) -> None:
    for _ in shard.take(Given.loads(entry)):
        pass


def as_blobs(outputs: Outputs) -> Iterator[Output]:
    """Yield outputs as blobs."""
    for kind, batches in zip((RESULT, LATE, METRICS, SYNC, PUNCTUATION), outputs, strict=True):
        for blob in blobs_of(batches):
            yield Output(kind, blob)


def account_of(shard: Shard, before: Accounting, cost: StateBytes | None = None) -> Output:
    """Return how a shard stands, and what its last micro-batch brought and cost, as an output of kind ACCOUNT.

    Args:
        shard: the shard.
        before: its account before the micro-batch.
        cost: what its state has cost, if it has one.
    """
    cost = cost or StateBytes()
    content = {
        "account": shard.accounting.snapshot(),
        "warnings": shard.warnings,
        "state": list(cost),
        "read": shard.read.copy(),
        "uncounted": shard.uncounted.copy(),
        "rests": shard.next_silence() is None,
    }
    return Output(ACCOUNT, snapshots.dumps(content), counts_of(shard, before, cost))


class Account(NamedTuple):
    """What an output of kind ACCOUNT says."""

    accounting: Accounting
    """From the first micro-batch on."""
    warnings: list[str]
    state: StateBytes
    """Of the last micro-batch."""
    read: Int64s
    """Of each input, rows read for all shards, and those left of them: ``Shard.read``."""
    uncounted: Int64s
    """Of each input, rows of this shard that are not among these."""
    rests: bool
    """Whether it waits for no input to fall idle."""


def read_account(plan: Plan, blob: bytes) -> Account:
    """Return what ``account_of`` was given."""
    content = snapshots.loads(blob)
    accounting = Accounting(plan.inputs, content["account"])
    state, read, uncounted = StateBytes(*content["state"]), content["read"], content["uncounted"]
    return Account(accounting, content["warnings"], state, read, uncounted, content["rests"])
