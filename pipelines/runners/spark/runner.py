"""The Spark runner: every join is a query of Structured Streaming over the template's files.

A query reads its inputs through ``spark_source``, packed by shard; the shards run in
``transforms.spark``; each micro-batch's results go to the same files that the local runner writes. Joins run
one after the other; what one gives to the next, or Flatten puts together, is kept in a temporary file. Filter
and MapToFields before a join run where its rows are read, those after a join where its results are written.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from slackwater.pipelines.assembly.flatten import flattened
from slackwater.pipelines.assembly.mapping import apply
from slackwater.pipelines.assembly.pipeline import Assembly, assemble
from slackwater.pipelines.cli.progress import Progress, Silent
from slackwater.pipelines.io.sinks import Sink, close_all
from slackwater.pipelines.io.source_files import skipped_data
from slackwater.pipelines.io.sources import source_schema
from slackwater.pipelines.runners.archives import archives_of, check_archives
from slackwater.pipelines.runners.ledger import settle, settle_outputs
from slackwater.pipelines.runners.live_run import is_live, needed_checkpoint, refuse_live
from slackwater.pipelines.runners.spark.live import read_of, run_live
from slackwater.pipelines.runners.spark.live import rows_per_batch as conf_rows
from slackwater.pipelines.runners.spark.reader import FORMAT, JobSource
from slackwater.pipelines.runners.spark.source import Feed, Job, encode, plan_job
from slackwater.pipelines.runners.summary import summarise
from slackwater.pipelines.template.graph import (
    Create,
    Filter,
    Flatten,
    MapToFields,
    Node,
    Pipeline,
    Port,
    Read,
    Write,
)
from slackwater.transforms.arrival.bad_rows import BAD
from slackwater.transforms.engine.account import each_once, total
from slackwater.transforms.errors import SlackwaterError
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.settings.models import OperatorConfig
from slackwater.transforms.settings.plan import Plan
from slackwater.transforms.spark.blobs import (
    ACCOUNT,
    LATE,
    METRICS,
    PUNCTUATION,
    RESULT,
    SYNC,
    from_blob,
    shard_keys,
)
from slackwater.transforms.spark.connector import with_kafka
from slackwater.transforms.spark.failures import clean_errors, stop_session
from slackwater.transforms.spark.join import join_packed
from slackwater.transforms.spark.observation import observe
from slackwater.transforms.spark.package_archive import beside_driver, ship
from slackwater.transforms.spark.session import (
    EMPTY_BATCHES,
    LASTING_CONF,
    PACKED_CONF,
    STREAMING_CONF,
    is_connect,
    require_java,
    start_session,
)
from slackwater.transforms.spark.state import Account, StateBytes, read_account

ROWS_PER_BATCH: Final = 1 << 20
"""Rows of each input in a micro-batch: bounds memory, costs a few hundred milliseconds each."""

_SHIP_CONF: Final = "spark.slackwater.ship"

Step = Filter | MapToFields


def run(
    pipeline: Pipeline,
    *,
    progress: Progress | None = None,
    session: SparkSession | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    rows_per_batch: int | None = None,
    checkpoint: str | None = None,
    until_caught_up: bool = False,
    **live: Any,
) -> dict[str, Any]:
    """Run a template on Spark; return the summary.

    Args:
        pipeline: what to run.
        progress: told how many rows have been read, after each micro-batch.
        session: where to run; if None, the active session, else one that is started and stopped again.
        master: Spark master of a session started here, by default two local cores. To a cluster, this package is
            sent, unless ``spark.slackwater.ship`` is false.
        conf: settings of Spark for a session started here.
        rows_per_batch: rows of each input per micro-batch, at most; changes no result. By default
            ``spark.slackwater.rowsPerBatch``, else ROWS_PER_BATCH.
        checkpoint: of a template that reads from Kafka, the folder from which it goes on (``run_live``).
        until_caught_up: of such a template, whether to end when it has read what there is.
        live: further arguments of ``run_live``.

    Raises:
        SlackwaterError: The run failed; no sink has a new file then.
    """
    require_java()
    if is_live(pipeline):
        checkpoint = needed_checkpoint(checkpoint)
        with _session(pipeline, session, master, with_kafka(LASTING_CONF | dict(conf or {}))) as found:
            ends: dict[str, Any] = {"checkpoint": checkpoint, "until_caught_up": until_caught_up}
            return run_live(pipeline, found, **ends, progress=progress, **live)
    refuse_live(pipeline, "spark")
    assembly = assemble(pipeline, lambda node: source_schema(_source(node.config)))
    check_archives(assembly)
    asked = time.perf_counter()
    with clean_errors(), _session(pipeline, session, master, conf) as found, archives_of(assembly):
        started = time.perf_counter()
        rows_per_batch = rows_per_batch or conf_rows(found, ROWS_PER_BATCH)
        spark_run = SparkRun(assembly, found, progress or Silent(), rows_per_batch)
        spark_run.run()
        elapsed = time.perf_counter() - started
    summary = summarise("spark", spark_run.joins, elapsed, [*skipped_data(pipeline), *spark_run.warnings])
    summary["startup_s"] = round(started - asked, 6)
    given, read, written, _ = spark_run.state
    summary["state_store"] = {"given_bytes": given, "read_bytes": read, "written_bytes": written}
    return summary


@contextmanager
def _session(
    pipeline: Pipeline, session: SparkSession | None, master: str | None, conf: Mapping[str, str] | None
) -> Iterator[Any]:
    """Yield the session to run in: the given or the active one, else one of the run's own."""
    session = session or SparkSession.getActiveSession()
    if is_connect(session) or (master or "").startswith("sc://"):
        raise SlackwaterError(
            "runner spark: templates do not run over Spark Connect; name the master of the cluster itself, such "
            "as spark://host:7077, or call sliding_window_join on DataFrames of the Connect session"
        )
    if session is not None:
        yield session
        return
    own = _start(f"slackwater {Path(pipeline.file).stem}", master, conf)
    try:
        if _ships(master, conf):
            ship(own)
        yield own
    finally:
        stop_session(own)


def _start(app: str, master: str | None, conf: Mapping[str, str] | None) -> SparkSession:
    with beside_driver() if _ships(master, conf) else nullcontext():
        return start_session(master, app, conf)


def _ships(master: str | None, conf: Mapping[str, str] | None) -> bool:
    """Whether executors are to be sent this package."""
    return not (master or "local").startswith("local") and (conf or {}).get(_SHIP_CONF, "true") != "false"


@dataclass
class Outlets:
    """Where the rows of one output go."""

    sinks: list[tuple[tuple[Step, ...], Sink]] = field(default_factory=list)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows to every sink, through the steps before it."""
        for steps, sink in self.sinks:
            sink.write(reduce(lambda rows, step: apply(step, rows), steps, batch))


class SparkRun:
    """One run of a pipeline."""

    def __init__(
        self, assembly: Assembly, session: Any, progress: Progress, rows_per_batch: int = ROWS_PER_BATCH
    ) -> None:
        self._assembly = assembly
        self._pipeline = assembly.pipeline
        self._progress = progress
        self._rows_per_batch = rows_per_batch
        self._session = session.newSession()
        for key, value in (STREAMING_CONF | PACKED_CONF | {EMPTY_BATCHES: "false"}).items():
            self._session.conf.set(key, value)
        self._session.dataSource.register(JobSource)
        self._outlets: dict[Port, Outlets] = {}
        self._feeds: dict[Port, Feed] = {}
        self.joins: dict[str, tuple[Plan, Accounting]] = {}
        self.warnings: list[str] = []
        self.state = StateBytes()
        """Of all shards and micro-batches."""

    def run(self) -> None:
        """Run every join and write every sink; on an error leave no half-written file."""
        with tempfile.TemporaryDirectory(prefix="slackwater-spark-", ignore_cleanup_errors=True) as folder:
            self._folder = Path(folder)
            sinks = []
            try:
                for node in self._pipeline.nodes:
                    if isinstance(node.config, Write):
                        (port,) = node.inputs.values()
                        root, steps = self._origin(port)
                        sink = Sink(node.config, self._assembly.schemas[port])
                        sinks.append(sink)
                        self._outlets.setdefault(root, Outlets()).sinks.append((steps, sink))
                self._progress.total(self._rows_to_read())
                for node in self._pipeline.nodes:
                    if isinstance(node.config, Read | Create) and Port(node.name) in self._outlets:
                        self._copy(Port(node.name))
                    elif isinstance(node.config, Flatten):
                        self._flatten(node)
                    elif isinstance(node.config, OperatorConfig):
                        self._join(node.name)
            except BaseException:
                for sink in sinks:
                    sink.abort()
                raise
            close_all(sinks)

    def _origin(self, port: Port) -> tuple[Port, tuple[Step, ...]]:
        """The source or join that rows come from, and the steps on their way."""
        node = self._pipeline.node(port.node)
        if isinstance(node.config, Filter | MapToFields):
            root, steps = self._origin(node.inputs["input"])
            return root, (*steps, node.config)
        return port, ()

    def _copy(self, port: Port) -> None:
        """Write a source's rows to the sinks that read it without a join."""
        job = plan_job([self._feed(port)], None, [0], self._rows_per_batch)

        def write(batch: DataFrame, number: int) -> None:
            for row in sorted(batch.toArrow().to_pylist(), key=lambda row: row["place"]):
                self._outlets[port].write(from_blob(row["blob"]))

        self._query(port.node, job, self._source(job), write)

    def _join(self, name: str) -> None:
        node, plan = self._pipeline.node(name), self._assembly.plans[name]
        partitions = min(plan.shards, self._session.sparkContext.defaultParallelism)
        self._session.conf.set("spark.sql.shuffle.partitions", str(partitions))
        feeds = [self._feed(node.inputs[label]) for label in plan.inputs]
        keys = shard_keys(plan.shards, partitions)
        job = plan_job(feeds, plan, keys, self._rows_per_batch)
        accounts: dict[int, Account] = {}
        ports = {RESULT: Port(name), LATE: Port(name, "late"), METRICS: Port(name, "metrics")}
        ports |= {SYNC: Port(name, "syncs")} if "syncs" in plan.side_outputs else {}
        ports |= {PUNCTUATION: Port(name, "punctuations")} if "punctuations" in plan.side_outputs else {}
        with ExitStack() as kept:
            for port in ports.values():
                self._keep(port, kept)
            given = Counter({port.output: 0 for port in ports.values() if port in self._outlets})

            def write(batch: DataFrame, number: int) -> None:
                for shard, kind, blob in _in_order(batch.toArrow()):
                    if kind == ACCOUNT:
                        accounts[shard] = read_account(plan, blob.to_pybytes())
                        self.state = self.state.plus(accounts[shard].state)
                    elif (port := ports[kind]) in self._outlets:
                        rows = from_blob(blob)
                        given[port.output] += rows.num_rows
                        self._outlets[port].write(rows)

            joined, _ = observe(join_packed(self._source(job), plan, keys), name)
            self._query(name, job, joined, write)
        whole = total(plan.inputs, (account.accounting for account in accounts.values()))
        self.joins[name] = (plan, whole)
        settle(name, whole, [feed.sent(read) for feed, read in zip(feeds, read_of(name, accounts), strict=True)])
        settle_outputs(name, plan, whole, given)
        self.warnings += each_once(name, (account.warnings for account in accounts.values()))

    def _flatten(self, node: Node) -> None:
        """Put the rows of all inputs into one file for those that read them; done here, by the driver."""
        main, n = Port(node.name), len(node.inputs)
        schema = self._assembly.schemas[main]
        with ExitStack() as kept:
            self._keep(main, kept)
            for which, port in enumerate(node.inputs.values()):
                feed = self._feed(port)
                for batch in feed.read(0, feed.end) if main in self._outlets else ():
                    self._outlets[main].write(flattened(batch, schema, which, n))
                self._progress.advance(0 if feed.kept else sum(feed.sizes))

    def _keep(self, port: Port, kept: ExitStack) -> None:
        """Keep the rows of an output in a file if another query reads them; it is closed with ``kept``."""
        if any(self._origin(p)[0] == port for p in self._inner_inputs()):
            sink = Sink(Write("parquet", str(self._file(port))), self._kept_schema(port))
            kept.callback(sink.close)
            self._outlets.setdefault(port, Outlets()).sinks.append(((), sink))

    def _inner_inputs(self) -> Iterator[Port]:
        """What operators and Flatten read."""
        for node in self._pipeline.nodes:
            if isinstance(node.config, OperatorConfig | Flatten):
                yield from node.inputs.values()

    def _rows_to_read(self) -> int:
        """Rows that are read from sources, as far as they can be counted."""
        ports = [*self._outlets, *self._inner_inputs()]
        return sum(sum(self._feed(port).sizes) for port in ports if self._is_source(port))

    def _is_source(self, port: Port) -> bool:
        root, _ = self._origin(port)
        return isinstance(self._pipeline.node(root.node).config, Read | Create)

    def _feed(self, port: Port) -> Feed:
        if port not in self._feeds:
            self._feeds[port] = self._make_feed(port)
        return self._feeds[port]

    def _make_feed(self, port: Port) -> Feed:
        root, steps = self._origin(port)
        schema = self._assembly.schemas[root]
        config = self._pipeline.node(root.node).config
        if isinstance(config, Read | Create):
            return Feed(config, schema, steps, self._assembly.is_written(root))
        return Feed(Read("parquet", str(self._file(root))), self._kept_schema(root), steps, kept=True)

    def _kept_schema(self, port: Port) -> pa.Schema:
        """Columns of the file that keeps the rows of an output; what Flatten gives may have bad ones."""
        schema = self._assembly.schemas[port]
        flat = isinstance(self._pipeline.node(port.node).config, Flatten)
        return schema.append(pa.field(BAD, pa.string())) if flat else schema

    def _file(self, port: Port) -> Path:
        """Where the rows of a join's output are kept for other joins."""
        index = [node.name for node in self._pipeline.nodes].index(port.node)
        return self._folder / f"{index}{port.output}.parquet"

    def _source(self, job: Job) -> DataFrame:
        options = {"job": encode(job), "pieces": json.dumps(job.pieces())}
        return self._session.readStream.format(FORMAT).options(**options).load()

    def _query(self, name: str, job: Job, frame: DataFrame, write: Any) -> None:
        """Run a query on a job to its end; what ``write`` raises is raised here."""
        faults: list[BaseException] = []

        def guarded(batch: DataFrame, number: int) -> None:
            try:
                write(batch, number)
            except BaseException as error:
                faults.append(error)
                raise
            self._progress.advance(job.source_rows(number))

        query = (
            frame.writeStream.foreachBatch(guarded)
            .queryName(name)
            .option("checkpointLocation", str(self._folder / f"checkpoint-{len(self.joins)}-{name}"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except PySparkException:
            if faults and not isinstance(faults[0], PySparkException):
                raise faults[0] from None
            raise
        finally:
            query.stop()


def _in_order(rows: pa.Table) -> Iterator[tuple[int, str, pa.Buffer]]:
    """Yield shard, kind and blob of rows of ``packing.OUTPUT``, shard by shard, each in its order."""
    order = rows.select(["shard", "number"]).combine_chunks()
    for at in pc.sort_indices(order, [("shard", "ascending"), ("number", "ascending")]).to_pylist():
        yield rows["shard"][at].as_py(), rows["kind"][at].as_py(), rows["blob"][at].as_buffer()


def _source(config: Any) -> Read | Create:
    assert isinstance(config, Read | Create)
    return config
