"""What a session or a column lacks is told when a join is defined, not when it runs."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from slackwater.transforms.errors import ConfigError, SlackwaterError
from slackwater.transforms.spark import ParquetSink, sliding_window_aggregate, sliding_window_join, write_outputs
from slackwater.transforms.spark.checkpoint import CheckpointError
from slackwater.transforms.spark.preconditions import PROVIDER, ShufflePartitionsWarning, _ask_workers

pytestmark = pytest.mark.spark

JOIN: dict[str, Any] = {"time": "ts", "window": "5s", "where": "a.k = b.k"}


def rates(session: Any, *more: str) -> dict[str, Any]:
    frame = session.readStream.format("rate").load().selectExpr("timestamp AS ts", "value AS k", *more)
    return {"a": frame, "b": frame}


def test_a_session_without_rocksdb_is_refused(spark: Any) -> None:
    session = spark.newSession()
    session.conf.set(PROVIDER, "org.example.Other")
    told = (
        r"^a streaming query keeps the state of its shards in RocksDB, and this session has 'org.example.Other'; "
        r"before the join is defined, set spark.sql.streaming.stateStore.providerClass to .*RocksDBStateStoreProv"
    )
    with pytest.raises(SlackwaterError, match=told):
        sliding_window_join(rates(session), **JOIN)
    frame = session.range(3).selectExpr("id AS ts", "id AS k")
    assert sliding_window_join({"a": frame, "b": frame}, **JOIN).results.count() == 3, "batches need none"


def test_far_more_shuffle_partitions_than_shards_are_warned_of(spark: Any) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "200")
    told = r"spark.sql.shuffle.partitions is 200, and the join has 2 shards: .* the join is defined, set it to 2"
    with pytest.warns(ShufflePartitionsWarning, match=told):
        sliding_window_join(rates(session), **JOIN, shards=2)
    session.conf.set("spark.sql.shuffle.partitions", "2")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sliding_window_join(rates(session), **JOIN, shards=2)


def test_workers_without_our_packages_are_refused(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for a package that nobody has, as this package would be in a Python without it."""
    _ask_workers(spark)
    monkeypatch.setattr("slackwater.transforms.spark.preconditions.NEEDED", ("numpy", "slackwater_lacks"))
    told = (
        r"^Spark's Python workers lack slackwater_lacks in \S+; install it there \(pip install 'slackwater\[spark"
        r"\]'\), or let PYSPARK_PYTHON name a Python that has it before the session is started"
    )
    with pytest.raises(SlackwaterError, match=told):
        _ask_workers(spark)


def test_names_that_joins_keep_for_themselves_are_refused(spark: Any) -> None:
    for name in ("__partition", "__arrival", "__Partition", "__copy"):
        frame = spark.range(3).selectExpr("id AS ts", "id AS k", f"id AS {name}")
        told = rf"^input: input 'a' has a column '{name}', a name that joins keep for themselves; rename it"
        with pytest.raises(ConfigError, match=told):
            sliding_window_join({"a": frame, "b": frame}, **JOIN)
        with pytest.raises(ConfigError, match="a name that joins keep for themselves"):
            sliding_window_aggregate(frame, time="ts", range="1s", slide="1s", aggregates={"n": "count(*)"})


def test_dotted_names_are_columns_like_others(spark: Any) -> None:
    a = spark.range(4).selectExpr("id AS ts", "id % 2 AS k", "id AS `x.y`")
    b = spark.range(4).selectExpr("id AS ts", "id AS k", "-id AS `x.y`")
    joined = sliding_window_join({"a": a, "b": b}, **JOIN).results
    found = sorted((row["a_x.y"], row["b_x.y"]) for row in joined.collect())
    assert found == sorted((i, -j) for i in range(4) for j in range(4) if i % 2 == j)


def test_texts_that_spark_compares_by_a_collation_are_refused(spark: Any) -> None:
    frame = spark.sql("SELECT 1L AS ts, 'A' COLLATE UTF8_LCASE AS k")
    told = (
        r"^input: column 'k' of input 'a' is string collate UTF8_LCASE, and joins compare texts byte by byte; "
        r"cast it to string, or to lower case"
    )
    with pytest.raises(ConfigError, match=told):
        sliding_window_join({"a": frame, "b": frame}, **JOIN)
    plain = frame.selectExpr("ts", "CAST(lower(k) AS STRING) AS k")
    assert sliding_window_join({"a": plain, "b": plain}, **JOIN).results.count() == 1


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP_NTZ"])
def test_times_of_no_zone_meet_instants_in_utc_only(kind: str, spark: Any) -> None:
    """Noon of no zone is noon in UTC for a join, and in New York for Spark."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/New_York")

    def frames() -> dict[str, Any]:
        a = session.sql(f"SELECT CAST('2024-05-01 00:00:00' AS {kind}) AS ts, 1L AS k")
        b = session.sql("SELECT timestamp_seconds(1714521600) AS ts, 1L AS k")
        return {"a": a, "b": b}

    told = (
        rf"^time: b.ts \(timestamp\) is an instant, and a.ts \({kind.lower()}\) a time of no zone, which Spark "
        r"takes as one of America/New_York and a join as UTC; cast one to the type of the other"
    )
    with pytest.raises(ConfigError, match=told):
        sliding_window_join(frames(), **JOIN)
    session.conf.set("spark.sql.session.timeZone", "UTC")
    assert sliding_window_join(frames(), **JOIN).results.count() == 1


def test_another_query_on_a_checkpoint_is_refused_before_it_starts(spark: Any, tmp_path: Path) -> None:
    """Its shards would refuse too, when the first micro-batch has come to them."""
    folder = tmp_path / "in"
    spark.range(9).selectExpr("id AS ts", "id AS k").write.parquet(str(folder))

    def query(columns: str, shards: int = 1) -> Any:
        frame = spark.readStream.schema(columns).parquet(str(folder))
        joined = sliding_window_join({"a": frame, "b": frame}, **JOIN, shards=shards)
        sink = ParquetSink(str(tmp_path / "out"))
        return write_outputs(joined, str(tmp_path / "c"), trigger={"availableNow": True}, results=sink)

    query("ts LONG, k LONG").awaitTermination()
    told = r"^the checkpoint is of a query with other settings: .*input.a was .* and is .*\"new string\""
    with pytest.raises(CheckpointError, match=told):
        query("ts LONG, k LONG, new STRING")
    with pytest.raises(CheckpointError, match=r"shards was 1 and is 2; set it back, or start with a new checkp"):
        query("ts LONG, k LONG", shards=2)
    query("ts LONG, k LONG").awaitTermination()
