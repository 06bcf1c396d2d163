"""GroupClose behind joins of every kind, and the templates about it: what is true of their groups, by DuckDB."""

import json

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from runner_contract import BEAM, SPARK, Case, merged, parquet, pipeline_of, sink

from slackwater.pipelines import generate
from slackwater.pipelines.template.reader import read_template

NEXMARK = {"rows": 3000, "length": 60_000, "window": 60_000, "max_delay": 10_000, "length_spread": 0.5}
JOIN = {"time": "ts", "arrival": "arrived", "window": "1m", "disorder": {"strategy": "fixed", "slack": "10s"}}
BIDS = {
    "where": "auctions.id = bids.auction",
    "punctuations": {"input": "bids", "when": "kind = 'closed'", "key": "auction"},
}
CLOSE = {"time": "ts", "by": "auctions_id", "aggregates": {"n": "count(*)", "s": "sum(bids_price)"}}
VALUES = {"time": "ts", "aggregates": {"n": "count(*)", "s": "sum(v)", "x": "avg(v / 3)"}}


def chains(data, out):
    """Chains of every kind: a sharded join, an operator between and one after, files in no order, other types."""
    nodes = [parquet(name, data / f"{name}.parquet") for name in ("auctions", "bids")]
    nodes.append(parquet("Values", data / "values.parquet"))
    nodes.append({"type": "ReadFromJson", "name": "Marks", "config": {"path": f"{data}/marks.jsonl"}})

    def add(type_, name, given, **config):
        nodes.append({"type": type_, "name": name, "input": given, "config": config})

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
    after = {"time": "ts", "range": "1m", "aggregates": {"n": "count(*)", "s": "sum(s)"}}
    add("SlidingWindowAggregate", "after", "plain", **after)
    closing = ("plain", "pairs", "windowed", "some", "of shards", "of shards windowed", "values", "timed")
    ports = [*closing, *(f"{name}.late" for name in closing), "after", "after.late"]
    return pipeline_of([*nodes, *(sink(port, f"{out}/{port}.jsonl") for port in ports)])


def build(data, out, parts):
    files = {"out": str(out), "window": "1m", "slack": "10s"}
    files |= {name: f"{data}/{name}.parquet" for name in ("auctions", "bids", "news", "accesses")}
    templates = {name: read_template(name, files) for name in ("auctions", "news")}
    return merged({"chains": chains(data, out), **templates})


def write(folder):
    generate.generate("nexmark", folder, **NEXMARK)
    generate.generate("news", folder, rows=1500)
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
    pq.write_table(pa.table(columns), folder / "values.parquet")
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
    (folder / "marks.jsonl").write_text("".join(json.dumps(mark) + "\n" for mark in marks))


def check(ran):
    for name in ("plain", "pairs", "windowed", "values", "timed", "after", "values.late", "timed.late"):
        assert ran.files[f"{name}.jsonl"], name
    assert not ran.files["plain.late.jsonl"] and not ran.files["auctions-late.jsonl"]
    bids_of_every_auction(ran)
    groups_close_after_their_last_bid(ran)
    readers_of_every_piece_of_news(ran)


def queried(ran, sql):
    return duckdb.connect().sql(sql.format(ran.data, ran.out)).fetchall()


def bids_of_every_auction(ran):
    sql = """
        SELECT a.id, count(*), sum(b.price)::BIGINT, avg(b.price), max(b.price)
        FROM '{0}/auctions.parquet' a JOIN '{0}/bids.parquet' b ON a.id = b.auction AND b.kind = 'bid'
        WHERE b.ts BETWEEN a.ts AND a.ts + 60000 GROUP BY a.id ORDER BY a.id"""
    rows = pq.read_table(ran.out / "auctions.parquet").to_pylist()
    got = sorted(tuple(row[name] for name in ("auctions_id", "bids", "total", "mean", "best")) for row in rows)
    assert got == queried(ran, sql)
    by = [row["closed_by"] for row in rows]
    assert by.count("punctuation") > 3 * by.count("end") > 0


def groups_close_after_their_last_bid(ran):
    sql = """
        SELECT r.ts, max(b.ts) FROM '{1}/auctions.parquet' r
        JOIN '{0}/auctions.parquet' a ON a.id = r.auctions_id
        JOIN '{0}/bids.parquet' b ON b.auction = a.id AND b.kind = 'bid' AND b.ts <= a.ts + 60000
        WHERE r.closed_by = 'punctuation' GROUP BY a.id, r.ts"""
    rows = queried(ran, sql)
    assert len(rows) > 50
    assert all(last <= closed for closed, last in rows)


def readers_of_every_piece_of_news(ran):
    sql = """
        SELECT n.sno, n.keyword, count(*), min(a.ts), max(a.ts) FROM '{0}/news.parquet' n
        JOIN '{0}/accesses.parquet' a ON n.sno = a.sno AND a.kind = 'record' GROUP BY ALL ORDER BY n.sno"""
    names = ("news_sno", "news_keyword", "accesses", "first", "last")
    assert sorted(tuple(row[name] for name in names) for row in ran.rows("news.jsonl")) == queried(ran, sql)


CASES = [
    Case(
        "groups",
        write,
        build,
        check,
        dict.fromkeys(("local again", BEAM[0], "beam-spark", SPARK[0])),
        rows_per_batch=2000,
    )
]
