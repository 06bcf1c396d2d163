"""A pipeline bound to its sources: the columns at every point, and a plan for every join."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from slackwater.pipelines.graph import ARRIVAL, Create, Filter, MapToFields, Node, Pipeline, Port, Read, Write
from slackwater.pipelines.template import TemplateError, node_error
from slackwater.transforms.config import JoinConfig, ReorderConfig
from slackwater.transforms.errors import ConfigError, SlackwaterError
from slackwater.transforms.plan import LATE_SCHEMA, METRICS_SCHEMA, JoinPlan, bind
from slackwater.transforms.reordering import bind_reorder

JSON_SCHEMA: Final = pa.schema([("json", pa.string())])
"""Columns of a join's punctuations."""


@dataclass(frozen=True)
class Assembly:
    """What is known of a pipeline once its sources have been looked at."""

    pipeline: Pipeline
    schemas: dict[Port, pa.Schema]
    """Columns of every output, without the hidden arrival column."""
    plans: dict[str, JoinPlan]
    """The plan of every join, by the node's name."""

    def read_by_joins(self, source: Node) -> tuple[set[str], set[str]]:
        """Event-time and arrival columns that joins read from a source, directly or through filters."""
        times: set[str] = set()
        arrivals: set[str] = set()
        ports = [Port(source.name)]
        while ports:
            port = ports.pop()
            for consumer in self.pipeline.consumers(port):
                if isinstance(consumer.config, Filter):
                    ports.append(Port(consumer.name))
                plan = self.plans.get(consumer.name)
                if plan is not None:
                    for i, read in enumerate(consumer.inputs.values()):
                        if read == port:
                            times.add(plan.time_columns[i])
                            arrivals |= {plan.arrival_columns[i]} if plan.arrival_columns else set()
        return times, arrivals

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
    plans: dict[str, JoinPlan] = {}
    for node in pipeline.nodes:
        inputs = {label: schemas[port] for label, port in node.inputs.items()}
        try:
            _add(node, inputs, schema_of_source, schemas, plans)
        except ConfigError as error:
            raise node_error(node, error) from None
        except TemplateError:
            raise
        except SlackwaterError as error:
            path = ("path",) if isinstance(node.config, Read) else ()
            raise node_error(node, ConfigError(str(error), *path)) from None
    return Assembly(pipeline, schemas, plans)


def _add(
    node: Node,
    inputs: dict[str, pa.Schema],
    schema_of_source: Callable[[Node], pa.Schema],
    schemas: dict[Port, pa.Schema],
    plans: dict[str, JoinPlan],
) -> None:
    main = Port(node.name)
    match node.config:
        case Read() | Create():
            schema = schema_of_source(node)
            schemas[main] = pa.schema([field for field in schema if field.name != ARRIVAL])
        case Filter() | MapToFields() as config:
            # It needs pyarrow.compute, a tenth of the start-up time of a template without expressions.
            from slackwater.pipelines.expressions import applied_schema

            schemas[main] = applied_schema(config, inputs["input"])
        case JoinConfig() | ReorderConfig() as config:
            plan = bind(config, inputs) if isinstance(config, JoinConfig) else bind_reorder(config, inputs)
            plans[node.name] = plan
            schemas[main] = plan.result_schema
            schemas[Port(node.name, "late")] = LATE_SCHEMA
            schemas[Port(node.name, "punctuations")] = JSON_SCHEMA
            schemas[Port(node.name, "metrics")] = METRICS_SCHEMA
        case Write():
            pass
