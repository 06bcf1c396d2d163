"""Rows that arrive at once: their order, and so the ids of results, do not depend on Spark's partitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from slackwater.transforms.arrival.ties import in_stable_order
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import bind

N = 400
SETTINGS: dict[str, Any] = {
    "time": "ts", "window": "50ms", "where": "a.k = b.k", "arrival": "at", "id": "key",
    "disorder": {"strategy": "fixed", "slack": "5ms"},
}  # fmt: skip


def table(seed: int) -> pa.Table:
    """Rows of which about eight arrive at once."""
    rng = np.random.default_rng(seed)
    names = pa.array(rng.integers(0, 9, N)).cast(pa.string())
    return pa.table(
        {
            "at": np.sort(rng.integers(0, N // 8, N)),
            "ts": 10 * np.arange(N) - rng.integers(0, 300, N),
            "k": rng.integers(0, 5, N),
            "name": names,
            "parts": pa.array([[i % 3] for i in range(N)]),
        }
    )


def test_rows_that_tie_go_by_event_time_and_content_however_they_come() -> None:
    tables = [table(seed) for seed in (1, 2)]
    plan = bind(JoinConfig.read(SETTINGS), {"a": tables[0].schema, "b": tables[1].schema})
    rng, found = np.random.default_rng(3), []
    for _ in range(3):
        mixed = [t.take(rng.permutation(N)).combine_chunks().to_batches()[0] for t in tables]
        chunk = in_stable_order(plan, mixed, [batch["at"].to_numpy() for batch in mixed])
        found.append((chunk.input.tolist(), [batch.to_pylist() for batch in chunk.batches]))
    assert found[0] == found[1] == found[2]
    rows = found[0][1][0]
    keys = [(row["at"], row["ts"]) for row in rows]
    assert keys == sorted(keys)
    assert len({row["at"] for row in rows}) < N // 4, "most tie"


@pytest.mark.spark
def test_ids_are_the_same_in_other_partitions(spark: Any) -> None:
    from slackwater.transforms.spark import sliding_window_join

    tables = {name: table(seed) for name, seed in (("a", 1), ("b", 2))}
    found = []
    for partitions in (1, 5):
        frames = {name: spark.createDataFrame(t).repartition(partitions) for name, t in tables.items()}
        rows = sliding_window_join(frames, **SETTINGS, shards=2).results.toArrow().to_pylist()
        found.append({row.pop("key"): row for row in rows})
    assert found[0] == found[1]
    assert len(found[0]) > N
