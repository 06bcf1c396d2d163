"""``slackwater bench kafka``: a live join of two topics of a real broker, out of order, one partition silent.

A broker in KRaft mode is started on loopback. A producer of its own sends messages at a steady pace, a third
of them up to two seconds late, over four partitions for each topic; in the middle one partition, or all of one
topic, is silent. A query on two local cores joins them to a recall, with an ``idle_timeout``. DuckDB counts what
there was to find. A result waits from when Kafka had the second of its messages to when the micro-batch with it
was written; how much longer that is in the silence than outside it tells whether silence stalls the join. It
follows half a minute of the same, not counted. At the end, all messages are joined once more, as fast as it goes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.pipelines.bench.report import Report, Table
from slackwater.transforms.errors import SlackwaterError

NAMES = ("a", "b")
PARTITIONS = 4
WINDOW_MS = 1000
LATEST_MS = 2000
IDLE_TIMEOUT_S = 5
SHARDS = 4


@dataclass(frozen=True)
class Load:
    """What is sent."""

    messages: int = 1_000_000
    seconds: float = 180
    silence: float = 60
    """Seconds in the middle in which nothing comes from what is silent."""
    silent: str = "partition"
    """``partition``: the first of the first topic; ``input``: all of it."""
    seed: int = 7

    @property
    def gap(self) -> tuple[float, float]:
        """When the silence begins and ends, in milliseconds from the start."""
        return 500 * (self.seconds - self.silence), 500 * (self.seconds + self.silence)

    def tables(self, start_ms: int) -> list[pa.Table]:
        """Return the messages of both topics in the order in which they are sent."""
        rng = np.random.default_rng(self.seed)
        n, (first, last) = self.messages // 2, self.gap
        found = []
        for which in range(2):
            sent = rng.uniform(0, 1000 * self.seconds, n)
            if self.silent == "input" and which == 0:
                sent = rng.uniform(0, 1000 * (self.seconds - self.silence), n)
                sent[sent >= first] += last - first
            sent.sort()
            late = np.where(rng.random(n) < 1 / 3, rng.uniform(0, LATEST_MS, n), rng.uniform(0, 50, n))
            partition = rng.integers(0, PARTITIONS, n)
            if self.silent == "partition" and which == 0:
                moved = (sent >= first) & (sent < last) & (partition == 0)
                partition[moved] = rng.integers(1, PARTITIONS, int(moved.sum()))
            # About one partner for each message.
            keys = max(4, round(2 * WINDOW_MS * n / (1000 * self.seconds)))
            columns = {
                "sent": sent,
                "partition": partition,
                "ts": start_ms + (sent - late).astype(np.int64),
                "k": rng.integers(0, keys, n),
                "n": np.arange(n),
            }
            found.append(pa.table(columns))
        return found


def produce(address: str, folder: Path, start: float) -> None:
    """Send the messages in a folder at their times, counted from a time of day."""
    from confluent_kafka import Producer

    due = []
    for name in NAMES:
        table = pq.read_table(folder / f"{name}.parquet")
        fields = (table[column].to_pylist() for column in ("sent", "partition", "ts", "k", "n"))
        due += [
            (at, name, part, f'{{"ts":{ts},"k":{k},"n":{n}}}') for at, part, ts, k, n in zip(*fields, strict=True)
        ]
    due.sort()
    producer = Producer(
        {"bootstrap.servers": address, "linger.ms": 20, "queue.buffering.max.messages": 2_000_000}
    )
    now = 0.0
    for at, name, part, text in due:
        # What is due is sent every 20 ms: to wait for each message would take much of a core.
        while at > now and at > (now := 1000 * (time.time() - start)):
            producer.poll(0)
            time.sleep(0.02)
        producer.produce(f"{folder.name}-{name}", text, partition=part)
    producer.flush(60)
    sys.stderr.write(f"last sent {time.time() - start - due[-1][0] / 1000:.2f} s behind its time\n")


@dataclass
class Timed:
    """Writes Parquet, and notes when."""

    path: str
    written: dict[int, float] = field(default_factory=dict)

    def check(self, rows: Any, fresh: bool) -> None:
        """Nothing is there before."""

    def write(self, rows: Any, number: int) -> None:
        """Write a micro-batch."""
        rows.write.parquet(f"{self.path}/batch={number}")
        self.written[number] = time.time()


def settings_of(recall: float, **more: Any) -> dict[str, Any]:
    """Return the settings of the join."""
    given: dict[str, Any] = {
        "time": "ts",
        "window": f"{WINDOW_MS}ms",
        "where": "a.k = b.k",
        "arrival": "arrival",
        "id": "id",
        "shards": SHARDS,
        "disorder": {"recall": recall, "interval": "1s", "period": "10s"},
    }
    return given | more


def frames(session: Any, address: str, prefix: str, **options: Any) -> dict[str, Any]:
    """Return both topics as streams."""
    from slackwater.transforms.spark import read_from_kafka

    schema = "ts BIGINT NOT NULL, k BIGINT, n BIGINT"
    return {
        name: read_from_kafka(session, address, f"{prefix}-{name}", schema=schema, raw=None, **options)
        for name in NAMES
    }


def live(session: Any, broker: Any, load: Load, folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Join while messages are sent, until the last have been silent for long enough; return what was seen."""
    from slackwater.transforms.spark import sliding_window_join, write_outputs

    for name in NAMES:
        broker.create(f"{folder.name}-{name}", PARTITIONS)
    sink, late = Timed(str(folder / "results")), Timed(str(folder / "late"))
    joined = sliding_window_join(frames(session, broker.address, folder.name), **settings)
    idle_timeout = float(settings["idle_timeout"].removesuffix("s"))
    query = write_outputs(joined, str(folder / "checkpoint"), results=sink, late=late)
    _wait(query, lambda: query.lastProgress is not None)
    start = time.time() + 3
    for name, table in zip(NAMES, load.tables(round(1000 * start)), strict=True):
        pq.write_table(table, folder / f"{name}.parquet")
    sending = subprocess.Popen([sys.executable, "-m", __name__, broker.address, str(folder), str(start)])
    _wait(query, lambda: sending.poll() is not None)
    ended = time.time()
    _wait(query, lambda: _quiet(query) and time.time() > ended + idle_timeout)
    ends = len(query.recentProgress)
    _wait(query, lambda: len(query.recentProgress) >= ends + 3)
    seconds = [p["durationMs"]["triggerExecution"] / 1000 for p in query.recentProgress if p["numInputRows"]]
    query.stop()
    return {"start": start, "written": sink.written, "seconds": np.array(seconds)}


def warm(session: Any, broker: Any, load: Load, folder: Path, settings: dict[str, Any]) -> None:
    """Join as much in 30 s: kernels are loaded, the first time compiled, and the JVM compiles what it runs."""
    folder.mkdir()
    few = Load(round(30 * load.messages / load.seconds), 30, 5, seed=load.seed)
    live(session, broker, few, folder, settings)


def _quiet(query: Any) -> bool:
    progress = query.lastProgress
    return progress is not None and progress["numInputRows"] == 0


def _wait(query: Any, done: Any) -> None:
    while not done():
        if not query.isActive:
            query.awaitTermination()
        time.sleep(0.1)


def judge(folder: Path, load: Load, seen: dict[str, Any]) -> dict[str, Any]:
    """Compare with what there was to find, and say how long results have waited."""
    database: Any = duckdb.connect()
    for name in NAMES:
        database.execute(f"create view {name} as from '{folder}/{name}.parquet'")
    database.execute(
        f"create view found as from read_parquet('{folder}/results/*/*.parquet', hive_partitioning=true)"
    )
    near = f"a.k = b.k and abs(a.ts - b.ts) <= {WINDOW_MS}"
    truth = database.execute(f"select count(*) from a join b on {near}").fetchone()[0]
    results, ids = database.execute("select count(*), count(distinct id) from found").fetchone()
    wrong = database.execute(
        f"select count(*) from found f anti join (select a.n x, b.n y from a join b on {near})"
        " on f.a_n = x and f.b_n = y"
    ).fetchone()[0]
    columns = database.execute(
        "select batch, greatest(a_arrival, b_arrival) / 1e6 as came from found"
    ).fetchnumpy()
    emitted = np.array([1000 * seen["written"][int(batch)] for batch in columns["batch"]])
    waited, came = (emitted - columns["came"]) / 1000, columns["came"] - 1000 * seen["start"]
    silent = (came >= load.gap[0]) & (came < load.gap[1])
    last = {name: database.execute(f"select max(sent) from {name}").fetchone()[0] for name in NAMES}
    # Of the end, where both inputs fall silent, not all need to wait for idle_timeout: it is told apart.
    end = came >= min(last.values()) - LATEST_MS - WINDOW_MS
    parts = {"silence": silent, "else": ~silent & ~end, "end": end}
    waits = {name: _waits(waited[part]) for name, part in parts.items()}
    return {
        "truth": truth,
        "results": results,
        "doubled": results - ids,
        "wrong": wrong,
        "recall": results / truth,
        "micro_batch_s": {"median": _round(seen["seconds"], 50), "most": _round(seen["seconds"], 100)},
        "wait_s": waits,
        "silence_adds_s": {
            which: round(wait - (waits["else"][which] or 0), 2)
            for which, wait in waits["silence"].items()
            if wait
        },
    }


def _waits(waited: Any) -> dict[str, float | None]:
    return {"median": _round(waited, 50), "p99": _round(waited, 99), "most": _round(waited, 100)}


def _round(waited: Any, share: float) -> float | None:
    return round(float(np.percentile(waited, share)), 2) if len(waited) else None


def replay(session: Any, broker: Any, folder: Path, recall: float, rows_per_batch: int) -> float:
    """Join all messages once more; return messages per second."""
    from slackwater.transforms.spark import sliding_window_join, write_outputs

    streams = frames(session, broker.address, folder.name, rows_per_batch=rows_per_batch)
    joined = sliding_window_join(streams, **settings_of(recall))
    started, sink = time.perf_counter(), Timed(str(folder / "again"))
    query = write_outputs(joined, str(folder / "c-again"), trigger={"availableNow": True}, results=sink)
    query.awaitTermination()
    rows = sum(progress["numInputRows"] for progress in query.recentProgress)
    return rows / (time.perf_counter() - started)


def run(options: argparse.Namespace, report: Report) -> None:
    """Join live and once more, and judge both."""
    from slackwater.pipelines.bench.kafka.broker import Broker
    from slackwater.transforms.spark import start_session, with_kafka
    from slackwater.transforms.spark.session import LASTING_CONF

    load = Load(options.rows, options.seconds, options.silence, options.silent, options.seed)
    conf = LASTING_CONF | {"spark.sql.streaming.numRecentProgressUpdates": "10000"}
    session = start_session(app="slackwater kafka", conf=with_kafka(conf))
    with Broker() as broker, tempfile.TemporaryDirectory(prefix="slackwater-kafka-") as folder:
        settings = settings_of(options.recall, idle_timeout=f"{IDLE_TIMEOUT_S}s")
        if not options.quick:
            warm(session, broker, load, Path(folder) / "warm", settings)
        seen = live(session, broker, load, Path(folder), settings)
        found = judge(Path(folder), load, seen)
        found["replayed_per_s"] = round(replay(session, broker, Path(folder), options.recall, 100_000))
    session.stop()
    given = {"messages": load.messages, "seconds": load.seconds, "silence": load.silence, "silent": load.silent}
    wanted = {"recall_wanted": options.recall, "idle_timeout_s": IDLE_TIMEOUT_S}
    report.add(Table.of(_flat(given | wanted | found), title="A live join of two topics"))
    if found["recall"] < options.recall or found["doubled"] or found["wrong"]:
        raise SlackwaterError("the recall was missed, or results are wrong")
    if any(added > IDLE_TIMEOUT_S for added in found["silence_adds_s"].values()):
        raise SlackwaterError("silence stalls the join for longer than idle_timeout")


def _flat(figures: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Return figures of figures under names of names."""
    flat: dict[str, Any] = {}
    for name, value in figures.items():
        flat |= _flat(value, f"{before}{name} ") if isinstance(value, dict) else {before + name: value}
    return flat


if __name__ == "__main__":
    produce(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
