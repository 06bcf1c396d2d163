"""Files of every kind, filters, computed columns, a join of a join, ids: with all that a summary says."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from beam_cases import TEMPLATE, write_inputs
from runner_contract import BEAM, SPARK, Case

from slackwater.pipelines.template.reader import read_template_text

IDS = """
pipeline:
  transforms:
    - {type: ReadFromParquet, name: a, config: {path: "%(dir)s/a.parquet"}}
    - {type: ReadFromParquet, name: b, config: {path: "%(dir)s/b.parquet"}}
    - type: SlidingWindowJoin
      name: joined
      input: {a: a, b: b}
      config:
        {time: ts, window: 80ms, where: a.k = b.k, arrival: at, shards: 3, id: key,
          disorder: {strategy: fixed, slack: 60ms}}
    - {type: WriteToParquet, input: joined, config: {path: "%(out)s/joined.parquet"}}
"""


def build_with(template):
    return lambda data, out, parts: read_template_text(
        "t.yaml", template % {"dir": data, "out": out, "shards": 1}
    )


def check_files(ran):
    assert set(ran.files) == {"joined.parquet", "late.jsonl", "chained.csv", "metrics.jsonl"}
    assert ran.joins["joined"]["late"]["bad_record"] == 1


def write_numbered(folder):
    """The arrival column orders the rows of both inputs."""
    rng = np.random.default_rng(5)
    for which, name in enumerate("ab"):
        ts = 10 * np.arange(300) - rng.integers(0, 100, 300)
        rows = {"ts": ts, "k": rng.integers(0, 9, 300), "at": 2 * np.arange(300) + which}
        pq.write_table(pa.table(rows), folder / f"{name}.parquet", row_group_size=50)


def check_ids(ran):
    keys = pq.read_table(ran.out / "joined.parquet")["key"].to_pylist()
    assert len(set(keys)) == len(keys) > 300
    assert {key.split("-")[0] for key in keys} == {"0", "1", "2"}


CASES = [
    Case(
        "chains",
        write_inputs,
        build_with(TEMPLATE),
        check_files,
        dict.fromkeys((BEAM[0], "beam-spark")),
        told=None,
        in_order=lambda file: file == "joined.parquet",
    ),
    Case("ids", write_numbered, build_with(IDS), check_ids, {SPARK[0]: None}, rows_per_batch=120),
]
