"""Runs templates on Beam: in this process, or on Spark through Beam's job server.

Rows travel as Arrow batches with the hidden arrival column. What workers have for the launcher, batches for
sinks and accounts of shards, they leave in a temporary folder; so launcher and workers share a file system.
"""

from __future__ import annotations

import logging
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import apache_beam as beam
import pyarrow as pa

from slackwater.pipelines.assembly.flatten import flattened
from slackwater.pipelines.assembly.mapping import apply
from slackwater.pipelines.assembly.pipeline import Assembly, assemble
from slackwater.pipelines.cli.progress import Progress
from slackwater.pipelines.io.sinks import Sink, close_all
from slackwater.pipelines.io.source_files import skipped_data, source_files
from slackwater.pipelines.io.sources import read_batches, read_file, source_schema
from slackwater.pipelines.runners.archives import archives_of
from slackwater.pipelines.runners.beam.options import beam_runner
from slackwater.pipelines.runners.ledger import Ledger
from slackwater.pipelines.runners.live_run import refuse_live
from slackwater.pipelines.runners.summary import summarise
from slackwater.pipelines.template.graph import (
    ARRIVAL,
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
from slackwater.pipelines.template.reader import node_error
from slackwater.transforms.beam import ArrowJoin
from slackwater.transforms.beam.spool import Spool, SpoolAccounts, SpoolBatches, leave_count
from slackwater.transforms.errors import ConfigError, SlackwaterError
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.settings.plan import Plan

BATCH_ROWS: Final = 1 << 15
"""Rows of a batch, which is one element: small enough to travel in one message."""
_OURS: Final = re.compile(r"^slackwater\.[\w.]*Error: (.+?)(?: \[while running '.*'\])?$", re.MULTILINE)


def run(
    pipeline: Pipeline,
    *,
    spark: bool = False,
    progress: Progress | None = None,
    options: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Run a template on Beam; return the summary.

    Args:
        pipeline: what ``read_template`` returned.
        spark: run on Spark through Beam's job server instead of in this process.
        progress: told of the rows once they have been joined.
        options: pipeline options of Beam by name.
    """
    refuse_live(pipeline, "beam-spark" if spark else "beam")
    started = time.perf_counter()
    runner, settings, warnings = beam_runner(options or {}, spark)
    assembly = assemble(pipeline, schema_of_source)
    warnings += skipped_data(pipeline)
    _refuse_unordered(assembly)
    with (
        archives_of(assembly),
        tempfile.TemporaryDirectory(prefix="slackwater-") as folder,
        _Sinks(assembly) as sinks,
    ):
        spool = Spool(Path(folder))
        job = beam.Pipeline(runner=runner, options=settings)
        Builder(job, assembly, spool).build()
        _execute(job)
        sinks.fill(spool)
        ledger = Ledger(pipeline)
        joins: dict[str, tuple[Plan, Accounting]] = {}
        for name, plan in assembly.plans.items():
            accounting, noted, given = spool.account(name, plan.inputs)
            joins[name] = plan, accounting
            warnings += noted
            for output, rows in given.items():
                ledger.give(Port(name, "" if output == "out" else output), rows)
        for node in pipeline.nodes:
            if isinstance(node.config, Read | Create):
                ledger.give(Port(node.name), spool.counted(node.name))
            elif isinstance(node.config, Filter):
                ledger.drop(node.name, spool.counted(node.name))
        ledger.settle(joins, sinks.rows)
    summary = summarise("beam-spark" if spark else "beam", joins, time.perf_counter() - started, warnings)
    if progress is not None:
        progress.advance(sum(summary["input"].values()))
    return summary


def schema_of_source(node: Node) -> pa.Schema:
    assert isinstance(node.config, Read | Create)
    return source_schema(node.config)


def _refuse_unordered(assembly: Assembly) -> None:
    """Raise where a join reads what several shards wrote: that has no order over all of them."""
    for name, plan in assembly.plans.items():
        node = assembly.pipeline.node(name)
        if plan.arrival_columns is not None:
            continue
        for label, port in node.inputs.items():
            for origin in assembly.origins(port):
                upstream = assembly.plans.get(origin.name)
                if upstream is not None and upstream.shards > 1:
                    fault = (
                        f"input {label!r} comes from {origin.name!r}, which has several shards, so its rows have "
                        "no order of arrival; use shards: 1 there, or name an arrival column here"
                    )
                    raise node_error(node, ConfigError(fault, "input"))


def _execute(job: beam.Pipeline) -> None:
    """Run to the end; an error of ours in a worker is raised as such, with its text alone."""
    try:
        with _quiet():
            job.run().wait_until_finish()
    except SlackwaterError:
        raise
    except Exception as error:
        found = _OURS.findall(str(error))
        if not found:
            raise
        raise SlackwaterError(found[-1]) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the engine's log from the user, unless debugging is on."""
    level = logging.root.manager.disable
    if not logging.getLogger().isEnabledFor(logging.DEBUG):
        logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(level)


class _Sinks:
    """The files that a run writes: opened before it, given their names after it, gone if it fails."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._open: dict[str, tuple[Sink, list[str]]] = {}

    def __enter__(self) -> _Sinks:
        with ExitStack() as undo:
            undo.callback(self._abort)
            for node in self._assembly.pipeline.nodes:
                if isinstance(node.config, Write):
                    schema = self._assembly.input_schema(node)
                    self._open[node.name] = Sink(node.config, schema), schema.names
            undo.pop_all()
        return self

    @property
    def rows(self) -> dict[str, int]:
        """Rows that each has written."""
        return {name: sink.rows for name, (sink, _) in self._open.items()}

    def fill(self, spool: Spool) -> None:
        """Write what the workers left."""
        for name, (sink, columns) in self._open.items():
            for batch in spool.batches(name):
                sink.write(batch.select(columns))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._abort()
            return
        close_all([sink for sink, _ in self._open.values()])

    def _abort(self) -> None:
        for sink, _columns in self._open.values():
            sink.abort()


class Builder:
    """Makes the Beam pipeline: one step per node, called as the node."""

    def __init__(self, job: beam.Pipeline, assembly: Assembly, spool: Spool) -> None:
        self._job, self._assembly, self._spool = job, assembly, spool
        self._ports: dict[Port, beam.PCollection] = {}

    def build(self) -> None:
        for node in self._assembly.pipeline.nodes:
            self._add(node)

    def _add(self, node: Node) -> None:
        main = Port(node.name)
        inputs = {label: self._ports[port] for label, port in node.inputs.items()}
        match node.config:
            case Read() | Create() as config:
                folder, strict = self._spool.folder(node.name), self._assembly.is_written(main)
                source = ReadBatches(config, self._assembly.schemas[main], strict, folder)
                self._ports[main] = self._job | node.name >> source
            case Filter() | MapToFields() as config:
                step = beam.Map(_applied, config, self._spool.folder(node.name))
                step = step.with_output_types(pa.RecordBatch)
                self._ports[main] = inputs["input"] | node.name >> step
            case Flatten():
                schema, n = self._assembly.schemas[main], len(inputs)
                parts = []
                for label, rows in inputs.items():
                    step = beam.Map(flattened, schema, int(label), n).with_output_types(pa.RecordBatch)
                    parts.append(rows | f"{node.name} {label}" >> step)
                self._ports[main] = tuple(parts) | node.name >> beam.Flatten()
            case Write():
                inputs["input"] | node.name >> beam.ParDo(SpoolBatches(self._spool.folder(node.name)))
            case _:
                plan = self._assembly.plans[node.name]
                outputs = inputs | node.name >> ArrowJoin(plan)
                self._ports[main] = outputs["out"]
                for output in plan.side_outputs:
                    self._ports[Port(node.name, output)] = outputs[output]
                accounts = beam.ParDo(SpoolAccounts(self._spool.folder(node.name)))
                outputs["accounting"] | f"Account of {node.name}" >> accounts


def _applied(batch: pa.RecordBatch, config: Filter | MapToFields, folder: str) -> pa.RecordBatch:
    """Return what a step makes of a batch; what Filter drops of it is counted."""
    rows = apply(config, batch)
    if isinstance(config, Filter) and rows.num_rows < batch.num_rows:
        leave_count(folder, batch.column(ARRIVAL)[0].as_py(), batch.num_rows - rows.num_rows)
    return rows


class ReadBatches(beam.PTransform):  # type: ignore[misc, unused-ignore]
    """Reads a source as Arrow batches with arrival numbers; files may be read in parallel.

    How many rows each file has is left in ``folder``.
    """

    def __init__(self, config: Read | Create, schema: pa.Schema, strict: bool, folder: str) -> None:
        super().__init__()
        self._config, self._schema, self._strict, self._folder = config, schema, strict, folder

    def expand(self, pbegin: Any) -> Any:
        if isinstance(self._config, Create):
            values = beam.FlatMap(_created, self._config, self._schema, self._folder)
            return pbegin | "Start" >> beam.Impulse() | "Read" >> values.with_output_types(pa.RecordBatch)
        files = list(enumerate(source_files(self._config)))
        read = beam.FlatMap(_read, self._config, self._schema, self._strict, self._folder)
        return pbegin | "Files" >> beam.Create(files) | "Read" >> read.with_output_types(pa.RecordBatch)


def _created(_: bytes, config: Create, schema: pa.Schema, folder: str) -> Iterator[pa.RecordBatch]:
    yield from _counted(read_batches(config, schema), folder, 0)


def _read(
    file: tuple[int, str], config: Read, schema: pa.Schema, strict: bool, folder: str
) -> Iterator[pa.RecordBatch]:
    number, name = file
    batches = read_file(config, name, number, schema, strict=strict, batch_rows=BATCH_ROWS)
    yield from _counted(batches, folder, number)


def _counted(batches: Iterator[pa.RecordBatch], folder: str, number: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a file; leave the number of their rows when all have been read."""
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        yield batch
    leave_count(folder, number, rows)
