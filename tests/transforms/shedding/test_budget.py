"""One budget: disorder may miss what shedding leaves of it, and the run says if that is not enough."""

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shadow_cases import account_of, counting, stream

from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.runners.summary import summarise
from slackwater.pipelines.template.reader import read_template_text
from slackwater.plugins.disorder.budget import recall_left

STRATEGIES = {
    "result_slack": {"strategy": "result_slack", "recall": 0.95, "period": "5s", "interval": "500ms"},
    "quality_driven": {"strategy": "quality_driven", "recall": 0.95, "period": "5s", "interval": "500ms"},
}
WORDS = (
    r"^j: recall 0\.\d{3} instead of 0\.95, as shedding cost [\d.]+% of the results: memory of 2,000 tuples "
    r"is too small; about ([\d,]+) tuples would do$"
)


def test_disorder_gets_what_is_left():
    assert recall_left(0.9, 0.0) == 0.9
    assert recall_left(0.9, 0.04) == pytest.approx(0.94)
    assert recall_left(0.9, 0.095) == recall_left(0.9, 0.1) == pytest.approx(0.99), (
        "a tenth of 0.1 is always left"
    )
    assert recall_left(0.9, 0.15) == pytest.approx(0.95), "out of reach: no more slack than helps"
    assert recall_left(0.9, 0.3) == recall_left(0.9, 1.0) == pytest.approx(0.9)
    assert recall_left(1.0, 0.2) == 1.0
    lefts = [recall_left(0.9, shed) for shed in np.arange(0, 1, 0.001)]
    assert max(np.abs(np.diff(lefts))) < 0.0011, "a small change makes a small difference"


def ran(disorder, rows, **shedding):
    plan = counting(window="2s", disorder=disorder, **({"shedding": shedding} if shedding else {}))
    account = account_of(plan, rows)
    return account, summarise("local", {"j": (plan, account)}, 1.0)


@pytest.fixture(scope="module")
def skewed():
    rows = stream(60_000, keys=500, skew=1.0, late=0.3, delay=600, seed=5)
    return rows, account_of(counting(disorder={"strategy": "max"}), rows).results


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_a_recall_and_a_memory_share_one_budget(name, skewed):
    rows, true = skewed
    disorder = STRATEGIES[name]
    _, free = ran(disorder, rows)
    assert free["missed"] == {"late": free["missed"]["late"], "shed": 0}

    account, ample = ran(disorder, rows, strategy="prob", memory=8000)
    assert account.shed == 0
    assert {k: ample[k] for k in ("results", "slack_ms")} == {k: free[k] for k in ("results", "slack_ms")}

    account, tight = ran(disorder, rows, strategy="prob", memory=3300)
    assert 0.005 * true < account.shed < 0.05 * true, "sheds a little"
    assert tight["slack_ms"]["mean"] > free["slack_ms"]["mean"]
    assert tight["missed"]["late"] < free["missed"]["late"]
    assert tight["results"] / true > 0.95 - 0.01
    assert tight["warnings"] == []
    assert tight["recall_estimate"] == pytest.approx(tight["results"] / true, abs=0.01)

    _, short = ran(disorder, rows, strategy="prob", memory=2000)
    assert short["results"] / true < 0.94
    (warning,) = short["warnings"]
    said = re.fullmatch(WORDS, warning)
    assert said, warning
    enough = int(said[1].replace(",", ""))
    account, met = ran(disorder, rows, strategy="prob", memory=enough)
    assert met["results"] / true > 0.95 - 0.01
    assert met["warnings"] == []
    _, less = ran(disorder, rows, strategy="prob", memory=int(0.6 * enough))
    assert less["results"] / true < 0.94
    assert len(less["warnings"]) == 1


def test_slack_is_bounded_where_the_target_is_out_of_reach(skewed):
    rows, _ = skewed
    disorder = STRATEGIES["result_slack"]
    free, far = ran(disorder, rows)[1], ran(disorder, rows, strategy="random", memory=1500)[1]
    assert far["recall_estimate"] < 0.5
    assert far["slack_ms"]["mean"] <= free["slack_ms"]["mean"] * 1.05


@pytest.mark.beam
def test_the_split_is_the_same_on_every_runner(tmp_path):
    from slackwater.pipelines.runners.beam import runner as run_beam

    rng = np.random.default_rng(2)
    for i, name in enumerate("ab"):
        progress = 2 * np.arange(4000) + i
        late = rng.integers(0, 70, 4000) * (rng.random(4000) < 0.3)
        keys = [f"key {k}" for k in rng.zipf(1.5, 4000) % 50]
        table = pa.table({"ts": progress - late, "k": keys, "at": progress})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    reads = [
        {"type": "ReadFromParquet", "name": n.upper(), "config": {"path": f"{tmp_path}/{n}.parquet"}}
        for n in "ab"
    ]
    config = {
        "time": "ts", "arrival": "at", "window": "600ms", "where": "a.k = b.k", "shards": 2, "output": "counts",
        "disorder": {**STRATEGIES["result_slack"], "period": "1s", "interval": "100ms"},
        "shedding": {"strategy": "prob", "memory": 100},
    }  # fmt: skip
    join = {"type": "SlidingWindowJoin", "name": "j", "input": {"a": "A", "b": "B"}, "config": config}
    summaries = []
    for run in (local.run, run_beam.run):
        sink = {"type": "WriteToJson", "input": "j", "config": {"path": f"{tmp_path}/{run.__module__}.jsonl"}}
        text = json.dumps({"pipeline": {"transforms": [*reads, join, sink]}})
        summaries.append(run(read_template_text("t.yaml", text)))
    here, there = summaries
    assert here["missed"]["shed"] > 0
    assert here["warnings"]
    for key in ("results", "late", "missed", "recall_estimate", "warnings", "slack_ms"):
        assert there[key] == here[key], key
