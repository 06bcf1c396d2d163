"""Exactly-once on Spark: ids that are those of the local runner, and a driver that is killed in mid-stream."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmark_files import load_benchmark
from spark_cases import rows_of

pytest.importorskip("pyspark")

from slackwater.pipelines.local import run as run_local
from slackwater.pipelines.run_spark import run as run_spark
from slackwater.pipelines.template import read_template_text
from slackwater.transforms.config import JoinConfig
from slackwater.transforms.operator import Operator
from slackwater.transforms.plan import bind
from slackwater.transforms.replay import in_arrival_order
from slackwater.transforms.spark.join import unpack

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


def schemas_of(inputs: list[list[pa.Table]]) -> dict[str, pa.Schema]:
    return {name: parts[0].schema for name, parts in zip("ab", inputs, strict=True)}


def undisturbed(settings: dict[str, Any], inputs: list[list[pa.Table]]) -> dict[str, Counter[Any]]:
    """Return results and late rows of one operator per shard, given a file of each input at a time and a beat."""
    plan = bind(JoinConfig.read(settings), schemas_of(inputs))
    operators = [Operator(plan, shard=shard) for shard in range(plan.config.shards)]
    found: dict[str, Counter[Any]] = {"results": Counter(), "late": Counter()}
    for parts in zip(*inputs, strict=True):
        batches = [part.combine_chunks().to_batches()[0] for part in parts]
        homes = [plan.partitioning.routes(i, batch).home for i, batch in enumerate(batches)]
        progress = np.array([batch["ts"].to_numpy().max() for batch in batches])
        for shard, operator in enumerate(operators):
            mine = [batch.filter(pa.array(home == shard)) for batch, home in zip(batches, homes, strict=True)]
            chunk = in_arrival_order(mine, [batch["at"].to_numpy() for batch in mine])
            for out in (operator.push(chunk), operator.advance(progress)):
                for name, given in (("results", out.results), ("late", out.late)):
                    found[name].update(rows_of(given))
    return found


def test_a_driver_that_is_killed_twice_loses_and_doubles_nothing(spark: Any, tmp_path: Path) -> None:
    """Results and late rows are written together, and taken apart when they are read."""
    kills = load_benchmark("kills")
    inputs = kills.write_inputs(tmp_path / "in", rows=1500, files=6)
    case = kills.settings_of("fixed")
    seen = kills.Driver(tmp_path / "in", tmp_path / "out", "fixed", ["packed"]).run(2, random.Random(4))
    assert len(seen) == 2
    assert seen[-1] < 6, "both came in mid-stream"
    plan = bind(JoinConfig.read(case), schemas_of(inputs))
    outputs = unpack(spark.read.parquet(str(tmp_path / "out" / "packed")), plan)
    found = {"results": outputs.results, "late": outputs.late}
    expected = undisturbed(case, inputs)
    assert {name: rows_of([frame.toArrow()]) for name, frame in found.items()} == expected
    assert all(rows.total() > 100 for rows in expected.values())
