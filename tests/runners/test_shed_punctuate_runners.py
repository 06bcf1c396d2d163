"""Shed and Punctuate in templates on every runner: what the embedded runner gives."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_calls import call

from slackwater.pipelines.runners.local import runner as local
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Bids that come faster than they can be worked on; an item is closed when it is over."""
    path = tmp_path_factory.mktemp("shed")
    rng = np.random.default_rng(4)
    n = 900
    at = 2 * np.arange(n)
    closed = np.arange(n) % 12 == 11
    item = np.where(closed, np.arange(n) // 12 - 2, np.arange(n) // 12 + rng.integers(-3, 6, n))
    ts = at - np.where(closed, 0, rng.integers(0, 60, n) * (rng.random(n) < 0.3))
    columns = {"ts": ts, "at": at, "item": [f"item {k}" for k in item], "day": ts // 300}
    kinds = {"price": rng.integers(1, 99, n), "kind": np.where(closed, "closed", "bid").tolist()}
    pq.write_table(pa.table({**columns, **kinds}), path / "bids.parquet")
    wanted = [f"item {k}" for k in rng.integers(0, 40, 300)]
    pq.write_table(
        pa.table({"ts": 6 * np.arange(300), "at": 6 * np.arange(300), "item": wanted}), path / "items.parquet"
    )
    return path


def written(folder, name, run):
    summary = run(read_template_text("t.yaml", TEMPLATE % {"dir": folder, "out": folder / name}))
    for join in summary["joins"].values():
        assert all(part["balanced"] for part in join["accounting"].values())
    return {path.name: sorted(path.read_text().splitlines()) for path in sorted((folder / name).iterdir())}


@pytest.fixture(scope="module")
def expected(folder):
    files = written(folder, "local", local.run)
    reasons = {json.loads(line)["reason"] for line in files["late.jsonl"]}
    assert reasons == {"too_late", "punctuation_violated"}
    assert all(len(lines) > 5 for lines in files.values()) and len(files) == 7
    assert {json.loads(line)["closed_by"] for line in files["daily.jsonl"]} == {"punctuation", "end"}
    return files


@pytest.mark.beam
def test_on_beam(folder, expected):
    from slackwater.pipelines.runners.beam import runner as run_beam

    assert written(folder, "beam", run_beam.run) == expected
    options = {"runner": "BundleBasedDirectRunner"}
    assert written(folder, "bundles", lambda p: run_beam.run(p, options=options)) == expected


@pytest.mark.beam_spark
def test_on_beams_spark_runner(folder, expected):
    from slackwater.pipelines.runners.beam import runner as run_beam

    assert written(folder, "beam-spark", lambda p: run_beam.run(p, spark=True)) == expected


@pytest.mark.spark
def test_on_spark_in_several_batches(folder, expected, spark):
    from slackwater.pipelines.runners.spark import runner as run_spark

    assert written(folder, "spark", lambda p: run_spark.run(p, session=spark, rows_per_batch=450)) == expected


@pytest.mark.spark
def test_as_functions_of_spark(folder, expected, spark):
    from slackwater.transforms.spark import punctuate, shed

    bids, items = (spark.read.parquet(str(folder / f"{name}.parquet")) for name in ("bids", "items"))
    limits = {"time": "ts", "arrival": "at", "rate": 400, "queue": 20}
    wanted = shed(bids, items, **limits, where="rows.item = partners.item", shedding={"strategy": "prob"})
    assert wanted.late.count() == len(expected["dropped.jsonl"])
    told = punctuate(wanted.results, time="ts", arrival="at", when="kind = 'closed'", key="item", ordered="day",
                     progress="100ms", disorder={"strategy": "fixed", "slack": "30ms"})  # fmt: skip
    assert sorted(map(json.dumps, [row.asDict() for row in told.punctuations.collect()])) == [
        json.dumps(json.loads(line)) for line in expected["told.jsonl"]
    ]


WRONG = [
    ("{type: Shed, input: A, config: {time: ts, rate: 1, error_handling: {output: bad}}}",
     r"t.yaml:\d+: Shed.error_handling: nothing reads Shed.bad; write it to a file, or leave this out"),
    ("{type: Shed, input: {rows: A, other: A}, config: {time: ts, rate: 1}}",
     r"Shed.input: must be a transform, or {rows: transform, partners: transform}"),
    ("{type: Shed, config: {time: ts, rate: 1}}", "Shed.input: has no input; add input: with the name"),
    ("{type: Punctuate, input: A, config: {time: ts, progress: x}}", "Punctuate.progress: must be a duration"),
    ("{type: Filter, input: A.late, config: {keep: x > 1}}", "'A' has no output 'late'"),
    ("{type: Filter, input: told.late, config: {keep: x > 1}}", "'told' has no output 'late'; it has told, "),
]  # fmt: skip


@pytest.mark.parametrize(("node", "message"), WRONG)
def test_a_wrong_template_is_refused(node, message):
    text = f"""
pipeline:
  transforms:
    - {{type: Create, name: A, config: {{elements: [{{ts: 1, x: 2}}]}}}}
    - {{type: Punctuate, name: told, input: A, config: {{time: ts, unique: x, error_handling: {{output: bad}}}}}}
    - {{type: WriteToJson, name: Bad, input: told.bad, config: {{path: out/bad}}}}
    - {node}
"""
    with pytest.raises(Exception, match=message.replace("{", r"\{")):
        read_template_text("t.yaml", text)


CHAIN = """
pipeline:
  type: chain
  transforms:
    - {type: Create, config: {elements: [{ts: 1, x: 2}]}}
    - {type: Shed, config: {time: ts, rate: 10}}
    - {type: Punctuate, config: {time: ts, unique: x}}
    - {type: WriteToJson, config: {path: out}}
"""


def test_both_stand_in_chains():
    assert [node.type for node in read_template_text("t.yaml", CHAIN).nodes][1:3] == ["Shed", "Punctuate"]


def test_check_shows_what_is_shed_and_said(tmp_path):
    (tmp_path / "t.yaml").write_text(CHAIN)
    done = call("check", tmp_path / "t.yaml")
    assert done.exit_code == 0, done.output
    for line in ("time: rows.ts (in ms)", "shedding: random (", "disorder: max", "punctuations: ts, pattern, x"):
        assert line in done.output
