"""Messages of a real Kafka broker as rows: their order, and what becomes of those that cannot be read."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kafka_cases import rows_in, wait_until

pytest.importorskip("pyspark")

from slackwater.transforms.errors import ConfigError, SlackwaterError
from slackwater.transforms.spark import ParquetSink, read_from_kafka, sliding_window_join, write_outputs
from slackwater.transforms.spark.kafka.order import STRIDE
from slackwater.transforms.spark.kafka.settings import METADATA

pytestmark = pytest.mark.spark

BASE = 1_700_000_000_000


def numbered(millis: list[int], part: int) -> list[int]:
    """Arrival numbers of one partition of a topic that is read alone, as they are documented."""
    found: list[int] = []
    for at in millis:
        nanos = at * 1_000_000 // STRIDE * STRIDE + part
        found.append(max(nanos, found[-1] + STRIDE) if found else nanos)
    return found


def test_offsets_order_a_partition_and_timestamps_merge_several(spark: Any, broker: Any) -> None:
    """Timestamps of producers: they tie, and go back."""
    topic = broker.create("numbered", 3)
    rng = np.random.default_rng(3)
    millis = {part: (BASE + rng.integers(0, 50, 200)).tolist() for part in range(3)}
    for part, stamps in millis.items():
        broker.send(topic, [{"part": part, "n": n} for n in range(200)], part, stamps)
    given: dict[str, Any] = {"schema": "part INT, n INT", "streaming": False, "arrival": "at", "raw": None}
    rows = read_from_kafka(spark, broker.address, topic, metadata=METADATA, **given)
    assert rows.columns == ["part", "n", *(f"kafka_{name}" for name in METADATA), "at"]
    table = rows.toArrow().sort_by([("part", "ascending"), ("at", "ascending")])
    assert table["part"].equals(table["kafka_partition"].cast("int32"))
    assert table["n"].to_pylist() == table["kafka_offset"].to_pylist() == [*range(200)] * 3
    assert table["at"].to_pylist() == [at for part in range(3) for at in numbered(millis[part], part)]
    assert len(set(table["at"].to_pylist())) == 600, "no two arrive at once"
    assert set(table["kafka_topic"].to_pylist()) == {topic}


def test_raw_messages_have_their_bytes(spark: Any, broker: Any) -> None:
    topic = broker.create("bytes")
    broker.send(topic, [b"\x00\xff", None])
    rows = read_from_kafka(spark, broker.address, [topic], format="raw", streaming=False)
    assert rows.columns == ["payload", "arrival"]
    assert [row.payload for row in rows.orderBy("arrival").collect()] == [bytearray(b"\x00\xff"), None]


GOOD = [{"ts": 1000 * n, "k": n % 3, "v": 0.5} for n in range(20)]
CHANGED = [
    "{nonsense",
    '{"ts": "soon", "k": 1, "v": 1.0}',
    '{"ts": 3000, "k": "one", "v": 1.0}',
    '{"time": 3000, "k": 1, "v": 1.0}',
    "[1, 2]",
    "",
]
"""What no longer fits the schema."""
STILL_FITS = ['{"ts": 5000, "k": 2, "v": 1.5, "new": {"x": 1}}', '{"ts": 6000, "k": 0}']
SCHEMA = "ts BIGINT NOT NULL, k BIGINT, v DOUBLE"


def test_a_schema_that_changes_in_mid_stream_loses_nothing(spark: Any, broker: Any, tmp_path: Path) -> None:
    """What cannot be read is late with its text, and all else is joined."""
    topics = {name: broker.create(f"changing-{name}") for name in "ab"}
    broker.send(topics["a"], [*GOOD[:10], *CHANGED, None, *STILL_FITS, *GOOD[10:]])
    broker.send(topics["b"], GOOD)
    inputs = {name: read_from_kafka(spark, broker.address, t, schema=SCHEMA) for name, t in topics.items()}
    settings = {"time": "ts", "window": "1ms", "where": "a.k = b.k", "arrival": "arrival"}
    settings |= {"idle_timeout": "500ms", "disorder": {"strategy": "fixed", "slack": "10s"}}
    joined = sliding_window_join(inputs, **settings)
    assert joined.results.columns[:5] == ["a_ts", "a_k", "a_v", "a_raw", "a_arrival"]
    places = {name: tmp_path / name for name in ("results", "late")}
    sinks = {name: ParquetSink(str(path)) for name, path in places.items()}
    query = write_outputs(joined, str(tmp_path / "checkpoint"), **sinks)
    try:
        wait_until(lambda: not query.isActive or len(rows_in(spark, places["results"])) >= 22)
    finally:
        query.stop()
    results, late = (rows_in(spark, path) for path in places.values())
    expected = Counter(row["ts"] for row in GOOD) + Counter([5000, 6000])
    assert Counter(row["a_ts"] for row in results) == expected
    assert {(row["input"], row["reason"], row["ts"]) for row in late} == {("a", "bad_record", None)}
    rows = [json.loads(row["row"]) for row in sorted(late, key=lambda row: row["arrival"])]
    assert [row["raw"] for row in rows] == [*CHANGED, None]
    assert all(row[name] is None for row in rows for name in ("ts", "k", "v"))


def test_wrong_arguments_are_refused(spark: Any, broker: Any) -> None:
    def read(**arguments: Any) -> None:
        read_from_kafka(spark, broker.address, "t", **arguments)

    with pytest.raises(ConfigError, match=r"^schema: messages in JSON need one, such as 'ts BIGINT NOT NULL, "):
        read()
    with pytest.raises(ConfigError, match=r"^schema: is for messages in JSON; leave it out, or use format json"):
        read(format="raw", schema="a INT")
    with pytest.raises(ConfigError, match=r"^schema: cannot be read: .*Unsupported data type \"INTT\""):
        read(schema="a INTT")
    with pytest.raises(ConfigError, match=r"^format: must be json or raw, got 'avro'"):
        read(format="avro")
    with pytest.raises(ConfigError, match=r"^metadata: 'size' is not known of a message; known: key, topic, "):
        read(schema="a INT", metadata=["size"])
    with pytest.raises(ConfigError, match=r"^timeout: must be a duration such as 250ms, 5s, 1m, 2h or 1d, got 5"):
        read(schema="a INT", timeout=5)


def test_a_missing_topic_and_a_broker_that_is_down_are_told_at_once(spark: Any, broker: Any) -> None:
    broker.create("orders")
    fault = rf"^topic: there is no topic 'odrers' at {broker.address}; there are: .*orders.* Create it, or "
    with pytest.raises(ConfigError, match=fault):
        read_from_kafka(spark, broker.address, ["orders", "odrers"], schema="a INT")
    fault = r"^no Kafka broker answers at 127.0.0.1:1 \(TimeoutException: .*\); start it, or correct the address"
    with pytest.raises(SlackwaterError, match=fault):
        read_from_kafka(spark, "127.0.0.1:1", "orders", schema="a INT", timeout="2s")
