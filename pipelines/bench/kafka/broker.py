"""A real Kafka broker on loopback, from Maven artifacts, in KRaft mode.

``python -m slackwater.pipelines.bench.kafka.broker`` fetches it ahead of time.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from slackwater.transforms.engine import maven
from slackwater.transforms.engine.maven import Module
from slackwater.transforms.spark.connector import cache_folder

KAFKA = Module("org.apache.kafka", "kafka_2.13", "4.1.0")
PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{control}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/logs
auto.create.topics.enable=false
log.retention.ms=-1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""


def jars() -> Path:
    """Return the folder with the broker's jars, fetched unless they are there."""
    folder = cache_folder() / f"kafka-{KAFKA.version}"
    if not folder.is_dir():
        maven.copy_with_dependencies([KAFKA], folder)
    return folder


class Broker:
    """A broker that can be stopped and started again with what it has stored; to be used in a ``with``."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="slackwater-kafka-"))
        port, control = _free_ports()
        self.address = f"127.0.0.1:{port}"
        self._properties = self._folder / "server.properties"
        self._properties.write_text(PROPERTIES.format(port=port, control=control, folder=self._folder))
        self._process: subprocess.Popen[bytes] | None = None
        cluster = ["format", "-t", "c2xhY2t3YXRlci10ZXN0cw", "-c", str(self._properties)]
        subprocess.run(self._java("kafka.tools.StorageTool", *cluster), check=True, capture_output=True)

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        with open(self._folder / "broker.log", "ab") as log:
            command = self._java("kafka.Kafka", str(self._properties))
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        admin, deadline = AdminClient({"bootstrap.servers": self.address, "log_level": 0}), time.monotonic() + 60
        while True:
            try:
                admin.list_topics(timeout=1)
                return
            except Exception:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self._folder / "broker.log").read_text()) from None

    def stop(self) -> None:
        """End it at once; what it has acknowledged is on disk."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def create(self, topic: str, partitions: int = 1, **config: str) -> str:
        new = NewTopic(topic, partitions, 1, config=config)
        admin = AdminClient({"bootstrap.servers": self.address})
        admin.create_topics([new])[topic].result(10)
        while topic not in admin.list_topics(timeout=10).topics:
            time.sleep(0.05)
        return topic

    def delete(self, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.address})
        admin.delete_topics([topic])[topic].result(10)
        while topic in admin.list_topics(timeout=10).topics:
            time.sleep(0.05)

    def send(self, topic: str, values: Iterable[Any], partition: int = 0, millis: Iterable[int] = ()) -> None:
        """Send messages, text as it is and all else as JSON, with timestamps if they are given."""
        stamps, faults = iter(millis), list[Any]()

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                faults.append(error)

        producer = Producer({"bootstrap.servers": self.address, "linger.ms": 20, "log_level": 0})
        for value in values:
            text = value if isinstance(value, str | bytes | None) else json.dumps(value)
            stamp: dict[str, Any] = {"timestamp": at} if (at := next(stamps, None)) is not None else {}
            while True:
                try:
                    producer.produce(topic, text, partition=partition, on_delivery=delivered, **stamp)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(30) == 0
        assert not faults, faults[0]

    def received(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        """Return key and value of all messages of a topic."""
        consumer = Consumer(
            {"bootstrap.servers": self.address, "group.id": "tests", "enable.auto.commit": False, "log_level": 0}
        )
        parts = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        spans = {part: consumer.get_watermark_offsets(TopicPartition(topic, part), timeout=10) for part in parts}
        consumer.assign([TopicPartition(topic, part, first) for part, (first, _) in spans.items()])
        found: list[tuple[bytes | None, bytes | None]] = []
        while len(found) < sum(last - first for first, last in spans.values()):
            for message in consumer.consume(10_000, timeout=1):
                assert message.error() is None
                found.append((message.key(), message.value()))
        consumer.close()
        return found

    def _java(self, main: str, *arguments: str) -> list[str]:
        return ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars()}/*", main, *arguments]


def _free_ports() -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


if __name__ == "__main__":
    sys.stdout.write(f"{jars()}\n")
