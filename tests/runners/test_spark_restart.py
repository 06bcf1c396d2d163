"""Exactly-once on Spark: results have the ids that the local runner gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from slackwater.pipelines.runners.local.runner import run as run_local
from slackwater.pipelines.runners.spark.runner import run as run_spark
from slackwater.pipelines.template.reader import read_template_text

pytestmark = pytest.mark.spark

TEMPLATE = """
pipeline:
  transforms:
    - {{type: ReadFromParquet, name: a, config: {{path: {folder}/a.parquet}}}}
    - {{type: ReadFromParquet, name: b, config: {{path: {folder}/b.parquet}}}}
    - type: SlidingWindowJoin
      name: joined
      input: {{a: a, b: b}}
      config:
        {{time: ts, window: 80ms, where: a.k = b.k, arrival: at, shards: 3, id: key,
          disorder: {{strategy: fixed, slack: 60ms}}}}
    - {{type: WriteToParquet, input: joined, config: {{path: {folder}/{out}}}}}
"""


def test_results_have_the_ids_of_the_local_runner(spark: Any, tmp_path: Path) -> None:
    """Several shards and micro-batches; the arrival column orders the rows of both inputs."""
    rng = np.random.default_rng(5)
    for which, name in enumerate("ab"):
        ts = 10 * np.arange(300) - rng.integers(0, 100, 300)
        rows = {"ts": ts, "k": rng.integers(0, 9, 300), "at": 2 * np.arange(300) + which}
        pq.write_table(pa.table(rows), tmp_path / f"{name}.parquet", row_group_size=50)
    local, found = (
        read_template_text("join", TEMPLATE.format(folder=tmp_path, out=f"{name}.parquet"))
        for name in ("local", "spark")
    )
    run_local(local)
    run_spark(found, session=spark, rows_per_batch=120)
    expected, result = (pq.read_table(tmp_path / f"{name}.parquet").sort_by("key") for name in ("local", "spark"))
    assert result.equals(expected)
    assert len(set(expected["key"].to_pylist())) == expected.num_rows > 300
    assert {key.split("-")[0] for key in expected["key"].to_pylist()} == {"0", "1", "2"}
