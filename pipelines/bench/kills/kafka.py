"""``slackwater bench kafka_kills``: a live join from Kafka to Kafka, killed in mid-batch, beside one left alone.

A broker in KRaft mode is started on loopback, with two topics out of order, whose timestamps tie in all
partitions. The driver is a program of its own: it joins both and writes results to a third topic, their ids as
keys. Its process group, Java included, gets SIGKILL at a random moment after messages of a micro-batch have come
to the topic: when part of it has been sent, or all and not committed, or in the middle of the next. It is started
again on the same checkpoint, until all messages are consumed. What is in the topic, one message of each key, must
be what a run that nobody disturbed has sent: nothing lost, nothing doubled under another id, nor under the id of
another.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slackwater.pipelines.bench.report import Report, Table
from slackwater.transforms.errors import SlackwaterError

NAMES = ("a", "b")
SHARDS = 4
BASE_MS = 1_700_000_000_000
AT_ONCE = 20
"""Messages of a topic that have the same timestamp."""


def send(broker: Any, prefix: str, messages: int, partitions: int) -> None:
    """Make both topics: a third of the messages up to 300 ms late, over the partitions at random."""
    rng = np.random.default_rng(7)
    for name in NAMES:
        broker.create(f"{prefix}-{name}", partitions)
        late = np.where(rng.random(messages) < 0.3, rng.integers(0, 300, messages), 0)
        ts, keys = 10 * np.arange(messages) - late, rng.integers(0, max(8, messages // 500), messages)
        home = rng.integers(0, partitions, messages)
        for part in range(partitions):
            rows = np.flatnonzero(home == part)
            values = [f'{{"ts":{ts[n]},"k":{keys[n]},"n":{n}}}' for n in rows]
            broker.send(f"{prefix}-{name}", values, part, (BASE_MS + rows // AT_ONCE * AT_ONCE).tolist())


def drive(address: str, prefix: str, out: str, checkpoint: str, rows: int, recall: float) -> None:
    """Join all there is, from where the checkpoint says."""
    from slackwater.transforms.spark import (
        KafkaSink,
        read_from_kafka,
        sliding_window_join,
        start_session,
        with_kafka,
        write_outputs,
    )

    session = start_session(app="slackwater kafka kills", conf=with_kafka())
    schema = "ts BIGINT NOT NULL, k BIGINT, n BIGINT"
    streams = {
        name: read_from_kafka(session, address, f"{prefix}-{name}", schema=schema, raw=None, rows_per_batch=rows)
        for name in NAMES
    }
    disorder: dict[str, Any] = {"strategy": "fixed", "slack": "300ms"}
    joined = sliding_window_join(
        streams,
        time="ts",
        window="300ms",
        where="a.k = b.k",
        arrival="arrival",
        id="id",
        shards=SHARDS,
        disorder={"recall": recall, "interval": "200ms", "period": "2s"} if recall else disorder,
    )
    sink = Marking(KafkaSink(address, out), Path(f"{checkpoint}-sends"))
    write_outputs(joined, checkpoint, trigger={"availableNow": True}, results=sink).awaitTermination()
    session.stop()


@dataclass(frozen=True)
class Marking:
    """Sends by another sink; a folder has a file for every micro-batch that this driver has begun to send."""

    sink: Any
    folder: Path

    def check(self, rows: Any, fresh: bool) -> None:
        """As the sink does."""
        self.sink.check(rows, fresh)

    def write(self, rows: Any, number: int) -> None:
        """Mark it, and send."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / f"{os.getpid()}-{number}").touch()
        self.sink.write(rows, number)


class Driver:
    """The driver as a program of its own."""

    def __init__(self, broker: Any, prefix: str, out: str, checkpoint: Path, options: argparse.Namespace) -> None:
        from confluent_kafka import Consumer

        self._checkpoint, self._sends = checkpoint, Path(f"{checkpoint}-sends")
        self._out, self._parts = out, options.partitions
        self._consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "kills", "log_level": 0})
        given = [broker.address, prefix, out, str(checkpoint), str(options.batch_rows), str(options.recall)]
        self._command = [sys.executable, "-m", __name__, *given]

    def planned(self) -> int:
        """Return how many micro-batches have been planned."""
        return self._count("offsets")

    def committed(self) -> int:
        """Return how many micro-batches have been committed."""
        return self._count("commits")

    def run(self, kills: int, chance: random.Random) -> tuple[int, int]:
        """Run it to its end, killing it so often in mid-batch; return the kills in mid-batch, and all."""
        under_way = done = 0
        while self._life(under_way < kills, chance):
            done += 1
            under_way += self.planned() > self.committed()
            sys.stderr.write(f"kill {done}, micro-batch {self.planned() - 1}, {under_way} in mid-batch\n")
        if under_way < kills:
            raise SlackwaterError(f"there were {under_way} kills in mid-batch only; give it more --rows")
        return under_way, done

    def _life(self, kill: bool, chance: random.Random) -> bool:
        """Start it, and kill it a moment after messages have come; return whether that was before its end."""
        process = subprocess.Popen(self._command, start_new_session=True)
        sends, moment, before = chance.randint(1, 2), chance.uniform(0, 0.3), None
        while process.poll() is None:
            time.sleep(0.005)
            if not kill or len(list(self._sends.glob(f"{process.pid}-*"))) < sends:
                continue
            before = self._size() if before is None else before
            if self._size() > before:
                time.sleep(moment)
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return True
        if process.returncode:
            raise SlackwaterError(f"the driver ended with {process.returncode}; its output says why")
        return False

    def _size(self) -> int:
        """Return how many messages there are in the topic that it writes to."""
        from confluent_kafka import TopicPartition

        ends = [
            self._consumer.get_watermark_offsets(TopicPartition(self._out, part)) for part in range(self._parts)
        ]
        return sum(last for _, last in ends)

    def _count(self, part: str) -> int:
        found = [int(file.name) for file in (self._checkpoint / part).glob("*") if file.name.isdigit()]
        return max(found, default=-1) + 1


def results_of(broker: Any, topic: str) -> tuple[int, dict[str, set[tuple[int, int]]]]:
    """Return how many messages a topic has, and the pairs under each key."""
    found: dict[str, set[tuple[int, int]]] = {}
    sent = broker.received(topic)
    for key, value in sent:
        row = json.loads(value)
        found.setdefault(key.decode(), set()).add((row["a_n"], row["b_n"]))
    return len(sent), found


def run(options: argparse.Namespace, report: Report) -> None:
    """Kill, and compare what is in the topics."""
    from slackwater.pipelines.bench.kafka.broker import Broker

    with Broker() as broker, tempfile.TemporaryDirectory(prefix="slackwater-kafka-kills-") as folder:
        send(broker, "in", options.rows, options.partitions)
        sent, pairs, under_way, kills_in_all = {}, {}, 0, 0
        for name, kills in (("alone", 0), ("killed", options.kills)):
            broker.create(f"out-{name}", options.partitions)
            driver = Driver(broker, "in", f"out-{name}", Path(folder) / name, options)
            under_way, kills_in_all = driver.run(kills, random.Random(options.seed))
            sent[name], pairs[name] = results_of(broker, f"out-{name}")
    expected, found = pairs["alone"], pairs["killed"]
    times = Counter(pair for of_key in found.values() for pair in of_key)
    told = {
        "kills": kills_in_all,
        "kills_in_mid_batch": under_way,
        "partitions": options.partitions,
        "results": len(expected),
        "sent_twice": sent["killed"] - len(found),
        "lost": len(expected.keys() - found.keys()),
        "doubled": sum(n - 1 for n in times.values()),
        "renamed": sum(found[key] != expected.get(key) for key in found),
    }
    report.add(Table.of(told))
    if told["lost"] or told["doubled"] or told["renamed"] or sent["alone"] != len(expected):
        raise SlackwaterError("kills have changed the results")


if __name__ == "__main__":
    drive(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), float(sys.argv[6]))
