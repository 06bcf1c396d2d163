"""What operators of a Spark query see of a join: observed metrics, metrics files, memory."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cli_calls import call, write_template
from frame_cases import streams
from spark_cases import bound, settings, stream, write
from spark_stores import Query, packed_rows

pytest.importorskip("pyspark")

from pyspark.errors import AnalysisException
from pyspark.sql.streaming import StreamingQueryListener

from slackwater.transforms.arrival.merge import in_arrival_order
from slackwater.transforms.errors import SlackwaterError
from slackwater.transforms.spark import sliding_window_join
from slackwater.transforms.spark.blobs import ACCOUNT, LATE, RESULT, from_blob
from slackwater.transforms.spark.session import CACHE_BYTES

CASE = settings(where="a.k = b.k", shards=4, arrival="arrived")


class Listener(StreamingQueryListener):
    """Keeps what queries report."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.over = False

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        self.seen.append(event.progress.observedMetrics)

    def onQueryTerminated(self, event: Any) -> None:
        self.over = True


@pytest.mark.spark
def test_listeners_and_progress_have_our_numbers_for_every_micro_batch(spark: Any, tmp_path: Path) -> None:
    """Two joins in one query: names keep their numbers apart."""
    tables = [stream(i) for i in range(2)]
    paths = write(tmp_path, tables, files=2)
    for path in paths:
        for k in range(2):
            os.utime(path / f"{k}.parquet", (1_700_000_000 + k,) * 2)
    listener = Listener()
    joined = sliding_window_join(streams(spark, paths), name="mine", **CASE)
    other = sliding_window_join(streams(spark, paths), **CASE | {"shards": 1})
    found: list[pa.Table] = []

    def keep(batch: Any, number: int) -> None:
        found.append(batch.where("query = 'mine'").toArrow())

    both = joined.packed.selectExpr("'mine' AS query", "*").union(other.packed.selectExpr("'other'", "*"))
    spark.streams.addListener(listener)
    try:
        writer = both.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "state"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        progress = [part.observedMetrics for part in query.recentProgress]
        assert len(progress) == 2
        deadline = time.monotonic() + 60
        while not listener.over and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        spark.streams.removeListener(listener)
    assert [part["slackwater.mine"] for part in listener.seen] == [part["slackwater.mine"] for part in progress]
    for part, packed in zip(progress, found, strict=True):
        (name,) = part.keys() - {"slackwater.mine"}
        assert name.removeprefix("slackwater.").isdigit()
        mine, one = part["slackwater.mine"], part[name]
        blobs = packed.select(["kind", "blob"]).to_pylist()
        rows = Counter({RESULT: 0})
        for row in blobs:
            rows[row["kind"]] += from_blob(row["blob"]).num_rows if row["kind"] in (RESULT, LATE) else 1
        assert (mine.results, mine.late) == (rows[RESULT], rows[LATE])
        assert mine.late == mine.too_late + mine.bad_record
        assert rows[ACCOUNT] == 4
        assert mine.input == one.input == 400
        assert mine.slack_ms == 60
        assert mine.state_tuples > 0
        assert mine.max_shard_bytes < mine.state_bytes
        assert mine.given_bytes > 10_000
        assert mine.written_bytes > mine.given_bytes
    assert progress[1]["slackwater.mine"].too_late > 0
    assert 0.8 < progress[1]["slackwater.mine"].recall_estimate < 1


@pytest.mark.spark
def test_batch_frames_have_an_observation(spark: Any) -> None:
    tables = [stream(i) for i in range(2)]
    frames = {name: spark.createDataFrame(table) for name, table in zip("ab", tables, strict=True)}
    joined = sliding_window_join(frames, **CASE)
    n, observation = joined.results.count(), joined.observation
    assert observation is not None
    seen = observation.get
    assert seen["results"] == n > 0
    assert seen["input"] == 800
    assert seen["bad_record"] > 0
    assert seen["max_shard_bytes"] > 0
    assert (seen["state_tuples"], seen["read_bytes"]) == (0, 0), "nothing is left, and there was no state store"
    assert joined.results.select("ts").union(joined.late.select("ts")).count() > n


@pytest.mark.spark
def test_metrics_of_the_command_line_are_those_of_the_embedded_runner(spark: Any, tmp_path: Path) -> None:
    template = write_template(tmp_path)
    lines = {}
    for runner in ("local", "spark"):
        out = tmp_path / runner
        options = [
            "--set",
            "slack=1s",
            "--runner",
            runner,
            "--metrics",
            f"{out}.jsonl",
            "--summary",
            f"{out}.json",
        ]
        result = call("run", str(template), *options)
        assert result.exit_code == 0, result.output
        lines[runner] = (tmp_path / f"{runner}.jsonl").read_text()
        state = json.loads((tmp_path / f"{runner}.json").read_text())["state"]
        assert state["max_shard_bytes"] == state["max_bytes"] > 0, "there is one shard"
    assert lines["spark"] == lines["local"] != ""


@pytest.mark.spark
def test_real_time_mode_is_refused_by_spark(spark: Any, tmp_path: Path) -> None:
    """What docs/spark.md says of it; should this fail, look again at what Spark can do."""
    frame = spark.readStream.format("rate").load().selectExpr("timestamp AS ts", "value AS k")
    joined = sliding_window_join({"a": frame, "b": frame}, **CASE | {"arrival": None})
    writer = joined.results.writeStream.format("console").option("checkpointLocation", str(tmp_path))
    with pytest.raises(AnalysisException, match=r"STREAMING_REAL_TIME_MODE\.OUTPUT_MODE_NOT_SUPPORTED"):
        writer.trigger(realTime="5 seconds").start()


@pytest.mark.spark
def test_bytes_of_the_cache_are_a_setting_of_spark(spark: Any) -> None:
    session = spark.newSession()
    session.conf.set(CACHE_BYTES, "1000")
    frame = session.readStream.format("rate").load().selectExpr("timestamp AS ts", "value AS k")
    with pytest.raises(SlackwaterError, match=f"{CACHE_BYTES}: must be bytes such as 512MB, got '1000'"):
        sliding_window_join({"a": frame, "b": frame}, **CASE | {"arrival": None})
    session.conf.set(CACHE_BYTES, "64MB")
    sliding_window_join({"a": frame, "b": frame}, **CASE | {"arrival": None})


def micro_batches(query: Query, tables: list[pa.Table]) -> None:
    """Give a query two micro-batches, a second apart."""
    for k in range(2):
        batches = [t.slice(200 * k, 200).combine_chunks().to_batches()[0] for t in tables]
        arrivals = [batch["arrived"].to_numpy() for batch in batches]
        query.micro_batch(packed_rows(query.plan, in_arrival_order(batches, arrivals)), ms=1000 * k)


@pytest.mark.parametrize("cache_bytes", [None, 1])
def test_a_worker_holds_no_more_shards_than_its_cache_may_take(cache_bytes: int | None) -> None:
    tables = [stream(i) for i in range(2)]
    query = Query(bound(tables, where="a.k = b.k", arrival="arrived"), cache_bytes=cache_bytes)
    micro_batches(query, tables)
    assert len(query.shards[0]) == (1 if cache_bytes is None else 0)
    reads = query.accounts[-1].state.read
    assert (reads > 5_000) == (cache_bytes == 1), "what is not held is read from the state store"


def test_a_shard_that_is_called_twice_in_a_micro_batch_is_counted_once() -> None:
    """By its rows, and by the timer that says whether inputs are silent."""
    tables = [stream(i) for i in range(2)]
    query = Query(bound(tables, where="a.k = b.k", arrival="arrived", idle_timeout="1s"), timers=True)
    micro_batches(query, tables)
    first, by_rows, by_timer = query.counts
    assert (by_rows["input"], by_timer["input"]) == (400, 0)
    last = query.accounts[-1]
    results = [counts["results"] for counts in query.counts]
    assert sum(results) == last.accounting.results == by_rows["found"] + by_timer["found"] > results[0] > 0
    assert by_rows["stored_bytes"] + by_timer["stored_bytes"] == last.state.stored > 0
    assert first["state_tuples"] > 0
    assert by_timer["state_tuples"] <= 0 < by_rows["state_tuples"]
