"""Live runs, of templates that read from Kafka: they do not end by themselves, and not every runner has them."""

from __future__ import annotations

from slackwater.pipelines.graph import Pipeline, ReadKafka, Write, WriteKafka
from slackwater.pipelines.template import node_error
from slackwater.transforms.errors import ConfigError


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
