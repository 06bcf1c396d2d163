"""Live runs, of templates that read from Kafka: they do not end by themselves, and not every runner has them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from slackwater.pipelines.template.graph import (
    Filter,
    MapToFields,
    Node,
    Pipeline,
    Port,
    ReadKafka,
    Write,
    WriteKafka,
)
from slackwater.pipelines.template.kafka import ARRIVAL
from slackwater.pipelines.template.reader import TemplateError, node_error
from slackwater.transforms.errors import ConfigError
from slackwater.transforms.settings.clock_units import in_nanoseconds
from slackwater.transforms.settings.models import ChooseValuesConfig, DisorderConfig, OperatorConfig, ShedConfig

Step = Filter | MapToFields


def is_live(pipeline: Pipeline) -> bool:
    """Whether a template reads from Kafka."""
    return any(isinstance(node.config, ReadKafka) for node in pipeline.nodes)


def needed_checkpoint(folder: str | None) -> str:
    """Return the folder; raise if there is none."""
    if folder is None:
        raise ConfigError(
            "a run that reads from Kafka needs a folder from which it goes on when it is started again; name one",
            "--checkpoint",
        )
    return folder


def refuse_live(pipeline: Pipeline, runner: str) -> None:
    """Raise TemplateError where a template reads from or writes to Kafka, for runners that run to an end."""
    for node in pipeline.nodes:
        if isinstance(node.config, ReadKafka):
            fault = f"reads from Kafka, which runner {runner} cannot; use --runner spark, or read a file"
            raise node_error(node, ConfigError(fault))
        if isinstance(node.config, WriteKafka):
            fault = f"writes to Kafka what does not come from there, which runner {runner} cannot; write a file"
            raise node_error(node, ConfigError(fault))


def prepared(pipeline: Pipeline) -> Pipeline:
    """Return a template as it runs: one that reads from Kafka is checked, and takes rows as Kafka got them.

    Raises:
        TemplateError: A live run would refuse it.
    """
    if not is_live(pipeline):
        return pipeline
    check_live(pipeline)
    nodes = []
    for node in pipeline.nodes:
        config = node.config
        if isinstance(config, OperatorConfig) and getattr(config, "arrival", "") is None:
            config = config.model_copy(update={"arrival": ARRIVAL, **_in_nanoseconds(config)})
        nodes.append(replace(node, config=config))
    return replace(pipeline, nodes=tuple(nodes))


def _in_nanoseconds(config: OperatorConfig) -> dict[str, Any]:
    """Return what becomes of settings that have a unit of times of arrival: Kafka's are nanoseconds."""
    if isinstance(config, DisorderConfig):
        return {"disorder": in_nanoseconds(config.disorder)}
    if isinstance(config, ShedConfig) and config.arrival_unit is None:
        return {"arrival_unit": "ns"}
    return {}


def check_live(pipeline: Pipeline) -> None:
    """Raise TemplateError where a template that reads from Kafka has what only runs to an end can do."""
    for node in pipeline.nodes:
        config = node.config
        if isinstance(config, Write) and config.format != "parquet":
            fault = "writes one file when a run ends, and a live run does not; write Parquet or to Kafka"
            raise node_error(node, ConfigError(fault))
        if not node.inputs and not isinstance(config, ReadKafka):
            fault = "ends, and what reads from Kafka does not; send its rows to a topic, or run without Kafka"
            raise node_error(node, ConfigError(fault))
        if isinstance(config, ChooseValuesConfig):
            fault = "chooses when its inputs have ended, and what reads from Kafka does not; read files"
            raise node_error(node, ConfigError(fault))
        if getattr(config, "archive", None) is not None:
            fault = "is complete when the inputs end, and what reads from Kafka does not; leave it off"
            raise node_error(node, ConfigError(fault, "archive"))
    operator = only_operator(pipeline)
    for node in pipeline.nodes:
        if isinstance(node.config, Write | WriteKafka):
            (port,) = node.inputs.values()
            if origin(pipeline, port)[0].node != operator.name:
                fault = "reads a topic without an operator between, which a live run has no use for; remove it"
                raise node_error(node, ConfigError(fault, "input"))


def only_operator(pipeline: Pipeline) -> Node:
    """Return the operator of a live run; raise unless there is one, that reads topics."""
    found = [node for node in pipeline.nodes if isinstance(node.config, OperatorConfig)]
    for node in found:
        for port in node.inputs.values():
            origin(pipeline, port)
    if len(found) != 1:
        names = ", ".join(node.name for node in found) or "none"
        fault = (
            f"a live run has one operator between Kafka and its sinks, and this template has {names}; let a "
            "second template read from a topic that the first one writes"
        )
        raise TemplateError(pipeline.file, None, fault)
    return found[0]


def origin(pipeline: Pipeline, port: Port) -> tuple[Port, tuple[Step, ...]]:
    """Return the topic or operator that rows come from, and the steps on their way."""
    node = pipeline.node(port.node)
    if isinstance(node.config, Filter | MapToFields):
        root, steps = origin(pipeline, node.inputs["input"])
        return root, (*steps, node.config)
    if not isinstance(node.config, ReadKafka | OperatorConfig):
        fault = (
            "cannot be in a live run; read several topics by several inputs, or with slackwater.transforms.spark"
        )
        raise node_error(node, ConfigError(fault))
    return port, ()
