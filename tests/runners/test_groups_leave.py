"""GroupClose on the embedded runner: groups leave while rows are still read, and rows do not wait."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from runner_cases.groups import NEXMARK

from slackwater.pipelines import generate
from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.graph import Port
from slackwater.pipelines.template.reader import read_template, read_template_text


def test_groups_leave_while_rows_are_still_read_and_few_are_open(tmp_path, monkeypatch):
    """Rows in ten files: most auctions are out before the last file is read."""
    generate.generate("nexmark", tmp_path / "data", **NEXMARK)
    for name in ("auctions", "bids"):
        table = pq.read_table(tmp_path / "data" / f"{name}.parquet")
        size = -(-table.num_rows // 10)
        for k in range(10):
            pq.write_table(table.slice(k * size, size), tmp_path / f"{name}-{k}.parquet")
    seen = []
    emit = local.LocalRun._emit

    def noted(self, port, batch):
        seen.append((port, batch.num_rows))
        emit(self, port, batch)

    monkeypatch.setattr(local.LocalRun, "_emit", noted)
    files = {name: f"{tmp_path}/{name}-*.parquet" for name in ("auctions", "bids")}
    pipeline = read_template("auctions", {"out": str(tmp_path), "window": "1m", "slack": "10s", **files})
    summary = local.run(pipeline)["joins"]["per_auction"]
    last = max(k for k, (port, _) in enumerate(seen) if port.node in ("Auctions", "Bids"))
    early = sum(n for port, n in seen[:last] if port == Port("per_auction"))
    assert early > 0.6 * summary["results"]
    assert summary["state"]["max_tuples"] < summary["results"] / 4


def test_rows_do_not_wait_for_punctuations_that_never_come(tmp_path, monkeypatch):
    n = 5000
    for name in "ab":
        for k in range(10):
            ts = np.arange(k * n // 10, (k + 1) * n // 10)
            table = pa.table({"ts": ts, "k": ts // 3, "kind": pa.repeat("row", len(ts))})
            pq.write_table(table, tmp_path / f"{name}{k}.parquet")
    nodes = [{"type": "ReadFromParquet", "name": x, "config": {"path": f"{tmp_path}/{x}*.parquet"}} for x in "ab"]
    marks = {"input": "a", "when": "kind = 'closed'", "key": "k"}
    join = {
        "time": "ts",
        "window": "9ms",
        "where": "a.k = b.k",
        "punctuations": marks,
        "join": {"strategy": "pwjoin"},
    }
    nodes.append({"type": "SlidingWindowJoin", "name": "j", "input": {"a": "a", "b": "b"}, "config": join})
    close = {"time": "ts", "by": "a_k", "aggregates": {"n": "count(*)"}, "window": "5ms"}
    read = {"rows": "j", "punctuations": "j.punctuations"}
    nodes.append({"type": "GroupClose", "name": "g", "input": read, "config": close})
    nodes.append({"type": "WriteToJson", "name": "Sink", "input": "g", "config": {"path": f"{tmp_path}/out"}})
    pipeline = read_template_text("t.yaml", json.dumps({"pipeline": {"type": "composite", "transforms": nodes}}))
    waiting = []
    advance = local.OperatorStage._advance

    def noted(self):
        waiting.append(sum(map(len, self._waiting)))
        advance(self)

    monkeypatch.setattr(local.OperatorStage, "_advance", noted)
    summary = local.run(pipeline)["joins"]["g"]
    assert max(waiting) < summary["input"]["rows"] / 5
    assert summary["state"]["max_tuples"] <= 3
