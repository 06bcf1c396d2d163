"""Live runs on Spark: one query of Structured Streaming from Kafka through an operator to Kafka or Parquet.

It is built of what ``slackwater.transforms.spark`` offers to any PySpark program. Filter and MapToFields run
where rows are read or written. A live run ends when it is told to (Ctrl-C, SIGTERM), after a time, or when it has
caught up; started again with the same checkpoint, it goes on where it was.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from pathlib import Path
from threading import Event, current_thread, main_thread
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from slackwater.pipelines.assembly.mapping import apply
from slackwater.pipelines.assembly.pipeline import Assembly, assemble
from slackwater.pipelines.cli.progress import Progress, Silent
from slackwater.pipelines.runners.ledger import Sent, settle_live
from slackwater.pipelines.runners.live_run import Step, only_operator, origin, prepared
from slackwater.pipelines.runners.metrics_file import DEFAULT_INTERVAL
from slackwater.pipelines.runners.summary import summarise
from slackwater.pipelines.template.graph import Node, Pipeline, Port, ReadKafka, Write, WriteKafka
from slackwater.pipelines.template.kafka import ARRIVAL, RAW, kafka_schema
from slackwater.pipelines.template.reader import node_error
from slackwater.plugins.registry.options import Duration
from slackwater.transforms.engine.account import each_once, total
from slackwater.transforms.errors import AccountError, ConfigError, SlackwaterError
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.settings.models import DisorderConfig
from slackwater.transforms.settings.plan import Plan
from slackwater.transforms.spark.failures import clean_errors
from slackwater.transforms.spark.join import apply_plan
from slackwater.transforms.spark.kafka.broker import Offsets, end_offsets, open_ends
from slackwater.transforms.spark.kafka.messages import read_from_kafka
from slackwater.transforms.spark.row_order import in_order
from slackwater.transforms.spark.session import STREAMING_CONF
from slackwater.transforms.spark.state import Account, read_account
from slackwater.transforms.spark.writer import KafkaSink, ParquetSink, Sink, write_outputs

ROWS_CONF: Final = "spark.slackwater.rowsPerBatch"
ROWS_PER_BATCH: Final = 1 << 20
"""Messages of a topic in a micro-batch, at most, unless ROWS_CONF says otherwise: a backlog is read in parts."""
TRIGGER_CONF: Final = "spark.slackwater.trigger"
TRIGGER: Final = "500ms"
"""Micro-batches are this far apart at least, unless TRIGGER_CONF says otherwise."""
OUTPUTS: Final = {"": "results"}
"""Outputs of an operator that ``write_outputs`` knows by another name."""
_POLL_S: Final = 0.2
_REST_S: Final = 0.5
"""How often a run that rests looks for messages."""
_TELL_S: Final = 30
"""How often a run tells how it stands."""
_NANOS: Final = 1_000_000_000


def run_live(
    pipeline: Pipeline,
    session: SparkSession,
    *,
    checkpoint: str,
    until_caught_up: bool = False,
    progress: Progress | None = None,
    metrics: str | None = None,
    tell: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Run a template that reads from Kafka; return the summary when it has ended.

    A micro-batch has at most ROWS_PER_BATCH messages of a topic. With ``idle_timeout``, Spark makes micro-batches
    without messages too; once these have released all that was held, the run rests until there is a message.

    Args:
        pipeline: what to run.
        session: where to run; it needs the Kafka connector.
        checkpoint: folder from which a run that was ended goes on.
        until_caught_up: end when all messages have been read that were there at the start and, with
            ``idle_timeout``, the inputs have been silent for so long that nothing is held back.
        progress: told how many rows have been read.
        metrics: file to which rows of the operator's metrics are added as JSON lines, after each micro-batch.
        tell: told in a sentence how the run stands, every half minute in which there were messages.

    Raises:
        SlackwaterError: The run failed; the checkpoint is as good as before.
    """
    pipeline = prepared(pipeline if metrics is None else measured(pipeline))
    assembly = assemble(pipeline, _no_files)
    started = time.perf_counter()
    live = LiveRun(assembly, session, checkpoint, progress or Silent(), metrics)
    with clean_errors(), _told_to_stop() as stop:
        live.run(stop, until_caught_up, tell)
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
        """Write the rows of a micro-batch, in their order: steps keep that of a partition."""
        self.sink.write(_stepped(in_order(rows), self.steps, *self.schemas), number)


class LiveRun:
    """One live run."""

    def __init__(
        self, assembly: Assembly, session: Any, checkpoint: str, progress: Progress, metrics: str | None = None
    ) -> None:
        self._assembly, self._checkpoint, self._progress = assembly, checkpoint, progress
        self._metrics = metrics
        self._pipeline = assembly.pipeline
        self._session = session.newSession()
        for key, value in STREAMING_CONF.items():
            self._session.conf.set(key, value)
        self._rows_per_batch = rows_per_batch(session, ROWS_PER_BATCH)
        self._trigger = _trigger(session)
        self.name = only_operator(self._pipeline).name
        self.plan: Plan = assembly.plans[self.name]
        self._accounts: dict[int, Account] = {}
        self._sources: list[ReadKafka] = []
        self._query: Any = None
        self._stop = Event()
        self._rests = False
        self._started = time.monotonic()
        self.resting = Event()
        """Set while it rests."""

    def run(self, stop: Event, until_caught_up: bool, tell: Callable[[str], None] | None = None) -> None:
        """Run until told to end."""
        self._stop = stop
        node = self._pipeline.node(self.name)
        frames = {label: self._frame(node.inputs[label]) for label in self.plan.inputs}
        sinks = self._sinks()
        targets = self._ends() if until_caught_up else []
        # What waits for the last messages needs the micro-batches that come after them.
        self._rests = self.plan.idle_timeout is not None and not until_caught_up
        joined = apply_plan(self.plan, frames, self.name)
        query = write_outputs(
            joined, self._checkpoint, name=self.name, trigger=self._trigger, told=self._account, **sinks
        )
        self._query = query
        try:
            self._wait(query, stop, targets, tell)
        finally:
            stop.set()
            query.stop()
        settle_shards(self.name, self.plan, self._accounts)

    def total(self) -> Accounting:
        """Return the sum of what the shards say, from the first micro-batch of the checkpoint on."""
        return total(self.plan.inputs, (account.accounting for account in self._accounts.values()))

    def warnings(self) -> list[str]:
        """Return what the user should know of the data."""
        return each_once(self.name, (account.warnings for account in self._accounts.values()))

    def told(self) -> str:
        """Return how the run stands, in a sentence."""
        whole = self.total()
        late = sum(whole.late.values())
        return f"{self.name}: {int(whole.received.sum()):,} rows, {whole.results:,} results, {late:,} late"

    def _wait(self, query: Any, stop: Event, targets: list[Offsets], tell: Callable[[str], None] | None) -> None:
        ends = min((source.seconds for source in self._sources if source.seconds is not None), default=None)
        deadline = None if ends is None else time.monotonic() + ends
        timeout = self.plan.idle_timeout
        reported, idle_since, quiet_until = -1, 0.0, time.monotonic() + _TELL_S
        while not stop.is_set() and (deadline is None or time.monotonic() < deadline):
            if query.awaitTermination(_POLL_S):
                return
            last = query.lastProgress
            if last is None or last["batchId"] == reported:
                continue
            reported = last["batchId"]
            self._progress.advance(last["numInputRows"])
            if tell is not None and last["numInputRows"] and time.monotonic() > quiet_until:
                tell(self.told())
                quiet_until = time.monotonic() + _TELL_S
            if targets and _reached(last, targets):
                if timeout is None:
                    return
                if last["numInputRows"] or not idle_since:
                    idle_since = time.time()
                elif datetime.fromisoformat(last["timestamp"]).timestamp() > idle_since + timeout / _NANOS:
                    return

    def _frame(self, port: Port) -> DataFrame:
        """Return what an input reads as a stream."""
        root, steps = origin(self._pipeline, port)
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
                rows_per_batch=self._rows_per_batch,
                options=_client(config),
            )
        except ConfigError as error:
            raise node_error(self._pipeline.node(root.node), error) from None
        return _stepped(rows, steps, self._assembly.schemas[root], self._assembly.schemas[port])

    def _sinks(self) -> dict[str, list[Sink]]:
        sinks: dict[str, list[Sink]] = {}
        for node in self._pipeline.nodes:
            if isinstance(node.config, Write | WriteKafka):
                (port,) = node.inputs.values()
                root, steps = origin(self._pipeline, port)
                schemas = (self._assembly.schemas[root], self._assembly.schemas[port])
                sink = Stepped(self._sink(node.config, schemas[1], root.output == ""), steps, schemas)
                sinks.setdefault(OUTPUTS.get(root.output, root.output), []).append(sink)
        if self._metrics is not None:
            sinks.setdefault("metrics", []).append(MetricsSink(self._metrics, self.name))
        return sinks

    def _sink(self, config: Write | WriteKafka, schema: pa.Schema, ordered: bool) -> Sink:
        if isinstance(config, Write):
            return ParquetSink(config.path)
        name = getattr(self.plan.config, "id", None)
        options = {f"kafka.{key}": value for key, value in config.client.items()}
        key = name if name in schema.names else None
        return KafkaSink(config.bootstrap_servers, config.topic, key, options=options, ordered=ordered)

    def _ends(self) -> list[Offsets]:
        return [
            end_offsets(self._session, source.bootstrap_servers, [source.topic], _client(source))
            for source in self._sources
        ]

    def _account(self, blobs: Mapping[int, bytes]) -> None:
        """Note how the shards stand; after a micro-batch that called none of them, rest if nothing is held."""
        self._accounts |= {shard: read_account(self.plan, blob) for shard, blob in blobs.items()}
        if self._rests and not blobs and all(account.rests for account in self._accounts.values()):
            self._rest()

    def _rest(self) -> None:
        """Wait until there are messages that have not been read: no micro-batch is made meanwhile."""
        assert self.plan.idle_timeout is not None
        last = None if self._query is None else self._query.lastProgress
        known = self._accounts or time.monotonic() > self._started + self.plan.idle_timeout / _NANOS
        if last is None or not known:
            return
        with ExitStack() as stack:
            asked = [
                stack.enter_context(
                    open_ends(self._session, source.bootstrap_servers, [source.topic], _client(source))
                )
                for source in self._sources
            ]
            while not self._stop.is_set() and _reached(last, [ends() for ends in asked]):
                self.resting.set()
                self._stop.wait(_REST_S)
        self.resting.clear()


def settle_shards(name: str, plan: Plan, accounts: Mapping[int, Account]) -> None:
    """Raise AccountError unless the rows that tasks have read are those that shards have received.

    A micro-batch with rows makes all shards tell how they stand; without one, nothing is known, or has changed.

    Args:
        name: name of the operator.
        plan: what it does.
        accounts: what every shard has told last.
    """
    if len(accounts) < plan.shards:
        return
    uncounted = np.sum([account.uncounted for account in accounts.values()], axis=0)
    read = zip(read_of(name, accounts), uncounted, strict=True)
    whole = total(plan.inputs, (account.accounting for account in accounts.values()))
    settle_live(name, whole, [Sent(int(left + more), 0) for (_, left), more in read])


def read_of(name: str, accounts: Mapping[int, Account]) -> list[tuple[int, int]]:
    """Return, for each input, the rows that were read and those left of them; every shard was told all of it."""
    said = {tuple(map(tuple, account.read.tolist())) for account in accounts.values()}
    if len(said) != 1:
        raise AccountError.of(f"{name}: shards were told of different numbers of rows")
    (read,) = said
    return list(read)


def measured(pipeline: Pipeline) -> Pipeline:
    """Let operators tell metrics, every second of stream time unless they say how often."""
    nodes = []
    for node in pipeline.nodes:
        config = node.config
        if isinstance(config, DisorderConfig) and config.metrics is None:
            config = config.model_copy(update={"metrics": DEFAULT_INTERVAL})
        nodes.append(replace(node, config=config))
    return replace(pipeline, nodes=tuple(nodes))


@dataclass(frozen=True)
class MetricsSink:
    """Adds JSON lines to a file; those of a micro-batch that is tried again come twice, with its number."""

    file: str
    join: str

    def check(self, rows: DataFrame, fresh: bool) -> None:
        """Begin a new file with a new checkpoint."""
        if fresh:
            Path(self.file).write_text("", encoding="utf-8")

    def write(self, rows: DataFrame, number: int) -> None:
        """Add the rows of a micro-batch."""
        with open(self.file, "a", encoding="utf-8") as out:
            for row in rows.toArrow().to_pylist():
                out.write(json.dumps({"join": self.join, "batch": number, **row}) + "\n")


def rows_per_batch(session: Any, default: int) -> int:
    """Return what ROWS_CONF says in a session."""
    text = session.conf.get(ROWS_CONF, str(default))
    if not text.isdigit() or not int(text):
        raise SlackwaterError(f"{ROWS_CONF}: must be a whole number of rows above 0, got {text!r}")
    return int(text)


def _trigger(session: Any) -> dict[str, str]:
    text = session.conf.get(TRIGGER_CONF, TRIGGER)
    try:
        return {"processingTime": f"{Duration.parse(text) // 1_000_000} milliseconds"}
    except ValueError as error:
        raise SlackwaterError(f"{TRIGGER_CONF}: {error}") from None


def _client(source: ReadKafka) -> dict[str, str]:
    """Return the settings of Kafka's client for a topic, as Spark takes them."""
    return {f"kafka.{key}": value for key, value in source.client.items()}


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
