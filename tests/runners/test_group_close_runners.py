"""GroupClose and the templates about it: what the embedded runner writes on every runner, and what is true."""

import json
from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.pipelines import generate
from slackwater.pipelines.runners.local import runner as local
from slackwater.pipelines.template.graph import Port
from slackwater.pipelines.template.reader import read_template, read_template_text

NEXMARK = {"rows": 3000, "length": 60_000, "window": 60_000, "max_delay": 10_000, "length_spread": 0.5}
JOIN = {"time": "ts", "arrival": "arrived", "window": "1m", "disorder": {"strategy": "fixed", "slack": "10s"}}
BIDS = {
    "where": "auctions.id = bids.auction",
    "punctuations": {"input": "bids", "when": "kind = 'closed'", "key": "auction"},
}
CLOSE = {"time": "ts", "by": "auctions_id", "aggregates": {"n": "count(*)", "s": "sum(bids_price)"}}
VALUES = {"time": "ts", "aggregates": {"n": "count(*)", "s": "sum(v)", "x": "avg(v / 3)"}}


def pipeline_of(data, out):
    """Chains of every kind: a sharded join, an operator between and one after, files in no order, other types."""
    nodes = []

    def add(type_, name, given=None, **config):
        nodes.append(
            {"type": type_, "name": name, **({} if given is None else {"input": given}), "config": config}
        )

    for name in ("auctions", "bids"):
        add("ReadFromParquet", name, path=f"{data}/{name}.parquet")
    add("ReadFromParquet", "Values", path=f"{data}/values.parquet")
    add("ReadFromJson", "Marks", path=f"{data}/marks.jsonl")
    both = {"auctions": "auctions", "bids": "bids"}
    add("SlidingWindowJoin", "sharded", both, **JOIN, **BIDS, join={"strategy": "pwjoin"}, shards=3)
    add("SlidingWindowJoin", "joined", both, **JOIN, **BIDS, join={"strategy": "pwjoin"})
    add("Filter", "dear", "joined", keep="bids_price > 5000")
    read = {"rows": "joined", "punctuations": "joined.punctuations"}
    add("GroupClose", "plain", read, **CLOSE)
    add("GroupClose", "pairs", read, **{**CLOSE, "by": ["auctions_id", "bids_bidder"]}, shards=3)
    add("GroupClose", "windowed", read, **CLOSE, window="20s")
    add("GroupClose", "some", {"rows": "dear", "punctuations": "joined.punctuations"}, **CLOSE)
    parts = {"rows": "sharded", "punctuations": "sharded.punctuations"}
    add("GroupClose", "of shards", parts, **CLOSE, shards=2)
    add("GroupClose", "of shards windowed", parts, **CLOSE, window="20s")
    given = {"punctuations": "Marks", "rows": "Values"}
    add("GroupClose", "values", given, **VALUES, by=["k", "j"], window="40ms")
    add("GroupClose", "timed", given, **{**VALUES, "time": "t"}, by="k", shards=4)
    add(
        "SlidingWindowAggregate",
        "after",
        "plain",
        time="ts",
        range="1m",
        aggregates={"n": "count(*)", "s": "sum(s)"},
    )
    closing = ("plain", "pairs", "windowed", "some", "of shards", "of shards windowed", "values", "timed")
    ports = [*closing, *(f"{name}.late" for name in closing), "after", "after.late"]
    for port in ports:
        add("WriteToJson", f"Sink {port}", port, path=f"{out}/{port}.jsonl")
    text = json.dumps({"pipeline": {"type": "composite", "transforms": nodes}})
    return read_template_text("t.yaml", text)


def templates(data, out):
    files = {"out": str(out), "window": "1m", "slack": "10s"}
    files |= {name: f"{data}/{name}.parquet" for name in ("auctions", "bids", "news", "accesses")}
    return [read_template(name, files) for name in ("auctions", "news")]


def everything(data, out):
    """The chains above and both templates in one pipeline: one start of an engine for all."""
    parts = [pipeline_of(data, out), *templates(data, out)]
    nodes = []
    for k, part in enumerate(parts):
        for node in part.nodes:
            inputs = {label: replace(port, node=f"{k} {port.node}") for label, port in node.inputs.items()}
            nodes.append(replace(node, name=f"{k} {node.name}", inputs=inputs))
    return replace(parts[0], nodes=tuple(nodes))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("groups")
    generate.generate("nexmark", path, **NEXMARK)
    generate.generate("news", path, rows=1500)
    rng = np.random.default_rng(4)
    n = 600
    ts = rng.permutation(n)
    columns = {
        "ts": pa.array(ts, mask=rng.random(n) < 0.01),
        "t": pa.array(ts * 1000, pa.timestamp("us")),
        "k": [None if k == 5 else f"key {k}" for k in rng.integers(0, 6, n)],
        "j": pa.array([None if j == 9 else int(j) for j in rng.integers(0, 10, n)], pa.int32()),
        "v": rng.integers(-9, 10, n),
    }
    pq.write_table(pa.table(columns), path / "values.parquet")
    patterns = [
        {"k": "key 1"},
        {"j": {"from": 7}},
        {"k": "key 2", "j": 3},
        {"j": [0, 4]},
        {"k": None},
        {"z": 1},
        3,
    ]
    marks = [{"ts": 50 + 90 * i, "pattern": json.dumps(pattern)} for i, pattern in enumerate(patterns)]
    (path / "marks.jsonl").write_text("".join(json.dumps(mark) + "\n" for mark in marks))
    return path


def written(data, name, run):
    out = data / name
    summary = run(everything(data, out))
    for part in summary["joins"].values():
        assert all(account["balanced"] for account in part["accounting"].values())
    files = {path.name: path.read_text().splitlines() for path in sorted(out.glob("*.jsonl"))}
    return files | {"auctions": sorted(map(str, pq.read_table(out / "auctions.parquet").to_pylist()))}


@pytest.fixture(scope="module")
def expected(data):
    files = written(data, "local", local.run)
    for name in ("plain", "pairs", "windowed", "values", "timed", "after", "values.late", "timed.late"):
        assert files[f"{name}.jsonl"], name
    return files


def same(got, expected):
    """All files hold the same lines."""
    for name, lines in expected.items():
        assert sorted(got[name]) == sorted(lines), name


def test_the_embedded_runner_gives_the_same_twice(data, expected):
    assert written(data, "again", local.run) == expected


@pytest.mark.beam
def test_on_beam(data, expected):
    from slackwater.pipelines.runners.beam import runner as run_beam

    same(written(data, "beam", run_beam.run), expected)


@pytest.mark.beam_spark
def test_on_beams_spark_runner(data, expected):
    from slackwater.pipelines.runners.beam import runner as run_beam

    same(written(data, "beam-spark", lambda p: run_beam.run(p, spark=True)), expected)


@pytest.mark.spark
def test_on_spark_in_several_batches(data, expected, spark):
    from slackwater.pipelines.runners.spark import runner as run_spark

    same(written(data, "spark", lambda p: run_spark.run(p, session=spark, rows_per_batch=2000)), expected)


def test_the_bids_of_every_auction_are_those_of_duckdb(data, expected):
    sql = """
        SELECT a.id, count(*), sum(b.price)::BIGINT, avg(b.price), max(b.price)
        FROM '{0}/auctions.parquet' a JOIN '{0}/bids.parquet' b ON a.id = b.auction AND b.kind = 'bid'
        WHERE b.ts BETWEEN a.ts AND a.ts + 60000 GROUP BY a.id ORDER BY a.id"""
    rows = pq.read_table(data / "local" / "auctions.parquet").to_pylist()
    got = sorted(tuple(row[name] for name in ("auctions_id", "bids", "total", "mean", "best")) for row in rows)
    assert got == duckdb.sql(sql.format(data)).fetchall()
    by = [row["closed_by"] for row in rows]
    assert by.count("punctuation") > 3 * by.count("end") > 0
    assert not expected["plain.late.jsonl"] and not expected["auctions-late.jsonl"]


def test_a_group_is_closed_after_its_last_bid(data, expected):
    sql = """
        SELECT r.ts, max(b.ts) FROM '{0}/local/auctions.parquet' r
        JOIN '{0}/auctions.parquet' a ON a.id = r.auctions_id
        JOIN '{0}/bids.parquet' b ON b.auction = a.id AND b.kind = 'bid' AND b.ts <= a.ts + 60000
        WHERE r.closed_by = 'punctuation' GROUP BY a.id, r.ts"""
    rows = duckdb.sql(sql.format(data)).fetchall()
    assert len(rows) > 50
    assert all(last <= closed for closed, last in rows)


def test_the_readers_of_every_piece_of_news_are_those_of_duckdb(data, expected):
    sql = """
        SELECT n.sno, n.keyword, count(*), min(a.ts), max(a.ts) FROM '{0}/news.parquet' n
        JOIN '{0}/accesses.parquet' a ON n.sno = a.sno AND a.kind = 'record' GROUP BY ALL ORDER BY n.sno"""
    names = ("news_sno", "news_keyword", "accesses", "first", "last")
    rows = [json.loads(line) for line in expected["news.jsonl"]]
    assert sorted(tuple(row[name] for name in names) for row in rows) == duckdb.sql(sql.format(data)).fetchall()


def test_groups_leave_while_rows_are_still_read_and_few_are_open(data, tmp_path, monkeypatch):
    """The same rows in ten files: most auctions are out before the last file is read."""
    for name in ("auctions", "bids"):
        table = pq.read_table(data / f"{name}.parquet")
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
