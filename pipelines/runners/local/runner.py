"""The embedded runner: one process, no JVM, reading, joining and writing side by side.

Batches are pushed from sources through the graph to sinks. Which source is read next is decided by demand:
a join asks for the input that is furthest behind in arrival order, so no more is held than the merge needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from slackwater.pipelines.assembly.flatten import flattened
from slackwater.pipelines.assembly.mapping import apply
from slackwater.pipelines.assembly.pipeline import Assembly, assemble
from slackwater.pipelines.cli.progress import Progress
from slackwater.pipelines.io.sinks import Sink, close_all
from slackwater.pipelines.io.source_files import skipped_data
from slackwater.pipelines.io.sources import read_batches, source_schema
from slackwater.pipelines.runners.archives import archives_of
from slackwater.pipelines.runners.ledger import Ledger
from slackwater.pipelines.runners.live_run import refuse_live
from slackwater.pipelines.runners.local.stage import Emit, OperatorStage
from slackwater.pipelines.runners.local.threads import Background, Prefetch
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
from slackwater.transforms.arrival.order import Numbering, in_order
from slackwater.transforms.engine.frontier import NOTHING_YET
from slackwater.transforms.output.accounting import Accounting
from slackwater.transforms.settings.plan import Plan


class Stage(Protocol):
    """A node at work: takes batches on its labelled inputs and emits batches."""

    def push(self, label: str, batch: pa.RecordBatch) -> None: ...

    def end(self, label: str) -> None: ...


def run(pipeline: Pipeline, *, progress: Progress | None = None) -> dict[str, Any]:
    """Run a template in this process; return the summary."""
    refuse_live(pipeline, "local")
    started = time.perf_counter()
    local = LocalRun(pipeline, progress)
    local.run()
    warnings = skipped_data(pipeline)
    warnings += [warning for stage in local.joins.values() for warning in stage.warnings()]
    summary = summarise("local", local.accounts, time.perf_counter() - started, warnings)
    summary["busy_s"] = {part: round(seconds, 6) for part, seconds in local.busy().items()}
    return summary


class LocalRun:
    """One run of a pipeline."""

    def __init__(self, pipeline: Pipeline, progress: Progress | None = None) -> None:
        self._pipeline = pipeline
        self._progress = progress
        self._assembly: Assembly = assemble(pipeline, lambda node: source_schema(_source(node)))
        self._stages: dict[str, Stage] = {}
        self._sources: dict[str, Prefetch[pa.RecordBatch]] = {}
        self._live: set[str] = set()
        self.joins: dict[str, OperatorStage] = {}
        self._followers: list[OperatorStage] = []
        """Those that read several outputs of one operator, which come equally far with every batch."""
        self._consumers: dict[Port, list[tuple[Stage, str]]] = {}
        self._ledger = Ledger(pipeline)
        self.accounts: dict[str, tuple[Plan, Accounting]] = {}
        """Plan and account of every operator, once it has run."""

    def run(self) -> None:
        """Read every source to its end and close every sink; on an error leave no half-written file."""
        with archives_of(self._assembly):
            try:
                with ExitStack() as stack:
                    self._build(stack)
                    self._read_all()
                self._settle()
                close_all([stage.sink for stage in self._stages.values() if isinstance(stage, SinkStage)])
            except BaseException:
                for stage in self._stages.values():
                    if isinstance(stage, SinkStage):
                        stage.abort()
                raise

    def _read_all(self) -> None:
        while (name := self._next_source()) is not None:
            batch = next(self._sources[name], None)
            if batch is None:
                self._live.discard(name)
                self._end(Port(name))
            else:
                if self._progress is not None:
                    self._progress.advance(batch.num_rows)
                self._emit(Port(name), batch)
                for follower in self._followers:
                    follower.level()

    def _settle(self) -> None:
        """Raise unless every row that was read is accounted for, and all output is written."""
        self.accounts = {name: (stage.plan, stage.accounting()) for name, stage in self.joins.items()}
        sinks = {name: stage.rows for name, stage in self._stages.items() if isinstance(stage, SinkStage)}
        self._ledger.settle(self.accounts, sinks)

    def busy(self) -> dict[str, float]:
        """Seconds that each part of the work took; parts overlap."""
        shards = [seconds for stage in self.joins.values() for seconds in stage.seconds]
        parts = {"read": sum(source.busy_s for source in self._sources.values())}
        for part in ("adapt", "kernel", "materialise"):
            parts[part] = sum(seconds[part] for seconds in shards)
        parts["write"] = sum(s.busy_s for s in self._stages.values() if isinstance(s, SinkStage))
        return parts

    def _build(self, stack: ExitStack) -> None:
        for node in self._pipeline.nodes:
            if isinstance(node.config, Read | Create):
                batches = self._source_batches(node, node.config)
                source = Prefetch(batches)
                stack.callback(source.close)
                self._sources[node.name] = source
                self._live.add(node.name)
                continue
            stage = self._stage(node)
            self._stages[node.name] = stage
            for label, port in node.inputs.items():
                self._consumers.setdefault(port, []).append((stage, label))

    def _stage(self, node: Node) -> Stage:
        config = node.config
        if isinstance(config, Write):
            (port,) = node.inputs.values()
            return SinkStage(config, self._assembly.schemas[port])
        if isinstance(config, Filter | MapToFields):
            return MapStage(config, Port(node.name), self._emit, self._end, self._ledger)
        if isinstance(config, Flatten):
            return FlattenStage(node, self._assembly.schemas[Port(node.name)], self._emit, self._end)
        plan = self._assembly.plans[node.name]
        stage = OperatorStage(node.name, plan, self._held(node, plan), self._emit, self._end)
        self.joins[node.name] = stage
        if not any(Port(node.name, "late") in other.inputs.values() for other in self._pipeline.nodes):
            stage.drop_late()
        if plan.by_time:
            origins = {origin.name for port in node.inputs.values() for origin in self._assembly.origins(port)}
            if len(origins) == 1 and origins <= self.joins.keys():
                self._followers.append(stage)
        return stage

    def _held(self, node: Node, plan: Plan) -> frozenset[str]:
        """Inputs that have to be sorted."""
        inputs, ordered = node.inputs.items(), self._assembly.in_time_order
        if plan.by_time:
            timed = zip(inputs, plan.time_columns, strict=True) if plan.order_matters else ()
            return frozenset(label for (label, port), column in timed if not ordered(port, column))
        if plan.arrival_columns is None:
            return frozenset()
        return frozenset(label for label, port in inputs if not self._assembly.keeps_order(port))

    def _source_batches(self, node: Node, config: Read | Create) -> Iterator[pa.RecordBatch]:
        schema = self._assembly.schemas[Port(node.name)]
        _, arrivals = self._assembly.read_by_joins(node)
        rows = read_batches(config, schema, strict=self._assembly.is_written(Port(node.name)))
        batches = self._counted(Port(node.name), rows)
        for column, read in arrivals.items():
            if isinstance(config, Create) or not _is_sorted(config, schema.field(column), Numbering(*read)):
                return _sorted_by(batches, Numbering(*read))
        return batches

    def _counted(self, port: Port, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self._ledger.give(port, batch.num_rows)
            yield batch

    def _emit(self, port: Port, batch: pa.RecordBatch) -> None:
        if port.node in self.joins:
            self._ledger.give(port, batch.num_rows)
        for stage, label in self._consumers.get(port, ()):
            stage.push(label, batch)

    def _end(self, port: Port) -> None:
        for stage, label in self._consumers.get(port, ()):
            stage.end(label)

    def _next_source(self) -> str | None:
        """The source to read next: what a sink needs most, else any that is left."""
        for node in self._pipeline.nodes:
            if isinstance(node.config, Write):
                (port,) = node.inputs.values()
                wanted = self._wanted(port)
                if wanted is not None:
                    return wanted
        for name in self.joins:
            wanted = self._wanted(Port(name))
            if wanted is not None:
                return wanted
        return None

    def _wanted(self, port: Port) -> str | None:
        if port.node in self._sources:
            return port.node if port.node in self._live else None
        node = self._pipeline.node(port.node)
        stage = self._stages[port.node]
        labels = stage.most_behind() if isinstance(stage, OperatorStage) else list(node.inputs)
        return next(filter(None, (self._wanted(node.inputs[label]) for label in labels)), None)


class MapStage:
    """Filter or MapToFields, batch by batch."""

    def __init__(
        self,
        config: Filter | MapToFields,
        port: Port,
        emit: Emit,
        end: Callable[[Port], None],
        ledger: Ledger,
    ) -> None:
        self._config, self._port, self._emit, self._end = config, port, emit, end
        self._ledger = ledger

    def push(self, label: str, batch: pa.RecordBatch) -> None:
        rows = apply(self._config, batch)
        if isinstance(self._config, Filter):
            self._ledger.drop(self._port.node, batch.num_rows - rows.num_rows)
        self._emit(self._port, rows)

    def end(self, label: str) -> None:
        self._end(self._port)


class FlattenStage:
    """Passes on the rows of all inputs as they come."""

    def __init__(self, node: Node, schema: pa.Schema, emit: Emit, end: Callable[[Port], None]) -> None:
        self._port, self._schema, self._emit, self._end = Port(node.name), schema, emit, end
        self._inputs = len(node.inputs)
        self._open = set(node.inputs)

    def push(self, label: str, batch: pa.RecordBatch) -> None:
        self._emit(self._port, flattened(batch, self._schema, int(label), self._inputs))

    def end(self, label: str) -> None:
        self._open.discard(label)
        if not self._open:
            self._end(self._port)


class SinkStage:
    """Writes in the background; the file appears under its name when the whole run has succeeded."""

    def __init__(self, config: Write, schema: pa.Schema) -> None:
        self.sink = Sink(config, schema)
        self._names = schema.names
        self._writer = Background(self.sink.write)
        self._closed = False

    @property
    def busy_s(self) -> float:
        """Seconds spent writing."""
        return self._writer.busy_s

    @property
    def rows(self) -> int:
        """Rows that have been written."""
        return self.sink.rows

    def push(self, label: str, batch: pa.RecordBatch) -> None:
        self._writer.put(batch.select(self._names) if ARRIVAL in batch.schema.names else batch)

    def end(self, label: str) -> None:
        self._closed = True
        self._writer.close()

    def abort(self) -> None:
        """Leave no file behind."""
        if not self._closed:
            # The error that led here is the one to report.
            with suppress(Exception):
                self._writer.close()
        self.sink.abort()


def _source(node: Node) -> Read | Create:
    assert isinstance(node.config, Read | Create)
    return node.config


def _is_sorted(config: Read, column: pa.Field, numbering: Numbering) -> bool:
    """Whether rows come in order of arrival over the files of a source; reads this column only."""
    last = NOTHING_YET
    for batch in read_batches(config, pa.schema([column])):
        numbers = numbering.number(batch)
        if numbers.size and (int(numbers[0]) < last or not in_order(numbers)):
            return False
        last = int(numbers[-1]) if numbers.size else last
    return True


def _sorted_by(batches: Iterator[pa.RecordBatch], numbering: Numbering) -> Iterator[pa.RecordBatch]:
    """Read everything and yield it in order of arrival: for files that are not."""
    table = pa.Table.from_batches(list(batches))
    numbers = [numbering.number(batch) for batch in table.to_batches()]
    order = pa.array(np.argsort(np.concatenate(numbers), kind="stable"))
    yield from table.take(order).combine_chunks().to_batches(1 << 17)
