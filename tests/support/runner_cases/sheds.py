"""Shed and Punctuate, and GroupClose behind them."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from runner_contract import BEAM, SPARK, Case

from slackwater.pipelines.template.reader import read_template_text

TEMPLATE = """
pipeline:
  type: composite
  transforms:
    - {type: ReadFromParquet, name: Bids, config: {path: "%(dir)s/bids.parquet"}}
    - {type: ReadFromParquet, name: Items, config: {path: "%(dir)s/items.parquet"}}
    - type: Shed
      name: random
      input: Bids
      config: {time: ts, arrival: at, rate: 400, queue: 20}
    - type: Shed
      name: dear
      input: Bids
      config: {time: ts, arrival: at, rate: 400, queue: 20, shedding: {strategy: prob, weight: price}}
    - type: Shed
      name: wanted
      input: {rows: Bids, partners: Items}
      config:
        time: ts
        arrival: at
        rate: 400
        queue: 20
        where: rows.item = partners.item
        shedding: {strategy: prob}
        error_handling: {output: dropped}
    - type: Punctuate
      name: told
      input: wanted
      config:
        time: ts
        when: kind = 'closed'
        key: item
        ordered: day
        progress: 100ms
        arrival: at
        disorder: {strategy: fixed, slack: 30ms}
    - type: GroupClose
      name: sold
      input: {rows: told, punctuations: told.punctuations}
      config: {time: ts, by: [item], aggregates: {bids: count(*), best: max(price)}}
    - type: GroupClose
      name: daily
      input: {rows: told, punctuations: told.punctuations}
      config: {time: ts, by: [day], aggregates: {bids: count(*)}}
    - {type: WriteToJson, name: W1, input: random, config: {path: "%(out)s/random.jsonl"}}
    - {type: WriteToJson, name: W2, input: dear.late, config: {path: "%(out)s/dear-late.jsonl"}}
    - {type: WriteToJson, name: W3, input: wanted.dropped, config: {path: "%(out)s/dropped.jsonl"}}
    - {type: WriteToJson, name: W4, input: told.punctuations, config: {path: "%(out)s/told.jsonl"}}
    - {type: WriteToJson, name: W5, input: told.late, config: {path: "%(out)s/late.jsonl"}}
    - {type: WriteToJson, name: W6, input: sold, config: {path: "%(out)s/sold.jsonl"}}
    - {type: WriteToJson, name: W7, input: daily, config: {path: "%(out)s/daily.jsonl"}}
"""


def write(folder):
    """Bids that come faster than they can be worked on; an item is closed when it is over."""
    rng = np.random.default_rng(4)
    n = 900
    at = 2 * np.arange(n)
    closed = np.arange(n) % 12 == 11
    item = np.where(closed, np.arange(n) // 12 - 2, np.arange(n) // 12 + rng.integers(-3, 6, n))
    ts = at - np.where(closed, 0, rng.integers(0, 60, n) * (rng.random(n) < 0.3))
    columns = {"ts": ts, "at": at, "item": [f"item {k}" for k in item], "day": ts // 300}
    kinds = {"price": rng.integers(1, 99, n), "kind": np.where(closed, "closed", "bid").tolist()}
    pq.write_table(pa.table({**columns, **kinds}), folder / "bids.parquet")
    wanted = [f"item {k}" for k in rng.integers(0, 40, 300)]
    times = 6 * np.arange(300)
    pq.write_table(pa.table({"ts": times, "at": times, "item": wanted}), folder / "items.parquet")


def build(data, out, parts):
    return read_template_text("t.yaml", TEMPLATE % {"dir": data, "out": out})


def check(ran):
    assert {row["reason"] for row in ran.rows("late.jsonl")} == {"too_late", "punctuation_violated"}
    assert all(len(lines) > 5 for lines in ran.files.values()) and len(ran.files) == 7
    assert {row["closed_by"] for row in ran.rows("daily.jsonl")} == {"punctuation", "end"}


CASES = [
    Case("sheds", write, build, check, dict.fromkeys((*BEAM, "beam-spark", SPARK[0])), rows_per_batch=450),
]
