"""The stateful step of Structured Streaming: a shard, its journal in the state store, a cache beside it.

Imports little: Spark also loads this in processes that only ask for the state variables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.serializers import CPickleSerializer
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from slackwater.transforms.spark.workers import spare_loaded

if TYPE_CHECKING:
    from slackwater.transforms.settings.plan import Plan
    from slackwater.transforms.spark.blobs import Packed
    from slackwater.transforms.spark.checkpoint import Settings
    from slackwater.transforms.spark.shard import Shard
    from slackwater.transforms.state.journal import Opened

_Output = Row("shard", "kind", "number", "blob", "counts")
_NANOS_PER_MS: Final = 1_000_000
_TIMER: Final = "timer"
"""In the notes of a shard: when its timer goes off, in milliseconds, if it has one."""


class JoinProcessor(StatefulProcessor):
    """Feeds each micro-batch of a shard to its operator.

    The state of a shard is that of ``state.journal``: a micro-batch appends what the shard was given, and
    now and then puts a snapshot in place of the log. A worker that holds the shard in the stored version reads
    the summary only; one that is behind reads what it missed; any other reads snapshot and log. A micro-batch
    that is tried again finds the version of the one before it, whatever a first attempt has done to what the
    worker holds.

    Args:
        plan: the join.
        join: what tells it from others that the same workers run.
        keys: what Spark knows each shard by.
        settings: what the checkpoint must have been made with (``resuming``).
        timers: whether Spark calls by the clock. The time of day is that of the micro-batch then.
        scouts: whether there are samples to learn from among the rows.
        cache_bytes: what a worker may hold of shards, by default 1 GB.
    """

    def __init__(
        self,
        plan: Plan,
        join: str,
        keys: Sequence[int],
        settings: Settings,
        timers: bool = False,
        scouts: bool = False,
        cache_bytes: int | None = None,
    ) -> None:
        self._plan = CPickleSerializer().dumps(plan)
        self._join, self._keys, self._settings = join, list(keys), settings
        self._timers, self._scouts, self._cache_bytes = timers, scouts, cache_bytes

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._variables = (
            handle.getValueState("summary", "content binary"),
            handle.getMapState("base", "number int", "content binary"),
            handle.getMapState("log", "number long", "content binary"),
            handle.getValueState("settings", "content string"),
        )
        self._numbers = count()
        self._told: dict[int, dict[str, Any]] = {}
        """What shards have told in this micro-batch: one with rows may be called by its timer too."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Return what the rows gave, as rows of ``packing.OUTPUT``."""
        from slackwater.transforms.spark.blobs import CALL, ROLL, Packed
        from slackwater.transforms.spark.state import SparkStore, check_settings

        if int(key[0]) == ROLL:
            check_settings(_plan(self._plan), self._settings, SparkStore(*self._variables))
            return iter(())
        given = [Packed(row.input, row.place, bytes(row.blob)) for row in rows if row.input != CALL]
        return self._give(int(key[0]), given, timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """Return what inputs have held back that are idle now."""
        return self._give(int(key[0]), [], timerValues, expired=True)

    def close(self) -> None:
        """Release nothing: what the worker holds outlives the task."""
        spare_loaded()

    def _give(self, key: int, rows: list[Packed], timer_values: Any, expired: bool = False) -> Iterator[Row]:
        from slackwater.plugins.clock import now_nanos
        from slackwater.transforms.spark.observation import told_again
        from slackwater.transforms.spark.shard import Given
        from slackwater.transforms.spark.state import (
            ShardOf,
            SparkStore,
            StateBytes,
            account_of,
            give,
            open_shard,
        )

        now = timer_values.getCurrentProcessingTimeInMs() * _NANOS_PER_MS if self._timers else now_nanos()
        given = Given(rows, now)
        plan, name = _plan(self._plan), f"{self._join} {_query()}"
        number = self._keys.index(key)
        shard = ShardOf(plan, self._settings, name, number, self._scouts, self._cache_bytes)
        with open_shard(shard, SparkStore(*self._variables)) as opened:
            if expired:
                opened.notes.pop(_TIMER, None)
            before = opened.shard.accounting.mark()
            for out in give(opened, given):
                yield _Output(key, out.kind, next(self._numbers), out.blob, None)
            if self._timers:
                self._wake(opened)
        cost = StateBytes(given.nbytes, opened.read_bytes, opened.written_bytes, opened.stored_bytes)
        account = account_of(opened.shard, before, cost)
        assert account.counts is not None
        counts = told_again(account.counts, self._told.get(key))
        self._told[key] = account.counts
        yield _Output(key, account.kind, next(self._numbers), account.blob, counts)

    def _wake(self, opened: Opened[Shard]) -> None:
        """Set a timer, unless there is one: when that goes off, it is set again to what is due then."""
        due = opened.shard.next_silence()
        if due is not None and _TIMER not in opened.notes:
            opened.notes[_TIMER] = -(-due // _NANOS_PER_MS)
            self._handle.registerTimer(opened.notes[_TIMER])


def _query() -> str:
    """Return what tells this query from others on the same DataFrames."""
    context = TaskContext.get()
    return "" if context is None else str(context.getLocalProperty("sql.streaming.queryId"))


@lru_cache(16)
def _plan(pickled: bytes) -> Plan:
    """Decode a plan once per worker."""
    plan: Plan = CPickleSerializer().loads(pickled)
    return plan
