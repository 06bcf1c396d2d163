"""Streaming joins that lose results: eight shards find all that one finds, by the same micro-batch.

Every shard has few of the rows. Beats tell it how far all rows have brought the inputs, and its scout what one
shard would have released.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from slackwater.transforms.spark import sliding_window_join
from slackwater.transforms.spark.blobs import RESULT, from_blob

pytestmark = pytest.mark.spark

ADAPTIVE = {"recall": 0.9, "period": "400ms", "interval": "100ms", "granularity": "5ms"}
STRATEGIES: dict[str, dict[str, Any]] = {
    "fixed": {"slack": "20ms"},
    "max": {},
    "quality_driven": {**ADAPTIVE, "basic_window": "5ms"},
    "result_slack": ADAPTIVE,
    "heartbeat": {},
    "drop_ratio": {"drop_ratio": 0.05},
    "external": {"watermark": "w"},
}
SHARDS = (1, 8)
ROWS, FILES, KEYS = 600, 2, 6


def inputs(folder: Path) -> list[pa.Table]:
    """Write two inputs of FILES files whose delays grow, and one that releases all; return them without that."""
    rng = np.random.default_rng(4)
    tables = []
    for i, name in enumerate("ab"):
        progress = 2 * np.arange(ROWS) + i
        ts = progress - rng.integers(0, 10 + np.arange(ROWS) // 8) * (rng.random(ROWS) < 0.3)
        watermark = pa.array([int(p) - 40 if k % 9 == 0 else None for k, p in enumerate(progress)], pa.int64())
        table = pa.table({"ts": ts, "k": rng.integers(0, KEYS, ROWS), "at": progress, "w": watermark})
        tables.append(table)
        end = np.full(KEYS, 10_000)
        last = pa.table({"ts": end, "k": np.arange(KEYS), "at": end, "w": end})
        (folder / name).mkdir()
        size = ROWS // FILES
        for n, part in enumerate([*(table.slice(k * size, size) for k in range(FILES)), last]):
            pq.write_table(part, folder / name / f"{n}.parquet")
            os.utime(folder / name / f"{n}.parquet", (1_700_000_000 + n,) * 2)
    return tables


def pairs(tables: list[pa.Table]) -> int:
    """Return how many results there are."""
    (ts, k), (other, key) = ((t["ts"].to_numpy(), t["k"].to_numpy()) for t in tables)
    return int(((abs(ts[:, None] - other) <= 60) & (k[:, None] == key)).sum())


def frames(spark: Any, folder: Path, schema: pa.Schema) -> dict[str, DataFrame]:
    reader = spark.readStream.schema(from_arrow_schema(schema)).option("maxFilesPerTrigger", 1)
    return {name: reader.parquet(str(folder / name)) for name in "ab"}


def test_eight_shards_find_what_one_finds_by_the_same_micro_batch(spark: Any, tmp_path: Path) -> None:
    """All joins are one query, as starting one takes longest."""
    tables = inputs(tmp_path)
    joins = {
        f"{name} {shards}": sliding_window_join(
            frames(spark, tmp_path, tables[0].schema),
            time="ts",
            arrival="at",
            window="60ms",
            where="a.k = b.k",
            disorder={"strategy": name, **options},
            shards=shards,
        )
        for name, options in STRATEGIES.items()
        for shards in SHARDS
    }
    found: dict[str, list[Counter[Any]]] = {name: [] for name in joins}

    def keep(batch: DataFrame, number: int) -> None:
        rows = batch.where(batch.kind == RESULT).toArrow().to_pylist()
        for name, so_far in found.items():
            results = (r for row in rows if row["join"] == name for r in from_blob(row["blob"]).to_pylist())
            new = Counter((r["a_at"], r["b_at"]) for r in results if r["ts"] < 10_000)
            so_far.append(sum(so_far[-1:], new))

    packed = [joined.packed.select(F.lit(name).alias("join"), "*") for name, joined in joins.items()]
    writer = reduce(DataFrame.union, packed).writeStream.foreachBatch(keep).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "state")).start().awaitTermination()

    truth = pairs(tables)
    for name in STRATEGIES:
        one, eight = (found[f"{name} {shards}"] for shards in SHARDS)
        assert len(one) == FILES + 1
        assert 0.5 * truth < one[-1].total() < truth, f"{name} loses results"
        assert eight[-1].total() <= truth
        assert all(more >= less for less, more in zip(one, eight, strict=True)), f"{name}: none lost, none later"
