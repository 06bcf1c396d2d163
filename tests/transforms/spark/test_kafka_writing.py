"""What becomes of results on their way to Kafka, when queries fail and when brokers do."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kafka_cases import rows_in, wait_until

pytest.importorskip("pyspark")

from slackwater.transforms.errors import ConfigError, SlackwaterError
from slackwater.transforms.spark import (
    ConsoleSink,
    KafkaSink,
    ParquetSink,
    clean_errors,
    read_from_kafka,
    sliding_window_join,
    write_outputs,
    write_to_kafka,
)

pytestmark = pytest.mark.spark

SCHEMA = "ts BIGINT NOT NULL, k BIGINT, n BIGINT"
JOIN = {
    "time": "ts",
    "window": "30ms",
    "where": "a.k = b.k",
    "arrival": "arrival",
    "shards": 2,
    "id": "id",
    "disorder": {"strategy": "fixed", "slack": "40ms"},
}
BASE = 1_700_000_000_000
NOW = {"availableNow": True}


def messages(which: int, start: int = 0, n: int = 300) -> list[dict[str, int]]:
    """Out of order by 30 ms at most."""
    return [{"ts": 10 * (i - i * 7 % 4) + which, "k": i % 5, "n": i} for i in range(start, start + n)]


def send_both(
    broker: Any, topics: dict[str, str], start: int = 0, n: int = 300, parts: tuple[int, ...] = (0, 1)
) -> None:
    for which, topic in enumerate(topics.values()):
        for part in parts:
            millis = range(BASE + start + part, BASE + start + n, 2)
            broker.send(topic, messages(which, start, n)[part::2], part, millis)


def send_at_once(broker: Any, topics: dict[str, str], partitions: int) -> None:
    """Send messages to all partitions whose timestamps tie: each has one of the same millisecond."""
    for which, topic in enumerate(topics.values()):
        for part in range(partitions):
            rows = messages(which)[part::partitions]
            broker.send(topic, rows, part, [BASE + row["n"] // 8 * 8 for row in rows])


def join(spark: Any, broker: Any, topics: dict[str, str], rows: int | None = None) -> Any:
    given: dict[str, Any] = {"schema": SCHEMA, "raw": None, "rows_per_batch": rows, "timeout": "3s"}
    frames = {name: read_from_kafka(spark, broker.address, topic, **given) for name, topic in topics.items()}
    return sliding_window_join(frames, **JOIN)


@dataclass
class FailsOnce:
    """Writes to another sink, and fails when it has written a micro-batch, or part of it, for the first time."""

    sink: Any
    number: int = 1
    only: str = "true"
    """Condition of the rows that it writes before it fails."""
    failed: bool = False

    def check(self, rows: Any, fresh: bool) -> None:
        self.sink.check(rows, fresh)

    def write(self, rows: Any, number: int) -> None:
        fails = number == self.number and not self.failed
        self.sink.write(rows.where(self.only) if fails else rows, number)
        if fails:
            self.failed = True
            raise SlackwaterError("the sink failed; try again")


@pytest.mark.parametrize(
    ("partitions", "only"), [(1, "true"), (3, "a_n % 3 = 0"), (4, "true"), (8, "a_n % 2 = 0")]
)
def test_results_in_kafka_are_those_of_an_undisturbed_run_once_per_id(
    partitions: int, only: str, spark: Any, broker: Any, tmp_path: Path
) -> None:
    """The query fails when a micro-batch has been sent in part, or sent and not committed, and sends it again.

    Messages of all partitions have the same timestamps, and Spark reads partitions in another order when it does
    a micro-batch again.
    """
    topics = {name: broker.create(f"once-{name}-{partitions}", partitions) for name in "ab"}
    out = broker.create(f"once-out-{partitions}", 2)
    send_at_once(broker, topics, partitions)
    alone = tmp_path / "alone"
    disturbed = FailsOnce(KafkaSink(broker.address, out), only=only)
    sinks = {"disturbed": disturbed, "alone": ParquetSink(str(alone))}

    def run(name: str) -> None:
        joined, checkpoint = join(spark, broker, topics, rows=250), str(tmp_path / f"c-{name}")
        with clean_errors():
            write_outputs(joined, checkpoint, trigger=NOW, results=sinks[name]).awaitTermination()

    with pytest.raises(SlackwaterError, match=r"^the sink failed; try again"):
        run("disturbed")
    run("disturbed")
    run("alone")
    expected = {row.pop("id"): row for row in rows_in(spark, alone)}
    sent = broker.received(out)
    found = {key.decode(): json.loads(value) for key, value in sent}
    assert len(sent) > len(found), "some came twice"
    assert all(row.pop("id") == key for key, row in found.items())
    assert found == {key: {k: v for k, v in row.items() if k != "batch"} for key, row in expected.items()}
    assert len(expected) > 300


def test_a_broker_that_goes_down_and_comes_back_loses_nothing(spark: Any, broker: Any, tmp_path: Path) -> None:
    """When it is back, one partition of each topic is silent: it holds nothing back, without any idle_timeout."""
    topics = {name: broker.create(f"down-{name}", 2) for name in "ab"}
    send_both(broker, topics, n=100)
    checkpoint, sink = str(tmp_path / "checkpoint"), ParquetSink(str(tmp_path / "out"))
    query = write_outputs(join(spark, broker, topics), checkpoint, results=[sink, ConsoleSink(1)])
    wait_until(lambda: not query.isActive or bool(rows_in(spark, tmp_path / "out")))
    broker.stop()
    fault = r"^no Kafka broker answers any more \(.*\): see to it, and run it again, with the same checkpoint "
    try:
        with pytest.raises(SlackwaterError, match=fault), clean_errors():
            query.awaitTermination(60)
    finally:
        query.stop()
        broker.start()
    send_both(broker, topics, start=100, n=200, parts=(1,))
    write_outputs(join(spark, broker, topics), checkpoint, trigger=NOW, results=sink).awaitTermination()
    found = Counter((row["a_n"], row["b_n"]) for row in rows_in(spark, tmp_path / "out"))
    rows = [messages(which, n=100) + messages(which, 100, 200)[1::2] for which in range(2)]
    pairs = [(a, b) for a in rows[0] for b in rows[1] if a["k"] == b["k"] and abs(a["ts"] - b["ts"]) <= 30]
    near = Counter((a["n"], b["n"]) for a, b in pairs)
    settled = Counter((a["n"], b["n"]) for a, b in pairs if max(a["ts"], b["ts"]) < 2900)
    assert settled <= found <= near
    assert settled.total() > 200


def test_messages_that_are_gone_before_they_were_read_are_told(spark: Any, broker: Any, tmp_path: Path) -> None:
    """The topic is made again, with fewer messages than were read of the first one."""
    topics = {name: broker.create(f"gone-{name}", 2) for name in "ab"}
    send_both(broker, topics, n=40)
    checkpoint, sink = str(tmp_path / "checkpoint"), ParquetSink(str(tmp_path / "out"))
    write_outputs(join(spark, broker, topics), checkpoint, trigger=NOW, results=sink).awaitTermination()
    broker.delete(topics["a"])
    broker.create(topics["a"], 2)
    told = r"^Kafka no longer has messages that this query has not read \(Some data may have been lost.*\): keep "
    with pytest.raises(SlackwaterError, match=told), clean_errors():
        write_outputs(join(spark, broker, topics), checkpoint, trigger=NOW, results=sink).awaitTermination()


def test_what_cannot_be_written_is_refused_at_the_start(spark: Any, broker: Any, tmp_path: Path) -> None:
    rows = spark.createDataFrame([(1, "x")], "n INT, t STRING")
    with pytest.raises(ConfigError, match=r"^key: there is no column 'id'; the results of a join have it with "):
        write_to_kafka(rows, broker.address, "t")
    with pytest.raises(ConfigError, match=r"^topic: there is no topic 'nowhere' at "):
        write_to_kafka(rows, broker.address, "nowhere", key="t")
    topics = {name: broker.create(f"refused-{name}") for name in "ab"}
    joined = join(spark, broker, topics)
    with pytest.raises(ConfigError, match=r"^checkpoint: a streaming query needs a folder to go on from after "):
        write_to_kafka(joined.results, broker.address, topics["a"])
    with pytest.raises(ConfigError, match=r"^result: is no output of a join; there are results, late, "):
        write_outputs(joined, "c", result=ConsoleSink())
    with pytest.raises(ConfigError, match=r"^topic: there is no topic 'nowhere' at "):
        write_outputs(joined, str(tmp_path / "c"), late=KafkaSink(broker.address, "nowhere", key=None))
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    with pytest.raises(SlackwaterError, match=r"used has files, and the checkpoint is new: rows of two "):
        write_outputs(joined, str(tmp_path / "c"), results=ParquetSink(str(tmp_path / "used")))


def test_batches_are_sent_at_once(spark: Any, broker: Any) -> None:
    topic = broker.create("at-once")
    rows = spark.createDataFrame([(7, None), (8, "x")], "n INT, t STRING")
    assert write_to_kafka(rows, broker.address, topic, key="n") is None
    assert sorted(broker.received(topic)) == [(b"7", b'{"n":7,"t":null}'), (b"8", b'{"n":8,"t":"x"}')]
