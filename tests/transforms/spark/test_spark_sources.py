"""Sources and sinks of Spark's own around a join: rate, console, foreachBatch; what is said without memory."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from kafka_cases import wait_until

pytest.importorskip("pyspark")

from slackwater.pipelines.bench.kafka import live as kafka
from slackwater.transforms.errors import SlackwaterError
from slackwater.transforms.spark import ConsoleSink, clean_errors, connector, sliding_window_join, write_outputs
from slackwater.transforms.spark.failures import explained

pytestmark = pytest.mark.spark

RATE = {"rowsPerBatch": 20, "numPartitions": 2, "startTimestamp": 1_000_000, "advanceMillisPerBatch": 1000}
"""The same rows on every machine."""


class Kept:
    """A sink of one's own: any program may write what it likes for each micro-batch."""

    def __init__(self) -> None:
        self.values: list[int] = []

    def check(self, rows: Any, fresh: bool) -> None:
        assert rows.isStreaming
        assert fresh

    def write(self, rows: Any, number: int) -> None:
        self.values += [row.a_value for row in rows.collect()]


def test_a_rate_source_is_joined_and_shown(spark: Any, tmp_path: Path, capfd: Any) -> None:
    rows = spark.readStream.format("rate-micro-batch").options(**RATE).load()
    settings = {"time": "timestamp", "window": "500ms", "where": "a.value = b.value", "arrival": "value"}
    joined = sliding_window_join({"a": rows, "b": rows}, **settings)
    kept = Kept()
    query = write_outputs(joined, str(tmp_path / "ours"), results=[ConsoleSink(3), kept])
    console = (
        joined.results.writeStream.format("console")
        .option("checkpointLocation", str(tmp_path / "console"))
        .start()
    )
    try:
        wait_until(lambda: not query.isActive or len(kept.values) >= 20)
        wait_until(lambda: not console.isActive or len(console.recentProgress) >= 1)
    finally:
        query.stop()
        console.stop()
    assert sorted(kept.values) == list(range(len(kept.values))), "each row finds itself once"
    assert "|a_timestamp        |a_value|" in capfd.readouterr().out
    assert console.exception() is None


CRASHED = "Python worker exited unexpectedly (crashed)"
NO_TOPIC = "This server does not host this topic-partition"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (f"SparkException: {CRASHED}", f"{CRASHED}: often it was killed as the machine had no memory left; "),
        (
            f"org.apache.kafka.common.errors.UnknownTopicOrPartitionException: {NO_TOPIC}. SQLSTATE: XXKST",
            f"Kafka no longer has a topic or partition of this query ({NO_TOPIC}",
        ),
    ],
)
def test_what_workers_and_brokers_say_is_explained(said: str, told: str) -> None:
    """As Spark has said it when a worker was killed, and when a topic was deleted."""
    assert (explained(said) or "").startswith(told)


def test_other_errors_of_spark_are_passed_on_in_one_sentence(spark: Any) -> None:
    with pytest.raises(SlackwaterError, match=r"^Spark: \[UNRESOLVED_COLUMN"), clean_errors():
        spark.range(1).select("nowhere")


def test_of_nested_ones_the_outer_keeps_py4j_quiet() -> None:
    logger = logging.getLogger("py4j.clientserver")
    before = list(logger.filters)
    with clean_errors():
        with clean_errors():
            pass
        assert len(logger.filters) == len(before) + 1
    assert logger.filters == before


def test_a_connector_that_cannot_be_had_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(connector.VARIABLE, str(tmp_path))
    with pytest.raises(
        SlackwaterError, match=r"^SLACKWATER_KAFKA_JARS names '.*', a folder without jars; correct"
    ):
        connector.kafka_jars()
    monkeypatch.delenv(connector.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    fault = (
        r"^Kafka needs the Spark connector .*, and mvn could not fetch it \(\S+: it is not installed; .*\); put "
    )
    with pytest.raises(SlackwaterError, match=fault):
        connector.with_kafka()


def test_a_live_join_with_a_silent_partition_finds_nearly_everything(
    spark: Any, broker: Any, tmp_path: Path
) -> None:
    """The benchmark, made small."""
    load = kafka.Load(messages=6000, seconds=12, silence=5)
    folder = tmp_path / "silent"
    folder.mkdir()
    fixed = {"strategy": "fixed", "slack": "2100ms"}
    seen = kafka.live(spark, broker, load, folder, kafka.settings_of(0.9, idle_timeout="1s", disorder=fixed))
    found = kafka.judge(folder, load, seen)
    assert found["recall"] >= 0.95, json.dumps(found)
    assert (found["doubled"], found["wrong"]) == (0, 0)
    assert found["wait_s"]["silence"]["median"] is not None, "there are results of that time"
