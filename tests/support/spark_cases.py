"""Streams, settings and the truth that the tests of the Spark adapter share: the operator fed directly."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.transforms.arrival.merge import in_arrival_order
from slackwater.transforms.arrival.order import numbers_of, times_of
from slackwater.transforms.arrival.ties import in_stable_order
from slackwater.transforms.operators.join import Operator
from slackwater.transforms.settings.models import JoinConfig
from slackwater.transforms.settings.plan import ARRIVAL, JoinPlan, bind

NAMES = "abcd"
ROWS = 400
FIXED = {"strategy": "fixed", "slack": "60ms"}


def stream(seed: int, rows: int = ROWS, keys: int = 12, sorted_by_arrival: bool = True) -> pa.Table:
    """A disordered stream with ties in time and in arrival; about one row in fifty has no time."""
    rng = np.random.default_rng(seed)
    ts = np.arange(rows) * 10 + 15 * seed - np.where(rng.random(rows) < 0.3, rng.integers(0, 200, rows), 0)
    table = pa.table(
        {
            "id": np.arange(rows),
            "ts": pa.array(ts // 5 * 5, mask=rng.random(rows) < 0.02),
            "k": pa.array([f"key {k}" for k in rng.integers(0, keys, rows)]),
            "v": rng.integers(0, 100, rows),
            "arrived": np.sort(rng.integers(0, rows, rows)),
        }
    )
    return table if sorted_by_arrival else table.take(pa.array(rng.permutation(rows)))


def star(m: int) -> str:
    return " AND ".join(f"a.k = {name}.k" for name in NAMES[1:m])


def settings(**changes: Any) -> dict[str, Any]:
    return {"time": "ts", "window": "80ms", "disorder": FIXED, **changes}


def bound(tables: list[pa.Table], **changes: Any) -> JoinPlan:
    schemas = {name: table.schema for name, table in zip(NAMES, tables, strict=False)}
    return bind(JoinConfig.read(settings(**changes)), schemas)


def expected(
    plan: JoinPlan, tables: list[pa.Table], order: str = "progress", frames: bool = False
) -> tuple[Counter[Any], Counter[Any]]:
    """Results and late rows of one operator per shard, each fed all its rows at once.

    Without an arrival column, rows arrive by the ``progress`` of their input, event ``time`` or ``place``. Those
    that arrive at once are taken as of files, or as of ``frames``.
    """
    shards: list[list[tuple[pa.RecordBatch, Any]]] = [[] for _ in range(plan.config.shards)]
    for i, table in enumerate(tables):
        batch = table.combine_chunks().to_batches()[0] if table.num_rows else empty_batch(table.schema)
        batch = batch.append_column(ARRIVAL, pa.array(np.arange(table.num_rows)))
        arrival = numbers_of(plan, i, batch).values
        if plan.arrival_columns is None and order != "progress":
            arrival = times_of(plan, i, batch) if order == "time" else np.arange(table.num_rows)
        of_row = plan.partitioning.routes(i, batch).home
        for s, parts in enumerate(shards):
            parts.append((batch.filter(pa.array(of_row == s)), arrival[of_row == s]))
    results, late = [], []
    for parts in shards:
        operator = Operator(plan)
        batches, arrivals = [batch for batch, _ in parts], [arrival for _, arrival in parts]
        chunk = in_stable_order(plan, batches, arrivals) if frames else in_arrival_order(batches, arrivals)
        for out in (operator.push(chunk), operator.finish()):
            results += out.results
            late += out.late
    return rows_of(results), rows_of(late)


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)


def rows_of(batches: Any) -> Counter[Any]:
    return Counter(tuple(row.items()) for batch in batches for row in batch.to_pylist())


def file_rows(file: Path) -> Counter[Any]:
    return rows_of([pq.read_table(file)])


def write(folder: Path, tables: list[pa.Table], files: int = 1) -> list[Path]:
    """Write each table to ``files`` Parquet files with small row groups; return the paths to read."""
    paths = []
    for name, table in zip(NAMES, tables, strict=False):
        (folder / name).mkdir()
        size = -(-table.num_rows // files) or 1
        for k in range(files):
            pq.write_table(table.slice(k * size, size), folder / name / f"{k}.parquet", row_group_size=90)
        paths.append(folder / name)
    return paths
