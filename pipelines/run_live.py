"""Live runs on Spark: one query of Structured Streaming from Kafka through an operator to Kafka or Parquet.

It is built of what ``slackwater.transforms.spark`` offers to any PySpark program. Filter and MapToFields run
where rows are read or written. A live run ends when it is told to (Ctrl-C, SIGTERM), after a time, or when it has
caught up; started again with the same checkpoint, it goes on where it was.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from threading import Event, current_thread, main_thread
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from slackwater.pipelines.assembly import Assembly, assemble
from slackwater.pipelines.expressions import apply
from slackwater.pipelines.graph import Filter, MapToFields, Node, Pipeline, Port, ReadKafka, Write, WriteKafka
from slackwater.pipelines.kafka_settings import ARRIVAL, RAW, kafka_schema
from slackwater.pipelines.live import check_live
from slackwater.pipelines.progress import Progress, Silent
from slackwater.pipelines.summary import summarise
from slackwater.pipelines.template import node_error
from slackwater.transforms.accounting import Accounting
from slackwater.transforms.config import OperatorConfig
from slackwater.transforms.errors import ConfigError, SlackwaterError
from slackwater.transforms.plan import JoinPlan
from slackwater.transforms.spark.failures import clean_errors
from slackwater.transforms.spark.join import apply_plan
from slackwater.transforms.spark.kafka import read_from_kafka
from slackwater.transforms.spark.kafka_broker import Offsets, end_offsets
from slackwater.transforms.spark.session import STREAMING_CONF
from slackwater.transforms.spark.state import Account, read_account
from slackwater.transforms.spark.writing import KafkaSink, ParquetSink, Sink, write_outputs

TRIGGER: Final = {"processingTime": "500 milliseconds"}
"""Micro-batches are this far apart at least: with ``idle_timeout``, Spark makes some without rows, too."""
OUTPUTS: Final = {"": "results"}
"""Outputs of an operator that ``write_outputs`` knows by another name."""
_POLL_S: Final = 0.2
_NANOS: Final = 1_000_000_000

Step = Filter | MapToFields


def run_live(
    pipeline: Pipeline,
    session: SparkSession,
    *,
    checkpoint: str,
    until_caught_up: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Run a template that reads from Kafka; return the summary when it has ended.

    Args:
        pipeline: what to run.
        session: where to run; it needs the Kafka connector.
        checkpoint: folder from which a run that was ended goes on.
        until_caught_up: end when all messages have been read that were there at the start and, with
            ``idle_timeout``, the inputs have been silent for so long that nothing is held back.
        progress: told how many rows have been read.

    Raises:
        SlackwaterError: The run failed; the checkpoint is as good as before.
    """
    check_live(pipeline)
    assembly = assemble(_in_order_of_arrival(pipeline), _no_files)
    started = time.perf_counter()
    live = LiveRun(assembly, session, checkpoint, progress or Silent())
    with clean_errors():
        live.run(until_caught_up)
    return summarise(
        "spark", {live.name: (live.plan, live.total())}, time.perf_counter() - started, live.warnings()
    )


@dataclass(frozen=True)
class Stepped:
    """A sink behind Filter and MapToFields."""

    sink: Sink
    steps: tuple[Step, ...]
    schemas: tuple[pa.Schema, ...]
    """Before the first step, and behind the last."""

    def check(self, rows: DataFrame, fresh: bool) -> None:
        """Raise if the sink cannot write such rows."""
        self.sink.check(_stepped(rows, self.steps, *self.schemas), fresh)

    def write(self, rows: DataFrame, number: int) -> None:
        """Write the rows of a micro-batch."""
        self.sink.write(_stepped(rows, self.steps, *self.schemas), number)


class LiveRun:
    """One live run."""

    def __init__(self, assembly: Assembly, session: Any, checkpoint: str, progress: Progress) -> None:
        self._assembly, self._checkpoint, self._progress = assembly, checkpoint, progress
        self._pipeline = assembly.pipeline
        self._session = session.newSession()
        for key, value in STREAMING_CONF.items():
            self._session.conf.set(key, value)
        self.name = _only_operator(self._pipeline).name
        self.plan: JoinPlan = assembly.plans[self.name]
        self._accounts: dict[int, Account] = {}
        self._sources: list[ReadKafka] = []

    def run(self, until_caught_up: bool) -> None:
        """Run until told to end."""
        node = self._pipeline.node(self.name)
        frames = {label: self._frame(node.inputs[label]) for label in self.plan.inputs}
        sinks = self._sinks()
        targets = self._ends() if until_caught_up else []
        joined = apply_plan(self.plan, frames, self.name)
        with _told_to_stop() as stop:
            query = write_outputs(
                joined, self._checkpoint, name=self.name, trigger=TRIGGER, told=self._account, **sinks
            )
            try:
                self._wait(query, stop, targets)
            finally:
                query.stop()

    def total(self) -> Accounting:
        """Return the sum of what the shards say, from the first micro-batch of the checkpoint on."""
        total = Accounting(self.plan.inputs)
        for account in self._accounts.values():
            total += account.accounting
        return total

    def warnings(self) -> list[str]:
        """Return what the user should know of the data."""
        said = dict.fromkeys(warning for account in self._accounts.values() for warning in account.warnings)
        return [f"{self.name}: {warning}" for warning in said]

    def _wait(self, query: Any, stop: Event, targets: list[Offsets]) -> None:
        ends = min((source.seconds for source in self._sources if source.seconds is not None), default=None)
        deadline = None if ends is None else time.monotonic() + ends
        timeout = self.plan.config.idle_timeout
        reported, idle_since = -1, 0.0
        while not stop.is_set() and (deadline is None or time.monotonic() < deadline):
            if query.awaitTermination(_POLL_S):
                return
            last = query.lastProgress
            if last is None or last["batchId"] == reported:
                continue
            reported = last["batchId"]
            self._progress.advance(last["numInputRows"])
            if targets and _reached(last, targets):
                if timeout is None:
                    return
                if last["numInputRows"] or not idle_since:
                    idle_since = time.time()
                elif datetime.fromisoformat(last["timestamp"]).timestamp() > idle_since + timeout / _NANOS:
                    return

    def _frame(self, port: Port) -> DataFrame:
        """Return what an input reads as a stream."""
        root, steps = _origin(self._pipeline, port)
        config = self._pipeline.node(root.node).config
        assert isinstance(config, ReadKafka)
        self._sources.append(config)
        times, _ = self._assembly.read_by_joins(self._pipeline.node(root.node))
        needed = {*config.required, *times}
        schema = from_arrow_schema(kafka_schema(config))
        columns = [field for field in schema.fields if field.name not in (RAW, ARRIVAL)]
        declared = StructType([StructField(f.name, f.dataType, f.name not in needed) for f in columns])
        try:
            rows = read_from_kafka(
                self._session,
                config.bootstrap_servers,
                config.topic,
                schema=declared,
                start=config.start,
                options={f"kafka.{key}": value for key, value in config.client.items()},
            )
        except ConfigError as error:
            raise node_error(self._pipeline.node(root.node), error) from None
        return _stepped(rows, steps, self._assembly.schemas[root], self._assembly.schemas[port])

    def _sinks(self) -> dict[str, list[Sink]]:
        sinks: dict[str, list[Sink]] = {}
        for node in self._pipeline.nodes:
            if isinstance(node.config, Write | WriteKafka):
                (port,) = node.inputs.values()
                root, steps = _origin(self._pipeline, port)
                if root.node != self.name:
                    fault = (
                        "reads a topic without an operator between, which a live run has no use for; remove it"
                    )
                    raise node_error(node, ConfigError(fault, "input"))
                schemas = (self._assembly.schemas[root], self._assembly.schemas[port])
                sink = Stepped(self._sink(node.config, schemas[1]), steps, schemas)
                sinks.setdefault(OUTPUTS.get(root.output, root.output), []).append(sink)
        return sinks

    def _sink(self, config: Write | WriteKafka, schema: pa.Schema) -> Sink:
        if isinstance(config, Write):
            return ParquetSink(config.path)
        name = getattr(self.plan.config, "id", None)
        options = {f"kafka.{key}": value for key, value in config.client.items()}
        return KafkaSink(
            config.bootstrap_servers, config.topic, name if name in schema.names else None, options=options
        )

    def _ends(self) -> list[Offsets]:
        return [
            end_offsets(
                self._session,
                source.bootstrap_servers,
                [source.topic],
                {f"kafka.{key}": value for key, value in source.client.items()},
            )
            for source in self._sources
        ]

    def _account(self, blobs: Mapping[int, bytes]) -> None:
        """Note how the shards stand."""
        self._accounts |= {shard: read_account(self.plan, blob) for shard, blob in blobs.items()}


def _in_order_of_arrival(pipeline: Pipeline) -> Pipeline:
    """Let operators take rows in the order in which Kafka got them, unless they name a column themselves."""
    nodes = []
    for node in pipeline.nodes:
        config = node.config
        if isinstance(config, OperatorConfig) and getattr(config, "arrival", "") is None:
            config = config.model_copy(update={"arrival": ARRIVAL})
        nodes.append(replace(node, config=config))
    return replace(pipeline, nodes=tuple(nodes))


def _only_operator(pipeline: Pipeline) -> Node:
    found = [node for node in pipeline.nodes if isinstance(node.config, OperatorConfig)]
    if len(found) != 1:
        names = ", ".join(node.name for node in found) or "none"
        raise SlackwaterError(
            f"{pipeline.file}: a live run has one operator between Kafka and its sinks, and this template has "
            f"{names}; let a second template read from a topic that the first one writes"
        )
    for port in found[0].inputs.values():
        _origin(pipeline, port)
    return found[0]


def _origin(pipeline: Pipeline, port: Port) -> tuple[Port, tuple[Step, ...]]:
    """The topic or operator that rows come from, and the steps on their way."""
    node = pipeline.node(port.node)
    if isinstance(node.config, Filter | MapToFields):
        root, steps = _origin(pipeline, node.inputs["input"])
        return root, (*steps, node.config)
    if not isinstance(node.config, ReadKafka | OperatorConfig):
        fault = (
            "cannot be in a live run; read several topics by several inputs, or with slackwater.transforms.spark"
        )
        raise node_error(node, ConfigError(fault))
    return port, ()


def _stepped(rows: DataFrame, steps: Sequence[Step], before: pa.Schema, after: pa.Schema) -> DataFrame:
    if not steps:
        return rows

    def stepped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield reduce(lambda found, step: apply(step, found), steps, batch.cast(before)).cast(after)

    return rows.mapInArrow(stepped, from_arrow_schema(after))


def _reached(progress: Mapping[str, Any], targets: Iterable[Offsets]) -> bool:
    """Whether a micro-batch has come to where every topic ended."""
    wanted: dict[tuple[str, int], int] = {}
    for target in targets:
        for topic, parts in target.items():
            wanted |= {(topic, part): offset for part, offset in parts.items()}
    for source in progress["sources"]:
        ends = source["endOffset"]
        for topic, parts in (json.loads(ends) if isinstance(ends, str) else ends or {}).items():
            if any(int(offset) < wanted.get((topic, int(part)), 0) for part, offset in parts.items()):
                return False
    return True


@contextmanager
def _told_to_stop() -> Iterator[Event]:
    """Yield an event that Ctrl-C and SIGTERM set; elsewhere than in the main thread nothing does."""
    event = Event()
    before: dict[int, Any] = {}

    def told(number: int, frame: Any) -> None:
        event.set()

    if current_thread() is main_thread():
        before = {number: signal.signal(number, told) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _no_files(node: Node) -> pa.Schema:
    raise TypeError(node)
