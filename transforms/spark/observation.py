"""Our own counters where operators of Spark look: observed metrics, in the progress of a query and its listeners.

A shard tells them with its account, once per micro-batch; Spark adds them up over the shards, on its way.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.settings.plan import REASONS
from slackwater.transforms.settings.time_unit import NANOS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

    from slackwater.transforms.spark.shard import Shard
    from slackwater.transforms.spark.state import StateBytes

PREFIX: Final = "slackwater."
"""Of the names of observed metrics."""
_ADDED: Final = (
    "input",
    "results",
    "late",
    *REASONS,
    "state_tuples",
    "state_bytes",
    "given_bytes",
    "read_bytes",
    "written_bytes",
    "stored_bytes",
)
"""What is added up over the shards."""
_REALS: Final = ("slack_ms", "found", "missed")
_LARGEST: Final = "max_shard_bytes"
_INTEGERS: Final = (*_ADDED, _LARGEST)
COUNTS: Final = f"struct<{', '.join([*(f'{n}: bigint' for n in _INTEGERS), *(f'{n}: double' for n in _REALS)])}>"
"""What a shard tells with its account, as a type of Spark."""
COUNTS_ARROW: Final = pa.struct([*((n, pa.int64()) for n in _INTEGERS), *((n, pa.float64()) for n in _REALS)])
_STANDING: Final = ("state_tuples", "state_bytes", "stored_bytes", "found", "missed")
"""Of these, what says how a shard stands, not what a micro-batch has brought."""
_numbers = count(1)


def counts_of(shard: Shard, before: Accounting, cost: StateBytes) -> dict[str, Any]:
    """Return what a shard tells of a micro-batch.

    Args:
        shard: as the micro-batch has left it.
        before: its account before that (``Accounting.mark``).
        cost: what its state has cost.
    """
    account = shard.accounting
    new = account - before
    late = new.late_rows()
    slack = account.last_slack
    return {
        "input": int(new.received.sum()),
        "results": new.results,
        "late": late.total(),
        **{reason: late[reason] for reason in REASONS},
        "state_tuples": 0 if shard.ended else account.last_tuples,
        "state_bytes": 0 if shard.ended else shard.nbytes,
        "given_bytes": cost.given,
        "read_bytes": cost.read,
        "written_bytes": cost.written,
        "stored_bytes": cost.stored,
        _LARGEST: account.max_bytes,
        "slack_ms": None if slack is None else slack * NANOS[shard.plan.unit] / 1e6,
        "found": float(account.results),
        "missed": float("nan") if account.shed_unmeasured else sum(account.missed_results().values()),
    }


def told_again(counts: dict[str, Any], told: dict[str, Any] | None) -> dict[str, Any]:
    """Return what a shard tells after it has told something in the same micro-batch, such that both add up."""
    return counts if told is None else counts | {which: counts[which] - told[which] for which in _STANDING}


def observe(packed: DataFrame, name: str | None = None) -> tuple[DataFrame, Observation | None]:
    """Let Spark report what shards tell in rows of ``packing.OUTPUT``.

    Of a streaming DataFrame, every micro-batch has a row in ``observedMetrics`` of the query's progress:

    - ``input``, ``results``, ``late``, and rows by each reason of being late: of the micro-batch;
    - ``state_tuples``, ``state_bytes``: what all shards hold after it;
    - ``max_shard_bytes``: the most that any shard has held so far;
    - ``given_bytes``, ``read_bytes``, ``written_bytes``, ``stored_bytes``: what it brought, what that cost of the
      state store, and what is there now;
    - ``slack_ms``: the largest K of a shard;
    - ``recall_estimate``: of all so far, null as long as there is nothing to go by.

    Args:
        packed: what shards gave.
        name: tells it from others in the same query, which Spark asks for; by default a number.

    Returns:
        The same rows, and of a batch DataFrame the Observation that has the numbers after the first action.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    counts = packed["counts"]
    found, missed = (F.sum(counts[which]) for which in ("found", "missed"))
    # Not a number, if what shedding cost is not measured.
    recall = F.nullif(F.try_divide(found, found + missed), F.lit(float("nan")))
    columns = [
        *(F.coalesce(F.sum(counts[which]), F.lit(0)).alias(which) for which in _ADDED),
        F.coalesce(F.max(counts[_LARGEST]), F.lit(0)).alias(_LARGEST),
        F.max(counts["slack_ms"]).alias("slack_ms"),
        recall.alias("recall_estimate"),
    ]
    full = f"{PREFIX}{name or next(_numbers)}"
    if packed.isStreaming:
        return packed.observe(full, *columns), None
    observation = Observation(full)
    return packed.observe(observation, *columns), observation
