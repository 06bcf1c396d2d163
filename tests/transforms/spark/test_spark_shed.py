"""Shed and Punctuate as functions of Spark give what their template gives on the embedded runner."""

import json

import pytest
from runner_cases import sheds
from runner_contract import lines_in

from slackwater.pipelines.runners.local import runner as local

pytestmark = pytest.mark.spark


def test_as_functions_of_spark(tmp_path, spark):
    from slackwater.transforms.spark import punctuate, shed

    sheds.write(tmp_path)
    local.run(sheds.build(tmp_path, tmp_path / "out", ()))
    expected = lines_in(tmp_path / "out", False)
    bids, items = (spark.read.parquet(str(tmp_path / f"{name}.parquet")) for name in ("bids", "items"))
    limits = {"time": "ts", "arrival": "at", "rate": 400, "queue": 20}
    wanted = shed(bids, items, **limits, where="rows.item = partners.item", shedding={"strategy": "prob"})
    assert wanted.late.count() == len(expected["dropped.jsonl"]) > 5
    told = punctuate(wanted.results, time="ts", arrival="at", when="kind = 'closed'", key="item", ordered="day",
                     progress="100ms", disorder={"strategy": "fixed", "slack": "30ms"})  # fmt: skip
    assert sorted(map(json.dumps, [row.asDict() for row in told.punctuations.collect()])) == sorted(
        json.dumps(json.loads(line)) for line in expected["told.jsonl"]
    )
