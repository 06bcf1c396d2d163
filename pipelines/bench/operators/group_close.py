"""``slackwater bench group_close``: GroupClose against group-bys that see all rows at once, in the same run.

Bids on auctions, about 20 each, and a punctuation for each auction when it is over; count, sum, avg and max of
the bids per auction. DuckDB, with one thread, and NumPy have all rows in memory and hold every group until the
end; the operator takes chunks as a runner feeds it, and gives each group out when it is closed. Shows rows per
second of CPU time, the best of several turns, and their ratio; then how many groups were open at most.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import duckdb
import numpy as np
import pyarrow as pa

from slackwater.pipelines.bench.report import Column, Report, Table
from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.arrival.merge import in_arrival_order
from slackwater.transforms.operators.group_close.operator import GroupCloser
from slackwater.transforms.operators.group_close.plan import bind_group_close
from slackwater.transforms.settings.models import GroupCloseConfig

PER_GROUP, OPEN, CHUNK = 20, 1000, 1 << 17
AGGREGATES = {"bids": "count(*)", "total": "sum(price)", "mean": "avg(price)", "best": "max(price)"}
SQL = "SELECT auction, count(*), sum(price), avg(price), max(price) FROM rows GROUP BY auction"


def data(n: int, text: bool, seed: int) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return bids in order of time, one a tick, each on one of the last OPEN auctions, and the punctuations."""
    rng = np.random.default_rng(seed)
    ts = np.arange(n)
    number = ts // PER_GROUP + rng.integers(0, OPEN, n)
    last = np.zeros(int(number.max()) + 1, np.int64)
    np.maximum.at(last, number, ts)
    names = pa.array([f"auction {k}" if text else k for k in range(last.size)])
    rows = pa.record_batch({"ts": ts, "auction": names.take(pa.array(number)), "price": rng.integers(1, 9999, n)})
    order = np.argsort(last, kind="stable")
    patterns = [f'{{"auction": "auction {k}"}}' if text else f'{{"auction": {k}}}' for k in order]
    return rows, pa.record_batch({"ts": last[order], "pattern": patterns})


def chunks(rows: pa.RecordBatch, punctuations: pa.RecordBatch) -> list[Chunk]:
    """Cut both inputs by time."""
    found = []
    times = [np.asarray(batch.column("ts")) for batch in (rows, punctuations)]
    for start in range(0, rows.num_rows, CHUNK):
        cuts = [np.searchsorted(ts, [start, start + CHUNK]) for ts in times]
        parts = [b.slice(a, z - a) for b, (a, z) in zip((rows, punctuations), cuts, strict=True)]
        found.append(in_arrival_order(parts, [np.asarray(part.column("ts")) for part in parts]))
    return found


def closed(rows: pa.RecordBatch, punctuations: pa.RecordBatch) -> Callable[[], GroupCloser]:
    config = GroupCloseConfig.read({"time": "ts", "by": "auction", "aggregates": AGGREGATES})
    plan = bind_group_close(config, {"rows": rows.schema, "punctuations": punctuations.schema})
    cut = chunks(rows, punctuations)

    def run() -> GroupCloser:
        operator = GroupCloser(plan)
        for chunk in cut:
            operator.push(chunk)
        operator.finish()
        return operator

    return run


def with_numpy(rows: pa.RecordBatch) -> int:
    """Group by sorting."""
    auction, price = (np.asarray(rows.column(name)) for name in ("auction", "price"))
    order = np.argsort(auction, kind="stable")
    key, price = auction[order], price[order]
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
    bids, total = np.diff(np.append(first, key.size)), np.add.reduceat(price, first)
    return len((key[first], bids, total, total / bids, np.maximum.reduceat(price, first))[0])


def best(rounds: int, *jobs: Callable[[], object]) -> list[float]:
    """Return the CPU seconds of each job."""
    seconds = [float("inf")] * len(jobs)
    for _ in range(rounds):
        for k, job in enumerate(jobs):
            started = time.process_time()
            job()
            seconds[k] = min(seconds[k], time.process_time() - started)
    return seconds


def run(options: argparse.Namespace, report: Report) -> None:
    """Check that both agree, then time them in turns."""
    database = duckdb.connect(config={"threads": 1})
    table = Table(
        "groups by", "run", "rows/s", Column("GroupClose to it", ".2f"), "groups", "open at most",
        Column("MB at most", ".1f"),
    )  # fmt: skip
    for text in (False, True):
        rows, punctuations = data(options.rows, text, options.seed)
        database.register("rows", pa.Table.from_batches([rows]))
        job = closed(rows, punctuations)
        operator = job()
        groups = len(database.sql(SQL).arrow().read_all())
        assert operator.accounting.results == groups and not operator.accounting.late
        jobs: dict[str, Callable[[], object]] = {
            "GroupClose": job,
            "DuckDB": lambda: database.sql(SQL).arrow().read_all(),
        }
        if not text:
            jobs["NumPy"] = partial(with_numpy, rows)
        seconds = best(options.rounds, *jobs.values())
        held = operator.accounting
        for name, spent in zip(jobs, seconds, strict=True):
            most = (
                (groups, held.max_tuples, held.max_bytes / 1e6) if name == "GroupClose" else (groups, None, None)
            )
            table.add("text" if text else "integers", name, options.rows / spent, spent / seconds[0], *most)
    report.add(table)
