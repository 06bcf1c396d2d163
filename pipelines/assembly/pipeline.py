"""A pipeline bound to its sources: the columns at every point, and a plan for every join."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from slackwater.pipelines.assembly.paths import check_paths
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
    ReadKafka,
    Write,
    WriteKafka,
)
from slackwater.pipelines.template.kafka import kafka_schema
from slackwater.pipelines.template.reader import TemplateError, node_error
from slackwater.transforms.errors import ConfigError, SlackwaterError
from slackwater.transforms.expressions.tree import Col
from slackwater.transforms.operators.registry import operator_of
from slackwater.transforms.settings.models import OperatorConfig
from slackwater.transforms.settings.plan import JoinPlan, Plan


@dataclass(frozen=True)
class Assembly:
    """What is known of a pipeline once its sources have been looked at."""

    pipeline: Pipeline
    schemas: dict[Port, pa.Schema]
    """Columns of every output, without the hidden arrival column."""
    plans: dict[str, Plan]
    """The plan of every join, by the node's name."""

    def read_by_joins(self, source: Node) -> tuple[set[str], dict[str, tuple[Plan, int]]]:
        """Event-time and arrival columns that joins read from a source, directly or through filters.

        With each arrival column comes a join that reads it, and the number of the input.
        """
        times: set[str] = set()
        arrivals: dict[str, tuple[Plan, int]] = {}
        ports, seen = [Port(source.name)], set[Port]()
        while ports:
            port = ports.pop()
            if port in seen:
                continue
            seen.add(port)
            for consumer in self.pipeline.consumers(port):
                if isinstance(consumer.config, Filter | Flatten):
                    ports.append(Port(consumer.name))
                plan = self.plans.get(consumer.name)
                if plan is not None:
                    for label, read in consumer.inputs.items():
                        if read == port:
                            i = plan.inputs.index(label)
                            times.add(plan.time_columns[i])
                            if plan.arrival_columns:
                                arrivals[plan.arrival_columns[i]] = plan, i
        return times, arrivals

    def is_written(self, port: Port) -> bool:
        """Whether a sink gets the rows of an output without an operator, and its late output, on the way."""
        waiting, seen = [port], {port}
        while waiting:
            for consumer in self.pipeline.consumers(waiting.pop()):
                after = Port(consumer.name)
                if isinstance(consumer.config, Write | WriteKafka):
                    return True
                if isinstance(consumer.config, Filter | MapToFields | Flatten) and after not in seen:
                    waiting.append(after)
                    seen.add(after)
        return False

    def origins(self, port: Port) -> Iterator[Node]:
        """Yield the sources and operators that rows come from, and every Flatten on the way."""
        waiting, seen = [port], {port}
        while waiting:
            node = self.pipeline.node(waiting.pop().node)
            passes = isinstance(node.config, Filter | MapToFields | Flatten)
            if not passes or isinstance(node.config, Flatten):
                yield node
            before = [port for port in reversed(node.inputs.values()) if passes and port not in seen]
            waiting += before
            seen |= set(before)

    def keeps_order(self, port: Port) -> bool:
        """Whether rows come in an order of their own: not what Flatten puts together, or several shards write."""
        for node in self.origins(port):
            plan = self.plans.get(node.name)
            if isinstance(node.config, Flatten) or (plan is not None and plan.shards > 1):
                return False
        return True

    def in_time_order(self, port: Port, column: str) -> bool:
        """Whether the embedded runner is given rows in order of this column."""
        node = self.pipeline.node(port.node)
        while isinstance(node.config, Filter):
            port = node.inputs["input"]
            node = self.pipeline.node(port.node)
        match node.config:
            case MapToFields(fields=fields):
                before = node.inputs["input"]
                kept = column not in fields or fields[column] == Col(None, column)
                # Sources are read in the order of a column that is used as it stands in them.
                return kept and before.node in self.plans and self.in_time_order(before, column)
            case Read() | Create():
                return True
            case OperatorConfig():
                plan = self.plans[node.name]
                time = "ts" if port.output else plan.result_time
                return plan.shards == 1 and column == time and plan.in_time_order(port.output)
            case _:
                return False

    def input_schema(self, node: Node, label: str = "input") -> pa.Schema:
        """Columns of what a node reads."""
        return self.schemas[node.inputs[label]]


def assemble(pipeline: Pipeline, schema_of_source: Callable[[Node], pa.Schema]) -> Assembly:
    """Work out the columns of every output and bind every join.

    Args:
        pipeline: what ``read_template`` returned.
        schema_of_source: the columns of a Read or Create node; may raise SlackwaterError.

    Raises:
        TemplateError: A source cannot be read, or a setting does not fit the columns that are there.
    """
    schemas: dict[Port, pa.Schema] = {}
    plans: dict[str, Plan] = {}
    for node in pipeline.nodes:
        inputs = {label: schemas[port] for label, port in node.inputs.items()}
        try:
            equal = _equal_columns(pipeline, node, plans)
            _add(node, inputs, schema_of_source, schemas, plans, equal)
        except ConfigError as error:
            raise node_error(node, error) from None
        except TemplateError:
            raise
        except SlackwaterError as error:
            path = ("path",) if isinstance(node.config, Read) else ()
            raise node_error(node, ConfigError(str(error), *path)) from None
        except OSError as error:
            fault = f"cannot be read: {error.strerror or error}; check the path"
            raise node_error(node, ConfigError(fault, "path")) from None
        except RecursionError:
            raise node_error(node, ConfigError("is nested too deeply; write it flatter")) from None
    check_paths(pipeline)
    assembly = Assembly(pipeline, schemas, plans)
    for name, plan in plans.items():
        _check_order(assembly, pipeline.node(name), plan)
    return assembly


def _add(
    node: Node,
    inputs: dict[str, pa.Schema],
    schema_of_source: Callable[[Node], pa.Schema],
    schemas: dict[Port, pa.Schema],
    plans: dict[str, Plan],
    equal: list[list[str]],
) -> None:
    main = Port(node.name)
    match node.config:
        case ReadKafka() as config:
            schemas[main] = kafka_schema(config)
        case Read() | Create():
            schema = schema_of_source(node)
            schemas[main] = pa.schema([field for field in schema if field.name != ARRIVAL])
        case Filter() | MapToFields() as config:
            # It needs pyarrow.compute, a tenth of the start-up time of a template without expressions.
            from slackwater.pipelines.assembly.mapping import applied_schema

            schemas[main] = applied_schema(config, inputs["input"])
        case Flatten():
            schemas[main] = _flattened_schema(node, inputs)
        case OperatorConfig() as config:
            plan = operator_of(config).bind(config, inputs, equal)
            plans[node.name] = plan
            for output in ("", *plan.side_outputs):
                schemas[Port(node.name, output)] = plan.output_schema(output)
        case Write() | WriteKafka():
            pass


def _equal_columns(pipeline: Pipeline, node: Node, plans: dict[str, Plan]) -> list[list[str]]:
    """Columns that are equal in every row of the first input: keys of the join that it comes from."""
    port = next(iter(node.inputs.values()), None)
    while port is not None and isinstance(pipeline.node(port.node).config, Filter):
        port = pipeline.node(port.node).inputs["input"]
    plan = None if port is None or port.output else plans.get(port.node)
    return plan.equal_columns if isinstance(plan, JoinPlan) else []


def _flattened_schema(node: Node, inputs: dict[str, pa.Schema]) -> pa.Schema:
    """Columns of all inputs, in the order of the first; raise ConfigError unless they are the same."""
    (first, schema), *others = zip(map(str, node.inputs.values()), inputs.values(), strict=True)
    types = {field.name: field.type for field in schema}
    for name, other in others:
        if sorted(other.names) != sorted(schema.names):
            raise ConfigError(
                f"{name!r} has columns {', '.join(other.names)}, but {first!r} has {', '.join(schema.names)}; "
                "make them alike with MapToFields",
                "input",
            )
        for field in other:
            known = types[field.name]
            if pa.types.is_null(known):
                types[field.name] = field.type
            elif field.type != known and not pa.types.is_null(field.type):
                raise ConfigError(
                    f"column {field.name!r} of {name!r} is {field.type}, but that of {first!r} is {known}; make "
                    "them alike with MapToFields",
                    "input",
                )
    return pa.schema([pa.field(name, type_) for name, type_ in types.items()])


def _check_order(assembly: Assembly, node: Node, plan: Plan) -> None:
    """Raise where rows that Flatten put together have no column that says in which order they arrived."""
    if plan.arrival_columns is not None:
        return
    for label, port in node.inputs.items():
        for origin in assembly.origins(port):
            if isinstance(origin.config, Flatten):
                fault = (
                    f"input {label!r} comes from {origin.name!r}, and Flatten keeps no order of arrival; name an "
                    "arrival column"
                )
                raise node_error(node, ConfigError(fault, "input"))
