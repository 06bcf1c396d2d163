"""One operator behind the other: results carry their order, and what reads them goes by it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from slackwater.transforms.errors import ConfigError
from slackwater.transforms.spark import reorder, sliding_window_aggregate, sliding_window_join
from slackwater.transforms.spark.row_order import CLOCK, KEY, TIME, order_in

pytestmark = pytest.mark.spark

N = 1200
JOIN: dict[str, Any] = {
    "time": "ts", "window": "50ms", "where": "a.k = b.k", "arrival": "n", "shards": 2,
    "disorder": {"strategy": "fixed", "slack": "100ms"},
}  # fmt: skip


def stream(which: int) -> pa.Table:
    rng = np.random.default_rng(which)
    n = np.arange(N)
    return pa.table({"ts": 10 * n - rng.integers(0, 90, N), "k": rng.integers(0, 6, N), "n": 2 * n + which})


def written(folder: Path, files: int) -> dict[str, Path]:
    """Both streams, a file of each per micro-batch."""
    size = N // files
    for which, name in enumerate("ab"):
        (folder / name).mkdir()
        for k in range(files):
            file = folder / name / f"{k}.parquet"
            pq.write_table(stream(which).slice(k * size, size), file)
            os.utime(file, (1_700_000_000 + k,) * 2)
    return {name: folder / name for name in "ab"}


def test_an_aggregate_behind_a_join_of_several_shards_loses_nothing(spark: Any, tmp_path: Path) -> None:
    """With the order that Spark puts the shards in, every other row would be too late."""
    frames = {
        name: spark.readStream.schema("ts LONG, k LONG, n LONG")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(path))
        for name, path in written(tmp_path, 3).items()
    }
    joined = sliding_window_join(frames, **JOIN, name="first")
    assert order_in(joined.results) == ("ts", TIME)
    kept = joined.results.where("a_k >= 0").select("ts", "a_k", "b_n")
    assert order_in(kept) == ("ts", TIME), "what Spark does to rows between keeps it"
    counts = sliding_window_aggregate(
        kept, time="ts", range="100ms", slide="100ms", aggregates={"n": "count(*)"}, name="second"
    )
    assert counts.plan.config.arrival == "ts"
    observed: list[tuple[int, int, int, int]] = []

    def keep(batch: Any, number: int) -> None:
        batch.persist().count()

    query = (
        counts.packed.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    for progress in query.recentProgress:
        first, second = (progress["observedMetrics"][f"slackwater.{name}"] for name in ("first", "second"))
        observed.append((first["results"], first["late"], second["input"], second["late"]))
    results, late, given, lost = map(sum, zip(*observed, strict=True))
    assert results == given > 1000
    assert (late, lost) == (0, 0)


def test_inputs_that_carry_other_orders_or_none_are_refused(spark: Any) -> None:
    frames = {name: spark.createDataFrame(stream(which)) for which, name in enumerate("ab")}
    joined = sliding_window_join(frames, **JOIN).results.selectExpr("ts", "a_k AS k")
    given = {"time": "ts", "window": "1s", "where": "a.k = b.k"}
    told = (
        r"^arrival: the inputs do not say alike in which order their rows arrived \('a' has 'ts', event time; "
        r"'b' has no such column\); name a column of each, as \{a: COLUMN, b: COLUMN\}"
    )
    with pytest.raises(ConfigError, match=told):
        sliding_window_join({"a": joined, "b": frames["b"]}, **given)
    by_clock = frames["b"].select("ts", "k", frames["b"].n.alias("n", metadata={KEY: CLOCK}))
    with pytest.raises(ConfigError, match=r"'b' has 'n', nanoseconds of a clock\); name a column"):
        sliding_window_join({"a": joined, "b": by_clock}, **given)
    named = sliding_window_join({"a": joined, "b": frames["b"]}, **given, arrival={"a": "ts", "b": "ts"})
    assert named.plan.arrival_columns == ("ts", "ts")
    told = r"^disorder: strategy 'heartbeat' needs times of arrival; name their column with arrival"
    with pytest.raises(ConfigError, match=told):
        reorder(joined, time="ts", disorder={"strategy": "heartbeat"})
