"""The stateful step of Structured Streaming: a shard, its snapshot in the state store, a cache beside it.

Imports little: Spark also loads this in processes that only ask for the state variables.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from pyspark.serializers import CPickleSerializer
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

if TYPE_CHECKING:
    from slackwater.transforms.plan import JoinPlan
    from slackwater.transforms.spark.shard import Shard

CACHED_SHARDS: Final = 64
"""Shards that a worker keeps decoded, at most."""

_cache: OrderedDict[tuple[str, int], tuple[str, Shard]] = OrderedDict()
_Output = Row("shard", "kind", "number", "blob")


class JoinProcessor(StatefulProcessor):
    """Feeds each micro-batch of a shard to its operator.

    State of a shard: ``snapshot`` as the micro-batch left it, and ``version``, a token that is new with every
    snapshot. A worker that still holds the shard with the stored token goes on with it; any other reads the
    snapshot. A micro-batch that is tried again finds the token of the one before it, whatever a first attempt
    has done to the cache.
    """

    def __init__(self, plan: JoinPlan, join: str) -> None:
        self._plan = CPickleSerializer().dumps(plan)
        self._join = join

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._version = handle.getValueState("version", "token string")
        self._snapshot = handle.getValueState("snapshot", "content binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Return what the rows gave, as rows of ``packing.OUTPUT``."""
        from slackwater.transforms.spark.packing import Packed

        shard_key = int(key[0])
        shard = self._load(shard_key)
        packed = (Packed(row.input, row.place, bytes(row.blob)) for row in rows)
        for number, (kind, blob) in enumerate(shard.take(packed)):
            yield _Output(shard_key, kind, number, blob)
        if shard.ended:
            self._version.clear()
            self._snapshot.clear()
        else:
            self._store(shard_key, shard)

    def close(self) -> None:
        """Nothing to release: the cache outlives the task."""

    def _load(self, key: int) -> Shard:
        from slackwater.transforms.spark.shard import Shard

        plan = _plan(self._plan)
        version = self._version.get()
        token, shard = _cache.pop((self._join, key), ("", None))
        if version is None:
            return Shard(plan, number=key)
        if shard is not None and token == version[0]:
            return shard
        return Shard.restore(plan, bytes(self._snapshot.get()[0]), key)

    def _store(self, key: int, shard: Shard) -> None:
        token = uuid.uuid4().hex
        self._snapshot.update((shard.snapshot(),))
        self._version.update((token,))
        # Nobody would remove the files of a shard that goes on in another worker.
        if not shard.give_up_disk():
            _cache[self._join, key] = (token, shard)
        while len(_cache) > CACHED_SHARDS:
            _cache.popitem(last=False)


@lru_cache(16)
def _plan(pickled: bytes) -> JoinPlan:
    """Decode a plan once per worker."""
    plan: JoinPlan = CPickleSerializer().loads(pickled)
    return plan
