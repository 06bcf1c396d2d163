"""Limits of Beam's runners: what each cannot do, and how transforms refuse it or work around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from slackwater.transforms.errors import ConfigError

STREAMING_ON_SPARK: Final = (
    "Beam's Spark runner keeps no state by key in streaming and would give wrong results without an error; run a "
    "template with --runner spark, use slackwater.transforms.spark, or read bounded input"
)


def is_spark(options: PipelineOptions, runner: object = None) -> bool:
    """Whether a pipeline runs on Beam's Spark runner, as far as its options and its runner tell."""
    named = str(options.view_as(StandardOptions).runner or "").rpartition(".")[2].lower()
    return named in ("spark", "sparkrunner") or type(runner).__name__ == "SparkRunner"


def refuse_streaming_on_spark(inputs: Mapping[str, beam.PCollection]) -> None:
    """Raise ConfigError where a stateful step would run in streaming on Beam's Spark runner."""
    for name, rows in inputs.items():
        options = rows.pipeline.options
        if not is_spark(options, rows.pipeline.runner):
            continue
        if not rows.is_bounded:
            raise ConfigError(f"input {name!r} is unbounded: {STREAMING_ON_SPARK}", "input")
        if options.view_as(StandardOptions).streaming:
            raise ConfigError(f"the pipeline runs with --streaming: {STREAMING_ON_SPARK}", "input")


def timers_come_too_late(rows: beam.PCollection) -> bool:
    """Whether the runner ends what comes behind a step before a timer of the step has given its rows."""
    return type(rows.pipeline.runner).__name__ == "BundleBasedDirectRunner"
